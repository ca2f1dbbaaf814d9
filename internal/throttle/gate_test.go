package throttle_test

import (
	"context"
	"errors"
	"flag"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/leasetest"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/throttle/throttletest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.checks", "3000") // a run is short, and rare ones tell most
	goleak.VerifyTestMain(emulators.Share(m))
}

const (
	window      = 60 * time.Second
	sendTimeout = 10 * time.Second
)

var claimTTL = throttle.ClaimTTL(sendTimeout)

// faulty is a lease.Store whose answers can be lost, executed or not: what a
// network does and no store does on demand.
type faulty struct {
	lease.Store
	mu    sync.Mutex
	calls int
	// before fails a call that is not executed, after one that is. Nil: none.
	before, after func(op string) error
}

// limited is a store that takes what native blob leases take.
type limited struct{ lease.Store }

func (s limited) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	if err := bloblease.CheckTTL(ttl); err != nil {
		return lease.Lease{}, err
	}
	return s.Store.Acquire(ctx, key, ttl, next)
}

func (f *faulty) do(op string, call func() error) error {
	f.mu.Lock()
	f.calls++
	before, after := f.before, f.after
	f.mu.Unlock()
	late := error(nil)
	if before != nil {
		if late = before(op); late != nil && !errors.Is(late, errLater) {
			return late
		}
	}
	err := call()
	if late != nil {
		return late
	}
	if after != nil {
		if lost := after(op); lost != nil {
			return lost
		}
	}
	return err
}

func (f *faulty) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (l lease.Lease, err error) {
	err = f.do("acquire", func() error { l, err = f.Store.Acquire(ctx, key, ttl, next); return err })
	return l, err
}

func (f *faulty) Read(ctx context.Context, key string) (r lease.Record, err error) {
	err = f.do("read", func() error { r, err = f.Store.Read(ctx, key); return err })
	return r, err
}

func (f *faulty) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (x lease.Lease, err error) {
	err = f.do("extend", func() error { x, err = f.Store.Extend(ctx, l, note, ttl); return err })
	return x, err
}

func (f *faulty) Release(ctx context.Context, l lease.Lease, note string) error {
	return f.do("release", func() error { return f.Store.Release(ctx, l, note) })
}

func newGate(s lease.Store) *recent.Gate {
	return recent.New(throttle.Config{Store: s, Scope: "ns/hub/group", Receiver: "r", Window: window, SendTimeout: sendTimeout}, recent.NewWindows())
}

func request(id string) throttle.Request {
	return throttle.Request{Device: "oven#7", ID: id, Enqueued: time.Now()}
}

// taken is a sender whose receiver takes everything.
func taken(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken }

// do runs one attempt and returns the grant that send saw, if it was called.
func do(t *testing.T, g throttletest.Gate, r throttle.Request, answer throttle.Answer) (throttle.Result, *throttle.Grant) {
	t.Helper()
	var seen *throttle.Grant
	result, _ := throttletest.Do(t.Context(), g, r, func(_ context.Context, grant throttle.Grant) throttle.Answer {
		seen = &grant
		return answer
	})
	return result, seen
}

func want(t *testing.T, got throttle.Result, outcome throttle.Outcome) {
	t.Helper()
	if got.Outcome != outcome {
		t.Fatalf("outcome %v, want %v", got.Outcome, outcome)
	}
}

func TestOneAlertPerWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		a, b := newGate(store), newGate(store) // two replicas
		r, _ := do(t, a, request("1"), throttle.Taken)
		want(t, r, throttle.Sent)
		time.Sleep(window - time.Nanosecond)
		r, _ = do(t, b, request("2"), throttle.Taken)
		want(t, r, throttle.Throttled)
		time.Sleep(time.Nanosecond)
		r, grant := do(t, b, request("3"), throttle.Taken)
		want(t, r, throttle.Sent)
		if grant.ID != "3" || grant.Ambiguous {
			t.Fatalf("grant %+v after a recorded window, want alert 3", *grant)
		}
	})
}

