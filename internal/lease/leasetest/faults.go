package leasetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"alertworker/internal/lease"
)

// A single fault, at any request of any operation, is mended inside the call; a
// network that stalls until the call's context ends leaves a state from which the
// next call is right.
func checkFaults(t tester, s *suite) {
	clean := s.store(t)
	once := []Fault{lostRequest, lostAnswer, late, busy, throttled, broken, stalled, stalledDone}
	var verified sync.WaitGroup
	defer verified.Wait()
	sideBySide(len(operations)*len(once), func(i int) {
		op, f := operations[i/len(once)], once[i%len(once)]
		for at := 0; ; at++ {
			c := s.attempt(t, clean, fmt.Sprintf("%s, %s at request %d", op.name, f.Name, at+1), f, at)
			verify := op.run(t, c)
			verified.Go(func() { verify(t) })

			if n := c.wire.Disarm(); n == 0 {
				t.Errorf("%s: no request was made", c.key)
			} else if n > at {
				continue
			}

			return
		}
	})
}

// maxRequests is how many a call may make of a service that is out: one layer
// repeats them, not each of several.
const maxRequests = 6

// A service that is out is neither a refusal nor a loss, and the call gives up
// in time and after a few requests.
func checkOutage(t tester, s *suite) {
	clean := s.store(t)
	outages := []Fault{lostRequest, busy, internal, throttledBriefly, throttled, stalled}
	sideBySide(len(operations)*len(outages), func(i int) {
		op, f := operations[i/len(outages)], outages[i%len(outages)]
		c := s.attempt(t, clean, "outage: "+op.name+", "+f.Name, f, -1)
		verify := op.run(t, c)
		if n := c.wire.Disarm(); n > maxRequests {
			t.Errorf("%s: %d requests, want at most %d", c.key, n, maxRequests)
		}

		verify(t)
	})
}

// An attempt is one operation with one fault, or with a service that is out.
type attempt struct {
	*suite
	clean, faulty lease.Store
	wire          Wire // of faulty
	key           string
	fault         Fault
	at            int
}

func (s *suite) attempt(t tester, clean lease.Store, key string, f Fault, at int) attempt {
	t.Helper()
	w := s.wire()
	return attempt{s, clean, opened(t, w.Open), w, key, f, at}
}

// try runs call with the fault, and says whether it is known to have done its work.
func (c attempt) try(t tester, call func(context.Context) error) (done bool) {
	t.Helper()
	out, limit := c.at < 0, long
	switch {
	case out:
		limit = 4 * time.Second
	case c.fault.Stalled:
		limit = 500 * time.Millisecond
	}

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c.wire.Arm(c.fault, c.at)
	err := call(ctx)
	switch {
	case out:
		if err == nil || errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrLost) {
			t.Errorf("%s: %v, want an error of its own", c.key, err)
		}
	case err != nil && !(c.fault.Stalled && errors.Is(err, context.DeadlineExceeded)):
		t.Errorf("%s: %v", c.key, err)
	}

	return err == nil
}

// operations make an attempt and return what verifies the outcome.
var operations = []struct {
	name string
	run  func(t tester, c attempt) (verify func(tester))
}{
	{"acquire an absent key", acquireFaulty},
	{"acquire a released key", func(t tester, c attempt) (verify func(tester)) {
		release(t, c.clean, acquire(t, c.clean, c.key, "", long), "")
		return acquireFaulty(t, c)
	}},
	{"extend", func(t tester, c attempt) (verify func(tester)) {
		l := acquire(t, c.clean, c.key, "claim", c.short)
		start := time.Now()
		done := c.try(t, func(ctx context.Context) error {
			extended, err := c.faulty.Extend(ctx, l, "window", long)
			if err == nil {
				c.started(t, extended, start, long)
			}
			return err
		})
		return func(t tester) {
			if !done {
				extend(t, c.clean, l, "window", long)
			}

			wantRecord(t, c.key+":", refused(t, c.clean, c.key).Record, l, "window", long)
			extend(t, c.clean, l, "window", long)
		}
	}},
	{"release", func(t tester, c attempt) (verify func(tester)) {
		l := acquire(t, c.clean, c.key, "claim", long)
		done := c.try(t, func(ctx context.Context) error { return c.faulty.Release(ctx, l, "kept") })
		return func(t tester) {
			if !done {
				release(t, c.clean, l, "kept")
			}

			_, prev := replace(t, c.clean, c.key, "")
			wantRecord(t, c.key+":", prev, l, "kept", 0)
			lost(t, c.clean, l)
		}
	}},
	{"read", func(t tester, c attempt) (verify func(tester)) {
		l := acquire(t, c.clean, c.key, "claim", long)
		var r lease.Record
		done := c.try(t, func(ctx context.Context) (err error) {
			r, err = c.faulty.Read(ctx, c.key)
			return err
		})
		return func(t tester) {
			if done {
				wantRecord(t, c.key+":", r, l, "claim", long)
			}
		}
	}},
}

