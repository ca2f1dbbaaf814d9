package delivery_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
)

// A receiver that refuses the alerts of several devices for good, and accepts none, is down: each of them is a dead
// letter. One that refuses those of one device is not, unless nothing else is sent for long. What it accepts ends that.
func TestReceiverThatRejects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errRefused)}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		state := func() delivery.ReceiverState {
			synctest.Wait()
			return s.dispatcher.Receivers()[0]
		}
		for range 7 {
			p.hot("odd")
			pass(window + 5*time.Second)
			if got := state(); got.Down {
				t.Fatalf("%+v, because of one device", got)
			}
		}
		r.set(nil)
		p.hot("well")
		pass(time.Second)
		r.set(failing(errRefused))
		p.hot("odd")
		pass(time.Second)

		began := time.Now().Add(-time.Second) // with the first that it refused since it accepted one
		p.hot("a")
		p.hot("b")
		got := state()
		if !got.Down || got.Fault != delivery.ReceiverRejects || !got.Since.Equal(began) || got.Err == nil {
			t.Errorf("%+v, since %v, after it refused the alerts of three devices", got, began)
		}
		pass(time.Hour)
		if !state().Down {
			t.Error("it is well again, and nothing was sent")
		}
		r.set(nil)
		p.hot("c")
		if got := state(); got.Down || got.Err != nil {
			t.Errorf("%+v after it accepted one", got)
		}

		r.set(failing(errRefused))
		for range 8 {
			p.hot("odd")
			pass(window + 5*time.Second)
		}
		if got := state(); !got.Down || got.Fault != delivery.ReceiverRejects {
			t.Errorf("%+v after eight alerts in a row", got)
		}
	})
}

// An outage began with its first failure, also if the receiver refused something for good meanwhile; and a rate limit
// is told apart from it.
func TestOutageSinceItsFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errBusy)}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		began := time.Now()
		p.hot("hot")
		pass(10 * time.Second)
		r.set(func(_ context.Context, a notify.Alert) error {
			if a.Device == "odd" {
				return errRefused
			}
			return errBusy
		})
		p.hot("odd")
		pass(5 * time.Minute)
		if got := s.dispatcher.Receivers()[0]; !got.Down || got.Fault != delivery.ReceiverFails || !got.Since.Equal(began) {
			t.Errorf("%+v, since %v", got, began)
		}
		r.set(nil)
		pass(2 * time.Minute)
		if got := s.dispatcher.Receivers()[0]; got.Down {
			t.Errorf("%+v after it accepted one", got)
		}
		r.set(limited(429, 0))
		p.hot("next")
		pass(2 * time.Minute)
		if got := s.dispatcher.Receivers()[0]; !got.Down || got.Fault != delivery.ReceiverLimited || got.Err == nil {
			t.Errorf("%+v while it only limits the rate", got)
		}
	})
}

// slowAtFirst is a store that takes long over the first thing that becomes of a lease.
type slowAtFirst struct {
	lease.Store
	asked atomic.Bool
}

func (s *slowAtFirst) Extend(
	ctx context.Context,
	l lease.Lease,
	note string,
	ttl time.Duration,
) (lease.Lease, error) {
	if !s.asked.Swap(true) {
		time.Sleep(3 * time.Second)
	}
	return s.Store.Extend(ctx, l, note, ttl)
}

// What a receiver accepted before it went down says nothing about it, also if the window of that alert is recorded only
// afterwards.
func TestReceiverThatAcceptedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplicaOn(t, &slowAtFirst{Store: memlease.New()}, r)
		p := s.open("0")
		defer s.end()
		p.hot("first")
		pass(time.Second)
		if len(r.alerts("first")) != 1 {
			t.Fatal("the receiver has not accepted the first alert yet")
		}

		r.set(failing(errBusy))
		began := time.Now()
		for _, device := range []string{"a", "b", "c"} {
			p.hot(device)
		}
		for range 8 {
			pass(500 * time.Millisecond)
			if got := s.dispatcher.Receivers()[0]; !got.Down || !got.Since.Equal(began) {
				t.Fatalf("after %v: %+v, and nothing was accepted", time.Since(began), got)
			}
		}
		r.set(nil)
		pass(time.Minute)
		if got := s.dispatcher.Receivers()[0]; got.Down {
			t.Errorf("%+v after it accepted one", got)
		}
	})
}
