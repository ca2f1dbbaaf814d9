package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/throttle/throttletest"
)

// reading is a request about the reading with this number in its partition, taken now.
func reading(sequence int64, id string) throttle.Request {
	r := request(id)
	r.Log, r.Sequence = "0", sequence
	return r
}

// cleared is a request to resolve with that reading.
func cleared(sequence int64, id string) throttle.Request {
	r := reading(sequence, id+"/resolved")
	r.Recovery = true
	return r
}

// What a device told is resolved once, after its window, through any replica.
func TestResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		a, b := newGate(store), newGate(store)
		r, _ := do(t, a, cleared(1, "1"), throttle.Taken)
		want(t, r, throttle.Unneeded) // nobody was alerted

		alert := reading(2, "2")
		r, first := do(t, a, alert, throttle.Taken)
		want(t, r, throttle.Sent)
		end := time.Now().Add(window)
		time.Sleep(time.Second)
		c := cleared(3, "3")
		for _, g := range []*recent.Gate{a, b} {
			r, _ = do(t, g, c, throttle.Taken)
			want(t, r, throttle.Busy)
			if early := end.Sub(r.Retry); early > 0 || early < -2*time.Second {
				t.Errorf("ask again %v before the window ends", early)
			}
		}
		if s := inspect(t, b); !s.Notified || s.Recovery {
			t.Errorf("within the window: %+v", s)
		}
		time.Sleep(time.Until(end))
		r, grant := do(t, b, c, throttle.Taken)
		want(t, r, throttle.Sent)
		if grant.ID != "3/resolved" || grant.Ambiguous || grant.Token <= first.Token {
			t.Errorf("grant %+v after %+v", *grant, *first)
		}
		if s := inspect(t, b); s.Notified || s.Recovery || s.AlertID != "" || s.Phase != throttle.Open || !s.Quiet.IsZero() {
			t.Errorf("resolved: %+v", s)
		}

		// Once, and replays are silent, although no window says so any more.
		for _, r := range []throttle.Request{alert, reading(3, "3")} {
			if r.Sequence == 3 {
				r.Enqueued = c.Enqueued
			}
			result, _ := do(t, a, r, throttle.Taken)
			want(t, result, throttle.Throttled)
			if !result.Covers(r) || result.Covers(reading(4, "4")) {
				t.Errorf("covers what was resolved: %t; what comes after: %t", result.Covers(r), result.Covers(reading(4, "4")))
			}
		}
		r, _ = do(t, a, c, throttle.Taken)
		want(t, r, throttle.Unneeded)
		r, _ = do(t, a, cleared(4, "4"), throttle.Taken)
		want(t, r, throttle.Unneeded)

		// What follows alerts at once.
		r, _ = do(t, a, reading(5, "5"), throttle.Taken)
		want(t, r, throttle.Sent)
		r, _ = do(t, b, c, throttle.Taken) // a zombie: it was alerted since
		want(t, r, throttle.Unneeded)
	})
}

// A reading over HTTP has no position. Its alert does not make an old resolved news.
func TestResolvedOnceAlsoWithAlertsByHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		do(t, g, reading(1, "1"), throttle.Taken)
		time.Sleep(window)
		c := cleared(2, "2")
		r, _ := do(t, g, c, throttle.Taken)
		want(t, r, throttle.Sent)
		posted := reading(0, "posted")
		posted.Arrived = time.Now()
		r, _ = do(t, g, posted, throttle.Taken)
		want(t, r, throttle.Sent)
		time.Sleep(window)
		r, _ = do(t, g, c, throttle.Taken)
		want(t, r, throttle.Unneeded)
		r, _ = do(t, g, cleared(3, "3"), throttle.Taken)
		want(t, r, throttle.Sent)
	})
}

// A device that sends by hub and over HTTP: an alert over HTTP after a reading that cleared makes its recovery untrue.
func TestRecoveryAfterAnAlertByHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		do(t, g, reading(1, "1"), throttle.Taken)
		time.Sleep(time.Second)
		c := cleared(2, "2")
		time.Sleep(window)
		posted := reading(0, "posted")
		posted.Arrived = time.Now()
		r, _ := do(t, g, posted, throttle.Taken)
		want(t, r, throttle.Sent)
		time.Sleep(window)
		r, _ = do(t, g, c, throttle.Taken)
		want(t, r, throttle.Unneeded)
		r, _ = do(t, g, cleared(3, "3"), throttle.Taken)
		want(t, r, throttle.Sent)
	})
}

