package partition

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// Against a model that remembers every event: the watermark is the last
// position before which all are settled, and never moves back.
func TestWatermark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := telemetry.Position{Generation: "g", Offset: "x"}
		mark := watermark{last: start}
		var last, highest int64
		unsettled := map[int64][]*delivery.Hold{} // by sequence
		at := func(sequence int64) telemetry.Position {
			return telemetry.Position{Generation: "g", Sequence: sequence, Offset: "x"}
		}
		t.Repeat(map[string]func(*rapid.T){
			"settled": func(*rapid.T) {
				last++
				mark.last = at(last)
			},
			"admitted": func(t *rapid.T) {
				last++
				of := rapid.IntRange(1, 3).Draw(t, "receivers")
				for range of {
					e := &delivery.Hold{}
					mark.held.Add(e, placeOf(at(last-1)), last)
					unsettled[last] = append(unsettled[last], e)
				}
				mark.last = at(last)
			},
			"one receiver settles": func(t *rapid.T) {
				if len(unsettled) == 0 {
					t.Skip("none is unsettled")
				}
				sequence := rapid.SampledFrom(slices.Sorted(maps.Keys(unsettled))).Draw(t, "event")
				all := unsettled[sequence]
				mark.held.Release(all[0])
				mark.held.Release(all[0]) // says nothing new
				if unsettled[sequence] = all[1:]; len(all) == 1 {
					delete(unsettled, sequence)
				}
			},
			"one goes on with a later event": func(t *rapid.T) {
				if len(unsettled) == 0 {
					t.Skip("none is unsettled")
				}
				from := rapid.SampledFrom(slices.Sorted(maps.Keys(unsettled))).Draw(t, "event")
				to := rapid.Int64Range(from, last).Draw(t, "later")
				e := unsettled[from][0]
				mark.held.Release(e)
				if unsettled[from] = unsettled[from][1:]; len(unsettled[from]) == 0 {
					delete(unsettled, from)
				}
				mark.held.Add(e, placeOf(at(to-1)), to)
				unsettled[to] = append(unsettled[to], e)
			},
			"": func(t *rapid.T) {
				want, held := last, 0
				for sequence, all := range unsettled {
					want = min(want, sequence-1)
					held += len(all)
				}
				got := mark.position().Sequence
				if got != want {
					t.Fatalf("watermark at %d, want %d", got, want)
				}
				if got < highest {
					t.Fatalf("watermark moved back from %d to %d", highest, got)
				}
				highest = got
				if mark.held.Len() != held {
					t.Fatalf("%d entries, want %d", mark.held.Len(), held)
				}
			},
		})
	})
}

