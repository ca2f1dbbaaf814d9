package throttle_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/cosmoslease"
	"alertworker/internal/lease/leasetest"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/throttle/throttletest"
)

// A device that is hot all the time costs as few requests as an alert needs: one to look, one
// to claim and one to record; and with native leases one to lock and one to unlock.
func TestRequestsPerAlert(t *testing.T) {
	for _, test := range []struct {
		store string
		open  func(t *testing.T, count *leasetest.Counter) (lease.Store, error)
		want  int64 // per alert
	}{
		{"blob", func(t *testing.T, count *leasetest.Counter) (lease.Store, error) {
			azurite := emulators.StartAzurite(t)
			count.Next = azurite.Transport()
			return bloblease.OpenETag(t.Context(), azurite.Container(t, azurite.NewContainer(), count), nil)
		}, 3},
		{"blob-lease", func(t *testing.T, count *leasetest.Counter) (lease.Store, error) {
			azurite := emulators.StartAzurite(t)
			count.Next = azurite.Transport()
			return bloblease.OpenNative(t.Context(), azurite.Container(t, azurite.NewContainer(), count), nil)
		}, 5},
		{"cosmos", func(t *testing.T, count *leasetest.Counter) (lease.Store, error) {
			stand := emulators.StartCosmos(t)
			count.Next = stand.Transport()
			account, err := cosmoslease.WithKey(stand.ConnectionString)
			if err != nil {
				t.Fatal(err)
			}
			return cosmoslease.Open(t.Context(), cosmoslease.Config{Account: account, Database: "alertworker", Container: "leases", Retention: time.Hour, Client: &http.Client{Transport: count}})
		}, 3},
	} {
		t.Run(test.store, func(t *testing.T) {
			t.Parallel()
			busytest.Run(t, func(a *busytest.Attempt) { requestsPerAlert(a, test.open, test.want) })
		})
	}
}

// requestsPerAlert has a device that is always hot alert four times.
func requestsPerAlert(t *busytest.Attempt, open func(*testing.T, *leasetest.Counter) (lease.Store, error), want int64) {
	count := &leasetest.Counter{}
	store, err := open(t.T, count)
	if err != nil {
		t.Fatal(err)
	}
	g := recent.New(throttle.Config{
		Store: store, Scope: "s", Receiver: "r", Window: 2 * time.Second, SendTimeout: sendTimeout,
	}, recent.NewWindows())
	warm, slowest := 1, time.Duration(0) // the very first alert makes the record
	const alerts = 4
	for n := 0; n < warm+alerts; {
		if n == warm {
			count.N.Store(0)
		}
		if g.Recent(sensor.Of("oven")) {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		start := time.Now()
		r, err := throttletest.Do(t.Context(), g, throttle.Request{Device: "oven", ID: fmt.Sprint(n), Enqueued: start.Add(time.Second)}, taken)
		slowest = max(slowest, time.Since(start))
		switch {
		case err != nil:
			t.Fatal(err)
		case r.Outcome == throttle.Busy:
			time.Sleep(time.Until(r.Retry))
		case r.Outcome == throttle.Sent:
			n++
		}
		if slowest > time.Second { // this machine has no time: that costs retries, also in the last alert
			warm, slowest = n+1, 0
			if n > 20 {
				t.Missed("a call took more than a second, again and again")
			}
		}
	}
	if n := count.N.Load(); n > alerts*want {
		t.Errorf("%d requests for %d alerts, want %d for each", n, alerts, want)
	}
}