// A reading that this process took is compared by its age: whatever the replica's
// clock shows, a window covers what arrived before its end and nothing else.
func TestArrivedReadingsAreComparedByAge(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(leasetest.Ahead(memlease.New(), ahead))
			arrived := func() throttle.Request {
				return throttle.Request{Device: "oven#7", ID: "id", Enqueued: time.Now(), Arrived: time.Now()}
			}
			r, _ := do(t, g, arrived(), throttle.Taken)
			want(t, r, throttle.Sent)
			time.Sleep(window - time.Second)
			within := arrived()
			r, _ = do(t, g, within, throttle.Taken)
			want(t, r, throttle.Throttled)
			if !r.Covers(within) {
				t.Errorf("store ahead by %v: the window does not cover what it throttled", ahead)
			}
			time.Sleep(time.Second)
			after := arrived()
			time.Sleep(time.Second)
			r, _ = do(t, g, within, throttle.Taken) // late, as after a long wait
			want(t, r, throttle.Throttled)
			if !r.Covers(within) || r.Covers(after) {
				t.Errorf("store ahead by %v: covers %v what arrived before the window's end, %v what arrived at it", ahead, r.Covers(within), r.Covers(after))
			}
			r, _ = do(t, g, after, throttle.Taken)
			want(t, r, throttle.Sent)
		})
	}
}

func TestClaimOfTheDeadDelaysAndDoesNotEat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		dead := &faulty{Store: store, before: func(op string) error {
			if op != "acquire" {
				return errors.New("killed")
			}
			return nil
		}}
		_, lost := do(t, newGate(dead), request("1"), throttle.Unknown)

		g := newGate(store)
		r, _ := do(t, g, request("2"), throttle.Taken)
		want(t, r, throttle.Busy)
		if wait := time.Until(r.Retry); wait <= 0 || wait > claimTTL {
			t.Fatalf("retry in %v, want within the claim of %v", wait, claimTTL)
		}
		time.Sleep(time.Until(r.Retry))
		r, grant := do(t, g, request("2"), throttle.Taken)
		want(t, r, throttle.Sent)
		if grant.ID != "1" || !grant.Ambiguous || grant.Token <= lost.Token {
			t.Fatalf("grant %+v, want the dead one's alert under a greater token than %d", *grant, lost.Token)
		}
	})
}

func TestFailedSendGivesTheClaimBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			answer throttle.Answer
			id     string // of the next alert
		}{
			{throttle.NotTaken, "2"},
			{throttle.Unknown, "1"}, // its answer may only have been lost
		} {
			store := memlease.New()
			r, _ := do(t, newGate(store), request("1"), tt.answer)
			want(t, r, throttle.Failed)
			r, grant := do(t, newGate(store), request("2"), throttle.Taken)
			want(t, r, throttle.Sent)
			if grant.ID != tt.id || grant.Ambiguous != (tt.id == "1") {
				t.Errorf("after %v: grant %+v, want id %s", tt.answer, *grant, tt.id)
			}
		}
	})
}

func TestUnresolvedIDOutlivesDefiniteFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		do(t, g, request("1"), throttle.Unknown)
		do(t, g, request("2"), throttle.NotTaken) // of alert 1, again
		_, grant := do(t, g, request("3"), throttle.NotTaken)
		if grant.ID != "1" {
			t.Fatalf("sent %q, want 1: its first answer is still unknown", grant.ID)
		}
		time.Sleep(claimTTL + window) // no receiver remembers it any longer
		if _, grant = do(t, g, request("4"), throttle.Taken); grant.ID != "4" || grant.Ambiguous {
			t.Fatalf("grant %+v, want alert 4", *grant)
		}
	})
}

func TestSendEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r, err := throttletest.Do(t.Context(), newGate(memlease.New()), request("1"), func(ctx context.Context, _ throttle.Grant) throttle.Answer {
			<-ctx.Done()
			return throttle.Unknown
		})
		want(t, r, throttle.Failed)
		if err != nil || time.Since(start) != sendTimeout {
			t.Fatalf("%v after %v, want the send cut at %v", err, time.Since(start), sendTimeout)
		}
	})
}

// After a lost answer to every kind of call, executed or not, the alert is sent,
// and once only.
func TestLostAnswers(t *testing.T) {
	for _, op := range []string{"acquire", "extend"} {
		for _, executed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				lost := false
				lose := func(this string) error {
					if this == op && !lost {
						lost = true
						return errors.New("connection reset")
					}
					return nil
				}
				store := &faulty{Store: memlease.New()}
				if executed {
					store.after = lose
				} else {
					store.before = lose
				}
				g, ids := newGate(store), map[string]int{}
				for range 3 * window / time.Second {
					r, _ := throttletest.Do(t.Context(), g, request("1"), func(_ context.Context, grant throttle.Grant) throttle.Answer {
						ids[grant.ID]++
						return throttle.Taken
					})
					if r.Outcome == throttle.Sent {
						break
					}
					time.Sleep(time.Second)
				}
				if ids["1"] != 1 {
					t.Fatalf("%s lost, executed %v: sent %v, want alert 1 once", op, executed, ids)
				}
			})
		}
	}
}

// twice is a store whose first write lands although its answer was lost: it has asked
// again by then, when the last alert's id was too old to be sent again.
type twice struct{ lease.Store }

