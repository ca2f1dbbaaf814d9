package throttle_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/throttle/throttletest"
)

func inspect(t *testing.T, g *recent.Gate) throttle.State {
	t.Helper()
	s, err := g.Inspect(t.Context(), sensor.Of("oven#7"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		g := recent.New(throttle.Config{
			Store: store, Scope: "ns/hub/group", Receiver: "r", Replica: "me", Window: window, SendTimeout: sendTimeout,
		}, recent.NewWindows())
		other := newGate(store)
		if s := inspect(t, g); s != (throttle.State{Now: time.Now()}) {
			t.Errorf("a device that was never hot: %+v", s)
		}

		start := time.Now()
		var sending throttle.State
		var token int64
		r, err := throttletest.Do(t.Context(), g, request("1"), func(_ context.Context, grant throttle.Grant) throttle.Answer {
			sending, token = inspect(t, other), grant.Token
			time.Sleep(time.Second)
			return throttle.Taken
		})
		if err != nil || r.Outcome != throttle.Sent {
			t.Fatal(r, err)
		}
		if want := (throttle.State{Phase: throttle.Sending, Until: start.Add(claimTTL), AlertID: "1", Unresolved: true, Notified: true, Token: token, Claimed: start, Replica: "me", Now: start}); sending != want {
			t.Errorf("while sending:\n%+v, want\n%+v", sending, want)
		}
		g.Recent(sensor.Of("oven#7"))
		end := start.Add(time.Second + window)
		want := throttle.State{Phase: throttle.Closed, Until: end, Quiet: end, AlertID: "1", Notified: true, Token: token, Claimed: start, Replica: "me", Now: time.Now()}
		if s := inspect(t, g); s != want {
			t.Errorf("within the window:\n%+v, want\n%+v", s, want)
		}
		if n := g.Count(sensor.Of("oven#7")); n != 1 {
			t.Errorf("within the window %d readings are counted as suppressed, want 1", n)
		}

		time.Sleep(window)
		if s := inspect(t, other); s.Phase != throttle.Open || !s.Until.IsZero() || !s.Quiet.Equal(end) || s.Unresolved {
			t.Errorf("after the window: %+v", s)
		}
		do(t, g, request("2"), throttle.Unknown)
		if s := inspect(t, other); s.Phase != throttle.Open || s.AlertID != "2" || !s.Unresolved {
			t.Errorf("after an alert that may have been taken: %+v", s)
		}
	})
}

// When the last alert was sent is known of rules with a repeat, whose windows do not say it.
func TestInspectSaysWhenAnAlarmWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		do(t, g, request("1"), throttle.Taken)
		if s := inspect(t, g); !s.Sent.IsZero() {
			t.Errorf("without a repeat: sent at %v", s.Sent)
		}
		time.Sleep(window)
		r := reading(2, "2")
		r.Repeat, r.OpenedBy = 2*window, 2
		sent := time.Now()
		do(t, g, r, throttle.Taken)
		time.Sleep(time.Second)
		if s := inspect(t, g); !s.Sent.Equal(sent) {
			t.Errorf("sent at %v, want %v", s.Sent, sent)
		}
	})
}

// A prediction that the key is busy says when to ask again, and no other does.
func TestPredictSaysWhenToAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		predict := func(want throttle.Outcome) time.Time {
			t.Helper()
			r, _, err := g.Predict(t.Context(), reading(2, "2"))
			if err != nil || r.Outcome != want {
				t.Fatalf("%v, %v; want %v", r.Outcome, err, want)
			}
			return r.Retry
		}
		if at := predict(throttle.Sent); !at.IsZero() {
			t.Errorf("nothing is in the way: ask again at %v", at)
		}
		_, _ = throttletest.Do(t.Context(), g, reading(1, "1"), func(context.Context, throttle.Grant) throttle.Answer {
			if at := predict(throttle.Busy); !at.After(time.Now()) {
				t.Errorf("an alert is being sent: ask again at %v, and it is %v", at, time.Now())
			}
			return throttle.NotTaken
		})
	})
}

func TestInspectSaysThatTheStoreFails(t *testing.T) {
	down := errors.New("service unavailable")
	store := &faulty{Store: memlease.New(), before: func(string) error { return down }}
	if _, err := newGate(store).Inspect(t.Context(), sensor.Of("oven#7")); !errors.Is(err, down) || !strings.Contains(err.Error(), "oven#7") {
		t.Error(err)
	}
}