// An entry gives back the position that it was made of, with its time or without one.
func TestWatermarkKeepsPositions(t *testing.T) {
	for _, at := range []time.Time{{}, time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC)} {
		w := watermark{last: telemetry.Position{Sequence: 8, Offset: "4100"}}
		want := telemetry.Position{Sequence: 7, Offset: "4096", Time: at}
		w.held.Add(&delivery.Hold{}, placeOf(want), 1)
		if got := w.position(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// Before the first event there is no position, not even if the next event has number 1.
func TestWatermarkBeforeTheFirst(t *testing.T) {
	var w watermark
	first, second := &delivery.Hold{}, &delivery.Hold{}
	zero := telemetry.Position{Generation: "g", Sequence: 0, Offset: "0"}
	w.held.Add(second, placeOf(zero), 2)
	w.held.Add(first, placeOf(telemetry.Position{}), 1)
	w.last = zero
	if got := w.position(); got != (telemetry.Position{}) {
		t.Errorf("with the first event unsettled the watermark is %+v", got)
	}
	w.held.Release(first)
	if got := w.position(); got != zero {
		t.Errorf("with the second event unsettled the watermark is %+v", got)
	}
}

// What was read since somebody looked does not move the watermark: it is not behind the last event of then, nor anywhere while
// none was read.
func TestWatermarkIsNoFurtherThanWhatWasRead(t *testing.T) {
	at := func(sequence int64) telemetry.Position {
		return telemetry.Position{Generation: "g", Sequence: sequence, Offset: "x"}
	}
	for _, tt := range []struct {
		last, held, want telemetry.Position
	}{
		{at(5), at(3), at(3)},
		{at(5), at(5), at(5)},
		{at(5), at(7), at(5)},
		{at(5), telemetry.Position{}, telemetry.Position{}},
		{telemetry.Position{}, at(3), telemetry.Position{}},
	} {
		if got := (&watermark{last: tt.last}).before(placeOf(tt.held)); got != tt.want {
			t.Errorf("read up to %d, and held at %d, it is %+v", tt.last.Sequence, tt.held.Sequence, got)
		}
	}
}

// Who begins with a ledger that is further than the checkpoint reads again what the ledger knows, and what ends meanwhile ends
// behind all of that: an alert may have been about any of it.
func TestWhatIsReadAgainMovesNothingBack(t *testing.T) {
	ev := exactEvaluator(t)
	r := newExactReader(ev, func(telemetry.Position, telemetry.Position) {})
	ledgerAt := exactPosition(3)
	r.register.last.settled, r.register.mark.last, r.register.alarms.history.position = ledgerAt, ledgerAt, ledgerAt
	saved := ledger.Alarm{
		Device: "gone", Rule: "temperature", Level: "critical", Measured: ev.levels[1].id.measured,
		Open: true, Since: exactPosition(1).Time, Value: 90, Limit: 80,
	}
	r.register.restore(saved, false)
	r.register.take([]telemetry.Event{exactEvent(1, "gone", "90"), exactEvent(2, "oven", "20")})
	if last := r.register.mark.last; last != ledgerAt {
		t.Errorf("the watermark follows event %d, and the ledger is at %d", last.Sequence, ledgerAt.Sequence)
	}
	r.register.remove(sensor.Of("gone"), false)
	for key, k := range r.register.alarms.byKey {
		if k.due == nil || k.due.Reading.Sequence != ledgerAt.Sequence {
			t.Errorf("%s ends with %+v", key.level.Name, k.due)
		}
	}
	if n := len(r.register.alarms.byKey); n != 1 {
		t.Errorf("%d alarms", n)
	}
	r.register.take([]telemetry.Event{exactEvent(3, "oven", "20"), exactEvent(4, "oven", "20")})
	if last := r.register.mark.last; last != exactPosition(4) {
		t.Errorf("event 4 was read, and the watermark follows event %d", last.Sequence)
	}
}

// Times are rounded up, which makes no event older, and those of the hub stay as they are.
func TestRounding(t *testing.T) {
	at := time.Date(2026, 1, 5, 0, 0, 0, 7e6, time.UTC)
	for after, want := range map[time.Duration][2]int64{0: {}, 1: {1, 1}, time.Microsecond: {1, 1}, 1001: {2, 1}, time.Millisecond: {1000, 1}} {
		if us, ms := micros(at.Add(after))-at.UnixMicro(), millis(at.Add(after))-at.UnixMilli(); us != want[0] || ms != want[1] {
			t.Errorf("%v after a whole time it is %d us and %d ms", after, us, ms)
		}
	}
}

// An event that comes again, because the link began earlier, moves nothing back either: what an operator removes meanwhile ends
// behind all that was read.
func TestWhatComesAgainMovesNothingBack(t *testing.T) {
	again := false
	var r *exactReader
	r = newExactReader(exactEvaluator(t), func(telemetry.Position, telemetry.Position) {
		if again {
			r.register.remove(sensor.Of("gone"), false)
		}
	})
	log := []telemetry.Event{
		exactEvent(1, "gone", "20"), exactEvent(2, "oven", "90"), exactEvent(3, "oven", "x"),
		exactEvent(4, "oven", "20"), exactEvent(5, "gone", "90"), exactEvent(6, "oven", "20"),
	}
	r.register.take(log)
	again = true
	r.register.take(log[1:4])
	for key, k := range r.register.alarms.byKey {
		if key.about.Device == "gone" && (k.due == nil || k.due.Reading.Sequence != 6) {
			t.Errorf("%s ends with %+v", key.level.Name, k.due)
		}
	}
	if last := r.register.mark.last.Sequence; last != 6 {
		t.Errorf("the watermark follows event %d", last)
	}
}