func acquireFaulty(t tester, c attempt) (verify func(tester)) {
	var l lease.Lease
	asked := 0
	note := func(lease.Record) (string, error) {
		asked++
		return fmt.Sprintf("claim %d", asked), nil
	}
	if c.try(t, func(ctx context.Context) (err error) {
		l, err = c.faulty.Acquire(ctx, c.key, c.short, note)
		if err == nil {
			c.started(t, l, c.wire.Last(), c.short)
		}
		return err
	}) {
		return func(t tester) {
			if held := refusedUntil(t, c.clean, l); held != nil {
				wantRecord(t, c.key+":", held.Record, l, l.Note, c.short)
			}
			extend(t, c.clean, l, "window", long)
		}
	}

	end := time.Now().Add(c.short + c.Lag + c.grace)

	return func(t tester) { // the key may be taken, but for no longer than the ttl
		for {
			next, err := c.clean.Acquire(t.Context(), c.key, long, with("next"))
			if err == nil {
				extend(t, c.clean, next, "next", long)
				return
			}

			if asHeld(t, c.key, err) == nil || time.Now().After(end) {
				t.Errorf("%s: the key stays taken: %v", c.key, err)
				return
			}

			time.Sleep(200 * time.Millisecond)
		}
	}
}

// Writes that the network delivers a second time, late, change nothing.
func checkLateDuplicates(t tester, s *suite) {
	clean := s.store(t)
	for _, key := range []string{"absent", "released"} {
		if key == "released" {
			release(t, clean, acquire(t, clean, key, "", long), "")
		}

		w := s.wire()
		store := opened(t, w.Open)
		l := acquire(t, store, key, "claim", s.short)
		l = extend(t, store, l, "window", long)
		if n := repeat(t, w); n < 2 {
			t.Errorf("only %d writes were made", n)
		}

		of := key + " key: after late duplicates"
		wantRecord(t, of, refused(t, clean, key).Record, l, "window", long)

		l = extend(t, store, l, "window 2", long)
		release(t, store, l, "kept")
		repeat(t, w)
		taken, prev := replace(t, clean, key, "other")
		wantRecord(t, of, prev, l, "kept", 0)
		repeat(t, w)
		wantRecord(t, of, refused(t, clean, key).Record, taken, "other", long)
		extend(t, clean, taken, "other", long)
	}
}

// The callers' clocks do not matter: one is an hour fast, one an hour slow.
func checkLocalClock(t tester, s *suite) {
	skewed := func(by time.Duration) lease.Store {
		w := s.wire()
		w.Skew(-by, -by) // to a caller whose clock is fast, the service's looks slow
		return opened(t, w.Open)
	}
	fast, slow := skewed(time.Hour), skewed(-time.Hour)
	sideBySide(2, func(i int) {
		holder, other := fast, slow
		if i == 1 {
			holder, other = slow, fast
		}

		l := acquire(t, holder, fmt.Sprintf("key %d", i), "claim", s.short)
		refusedUntil(t, other, l)
		l = extend(t, holder, l, "window", s.short)
		taken := s.waitOut(t, other, l, "claim 2", long)
		refused(t, holder, taken.Key)
		lost(t, holder, l)
		release(t, other, taken, "")
		acquire(t, holder, taken.Key, "claim 3", long)
	})
}

// repeat sends every write so far again, and returns how many that was.
func repeat(t tester, w Wire) int {
	t.Helper()
	n, err := w.Repeat(t.Context())
	fatalIf(t, err != nil, "%v", err)

	return n
}
