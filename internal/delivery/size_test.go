package delivery

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"alertworker/internal/sensor"
)

// What an alert that waits takes in memory: the growth of the heap, after a collection, by as many as
// may wait in a partition for one receiver, divided by their number. That has everything that
// belongs to one, its device's id and the hub's offset too, and each was joined by
// another reading.
func TestWaitingAlertTakesLittleMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes memory")
	}
	const most = 544 // bytes
	o, topic := downOutbox(t)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // what the first has finalized
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, began := heap(), time.Now()
	for n := range int64(2 * maxWaiting) {
		device := fmt.Sprintf("press-%06d", n%maxWaiting)
		o.Alert(&Alert{
			Key:       Key{sensor.Of(device), topic},
			Reading:   Reading{Value: 99, Limit: 30, Enqueued: began.UnixMicro(), Sequence: n + 1},
			Device:    device,
			Before:    Place{Sequence: n, Offset: fmt.Sprint(8_589_934_592 + n)},
			Receivers: 1,
		})
	}
	each := (heap() - before) / maxWaiting
	if n := o.queues[0].waiting(); n != maxWaiting {
		t.Fatalf("%d wait, want %d", n, maxWaiting)
	}
	t.Logf("%d bytes for an alert that waits", each)
	if each > most {
		t.Errorf("%d bytes for an alert that waits, want %d at most", each, most)
	}
	runtime.KeepAlive(o)
}