// A recovery that was claimed and certainly not sent, such as because its device was hot again, leaves the record as it was: a reading
// within the last window stays settled, however late it is read again.
func TestRecoveryThatWasNotSentEndsNoWindow(t *testing.T) {
	for _, tt := range []struct {
		answer throttle.Answer
		want   throttle.Outcome
	}{
		{throttle.NotTaken, throttle.Throttled},
		{throttle.Unknown, throttle.Sent}, // the receiver may have got it, and must hear that the device is hot
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(memlease.New())
			r, _ := do(t, g, reading(1, "1"), throttle.Taken)
			want(t, r, throttle.Sent)
			time.Sleep(window / 3)
			c := cleared(2, "2")
			time.Sleep(window / 3)
			again := reading(3, "3")
			time.Sleep(window)
			r, _ = do(t, g, c, tt.answer)
			want(t, r, throttle.Failed)
			if s := inspect(t, g); !s.Notified {
				t.Errorf("%+v", s)
			}
			r, _ = do(t, g, again, throttle.Taken)
			want(t, r, tt.want)
		})
	}
}

// A resolved whose fate is unknown is sent again under its id, however late, by whoever asks
// for the next one; and no more once an alert was claimed.
func TestResolvedOfUnknownFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		do(t, newGate(store), reading(1, "1"), throttle.Taken)
		time.Sleep(window)
		r, _ := do(t, newGate(store), cleared(2, "2"), throttle.Unknown)
		want(t, r, throttle.Failed)
		if s := inspect(t, newGate(store)); !s.Notified || !s.Recovery || !s.Unresolved || s.AlertID != "2/resolved" {
			t.Errorf("of unknown fate: %+v", s)
		}
		time.Sleep(24 * time.Hour)
		r, grant := do(t, newGate(store), cleared(4, "4"), throttle.NotTaken)
		want(t, r, throttle.Failed)
		if grant.ID != "2/resolved" || !grant.Ambiguous {
			t.Errorf("grant %+v, want the resolved that may have been taken", *grant)
		}
		r, grant = do(t, newGate(store), reading(5, "5"), throttle.NotTaken)
		want(t, r, throttle.Failed)
		if grant.ID != "5" || grant.Ambiguous {
			t.Errorf("grant %+v: an alert under the resolved's id?", *grant)
		}
		r, _ = do(t, newGate(store), cleared(4, "4"), throttle.Taken)
		want(t, r, throttle.Unneeded) // the alert of reading 5 will be sent
		r, grant = do(t, newGate(store), cleared(6, "6"), throttle.Taken)
		want(t, r, throttle.Sent)
		if grant.ID != "6/resolved" || grant.Ambiguous {
			t.Errorf("grant %+v: the alert of reading 1 is still to be resolved", *grant)
		}
	})
}

// An alert that may have been taken holds its resolved back until it cannot arrive any more,
// and is resolved then.
func TestResolvedWaitsForAnAlertOfUnknownFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		do(t, g, reading(1, "1"), throttle.Unknown)
		unknown := time.Now().Add(claimTTL + window)
		time.Sleep(time.Second)
		r, _ := do(t, g, cleared(2, "2"), throttle.Taken)
		want(t, r, throttle.Busy)
		if !r.Retry.Equal(unknown) {
			t.Errorf("ask again %v after the alert's fate is known not to matter", r.Retry.Sub(unknown))
		}
		time.Sleep(time.Until(r.Retry))
		r, _ = do(t, g, cleared(2, "2"), throttle.Taken)
		want(t, r, throttle.Sent)
	})
}

