package delivery_test

import (
	"alertworker/internal/delivery"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// What a delivery waits for, in each of its states.
func TestWhatItWaitsFor(t *testing.T) {
	down := &notify.Error{Untaken: true, Err: errors.New("connection refused")}
	for name, test := range map[string]struct {
		change func(s *replica, o *outage)
		others int // hot devices before the one asked about
		after  time.Duration
		want   delivery.Wait
		text   string
		until  bool
	}{
		"an attempt": {func(s *replica, _ *outage) { s.receivers[0].set(wait(9 * time.Second)) }, 0, time.Second, delivery.WaitAttempt,
			"an attempt to alert receiver receiver0.example is under way", false},
		"its turn": {func(s *replica, _ *outage) { s.receivers[0].set(wait(9 * time.Second)); s.config.Concurrency = 2 }, 2, time.Second, delivery.WaitTurn,
			"other alerts are being sent to receiver receiver0.example first", false},
		"the receiver": {func(s *replica, _ *outage) { s.receivers[0].set(failing(down)) }, 5, 10 * time.Second, delivery.WaitReceiver,
			"receiver receiver0.example is down (connection refused)", true},
		"a rate limit": {func(s *replica, _ *outage) {
			s.receivers[0].set(failing(&notify.Error{Limited: true, Untaken: true, Err: errors.New("answered 429")}))
		}, 5, time.Minute, delivery.WaitReceiver,
			"receiver receiver0.example accepts nothing because of its rate limit (answered 429)", true},
		"a pause": {func(s *replica, _ *outage) {
			s.receivers[0].set(failing(&notify.Error{Untaken: true, Err: errors.New("answered 503")}))
		}, 0, 500 * time.Millisecond, delivery.WaitPause,
			"the last attempt to alert receiver receiver0.example failed (answered 503)", true},
		"the receiver, alone": {func(s *replica, _ *outage) {
			s.receivers[0].set(failing(&notify.Error{Untaken: true, Err: errors.New("answered 503")}))
		}, 0, 10 * time.Second, delivery.WaitReceiver,
			"receiver receiver0.example is down (answered 503)", true},
		"the store": {func(_ *replica, o *outage) { o.down.Store(true) }, 5, 10 * time.Second, delivery.WaitStore,
			"the throttle store cannot be used, and without it nothing is sent", true},
		"the store, alone": {func(_ *replica, o *outage) { o.down.Store(true) }, 0, 100 * time.Millisecond, delivery.WaitStore,
			"the throttle store cannot be used, and without it nothing is sent", true},
		"a claim": {func(s *replica, o *outage) {
			gate := throttle.New(throttle.Config{Store: o.Store, Scope: "ns/hub/group", Receiver: "receiver0", Window: window, SendTimeout: sendTimeout})
			go func() {
				_, _ = throttletest.Do(s.t.Context(), gate, throttle.Request{Device: "asked", ID: "other", Enqueued: time.Now()}, func(ctx context.Context, _ throttle.Grant) throttle.Answer {
					<-ctx.Done() // frozen
					return throttle.Unknown
				})
			}()
			synctest.Wait()
		}, 0, time.Second, delivery.WaitClaim,
			"the device's key at receiver receiver0.example is not free: another replica is sending an alert or has died, or a window has only just ended", true},
		"a dead letter": {func(s *replica, _ *outage) {
			s.receivers[0].set(failing(&notify.Error{Refused: true, Untaken: true, Err: errors.New("answered 400")}))
			s.dead.fail(errors.New("disk full"))
		}, 0, 10 * time.Second, delivery.WaitDeadLetter,
			"the alert to receiver receiver0.example was given up, and its dead letter cannot be written", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &outage{Store: memlease.New()}
				s := newReplicaOn(t, o, &receiver{})
				test.change(s, o)
				p := s.open("7")
				defer s.end()
				for n := range test.others {
					p.hot(fmt.Sprint("other", n))
					time.Sleep(10 * time.Millisecond)
				}
				since := time.Now().UTC()
				first := p.reading("asked", s.topic("", nil))
				first.Reading.Value = 91.5
				p.take(first)
				p.hot("asked")
				pass(test.after)
				got := p.box.States([]delivery.Key{p.key("asked")})
				if len(got) != 1 {
					t.Fatalf("%+v, want one delivery", got)
				}
				d := got[0]
				if d.Receiver != "receiver0.example" || d.Partition != "7" || !d.Since.Equal(since) || d.Value != 91.5 || d.Joined != 1 {
					t.Errorf("got %+v", d)
				}
				w := d.Waits
				if w.For != test.want || w.Text != test.text || w.Next.IsZero() == test.until || test.until && w.Next.Before(time.Now()) {
					t.Errorf("waits for %q (%s) until %v, want %q (%s)", w.For, w.Text, w.Next, test.want, test.text)
				}
				outage := !w.Next.IsZero() && test.others > 0 // which is older than the delivery
				if w.Since.After(time.Now()) || w.Since.Before(since) != outage {
					t.Errorf("that has been so since %v, the reading came at %v", w.Since, since)
				}
				o.down.Store(false)
				s.dead.fail(nil)
				s.receivers[0].set(nil)
				pass(5 * time.Minute)
				if n := p.box.Len(); n != 0 {
					t.Errorf("%d deliveries at the end", n)
				}
			})
		})
	}
}
