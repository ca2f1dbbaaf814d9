package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/throttle/throttletest"
)

// about is a request for the alert of an incident of berlin, for a reading that the hub takes now.
func about(incident string) throttle.Request {
	return throttle.Request{Device: "berlin", Incident: incident, Repeat: window, Enqueued: time.Now()}
}

// ended is one for its end.
func ended(incident string) throttle.Request {
	r := about(incident)
	r.Recovery = true
	return r
}

// A step is what a gate is asked, what the receiver answers if it is sent, and what comes of it.
type step struct {
	after  time.Duration
	ask    func(incident string) throttle.Request
	about  string
	answer throttle.Answer
	want   throttle.Outcome
	id     string // that is sent
}

// What a record says of incidents: of the one that was told, of one that may have been, and of others. Each step is asked of
// another replica than the one before.
func TestIncidents(t *testing.T) {
	const (
		unknown = throttle.Unknown
		yes     = throttle.Taken
		no      = throttle.NotTaken
	)
	never := func(incident string) throttle.Request {
		r := about(incident)
		r.Repeat = rules.Never
		return r
	}
	old := func(string) throttle.Request {
		return throttle.Request{Device: "berlin", ID: "old", Enqueued: time.Now()}
	}
	told := step{0, about, "a", yes, throttle.Sent, "a"}

	for name, steps := range map[string][]step{
		"told once, and once that it is over": {
			told,
			{1, about, "a", yes, throttle.Throttled, ""},
			{1, ended, "a", yes, throttle.Busy, ""},
			{window, ended, "a", yes, throttle.Sent, "end 1"},
			{0, ended, "a", yes, throttle.Unneeded, ""},
			{0, about, "b", yes, throttle.Sent, "b"},
		},
		"told again after the window": {
			told,
			{window + time.Second, about, "a", yes, throttle.Sent, "a"},
			{1, about, "a", yes, throttle.Throttled, ""},
		},
		"told again after repeat alone": {
			told,
			{6 * 24 * time.Hour, never, "a", yes, throttle.Throttled, ""},
			{0, never, "b", yes, throttle.Sent, "b"},
		},
		"another one waits for the window": {
			told,
			{1, about, "b", yes, throttle.Busy, ""},
			{window, about, "b", yes, throttle.Sent, "b"},
			{window + 1, ended, "a", yes, throttle.Unneeded, ""},
			{0, ended, "b", yes, throttle.Sent, "end 1"},
		},
		"the fate of an alert is not known": {
			{0, about, "a", unknown, throttle.Failed, "a"},
			{1, about, "b", yes, throttle.Busy, ""},
			{0, ended, "a", yes, throttle.Busy, ""},
			{0, about, "a", no, throttle.Failed, "a"},
			{claimTTL + window, ended, "a", yes, throttle.Sent, "end 1"},
			{0, ended, "a", yes, throttle.Unneeded, ""},
		},
		"one that may have been told long ago has its end": {
			{0, about, "a", unknown, throttle.Failed, "a"},
			{claimTTL + window, about, "a", no, throttle.Failed, "a"},
			{0, ended, "a", yes, throttle.Sent, "end 1"},
		},
		"one that was refused is not told": {
			{0, about, "a", no, throttle.Failed, "a"},
			{0, ended, "a", yes, throttle.Unneeded, ""},
			{0, about, "b", yes, throttle.Sent, "b"},
		},
		"an end of unknown fate covers nothing": {
			told,
			{window, ended, "a", unknown, throttle.Failed, "end 1"},
			{0, never, "a", no, throttle.Failed, "a"},
			{0, never, "a", yes, throttle.Sent, "a"},
			{1, never, "a", yes, throttle.Throttled, ""},
		},
		"an end of unknown fate is sent again under its id": {
			told,
			{window, ended, "a", unknown, throttle.Failed, "end 1"},
			{0, ended, "a", no, throttle.Failed, "end 1"},
			{0, never, "a", no, throttle.Failed, "a"}, // it may have been taken still
			{0, ended, "a", yes, throttle.Sent, "end 1"},
			{0, ended, "a", yes, throttle.Unneeded, ""},
		},
		"an end that was not sent is tried again, although only an alert of unknown fate came before": {
			{0, about, "a", unknown, throttle.Failed, "a"},
			{claimTTL + window, ended, "a", no, throttle.Failed, "end 1"},
			{0, ended, "a", yes, throttle.Sent, "end 1"},
		},
		"an end that was not sent ends nothing": {
			told,
			{window, ended, "a", no, throttle.Failed, "end 1"},
			{0, never, "a", yes, throttle.Throttled, ""},
			{0, ended, "a", yes, throttle.Sent, "end 1"},
		},
		"an incident that goes on ends under another id": {
			told,
			{window, ended, "a", yes, throttle.Sent, "end 1"},
			{0, about, "a", yes, throttle.Sent, "a"},
			{window, ended, "a", unknown, throttle.Failed, "end 2"},
			{0, ended, "a", yes, throttle.Sent, "end 2"},
		},
		"unless the fate of its last end is unknown, and no alert came since": {
			told,
			{window, ended, "a", unknown, throttle.Failed, "end 1"},
			{0, ended, "a", unknown, throttle.Failed, "end 1"},
			{0, never, "a", unknown, throttle.Failed, "a"},
			{claimTTL + window, ended, "a", yes, throttle.Sent, "end 2"},
		},
		"who does not know yet that it went on claims the end of now": {
			told,
			{window, ended, "a", yes, throttle.Sent, "end 1"},
			{0, about, "a", yes, throttle.Sent, "a"},
			{window, ended, "a", unknown, throttle.Failed, "end 2"},
			{0, ended, "a", yes, throttle.Sent, "end 2"},
		},
		"the end after an alert of unknown fate keeps its id": {
			{0, about, "a", unknown, throttle.Failed, "a"},
			{claimTTL + window, ended, "a", unknown, throttle.Failed, "end 1"},
			{0, ended, "a", unknown, throttle.Failed, "end 1"},
			{0, about, "a", no, throttle.Failed, "a"},
			{0, ended, "a", unknown, throttle.Failed, "end 1"},
			{0, about, "a", unknown, throttle.Failed, "a"},
			{claimTTL + window, ended, "a", unknown, throttle.Failed, "end 2"},
			{0, ended, "a", yes, throttle.Sent, "end 2"},
		},
		"also after one that was tried again later": {
			{0, about, "a", unknown, throttle.Failed, "a"},
			{claimTTL + window, about, "a", unknown, throttle.Failed, "a"},
			{claimTTL + window, ended, "a", unknown, throttle.Failed, "end 1"},
			{0, ended, "a", yes, throttle.Sent, "end 1"},
		},
		"dead letters of an alert and its end, whose fates are not known, are sent again": {
			{0, about, "a", unknown, throttle.Failed, "a"},
			{claimTTL + window, ended, "a", unknown, throttle.Failed, "end 1"},
			{24 * time.Hour, about, "a", yes, throttle.Sent, "a"},
			{window, ended, "a", yes, throttle.Sent, "end 2"},
		},
		"and so is that of the end alone": {
			{0, about, "a", unknown, throttle.Failed, "a"},
			{claimTTL + window, ended, "a", unknown, throttle.Failed, "end 1"},
			{24 * time.Hour, ended, "a", yes, throttle.Sent, "end 1"},
		},
		"an end needs an alert": {
			{0, ended, "a", yes, throttle.Unneeded, ""},
		},
		"a window of a rule without an end is over first": {
			{0, old, "", yes, throttle.Sent, "old"},
			{1, about, "a", yes, throttle.Busy, ""},
			{0, ended, "a", yes, throttle.Unneeded, ""},
			{window, about, "a", yes, throttle.Sent, "a"},
		},
		"so is an alert of one whose fate is not known": {
			{0, old, "", unknown, throttle.Failed, "old"},
			{1, about, "a", yes, throttle.Busy, ""},
			{claimTTL + window, about, "a", yes, throttle.Sent, "a"},
		},
		"a rule without an end finds the window of an incident": {
			told,
			{1, old, "", yes, throttle.Throttled, ""},
			{window, ended, "a", yes, throttle.Sent, "end 1"},
			{0, old, "", yes, throttle.Sent, "old"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlease.New()
				var ends []string // by the order in which they were sent first
				for i, s := range steps {
					time.Sleep(s.after)
					r := s.ask(s.about)
					result, grant := do(t, newGate(store), r, s.answer)
					id := ""
					if grant != nil {
						id = grant.ID
					}
					if strings.HasPrefix(id, s.about+"/") && strings.HasSuffix(id, "/resolved") {
						if !slices.Contains(ends, id) {
							ends = append(ends, id)
						}
						id = fmt.Sprint("end ", slices.Index(ends, id)+1)
					}
					if result.Outcome != s.want || id != s.id {
						t.Fatalf("step %d, %+v: %v, sent %q; want %v, %q", i, r, result.Outcome, id, s.want, s.id)
					}
				}
			})
		})
	}
}