func (s twice) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	return s.Store.Acquire(ctx, key, ttl, func(r lease.Record) (string, error) {
		note, err := next(r)
		r.Now = r.Now.Add(claimTTL + window)
		_, _ = next(r)
		return note, err
	})
}

// What was written counts, not what was computed last.
func TestTheNoteThatWonIsTheAlertThatIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		do(t, newGate(store), request("1"), throttle.Unknown)
		r, grant := do(t, newGate(twice{store}), request("2"), throttle.Taken)
		want(t, r, throttle.Sent)
		if grant.ID != "1" || !grant.Ambiguous || !grant.Expires.Equal(time.Now().Add(claimTTL)) || !grant.Now.Equal(time.Now()) || !r.Now.Equal(time.Now()) {
			t.Errorf("grant %+v at %v, want alert 1 again, as the record has it", *grant, r.Now)
		}
	})
}

func TestLateRecordSuppressesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memlease.New()}
		down := true
		store.before = func(op string) error {
			if op == "extend" && down {
				return errors.New("service unavailable")
			}
			return nil
		}
		g, other := newGate(store), newGate(store.Store)
		r, _ := do(t, g, request("1"), throttle.Taken)
		want(t, r, throttle.Unconfirmed) // when the claim has ended
		down = false
		if err := g.Confirm(t.Context(), r); err != nil { // the record lands late
			t.Fatal(err)
		}
		if g.Recent(sensor.Of("oven#7")) {
			t.Error("a late record must not be remembered as a window")
		}
		// It proves a delivery until claim + window after the claim, and holds the key no longer.
		r, _ = do(t, other, request("2"), throttle.Taken)
		want(t, r, throttle.Throttled)
		time.Sleep(window)
		r, grant := do(t, other, request("3"), throttle.Taken)
		want(t, r, throttle.Sent)
		if grant.ID != "3" {
			t.Errorf("sent %q, want 3", grant.ID)
		}
	})
}

// on fails or delays calls of one operation.
func on(op string, do func() error) func(string) error {
	return func(this string) error {
		if this != op {
			return nil
		}
		return do()
	}
}

func TestRecordWhoseAnswerComesAfterTheClaimCoversOneOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memlease.New(), after: on("extend", func() error { time.Sleep(claimTTL); return nil })}
		r, _ := do(t, newGate(store), request("1"), throttle.Taken)
		want(t, r, throttle.SentLate)
	})
}

// What a store records of a recovery after the claim has ended may come after another claim.
func TestRecoveryRecordedAfterTheClaimIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memlease.New()}
		do(t, newGate(store), reading(1, "1"), throttle.Taken)
		time.Sleep(window)
		store.after = on("release", func() error { time.Sleep(claimTTL); return nil })
		r, _ := do(t, newGate(store), cleared(2, "2"), throttle.Taken)
		want(t, r, throttle.SentLate)
	})
}

// shortened is a store that holds what it extends for less time than it is asked to.
type shortened struct {
	lease.Store
	by time.Duration
}

func (s shortened) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	l, err := s.Store.Extend(ctx, l, note, ttl)
	l.Until = l.Until.Add(-s.by)
	return l, err
}

func TestWindowIsRememberedNoLongerThanTheStoreHoldsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for by, ends := range map[time.Duration]time.Duration{0: window, time.Second: window - time.Second, -time.Second: window} {
			r, _ := do(t, newGate(shortened{memlease.New(), by}), request("1"), throttle.Taken)
			want(t, r, throttle.Sent)
			if left := time.Until(r.Window.Ends); left != ends {
				t.Errorf("held for %v less: remembered for %v, want %v", by, left, ends)
			}
		}
	})
}

// A grant says in which log the reading of the alert before was.
func TestGrantNamesTheLogBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		for _, before := range []string{"", "0", "1"} {
			r := reading(1, "id")
			r.Log = map[string]string{"": "0", "0": "1", "1": "2"}[before]
			if _, grant := do(t, g, r, throttle.Taken); grant == nil || grant.Before != before {
				t.Errorf("grant %+v, want one after log %q", grant, before)
			}
			time.Sleep(window)
		}
	})
}

func TestWindowStartsWhenTakenHoweverLongTheRecordTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		store := &faulty{Store: memlease.New(), before: on("extend", func() error {
			if time.Since(start) < 5*time.Second {
				return errors.New("service unavailable")
			}
			return nil
		})}
		g := newGate(store.Store)
		r, _ := do(t, newGate(store), request("1"), throttle.Taken)
		want(t, r, throttle.Sent)
		time.Sleep(time.Until(start.Add(window - time.Nanosecond)))
		r, _ = do(t, g, request("2"), throttle.Taken)
		want(t, r, throttle.Throttled)
		time.Sleep(time.Nanosecond)
		r, _ = do(t, g, request("3"), throttle.Taken)
		want(t, r, throttle.Sent)
	})
}