// What a person opens is open to the next reading, through any replica, and to
// none from before.
func TestReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		sender, opener, other := newGate(store), newGate(store), newGate(store)
		r, first := do(t, sender, request("1"), throttle.Taken)
		want(t, r, throttle.Sent)
		time.Sleep(time.Second)
		before := request("before")
		r, _ = do(t, newGate(store), before, throttle.Taken)
		want(t, r, throttle.Throttled)
		time.Sleep(time.Second)

		if err := opener.Reopen(t.Context(), sensor.Of("oven#7")); err != nil {
			t.Fatal(err)
		}
		if s := inspect(t, other); s.Phase != throttle.Open || s.Unresolved || !s.Quiet.Equal(time.Now()) {
			t.Errorf("reopened: %+v", s)
		}
		if !sender.Recent(sensor.Of("oven#7")) {
			t.Error("a replica has forgotten: then say so in Reopen's contract")
		}
		r, _ = do(t, other, before, throttle.Taken) // read again by a new owner
		want(t, r, throttle.Throttled)
		r, second := do(t, opener, request("2"), throttle.Taken)
		want(t, r, throttle.Sent)
		if second.ID != "2" || second.Ambiguous || second.Token <= first.Token || opener.Count(sensor.Of("oven#7")) != 0 {
			t.Errorf("grant %+v after %+v", *second, *first)
		}
		r, _ = do(t, other, request("3"), throttle.Taken) // in a window of its own
		want(t, r, throttle.Throttled)
	})
}

func TestReopenWithoutAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		g, other := newGate(store), newGate(store)
		if err := g.Reopen(t.Context(), sensor.Of("oven#7")); err != nil {
			t.Errorf("a device that was never hot: %v", err)
		}
		r, err := throttletest.Do(t.Context(), g, request("1"), func(context.Context, throttle.Grant) throttle.Answer {
			if err := other.Reopen(t.Context(), sensor.Of("oven#7")); !errors.Is(err, throttle.ErrSending) {
				t.Errorf("while an alert is being sent: %v", err)
			}
			return throttle.Taken
		})
		if err != nil || r.Outcome != throttle.Sent {
			t.Fatal(r, err)
		}
		time.Sleep(window)
		replayed := request("1")
		replayed.Enqueued = replayed.Enqueued.Add(-time.Second)
		if err := g.Reopen(t.Context(), sensor.Of("oven#7")); err != nil {
			t.Errorf("a window that is over: %v", err)
		}
		r, _ = do(t, other, replayed, throttle.Taken)
		want(t, r, throttle.Throttled) // replays stay silent
	})
}

// A record that comes late, or again, does not close what a person has opened.
func TestReopenBeatsALateRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		var opener *recent.Gate
		lost := errors.New("answer lost")
		sender := newGate(&faulty{Store: store, after: func(op string) error {
			if op == "extend" && opener != nil { // the record is there, its answer is not; it is sent again
				if err := opener.Reopen(t.Context(), sensor.Of("oven#7")); err != nil {
					t.Error(err)
				}
				opener = nil
				return lost
			}
			return nil
		}})
		opener = newGate(store)
		r, _ := do(t, sender, request("1"), throttle.Taken)
		want(t, r, throttle.SentLate)
		if s := inspect(t, sender); s.Phase != throttle.Open {
			t.Errorf("closed again: %+v", s)
		}
	})
}

// A read that is older than the window makes nobody believe that it was opened.
func TestReopenDoesNotBelieveALaggingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &seconds{lags: true}
		store := s.store()
		for _, before := range []string{"never taken", "an ended window"} {
			l, err := store.Acquire(t.Context(), "ns/hub/group/r/oven#7", claimTTL, func(lease.Record) (string, error) { return "", nil })
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Release(t.Context(), l, `{"quiet":1}`); err != nil { // so that the record before is a free one
				t.Fatal(err)
			}
			s.mu.Lock()
			free := s.records["ns/hub/group/r/oven#7"]
			s.mu.Unlock()
			r, _ := do(t, newGate(store), request("1"), throttle.Taken)
			want(t, r, throttle.Sent)
			s.mu.Lock()
			if s.outdated = 2; before == "never taken" {
				free = caslease.Record{}
			}
			s.old["ns/hub/group/r/oven#7"], s.behind = []caslease.Record{free}, 0
			s.mu.Unlock()
			if err := newGate(store).Reopen(t.Context(), sensor.Of("oven#7")); err != nil {
				t.Errorf("%s: %v", before, err)
			}
			s.outdated = 0
			if state := inspect(t, newGate(store)); state.Phase != throttle.Open {
				t.Errorf("after reads of a record that was %s: %+v", before, state)
			}
			time.Sleep(time.Second)
		}

		// What has ended by itself says the same after it.
		g := newGate(store)
		do(t, g, request("2"), throttle.Unknown)
		was := inspect(t, g)
		if err := g.Reopen(t.Context(), sensor.Of("oven#7")); err != nil {
			t.Error(err)
		}
		is := inspect(t, g)
		is.Now = was.Now
		if is != was || !is.Unresolved {
			t.Errorf("%+v became %+v", was, is)
		}
	})
}
