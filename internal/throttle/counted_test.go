package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/throttle"
)

// counted returns the tally of each device and receiver on the day of at.
func counted(t *testing.T, s lease.Store, scope string, at time.Time) map[string]throttle.Tally {
	t.Helper()
	all := map[string]throttle.Tally{}
	for c, err := range throttle.Counted(t.Context(), s, scope) {
		if err != nil {
			t.Fatal(err)
		}
		all[c.Receiver+" "+c.Device] = c.On(at)
	}
	return all
}

// What is counted outlives all that may happen to a record.
func TestCountsOutliveEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		g := newGate(store)
		has := func(after string, want throttle.Tally) {
			t.Helper()
			if got := counted(t, store, "ns/hub/group", time.Now()); got["r oven#7"] != want {
				t.Errorf("after %s: %+v, want %+v", after, got, want)
			}
		}
		sent := func() {
			t.Helper()
			r, _ := do(t, g, request("1"), throttle.Taken)
			want(t, r, throttle.Sent)
		}
		do(t, g, request("0"), throttle.NotTaken)
		has("a failed alert", throttle.Tally{})
		sent()
		has("an alert", throttle.Tally{Alerts: 1})
		for range 5 {
			g.Recent("oven#7")
		}
		time.Sleep(window)
		has("a window", throttle.Tally{Alerts: 1})
		do(t, g, request("2"), throttle.Unknown)
		has("an alert that may have been taken", throttle.Tally{Alerts: 1})
		do(t, g, request("2"), throttle.NotTaken)
		has("a failed alert", throttle.Tally{Alerts: 1})
		if _, err := g.Do(t.Context(), request("3"), func(context.Context, throttle.Grant) throttle.Answer {
			has("a claim", throttle.Tally{Alerts: 1})
			return throttle.Taken
		}); err != nil {
			t.Fatal(err)
		}
		has("an alert after five suppressed readings", throttle.Tally{Alerts: 2, Suppressed: 5})
		if err := g.Reopen(t.Context(), "oven#7"); err != nil {
			t.Fatal(err)
		}
		has("Reopen", throttle.Tally{Alerts: 2, Suppressed: 5})
		sent()
		has("the next alert", throttle.Tally{Alerts: 3, Suppressed: 5})

		dead := newGate(&faulty{Store: store, before: func(op string) error {
			if op != "acquire" {
				return errors.New("killed")
			}
			return nil
		}})
		time.Sleep(window)
		do(t, dead, request("4"), throttle.Unknown)
		time.Sleep(claimTTL)
		has("a claim of the dead", throttle.Tally{Alerts: 3, Suppressed: 5})
		sent()
		has("the next alert", throttle.Tally{Alerts: 4, Suppressed: 5})

		today := time.Now()
		time.Sleep(24 * time.Hour)
		sent()
		has("an alert of the next day", throttle.Tally{Alerts: 1})
		if got := counted(t, store, "ns/hub/group", today)["r oven#7"]; got != (throttle.Tally{Alerts: 4, Suppressed: 5}) {
			t.Errorf("then the day before has %+v", got)
		}
	})
}

// An answer of the store that is lost makes no alert count twice.
func TestLostAnswerCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, lost := memlease.New(), 0
		g := newGate(&faulty{Store: store, after: on("extend", func() error {
			if lost++; lost < 3 {
				return errors.New("connection reset")
			}
			return nil
		})})
		r, _ := do(t, g, request("1"), throttle.Taken)
		want(t, r, throttle.Sent)
		if got := counted(t, store, "ns/hub/group", time.Now())["r oven#7"]; got.Alerts != 1 || lost != 3 {
			t.Errorf("%+v after %d answers", got, lost)
		}
	})
}

// A scope's devices are listed by their names, and no other's.
func TestCountedKeepsScopesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		send := func(scope, receiver, device string) {
			t.Helper()
			g := throttle.New(throttle.Config{Store: store, Scope: scope, Receiver: receiver, Window: window, SendTimeout: sendTimeout})
			r, err := g.Do(t.Context(), throttle.Request{Device: device, ID: "1", Enqueued: time.Now()}, taken)
			if err != nil || r.Outcome != throttle.Sent {
				t.Fatal(r, err)
			}
		}
		devices := []string{"a", "a/b", "~x", "", "ü", "\xff", "x", strings.Repeat("x", 600)}
		for _, d := range devices {
			send("s", "x/y", d)
		}
		send("s", "other", "a")
		send("s/x", "x", "theirs")
		send("s2", "x", "theirs")
		send("s", "x", strings.Repeat("x", 1100)) // in no key
		l, err := store.Acquire(t.Context(), "s/x/strange", time.Minute, func(lease.Record) (string, error) {
			return `{"counts":{"day":20000,"alerts":[-1,0]}}`, nil
		})
		if err != nil {
			t.Fatal(l, err)
		}
		want := map[string]throttle.Tally{"other a": {Alerts: 1}}
		for _, d := range devices {
			want["x/y "+d] = throttle.Tally{Alerts: 1}
		}
		if got := counted(t, store, "s", time.Now()); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("counted\n%v, want\n%v", got, want)
		}
	})
}

func TestCountedNeedsALister(t *testing.T) {
	n := 0
	for _, err := range throttle.Counted(t.Context(), &faulty{Store: memlease.New()}, "s") {
		if n++; !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d came", n)
	}
}
