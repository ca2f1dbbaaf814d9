//go:build unix

package e2e_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/notify/notifytest"
)

// Many devices are hot at once at a receiver that refuses what comes too fast, and workers are killed meanwhile: every
// device has its alert, and none has two.
func TestStormAtAPacedReceiver(t *testing.T) {
	t.Parallel()
	storage := emulators.StartAzurite(t).ConnectionString
	busytest.Run(t, func(t *busytest.Attempt) {
		const devices = 120
		w := newWorld(t, storage, settings{window: 40 * time.Second})
		var refused atomic.Int32
		w.receiver.BehaveAlways(paced(25*time.Millisecond, &refused))
		w.start("a", "b", "c")
		w.ready()
		for n := range devices {
			w.publish(fmt.Sprintf("oven-%03d", n), hot)
		}
		for _, name := range []string{"a", "b"} {
			w.pass(w.between(time.Second, 3*time.Second))
			w.kill(name)
			w.pass(w.between(0, time.Second))
			w.start(name)
		}
		w.finish()
		seen := map[string]bool{}
		for _, d := range w.receiver.Deliveries() {
			if !d.Dropped {
				seen[d.Alert.Device] = true
			}
		}
		if len(seen) != devices {
			t.Errorf("%d of %d devices alerted", len(seen), devices)
		}
		t.Logf("%d refused", refused.Load())
		if n := refused.Load(); n == 0 || n > 200 {
			t.Errorf("%d refused", n)
		}
	})
}

// paced takes one request every so often, and refuses what comes sooner.
func paced(every time.Duration, refused *atomic.Int32) notifytest.Behaviour {
	var mu sync.Mutex
	var next time.Time
	refuse := notifytest.Status(http.StatusTooManyRequests, "Retry-After", "1")
	return func(w http.ResponseWriter, r *http.Request, take http.Handler, stop <-chan struct{}) {
		mu.Lock()
		now := time.Now()
		ok := !now.Before(next)
		if ok {
			next = now.Add(every)
		}
		mu.Unlock()
		if !ok {
			refused.Add(1)
			refuse(w, r, take, stop)
			return
		}
		notifytest.Take(w, r, take, stop)
	}
}