// A reading from before the end of repeat is covered, however late it is read; what the results say covers the same.
func TestIncidentCovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		request := func() throttle.Request { r := about("a"); r.Repeat = 2 * window; return r }
		sent, _ := do(t, g, request(), throttle.Taken)
		want(t, sent, throttle.Sent)
		end := time.Now().Add(2 * window)
		if due := sent.NextReminder(request()); !due.Equal(end) || !sent.NextReminder(about("b")).IsZero() {
			t.Errorf("due at %v, want %v; another incident: %v", due, end, sent.NextReminder(about("b")))
		}

		plain, _ := do(t, newGate(memlease.New()), about("a"), throttle.Taken)
		if due := plain.NextReminder(about("a")); !due.Equal(time.Now().Add(window)) {
			t.Errorf("within a window due in %v, want the window", time.Until(due))
		}

		time.Sleep(2*window - 1)
		last := request()
		r, _ := do(t, g, last, throttle.Taken)
		want(t, r, throttle.Throttled)
		if !r.Covers(last) || r.Covers(about("b")) || !r.NextReminder(last).Equal(end) {
			t.Errorf("covers its reading: %t, another incident: %t; due at %v, want %v", r.Covers(last), r.Covers(about("b")), r.NextReminder(last), end)
		}

		time.Sleep(window)
		r, _ = do(t, g, last, throttle.Taken)
		want(t, r, throttle.Throttled)
		if !r.Covers(last) || r.Covers(request()) {
			t.Errorf("covers what the hub took before the end: %t, and after: %t", r.Covers(last), r.Covers(request()))
		}
		r, _ = do(t, g, request(), throttle.Taken)
		want(t, r, throttle.Sent)
	})
}