// An alert that was certainly not taken is nothing to resolve; one that may have been stays
// one, also after another alert has taken its place.
func TestWhatWasTold(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers []throttle.Answer // of alerts, each after the id before it was forgotten
		want    throttle.Outcome  // of the resolved
	}{
		{"not taken", []throttle.Answer{throttle.NotTaken}, throttle.Unneeded},
		{"may have been taken", []throttle.Answer{throttle.Unknown}, throttle.Sent},
		{"may have been taken, the next was not", []throttle.Answer{throttle.Unknown, throttle.NotTaken}, throttle.Sent},
		{"taken, the next was not", []throttle.Answer{throttle.Taken, throttle.NotTaken}, throttle.Sent},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(memlease.New())
			sequence := int64(1)
			for _, answer := range test.answers {
				do(t, g, reading(sequence, "alert"), answer)
				sequence++
				time.Sleep(claimTTL + window)
			}
			if r, _ := do(t, g, cleared(sequence, "end"), throttle.Taken); r.Outcome != test.want {
				t.Errorf("%s: %v, want %v", test.name, r.Outcome, test.want)
			}
		})
	}
}

// When the claim of a resolved ends unheard of, an alert after it is not taken for a replay,
// and one before it is.
func TestTheClaimOfAResolvedEndsTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		first := reading(1, "1")
		do(t, newGate(store), first, throttle.Taken)
		time.Sleep(window - time.Second)
		c := cleared(2, "2")
		after := reading(3, "3") // within the window too
		time.Sleep(time.Second)
		killed := &faulty{Store: store, before: func(op string) error {
			if op == "release" {
				return errors.New("killed")
			}
			return nil
		}}
		r, _ := do(t, newGate(killed), c, throttle.Unknown)
		want(t, r, throttle.Failed)

		g := newGate(store)
		r, _ = do(t, g, first, throttle.Taken)
		want(t, r, throttle.Throttled)
		r, _ = do(t, g, after, throttle.Taken)
		want(t, r, throttle.Busy)
		time.Sleep(claimTTL)
		r, _ = do(t, g, after, throttle.Taken)
		want(t, r, throttle.Sent)
	})
}

// A resolved that was taken is settled, whether or not that could be recorded; the claim's end
// is the end of trying.
func TestResolvedIsRecordedWhileItsClaimLasts(t *testing.T) {
	for _, test := range []struct {
		failures int
		want     throttle.Outcome
		told     bool
	}{{3, throttle.Sent, false}, {1000, throttle.SentLate, true}} {
		synctest.Test(t, func(t *testing.T) {
			store := memlease.New()
			do(t, newGate(store), reading(1, "1"), throttle.Taken)
			time.Sleep(window)
			start := time.Now()
			failures := test.failures
			failing := &faulty{Store: store, before: func(op string) error {
				if op == "release" && failures > 0 {
					failures--
					return errors.New("connection refused")
				}
				return nil
			}}
			r, _ := do(t, newGate(failing), cleared(2, "2"), throttle.Taken)
			want(t, r, test.want)
			if time.Since(start) > claimTTL {
				t.Errorf("recorded for %v", time.Since(start))
			}
			time.Sleep(claimTTL)
			if s := inspect(t, newGate(store)); s.Notified != test.told || s.Recovery != test.told {
				t.Errorf("after %d failures: %+v", test.failures, s)
			}
		})
	}
}

