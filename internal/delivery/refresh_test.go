package delivery_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/notify"
)

// forgets is how a receiver is used that keeps in memory what is open.
var forgets = notify.Limits{Batch: 100, Forgets: true}

// post has o post again what it says is open: alarms by devices, which their receivers want.
func (o *owner) post(may error, devices ...string) {
	var open []delivery.OpenAlarm
	for _, device := range devices {
		for _, a := range o.read {
			if a.Device == device {
				open = append(open, delivery.OpenAlarm{Key: o.key(device), Reading: a.Reading, Wanted: everybody})
				break
			}
		}
	}
	ctx, cancel := context.WithTimeout(o.replica.t.Context(), time.Minute)
	defer cancel()
	o.box.Refresh(ctx, open, func(context.Context, delivery.Key) error { return may })
}

// open reads that an alarm of a device has opened.
func (o *owner) open(device string) {
	a := o.reading(device, o.replica.topic("", nil))
	a.Reading.Since = a.Reading.Enqueued
	o.take(a)
}

// posted returns what was posted again, each message in the order of the alphabet.
func (r *receiver) posted() string {
	var all []string
	for _, a := range r.alerts("") {
		if a.Refresh {
			all = append(all, a.Device)
		}
	}
	return strings.Join(all, " ")
}

// A receiver that forgets gets the last alert of what is open again, and no other receiver does. That is no alert, and of
// what it never got, or is normal again, or must not be posted, nothing comes.
func TestOpenAlarmsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, other := &receiver{limits: forgets}, &receiver{}
		s := newReplica(t, r, other)
		p := s.open("0")
		if !s.dispatcher.Forgets() {
			t.Error("no receiver forgets")
		}
		for _, device := range []string{"oven", "kiln", "press"} {
			p.open(device)
		}
		synctest.Wait()
		first := r.alerts("oven")[0]
		p.well("kiln")
		pass(2 * window)
		outcomes := s.stats.Outcomes[0].Load()
		p.post(nil, "oven", "kiln", "never", "press")
		if got := r.posted(); got != "oven press" || len(other.alerts("")) != 4 {
			t.Errorf("posted again: %s; the other took %d", got, len(other.alerts("")))
		}
		again := r.alerts("oven")[1]
		if !again.Sent.After(first.Sent) {
			t.Errorf("it was sent at %v, it says, as the first at %v", again.Sent, first.Sent)
		}
		again.Refresh, again.Sent = false, first.Sent
		if again != first {
			t.Errorf("got %+v again, which was %+v", again, first)
		}
		if n := s.stats.Suppressed.Load() + s.stats.DeadLetters.Load() + s.stats.Outcomes[0].Load() - outcomes; n != 0 || s.topic("", nil).Sent.Load() != 6 {
			t.Errorf("posting again counts")
		}
		p.post(errOwner, "oven", "press")
		if got := r.posted(); got != "oven press" {
			t.Errorf("posted although its owner does not let it be: %s", got)
		}
		s.end()

		// The next owner does not know what was sent, and the gate's record does.
		next := newReplicaOn(t, s.store, r, other)
		q := next.open("0")
		defer next.end()
		q.read, q.last = p.read, p.last
		q.post(nil, "oven", "kiln", "press")
		if got := r.posted(); got != "oven press oven press" {
			t.Errorf("posted by the next owner: %s", got)
		}
		if a := r.alerts("oven")[2]; a.ID != first.ID || a.Token != first.Token || !a.Sent.IsZero() {
			t.Errorf("%+v", a)
		}
	})
}

// An alert that its receiver does not take, while it takes others, does not keep what is open from being posted again.
func TestOpenAlarmsBesideOneThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{limits: forgets}
		r.set(func(_ context.Context, a notify.Alert) error {
			if a.Device == "poison" {
				return errBusy
			}
			return nil
		})
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.open("oven")
		pass(time.Second)
		p.open("poison")
		pass(time.Second)
		p.open("kiln")
		pass(time.Second)
		p.post(nil, "oven", "kiln")
		if got := r.posted(); got != "kiln oven" {
			t.Errorf("posted again: %q", got)
		}
	})
}

// While an alarm is being posted again, what becomes due about it waits, also if it is not known whether the post came.
func TestRecoveryWhileItIsPostedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		answer error
		after  time.Duration // the recovery comes, after the post began
	}{
		"it is taken":     {nil, 2 * time.Second},
		"it is not taken": {errBusy, 2 * time.Second},
		"nobody knows":    {errLost, 7 * time.Second}, // until then it may come
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{limits: forgets}
				r.set(func(_ context.Context, a notify.Alert) error {
					if !a.Refresh {
						return nil
					}
					time.Sleep(2 * time.Second)
					return tt.answer
				})
				s := newReplica(t, r)
				p := s.open("0")
				defer s.end()
				p.open("oven")
				pass(2 * window)
				go p.post(nil, "oven")
				synctest.Wait()
				began := time.Now()
				p.well("oven")
				for len(p.done()) == 0 && time.Since(began) < time.Hour {
					pass(100 * time.Millisecond)
				}
				if took := time.Since(began).Truncate(time.Second); took != tt.after {
					t.Errorf("the recovery came %v after the post began: %v", took, r.tried)
				}
				p.post(nil, "oven")
				if last := r.alerts("oven"); !last[len(last)-1].Resolved {
					t.Errorf("posted again after its recovery: %+v", last)
				}
			})
		})
	}
}

// A reading that comes while its alarm is posted again has an alert, and alerts of others wait no longer than the post.
func TestAlertWhileItIsPostedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{limits: forgets}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.open("oven")
		pass(2 * window)
		r.set(wait(2 * time.Second))
		go p.post(nil, "oven")
		synctest.Wait()
		p.open("oven")
		p.open("kiln")
		pass(10 * time.Second)
		if r.most > 1 {
			t.Errorf("%d messages at a time", r.most)
		}
		if n := len(r.alerts("oven")); n != 3 || len(r.alerts("kiln")) != 1 {
			t.Errorf("%d messages about the oven, %d about the kiln", n, len(r.alerts("kiln")))
		}
		wantWatermark(t, p, p.last)
	})
}

// Nothing is posted again while the receiver or the store seems to be down, nor while alerts wait to be sent.
func TestNotPostedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		begin  func(*replica, *owner, *outage)
		posted bool // within the minute that it has
	}{
		"the receiver is down": {func(s *replica, p *owner, _ *outage) {
			s.receivers[0].set(failing(errBusy))
			for i := range 3 {
				p.open(fmt.Sprint("kiln", i))
			}
			pass(5 * time.Second)
			s.receivers[0].set(nil)
		}, false},
		"the store is down": {func(_ *replica, p *owner, o *outage) {
			o.down.Store(true)
			for i := range 3 {
				p.open(fmt.Sprint("kiln", i))
			}
			pass(5 * time.Second)
		}, false},
		"an alert is on its way": {func(s *replica, p *owner, _ *outage) {
			s.receivers[0].set(wait(5 * time.Second))
			p.open("kiln")
			synctest.Wait()
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{limits: forgets}
				s := newReplica(t, r)
				store := &outage{Store: s.store}
				s.store = store
				p := s.open("0")
				defer s.end()
				p.open("oven")
				pass(time.Second)
				tt.begin(s, p, store)
				began := time.Now()
				p.post(nil, "oven")
				if r.most > 1 {
					t.Errorf("%d messages at a time", r.most)
				}
				if got := r.posted() != ""; got != tt.posted {
					t.Errorf("posted again: %v, want %v, after %v", got, tt.posted, time.Since(began))
				}
			})
		})
	}
}