// While its alert or its end is on its way, nothing is covered.
func TestIncidentsClaimCoversNothing(t *testing.T) {
	for name, begin := range map[string]func(string) throttle.Request{"an alert": about, "an end": ended} {
		synctest.Test(t, func(t *testing.T) {
			store := memlease.New()
			do(t, newGate(store), about("a"), throttle.Taken)
			time.Sleep(window + time.Second)
			c, _, err := newGate(store).Claim(t.Context(), begin("a"))
			if c == nil {
				t.Fatal(name, err)
			}
			covered := about("a")
			covered.Enqueued = time.Now().Add(-window)
			r, _ := do(t, newGate(store), covered, throttle.Taken)
			want(t, r, throttle.Busy)
			if r.Covers(covered) || !r.NextReminder(covered).IsZero() {
				t.Errorf("while %s is on its way: covers it: %t, due %v", name, r.Covers(covered), r.NextReminder(covered))
			}
		})
	}
}

// A store that answers only when the window is over has it recorded that the incident was told.
func TestIncidentIsToldAlsoAfterItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const short = 2 * time.Second
		store := &faulty{Store: memlease.New()}
		gate := func() *recent.Gate {
			return recent.New(throttle.Config{Store: store, Scope: "s", Receiver: "r", Window: short, SendTimeout: sendTimeout}, recent.NewWindows())
		}
		store.before = func(op string) error {
			if op == "extend" {
				time.Sleep(short)
				return errors.New("lost")
			}
			return nil
		}
		r := about("a")
		r.Repeat = rules.Never
		result, _ := do(t, gate(), r, throttle.Taken)
		want(t, result, throttle.SentLate)
		result, _ = do(t, gate(), r, throttle.Taken)
		want(t, result, throttle.Throttled)
	})
}