func TestNothingIsSentUnderAClaimThatCameTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memlease.New(), after: on("acquire", func() error { time.Sleep(8 * time.Second); return nil })}
		r, sent := do(t, newGate(store), request("1"), throttle.Taken)
		want(t, r, throttle.Unavailable)
		if sent != nil {
			t.Fatal("sent although the claim would end before the answer is recorded")
		}
		r, _ = do(t, newGate(store.Store), request("2"), throttle.Taken)
		want(t, r, throttle.Sent) // it was given back
	})
}

// A zombie's record that lands when it would prove a window past its time holds
// the key and settles nobody.
func TestVeryLateRecordIsBusyNotThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		key := "ns/hub/group/r/oven#7"
		l, err := store.Acquire(t.Context(), key, claimTTL, func(lease.Record) (string, error) { return `{"phase":"claim","id":"1","proof":80000}`, nil })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(claimTTL + window - time.Second)
		if _, err := store.Extend(t.Context(), l, `{"phase":"window","proof":80000}`, window); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		r, _ := do(t, newGate(store), request("2"), throttle.Taken)
		want(t, r, throttle.Busy)
		if left := time.Until(r.Retry); left != window-time.Second {
			t.Errorf("retry in %v, want when the key frees", left)
		}
	})
}

// A store may say that a held key frees at a moment that has passed.
func TestBusyIsNotAskedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := &lease.HeldError{Until: time.Now().Add(-time.Second), Frees: time.Now().Add(-time.Second)}
		store := &faulty{Store: memlease.New(), before: func(string) error { return held }}
		r, _ := do(t, newGate(store), request("1"), throttle.Taken)
		want(t, r, throttle.Busy)
		if wait := time.Until(r.Retry); wait < 100*time.Millisecond || wait > time.Second {
			t.Errorf("retry in %v", wait)
		}
	})
}

func TestReplayIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		g := newGate(store)
		old := request("1")
		r, _ := do(t, g, old, throttle.Taken)
		want(t, r, throttle.Sent)
		time.Sleep(time.Second)
		inside := request("2")
		time.Sleep(10 * time.Hour) // an outage, or a zombie that rewinds
		fresh := newGate(store)    // and a replica that remembers nothing
		for _, replayed := range []throttle.Request{old, inside} {
			r, _ = do(t, fresh, replayed, throttle.Taken)
			want(t, r, throttle.Throttled)
		}
		r, _ = do(t, fresh, request("3"), throttle.NotTaken) // a failed claim does not forget
		want(t, r, throttle.Failed)
		r, _ = do(t, fresh, inside, throttle.Taken)
		want(t, r, throttle.Throttled)
		r, _ = do(t, fresh, request("3"), throttle.Taken)
		want(t, r, throttle.Sent)
	})
}

// A store may say that a key frees before it does. That must not make callers ask in a
// tight loop.
func TestBusyNeverMeansAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for frees, least := range map[time.Time]time.Duration{{}: time.Second, time.Now().Add(-time.Second): 250 * time.Millisecond} {
			store := &faulty{Store: memlease.New(), before: func(string) error { return &lease.HeldError{Until: frees, Frees: frees} }}
			r, _ := do(t, newGate(store), request("1"), throttle.Taken)
			want(t, r, throttle.Busy)
			if wait := time.Until(r.Retry); wait < least || wait > 2*least {
				t.Errorf("the key frees at %v: ask again in %v, want about %v", frees, wait, least)
			}
		}
	})
}

func TestScopesAndReceiversAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		for _, c := range []throttle.Config{{Scope: "a", Receiver: "x"}, {Scope: "a", Receiver: "y"}, {Scope: "b", Receiver: "x"}, {Scope: "a/x", Receiver: "x"}} {
			c.Store, c.Window, c.SendTimeout = store, window, sendTimeout
			r, _ := do(t, throttle.New(c), request("1"), throttle.Taken)
			want(t, r, throttle.Sent)
		}
	})
}

func TestStoreOutageSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memlease.New(), before: func(string) error { return errors.New("no route") }}
		r, err := throttletest.Do(t.Context(), newGate(store), request("1"), func(context.Context, throttle.Grant) throttle.Answer {
			t.Error("sent without a claim")
			return throttle.Taken
		})
		want(t, r, throttle.Unavailable)
		if err == nil {
			t.Error("want the reason")
		}
	})
}