// What was given up is not sent when it is read again, and what may have been taken of it is
// not forgotten.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := limited{memlease.New()}
		g := newGate(store)
		first, second := reading(1, "1"), reading(2, "2")
		do(t, g, first, throttle.Unknown)
		before := inspect(t, g)
		for range 2 {
			if err := g.GiveUp(t.Context(), second); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if s := inspect(t, g); s.Phase != throttle.Open || !s.Unresolved || s.AlertID != "1" || !s.Notified || s.Token != before.Token+1 {
			t.Errorf("given up: %+v", s)
		}
		for _, again := range []throttle.Request{first, second} {
			r, _ := do(t, newGate(store), again, throttle.Taken)
			want(t, r, throttle.Throttled)
		}
		third := reading(3, "3")
		third.Arrived = time.Now() // over HTTP: no position, so nothing to note, and covered by none
		if err := g.GiveUp(t.Context(), third); err != nil {
			t.Fatal(err)
		}
		time.Sleep(claimTTL + window - 2*time.Second)
		if !inspect(t, g).Unresolved {
			t.Error("the alert's id is forgotten too early")
		}
		time.Sleep(time.Second)
		if inspect(t, g).Unresolved {
			t.Error("the alert's id is kept for longer than without giving up")
		}
		third.Arrived = time.Now()
		r, grant := do(t, g, third, throttle.Taken)
		want(t, r, throttle.Sent)
		if grant.ID != "3" {
			t.Errorf("grant %+v", *grant)
		}
		if err := g.GiveUp(t.Context(), reading(4, "4")); err != nil {
			t.Errorf("within a window: %v", err)
		}
		time.Sleep(window)
		if err := g.GiveUp(t.Context(), reading(5, "5")); err != nil {
			t.Errorf("after a window: %v", err)
		}
		if s := inspect(t, g); !s.Notified || s.Quiet.IsZero() || s.Unresolved {
			t.Errorf("what the window said: %+v", s)
		}
		r, _ = do(t, g, cleared(6, "6"), throttle.Taken)
		want(t, r, throttle.Sent)

		seventh := reading(7, "7")
		if err := g.GiveUp(t.Context(), seventh); err != nil {
			t.Fatal(err)
		}
		do(t, g, reading(8, "8"), throttle.NotTaken) // says nothing against it
		r, _ = do(t, g, seventh, throttle.Taken)
		want(t, r, throttle.Throttled)
	})
}

// A reading of another partition, or of a hub that was recreated, is not compared with those of this one.
func TestPositionsOfDifferentLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		do(t, g, reading(1000, "1"), throttle.Taken)
		time.Sleep(window)
		do(t, g, cleared(1001, "2"), throttle.Taken)
		time.Sleep(time.Second)
		of := func(r throttle.Request) throttle.Request { r.Log = "another"; return r }
		r, _ := do(t, g, of(reading(1, "3")), throttle.Taken)
		want(t, r, throttle.Sent)
		time.Sleep(window)
		r, _ = do(t, g, of(cleared(2, "4")), throttle.Taken)
		want(t, r, throttle.Sent)
	})
}

// A device alerts by two logs: it has moved, or its hub was recreated. Times say which alerts a recovery comes after; one
// that may be before an alert is not sent.
func TestRecoveryAmongAlertsOfTwoLogs(t *testing.T) {
	type event struct {
		log    string // empty: over HTTP, when the test is there
		minute int    // when the hub took it
	}
	for _, tt := range []struct {
		name     string
		alerts   []event // in the order of their claims
		recovery event
		want     throttle.Outcome
	}{
		{"of the same log", []event{{"0", 1}}, event{"0", 2}, throttle.Sent},
		{"later than an alert of another log", []event{{"0", 1}, {"1", 3}}, event{"0", 4}, throttle.Sent},
		{"earlier than one", []event{{"0", 1}, {"1", 3}}, event{"0", 2}, throttle.Unneeded},
		{"at the same time as one", []event{{"0", 1}, {"1", 3}}, event{"0", 3}, throttle.Unneeded},
		{"of two at the same time", []event{{"1", 3}, {"0", 3}}, event{"0", 3}, throttle.Unneeded},
		{"later than two at the same time", []event{{"1", 3}, {"0", 3}}, event{"0", 4}, throttle.Sent},
		{"earlier than one, the other was read late", []event{{"1", 3}, {"0", 1}}, event{"0", 2}, throttle.Unneeded},
		{"of the latest one's log, the other was read late", []event{{"1", 3}, {"0", 1}}, event{"1", 4}, throttle.Sent},
		{"later than both, one was read late", []event{{"1", 3}, {"0", 1}}, event{"0", 4}, throttle.Sent},
		{"earlier than one over HTTP", []event{{"0", 1}, {"", 3}}, event{"0", 2}, throttle.Unneeded},
		{"earlier than one over HTTP, but after an alert of its log", []event{{"", 3}, {"0", 9}}, event{"0", 8}, throttle.Sent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, start := newGate(memlease.New()), time.Now()
				request := func(e event, sequence int64) throttle.Request {
					r := throttle.Request{Device: "oven", ID: fmt.Sprint(sequence), Log: e.log, Sequence: sequence}
					r.Enqueued = start.Add(time.Duration(e.minute) * time.Minute)
					time.Sleep(time.Until(r.Enqueued))
					if e.log == "" {
						r.Arrived = time.Now()
					}
					return r
				}
				last := len(tt.alerts) - 1
				for i, e := range tt.alerts {
					answer := throttle.Unknown // then no window covers the next one
					if i == last {
						answer = throttle.Taken
					}
					result, _ := do(t, g, request(e, int64(i)), answer)
					if result.Outcome != throttle.Sent && result.Outcome != throttle.Failed {
						t.Fatal(result.Outcome)
					}
				}
				time.Sleep(2 * window)
				r := request(tt.recovery, 9)
				r.Recovery = true
				result, _ := do(t, g, r, throttle.Taken)
				want(t, result, tt.want)
			})
		})
	}
}