// What people and programs are shown of an incident's key.
func TestInspectIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		look := func() throttle.State {
			t.Helper()
			s, err := g.Inspect(t.Context(), about("").Of())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		told := time.Now()
		do(t, g, about("a"), throttle.Taken)
		if s := look(); s.Incident != "a" || !s.Sent.Equal(told) || !s.Notified || s.Phase != throttle.Closed || s.AlertID != "a" || s.Unresolved {
			t.Errorf("told: %+v", s)
		}

		time.Sleep(window)
		sending := throttle.State{}
		_, _ = throttletest.Do(t.Context(), g, ended("a"), func(_ context.Context, grant throttle.Grant) throttle.Answer {
			if sending = look(); grant.Ambiguous {
				t.Error("the first end is said to be sent again")
			}
			return throttle.Unknown
		})
		if sending.Phase != throttle.Sending || !sending.Recovery {
			t.Errorf("while its end is being sent: %+v", sending)
		}
		if _, grant := do(t, g, ended("a"), throttle.Unknown); !grant.Ambiguous {
			t.Error("an end that may have been taken is sent again, and not said to be")
		}
		if s := look(); s.Incident != "a" || !s.Notified || !s.Recovery || s.AlertID != fmt.Sprintf("a/%d/resolved", told.UnixMilli()) || !s.Unresolved {
			t.Errorf("its end may have been taken: %+v", s)
		}

		do(t, g, about("a"), throttle.Unknown)
		if s := look(); s.Recovery || s.AlertID != "a" || !s.Unresolved {
			t.Errorf("and its alert since: %+v", s)
		}

		time.Sleep(window + claimTTL)
		do(t, g, ended("a"), throttle.Taken)
		if s := look(); s.Incident != "" || !s.Sent.IsZero() || s.Notified || s.AlertID != "" || s.Unresolved || s.Phase != throttle.Open {
			t.Errorf("its end was taken: %+v", s)
		}
	})
}

// A prediction and a proof go by the incident, too.
func TestProveIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		prove := func(r throttle.Request, want throttle.Proof) {
			t.Helper()
			if got, err := g.Prove(t.Context(), r); err != nil || got != want {
				t.Errorf("%+v: %v, %v, want %v", r, got, err, want)
			}
		}
		told := time.Now()
		do(t, g, about("a"), throttle.Taken)
		prove(about("a"), throttle.Proven)
		prove(about("b"), throttle.Unproven) // the window is that of another one
		prove(ended("a"), throttle.Unproven)
		prove(ended("b"), throttle.Proven)
		time.Sleep(window)
		if r, id, err := g.Predict(t.Context(), ended("a")); r.Outcome != throttle.Sent || id != fmt.Sprintf("a/%d/resolved", told.UnixMilli()) || err != nil {
			t.Errorf("predicted %v of %q, %v", r.Outcome, id, err)
		}
		do(t, g, ended("a"), throttle.Taken)
		prove(ended("a"), throttle.Proven)
		prove(about("a"), throttle.Unproven)
	})
}

// A dead letter of an incident is none of a reading.
func TestGiveUpOfAnIncidentDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memlease.New()}
		r := about("a")
		r.Log, r.Sequence = "0", 7
		if err := newGate(store).GiveUp(t.Context(), r); err != nil || store.calls != 0 {
			t.Errorf("%v, %d calls of the store", err, store.calls)
		}
	})
}

// A playback has what a gate has, if all is sent at once and taken.
func TestPlaybackOfIncidents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p throttle.Playback
		store := memlease.New()
		for i, r := range []func() throttle.Request{
			func() throttle.Request { return about("a") },
			func() throttle.Request { return about("a") },
			func() throttle.Request { return ended("a") },
			func() throttle.Request { time.Sleep(window); return ended("a") },
			func() throttle.Request { return about("b") },
			func() throttle.Request { time.Sleep(window); return about("c") },
			func() throttle.Request { return ended("b") },
		} {
			request := r()
			got := p.Send(request, time.Now(), window)
			if result, _ := do(t, newGate(store), request, throttle.Taken); result.Outcome != got.Outcome {
				t.Errorf("step %d: %v, and the gate %v", i, got.Outcome, result.Outcome)
			}
		}
	})
}
