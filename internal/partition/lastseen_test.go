package partition

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

// What is remembered of a device is what it sent last; and what is not remembered, it did
// not send since the time that find returns. A device is forgotten only for lack of room.
func TestLastSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMicro(1_700_000_000_000_000).UTC()
		h, start := NewSeen(now, zap.NewNop()), now
		last := map[string]observation{} // everything
		devices := rapid.SampledFrom([]int{3, 1000, 4000, 9000}).Draw(t, "devices")
		number := int64(0)
		for range rapid.IntRange(1, 12).Draw(t, "batches") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "pause")) * time.Second)
			first := rapid.IntRange(0, devices).Draw(t, "first")
			for i := range rapid.IntRange(1, 800).Draw(t, "events") {
				number++
				device := fmt.Sprint("d", (first+i)%devices)
				reason := telemetry.Reason(number % telemetry.ReasonCount)
				is := read{has: reason.HasReading(), value: float64(number)}
				if reason == telemetry.ReasonNoDevice {
					device = ""
				}
				e := telemetry.Event{Device: device, Position: telemetry.Position{Sequence: number}, Enqueued: now.Add(-time.Second)}
				h.mu.Lock()
				h.add(&e, roster.Hash(e.Device), reason, &is, now.UnixMicro())
				h.mu.Unlock()
				if device == "" {
					continue
				}
				s := last[device]
				s.at = now.UnixMicro()
				switch at := e.Enqueued.UnixMicro(); {
				case reason.HasReading():
					s.failure = failure{}
				case reason != telemetry.ReasonNotTelemetry:
					s.failure.note(reason, at)
				}
				if reason.HasReading() {
					s.damagedRead = s.damagedRead || reason == telemetry.ReasonDamaged
					s.value, s.sequence, s.enqueued, s.read = float64(number), number, now.Add(-time.Second).UnixMicro(), true
				} else if reason != telemetry.ReasonNotTelemetry || !s.read && s.reason == telemetry.ReasonOK {
					s.damagedRead = s.damagedRead && reason != telemetry.ReasonMalformed
					s.reason, s.failedSequence, s.failedEnqueued = reason, number, now.Add(-time.Second).UnixMicro()
				}
				last[device] = s
			}
		}
		forgotten := 0
		for device, want := range last {
			got, since := h.find(device)
			switch {
			case got == nil && !time.UnixMicro(want.at).Before(since):
				t.Fatalf("%s was seen at %v and is forgotten, though everything since %v is remembered", device, time.UnixMicro(want.at), since)
			case got == nil:
				forgotten++
			case devices <= seenSets && *got != want:
				t.Fatalf("%s: got %+v, want %+v", device, *got, want)
			case got.at != want.at:
				t.Fatalf("%s was seen at %v, not at %v", device, time.UnixMicro(want.at), time.UnixMicro(got.at))
			}
		}
		if _, since := h.find("never"); since.Before(start) || forgotten == 0 && devices < 4 && !since.Equal(start) {
			t.Fatalf("everything since %v, with %d forgotten", since, forgotten)
		}
		if forgotten > 0 && len(last) < seenSets {
			t.Fatalf("%d of %d devices are forgotten", forgotten, len(last))
		}
	})
}