// An alert of another log at the same time does not count any more once its recovery was sent: an alert that follows has
// a recovery of its own.
func TestRecoveryAfterAnotherLogsAlertHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, start := newGate(memlease.New()), time.Now()
		ask := func(log string, sequence int64, at time.Time, recovery bool, answer throttle.Answer, outcome throttle.Outcome) {
			t.Helper()
			time.Sleep(2 * window)
			r := throttle.Request{Device: "oven", ID: fmt.Sprint(sequence, recovery), Log: log, Sequence: sequence, Enqueued: at, Recovery: recovery}
			result, _ := do(t, g, r, answer)
			want(t, result, outcome)
		}
		ask("0", 1, start, false, throttle.Unknown, throttle.Failed)
		ask("1", 1, start, false, throttle.Taken, throttle.Sent)
		ask("1", 2, start.Add(time.Second), true, throttle.Taken, throttle.Sent)
		ask("0", 1, start, false, throttle.Taken, throttle.Sent) // it is tried again
		ask("0", 2, start, true, throttle.Taken, throttle.Sent)
	})
}

// A device falls silent twice after one event: its rule was removed, which ended the first silence, and came back. Each
// is sent once, and so is its end.
func TestSilentTwiceAfterOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, start := newGate(memlease.New()), time.Now()
		request := func(part throttle.Part, minute int) throttle.Request {
			at := start.Add(time.Duration(minute) * time.Minute)
			return throttle.Request{
				Device: "oven", ID: fmt.Sprint(part, minute), Log: "0", Sequence: 7, Part: part, Recovery: part == throttle.End,
				Enqueued: at, At: at,
			}
		}
		for _, e := range []struct {
			part   throttle.Part
			minute int
			want   throttle.Outcome
		}{
			{throttle.Silence, 15, throttle.Sent},
			{throttle.Silence, 15, throttle.Throttled}, // read again
			{throttle.End, 40, throttle.Sent},
			{throttle.Silence, 15, throttle.Throttled},
			{throttle.Silence, 60, throttle.Sent},
			{throttle.End, 40, throttle.Unneeded}, // it was due before
			{throttle.Silence, 60, throttle.Throttled},
			{throttle.End, 90, throttle.Sent},
		} {
			r := request(e.part, e.minute)
			time.Sleep(max(2*window, time.Until(r.At)))
			result, _ := do(t, g, r, throttle.Taken)
			if result.Outcome != e.want {
				t.Errorf("part %v of minute %d: %v, want %v", e.part, e.minute, result.Outcome, e.want)
			}
		}
	})
}

// Within one log the number decides. The hub's times may go back by milliseconds.
func TestTimesThatGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		alert := reading(1, "1")
		r, _ := do(t, g, alert, throttle.Taken)
		want(t, r, throttle.Sent)
		c := cleared(2, "2")
		c.Enqueued = alert.Enqueued.Add(-5 * time.Millisecond)
		time.Sleep(window)
		r, _ = do(t, g, c, throttle.Taken)
		want(t, r, throttle.Sent)
		again := reading(3, "3")
		again.Enqueued = c.Enqueued.Add(-5 * time.Millisecond)
		r, _ = do(t, g, again, throttle.Taken)
		want(t, r, throttle.Sent)
		r, _ = do(t, g, alert, throttle.Taken)
		want(t, r, throttle.Throttled)
	})
}

