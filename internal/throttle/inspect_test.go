package throttle_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
