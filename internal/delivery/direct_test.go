package delivery_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

// A caller is one who brings readings straight to receivers.
type caller struct {
	*replica
	direct *delivery.Direct
}

func newCaller(s *replica) *caller {
	return &caller{s, s.begin().Direct(s.t.Context(), delivery.Account{Name: "http", IDs: "ns/hub/http/", Logger: zap.NewNop()})}
}

// alert brings a reading that comes now, unless windows are known to be in force at all receivers.
func (c *caller) alert(device, id string) (reply delivery.Reply, asked bool) {
	now := time.Now()
	a := &delivery.Alert{
		Key:       delivery.Key{About: sensor.Of(device), Topic: c.topic("", nil)},
		Reading:   delivery.Reading{Value: 99, Limit: 30, Enqueued: now.UnixMicro()},
		Device:    device,
		Receivers: 1<<len(c.receivers) - 1,
		Arrival:   &delivery.Arrival{At: now, ID: id},
	}
	if c.direct.Suppress(a); a.Receivers == 0 {
		return delivery.Reply{}, false
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	return c.direct.Alert(ctx, a), true
}

// A caller hears what came of its reading at once, and nothing is tried twice.
func TestDirect(t *testing.T) {
	for name, tt := range map[string]struct {
		answer   error
		dead     error // why no dead letter can be kept
		down     bool  // the store
		want     delivery.Reply
		asked    int // how often the receiver is, in two calls
		letters  int
		outcome  throttle.Outcome // of the first call
		outcomes int64            // how many of these there are after both
	}{
		"taken": {want: delivery.Reply{Alerted: true}, asked: 1, outcome: throttle.Sent, outcomes: 1},
		"refused for good": {
			answer: errRefused, asked: 1, letters: 1, outcome: throttle.Failed, outcomes: 1,
			want: delivery.Reply{Reason: "dead_letter", Detail: "the alert was kept as a dead letter: refused for good: answered 422"},
		},
		"refused, and there is no room": {
			answer: errRefused, dead: errors.New("no room"), asked: 2, outcome: throttle.Failed, outcomes: 2,
			want: delivery.Reply{Reason: "dead_letter", Detail: "receiver receiver0.example refused the alert, and its dead letter cannot be written"},
		},
		"not taken": {
			answer: errBusy, asked: 2, outcome: throttle.Failed, outcomes: 2,
			want: delivery.Reply{Reason: "receiver", Detail: "receiver receiver0.example did not accept the alert: 503 busy"},
		},
		"the store does not answer": {
			down: true, outcome: throttle.Unavailable, outcomes: 2,
			want: delivery.Reply{Reason: "throttle_store", Detail: "the throttle store cannot be used, and without it nothing is sent"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, r := &outage{Store: memlease.New()}, &receiver{}
				if tt.answer != nil {
					r.set(failing(tt.answer))
				}
				store.down.Store(tt.down)
				s := newReplicaOn(t, store, r)
				s.dead.fail(tt.dead)
				c := newCaller(s)
				if got, asked := c.alert("oven", "1"); got != tt.want || !asked {
					t.Errorf("the first is %+v, want %+v", got, tt.want)
				}
				c.alert("oven", "2")
				if n := len(r.attempts("")); n != tt.asked || len(s.dead.all()) != tt.letters || s.stats.DeadLetters.Load() != int64(tt.letters) {
					t.Errorf("asked %d times, with %d dead letters", n, len(s.dead.all()))
				}
				if n := s.stats.Outcomes[tt.outcome].Load(); n != tt.outcomes {
					t.Errorf("%d times %v, want %d", n, tt.outcome, tt.outcomes)
				}
			})
		})
	}
}

// One receiver that did not take the alert makes it unsettled, and another one that did has its window: the caller may
// repeat it. What the window covers counts in the next alert.
func TestDirectToTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well, busy := &receiver{}, &receiver{answer: failing(errBusy)}
		s := newReplica(t, well, busy)
		c := newCaller(s)
		if got, _ := c.alert("oven", "1"); !got.Alerted || got.Reason != "receiver" {
			t.Errorf("%+v", got)
		}
		busy.set(nil)
		if got, _ := c.alert("oven", "1"); !got.Alerted || got.Reason != "" {
			t.Errorf("repeated: %+v", got)
		}
		wantAlerts(t, well, "oven", 1)
		if a := wantAlerts(t, busy, "oven", 1)[0]; a.ID != "ns/hub/http/1" || a.WillResolve {
			t.Errorf("%+v", a)
		}
		if _, asked := c.alert("oven", "2"); asked || s.stats.Suppressed.Load() != 1+2 {
			t.Errorf("asked: %v, %d suppressed", asked, s.stats.Suppressed.Load())
		}
		pass(window)
		c.alert("oven", "3")
		if a, b := wantAlerts(t, well, "oven", 2)[1], wantAlerts(t, busy, "oven", 2)[1]; a.Suppressed != 2 || b.Suppressed != 1 {
			t.Errorf("they count %d and %d, want 2 and 1", a.Suppressed, b.Suppressed)
		}
	})
}

// While another replica holds the key a caller waits, for as long as its time allows, and is then covered by the alert
// of the other one, or sends its own. An answer that was lost has the next caller send the same id.
func TestDirectMeetsAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, r := memlease.New(), &receiver{answer: wait(3 * time.Second)}
		other := newReplicaOn(t, store, r)
		other.open("0").hot("oven")
		defer other.end()
		synctest.Wait()
		s := newReplicaOn(t, store, r)
		c, start := newCaller(s), time.Now()
		if got, _ := c.alert("oven", "1"); got != (delivery.Reply{}) || time.Since(start) > 5*time.Second {
			t.Errorf("%+v after %v", got, time.Since(start))
		}
		if n := s.stats.Suppressed.Load(); n != 1 {
			t.Errorf("%d suppressed, want 1", n)
		}
		pass(window)
		c.alert("oven", "2")
		if a := wantAlerts(t, r, "oven", 2)[1]; a.Suppressed != 1 {
			t.Errorf("the next alert counts %d, want 1", a.Suppressed)
		}

		claimed(t, store, "kiln", `{"phase":"claim","id":"of the dead","proof":80000}`)
		if got, _ := c.alert("kiln", "2"); !got.Alerted || wantAlerts(t, r, "kiln", 1)[0].ID != "of the dead" {
			t.Errorf("%+v: %+v", got, r.alerts("kiln"))
		}

		r.set(func(context.Context, notify.Alert) error { return errLost })
		c.alert("press", "3")
		r.set(nil)
		if got, _ := c.alert("press", "4"); !got.Alerted || wantAlerts(t, r, "press", 1)[0].ID != "ns/hub/http/3" {
			t.Errorf("%+v: %+v", got, r.alerts("press"))
		}
	})
}

// What callers send teaches the Dispatcher about a receiver, as any other message does.
func TestDirectShowsThatAReceiverIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errBusy)}
		s := newReplica(t, r)
		c := newCaller(s)
		for _, device := range []string{"a", "b", "c"} {
			c.alert(device, device)
		}
		if got := s.dispatcher.Receivers()[0]; !got.Down || got.Fault != delivery.ReceiverFails {
			t.Errorf("%+v", got)
		}
		r.set(nil)
		pass(time.Minute)
		c.alert("d", "d")
		if got := s.dispatcher.Receivers()[0]; got.Down || got.Taken != 1 || !got.TakenAt.Equal(time.Now()) {
			t.Errorf("%+v", got)
		}
	})
}
