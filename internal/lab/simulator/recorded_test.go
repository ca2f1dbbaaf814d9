package simulator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/throttle"
)

// Time goes on when what it waits for is settled, and never back.
func TestRecordedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecording()
		stamp := time.Date(2014, 1, 1, 0, 0, 0, 0, time.UTC)
		after := func(want time.Duration) {
			t.Helper()
			if got := r.now().Sub(r.start); got != want {
				t.Errorf("%v after the start, want %v", got, want)
			}
		}
		settled := map[position]time.Time{{"0", 7}: time.Now().Add(time.Minute), {"1", 7}: time.Now().Add(2 * time.Minute)}
		is := func(p position) bool { return !time.Now().Before(settled[p]) }
		advance := func(to time.Duration) {
			t.Helper()
			if err := r.advance(t.Context(), stamp.Add(to), is); err != nil {
				t.Fatal(err)
			}
		}
		advance(0)
		after(0)
		r.wait(position{"0", 7})
		r.wait(position{"1", 7})
		began := time.Now()
		advance(0) // of the same time: nothing to wait for
		advance(-time.Hour)
		after(0)
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %v", took)
		}
		time.Sleep(time.Second)
		if since := r.since(position{"0", 7}); since != time.Second {
			t.Errorf("waits for %v", since)
		}
		advance(30 * time.Hour)
		after(30 * time.Hour)
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("waited %v, want until both are settled", took)
		}
		if since := r.since(position{"0", 7}); since != 0 {
			t.Errorf("settled, and waits for %v", since)
		}

		r.wait(position{"2", 0})
		settled[position{"2", 0}] = time.Now().Add(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.advance(ctx, stamp.Add(31*time.Hour), is); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		after(30 * time.Hour)
	})
}

// A gate on the store of a recording has windows of recorded time, exactly, whatever real time passes.
func TestRecordedWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = time.Minute
		r := newRecording()
		gate := func() *throttle.Gate {
			return throttle.New(throttle.Config{Store: r.leases(window), Scope: "s", Receiver: "r", Window: window, SendTimeout: time.Second})
		}
		mine, other := gate(), gate()
		stamp := time.Date(2014, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, step := range []struct {
			at   time.Duration
			want throttle.Outcome
		}{
			{0, throttle.Sent}, {0, throttle.Throttled}, {window - time.Millisecond, throttle.Throttled}, {window, throttle.Sent},
			{2*window - time.Millisecond, throttle.Throttled}, {2 * window, throttle.Sent}, {1000 * time.Hour, throttle.Sent},
		} {
			if err := r.advance(t.Context(), stamp.Add(step.at), func(position) bool { return true }); err != nil {
				t.Fatal(err)
			}
			if mine.Recent("oven") {
				t.Errorf("at %v: the gate goes by a clock of its own", step.at)
			}
			g := mine
			if step.want == throttle.Throttled {
				g = other
			}
			result, err := g.Do(t.Context(), throttle.Request{Device: "oven", ID: "id", Enqueued: r.now()}, func(context.Context, throttle.Grant) throttle.Answer {
				time.Sleep(500 * time.Millisecond)
				return throttle.Taken
			})
			if err != nil || result.Outcome != step.want {
				t.Errorf("at %v: %v, %v, want %v", step.at, result.Outcome, err, step.want)
			}
		}
	})
}

// Of two that take a key one gets it.
func TestRecordedLeases(t *testing.T) {
	r := newRecording()
	s := r.leases(time.Minute)
	next := func(lease.Record) (string, error) { return "note", nil }
	l, err := s.Acquire(t.Context(), "key", time.Second, next)
	if err == nil {
		err = s.Release(t.Context(), l, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), "key", time.Second, func(prev lease.Record) (string, error) {
		if prev.Token == l.Token { // another is faster
			if _, err := s.Acquire(t.Context(), "key", time.Second, next); err != nil {
				t.Error(err)
			}
		}
		return "note", nil
	}); !errors.Is(err, lease.ErrHeld) {
		t.Errorf("both have the key: %v", err)
	}
}
