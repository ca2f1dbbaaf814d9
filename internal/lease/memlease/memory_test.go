package memlease_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
)

// What a device costs: the growth of the heap after a collection, through 20,000 devices
// each of whose alerts was recorded by a gate, with names as long as usual ones.
func TestMemoryOfADevice(t *testing.T) {
	const devices = 20_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s := memlease.New()
	for part := range 100 {
		// A gate remembers windows too: that is not counted.
		g := throttle.New(throttle.Config{
			Store: s, Scope: "contoso.servicebus.windows.net/telemetry/$default", Receiver: "example.com-1a2b3c4d", Window: time.Minute, SendTimeout: 10 * time.Second,
		})
		for i := range devices / 100 {
			r := throttle.Request{
				Device: fmt.Sprintf("device-%02d-%05d", part, i), Enqueued: time.Now(),
				ID: fmt.Sprintf("contoso/telemetry/%d/%d/1772366400250", part, 1_000_000+i),
			}
			if got, err := throttletest.Do(t.Context(), g, r, func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken }); err != nil || got.Outcome != throttle.Sent {
				t.Fatal(got.Outcome, err)
			}
		}
	}
	each := (heap() - before) / devices
	runtime.KeepAlive(s)
	t.Logf("%d B a device", each)
	if each > 400 {
		t.Errorf("a device costs %d B, want at most 400", each)
	}
}
