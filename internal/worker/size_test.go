package worker

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"alertworker/internal/telemetry"
)

// What an alert that waits takes in memory: the growth of the heap, after a collection, by as many as
// may wait in a partition for one receiver, divided by their number. That has everything that
// belongs to one, its device's id and the hub's offset too, and each was joined by
// another reading.
func TestWaitingAlertTakesLittleMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes memory")
	}
	const most = 480 // bytes
	s := benchStream(t, time.Hour)
	r := s.receivers[0]
	r.health = health{down: true, suspects: 2, nextNew: math.MaxInt64, nextFailed: math.MaxInt64}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // what the first has finalized
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, began := heap(), time.Now()
	for n := range int64(2 * maxWaiting) {
		before := telemetry.Position{Sequence: n, Offset: fmt.Sprint(8_589_934_592 + n)}
		s.evaluate(before, &telemetry.Event{Position: telemetry.Position{Sequence: n + 1}, Device: fmt.Sprintf("press-%06d", n%maxWaiting), Enqueued: began}, []telemetry.Found{{Value: 99}}, nil, nil)
	}
	each := (heap() - before) / maxWaiting
	if n := s.queues[0].waiting(); n != maxWaiting {
		t.Fatalf("%d wait, want %d", n, maxWaiting)
	}
	t.Logf("%d bytes for an alert that waits", each)
	if each > most {
		t.Errorf("%d bytes for an alert that waits, want %d at most", each, most)
	}
	runtime.KeepAlive(s)
}
