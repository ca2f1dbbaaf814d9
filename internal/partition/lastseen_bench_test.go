package partition

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

// BenchmarkLastSeen is what remembering devices adds to every event, of one device, of many,
// and of so many that every event replaces another device.
func BenchmarkLastSeen(b *testing.B) {
	for _, devices := range []int{1, 1000, 3000, 20_000} {
		b.Run(fmt.Sprint(devices), func(b *testing.B) {
			h := NewSeen(time.Now(), zap.NewNop())
			var batches [][]telemetry.Event
			for n := range max(devices/100, 1) {
				events := batch("")
				for i := range events {
					events[i].Device = fmt.Sprintf("press-%06d", (100*n+i)%devices)
				}
				batches = append(batches, events)
			}
			last := &read{has: true, value: 20}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				h.mu.Lock()
				for i := range batches[n%len(batches)] {
					e := &batches[n%len(batches)][i]
					h.add(e, roster.Hash(e.Device), telemetry.ReasonOK, last, time.Now().UnixMicro())
				}
				h.mu.Unlock()
				n++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*100), "ns/event")
		})
	}
}