// What a resolved costs: one call to claim, one to record. Nothing while a window is known.
func TestCallsPerResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memlease.New()}
		g := newGate(store)
		do(t, g, reading(1, "1"), throttle.Taken)
		store.calls = 0
		for range 10 {
			r, _ := do(t, g, cleared(2, "2"), throttle.Taken)
			want(t, r, throttle.Busy)
			time.Sleep(time.Second)
		}
		if store.calls != 0 {
			t.Errorf("%d calls while the window is known", store.calls)
		}
		time.Sleep(window)
		r, _ := do(t, g, cleared(2, "2"), throttle.Taken)
		want(t, r, throttle.Sent)
		if store.calls != 2 {
			t.Errorf("%d calls for a resolved", store.calls)
		}
	})
}

// The store answers what is not to be resolved as an error of next: nothing is written.
func TestUnneededWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		g := newGate(store)
		do(t, g, reading(1, "1"), throttle.NotTaken)
		before := inspect(t, g)
		r, err := throttletest.Do(t.Context(), g, cleared(2, "2"), func(context.Context, throttle.Grant) throttle.Answer {
			t.Error("sent")
			return throttle.Taken
		})
		if after := inspect(t, g); err != nil || r.Outcome != throttle.Unneeded || after != before {
			t.Errorf("%v, %v: %+v became %+v", r.Outcome, err, before, after)
		}
	})
}

// The recovery of an alarm was sent, or may have been, and yet the alarm goes on, because nothing else of its end was kept:
// its next reading alerts, however seldom it is sent again, and whatever became of the first attempt. A replay of the
// reading that opened it sends nothing, and does not make the alarm quiet.
func TestRecoveredAlarmIsCoveredNoLonger(t *testing.T) {
	never := func(sequence int64) throttle.Request {
		r := reading(sequence, fmt.Sprint(sequence))
		r.Repeat, r.OpenedBy = 100*window, 1
		return r
	}
	fails := func(answer throttle.Answer) func(*testing.T, *recent.Gate) {
		return func(t *testing.T, g *recent.Gate) {
			r, _ := do(t, g, never(2), answer)
			want(t, r, throttle.Failed)
		}
	}
	dies := func(t *testing.T, g *recent.Gate) {
		if c, r, err := g.Claim(t.Context(), never(2)); c == nil {
			t.Errorf("no claim: %v, %v", r.Outcome, err)
		}
		time.Sleep(2 * window)
	}
	for _, tt := range []struct {
		name     string
		recovery throttle.Answer
		first    func(*testing.T, *recent.Gate)
		want     throttle.Outcome
	}{
		{"a recovery", throttle.Taken, nil, throttle.Sent},
		{"it may have been taken", throttle.Unknown, nil, throttle.Sent},
		{"it was not", throttle.NotTaken, nil, throttle.Throttled},
		{"an alert is refused", throttle.Taken, fails(throttle.NotTaken), throttle.Sent},
		{"an alert is refused after what may have been taken", throttle.Unknown, fails(throttle.NotTaken), throttle.Sent},
		{"an alert may have been taken after that", throttle.Unknown, fails(throttle.Unknown), throttle.Sent},
		{"the replica dies with a claim after that", throttle.Unknown, dies, throttle.Sent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(memlease.New())
				r, _ := do(t, g, never(1), throttle.Taken)
				want(t, r, throttle.Sent)
				time.Sleep(2 * window)
				do(t, g, cleared(1, "1"), tt.recovery)
				time.Sleep(2 * window)
				r, _ = do(t, g, never(1), throttle.Taken)
				want(t, r, throttle.Throttled)
				if due := r.NextReminder(never(1)); due.IsZero() != (tt.want == throttle.Sent) {
					t.Errorf("after a replay the alarm is quiet until %v", due)
				}
				if tt.first != nil {
					tt.first(t, g)
				}
				r, _ = do(t, g, never(2), throttle.Taken)
				want(t, r, tt.want)
				if tt.want == throttle.Sent && r.NextReminder(never(3)).Before(time.Now().Add(99*window)) {
					t.Errorf("the next reminder is due at %v", r.NextReminder(never(3)))
				}
			})
		})
	}
}
