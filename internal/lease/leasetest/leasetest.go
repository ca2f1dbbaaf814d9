// Package leasetest holds a lease.Store to its contract. Every store runs it.
package leasetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lease"
)

// A Harness is what the suite has to know of a store.
type Harness struct {
	// New returns a backend without records. Every check has one of its own.
	New func(t testing.TB) Backend

	// Bubble runs a check, synctest.Test for a store that needs no network. If
	// nil the checks run in parallel, in real time.
	Bubble func(t *testing.T, check func(t *testing.T))

	MinTTL time.Duration // the shortest ttl that the store takes

	// Lag is how long after its ttl a key frees at the latest.
	Lag time.Duration

	// Skew changes an answer of the service into what it would have been if the clock of the machine that gave it were
	// ahead by now, and that of the machines that have dated records by written. Nil without a Transport.
	Skew func(answer *http.Response, now, written time.Duration)
}

// A Backend is where stores keep their records.
type Backend struct {
	// Open returns a store as another process would have it: a client of its
	// own on the same records. Its requests go through via, which is nil without a Transport.
	Open func(via http.RoundTripper) (lease.Store, error)

	// Delete removes key's record behind the stores' back.
	Delete func(ctx context.Context, key string) error

	// Transport carries requests to a backend that is reached over HTTP.
	Transport http.RoundTripper

	// Wire returns a way of its own to a backend that is reached by another protocol. Without one, and without a Transport,
	// the checks of faults and of clocks are skipped.
	Wire func() Wire
}

// ServiceClock is a Harness's Skew for a service on this machine that tells its time in the
// headers Date and Last-Modified.
func ServiceClock(answer *http.Response, now, written time.Duration) {
	shift := func(name string, by time.Duration) {
		at, err := http.ParseTime(answer.Header.Get(name))
		if err != nil {
			return
		}
		if clock := time.Now(); name == "Date" && clock.Truncate(time.Second).Equal(at) {
			at = clock // it counts seconds, and by may be less
		}
		answer.Header.Set(name, at.Add(by).UTC().Format(http.TimeFormat))
	}
	shift("Date", now)
	shift("Last-Modified", written)
}

// long is a ttl that every store takes. It does not end during a check, unless the
// machine is so busy that the check has to be run again.
const long = time.Minute

// grace is the time beyond Lag that a store in real time has on a busy machine, before a check gives up.
const grace = 20 * time.Second

// tooSlow is how long an answer of the service takes on a machine that is too busy for a
// check: stores give up after a second.
const tooSlow = 500 * time.Millisecond

const noWire = "faults and clocks cannot be told to the store's network: its Backend has neither a Wire nor a Transport"

// Run checks a store.
func Run(t *testing.T, h Harness) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if h.Bubble != nil {
				checked := false
				h.Bubble(t, func(t *testing.T) { checked = c.on(t, newSuite(t, h)) })
				if !checked && !t.Failed() {
					t.Skip(noWire)
				}
				return
			}

			t.Parallel()
			busytest.Run(t, func(a *busytest.Attempt) { attemptCheck(a, h, c) })
		})
	}
}

// attemptCheck runs a check in real time. What it fails at says nothing if the machine was too
// slow, also in setting up a store.
func attemptCheck(a *busytest.Attempt, h Harness, c check) {
	r := &recorder{T: a.T}
	start, answers := time.Now(), &stopwatch{}
	checked := true
	r.record(func() {
		s := newSuite(r, h)
		s.grace = a.Time(grace)
		if answers.next = s.Transport; answers.next != nil {
			s.Transport = answers
		}

		checked = c.on(r, s)
	})
	took := time.Since(start)
	answers.mu.Lock()
	slowest := answers.slowest
	answers.mu.Unlock()
	switch {
	case len(r.failures) == 0:
	case took > long:
		a.Missed("the check took %v, and its leases end after %v: %s", took.Round(time.Second), long, r.failures[0])
	case slowest > tooSlow:
		a.Missed("an answer of the service took %v: %s", slowest.Round(time.Millisecond), r.failures[0])
	}

	for _, f := range r.failures {
		a.Error(f)
	}

	if !checked && len(r.failures) == 0 {
		a.Skip(noWire)
	}
}

// A stopwatch measures the slowest answer. Faults are injected before requests come to it.
type stopwatch struct {
	next    http.RoundTripper
	mu      sync.Mutex
	slowest time.Duration
}

func (w *stopwatch) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	answer, err := w.next.RoundTrip(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slowest = max(w.slowest, time.Since(start))
	return answer, err
}

// MustFail runs the named check against a store that is broken on purpose and
// fails t if the check does not notice.
func MustFail(t *testing.T, h Harness, name string) {
	t.Helper()
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("no check %q", name)
	}

	var failures []string
	run := func(t *testing.T) {
		r := &recorder{T: t}
		s := newSuite(t, h)
		r.record(func() { checks[i].on(r, s) })
		failures = r.failures
	}

	if h.Bubble != nil {
		h.Bubble(t, run)
	} else { // a check of what happens too early notices only what it asks in time
		for n := 0; n < 4 && len(failures) == 0; n++ {
			run(t)
		}
	}

	if len(failures) == 0 {
		t.Fatalf("%s does not notice that this store is broken", name)
	}

	t.Logf("%d failures, the first: %s", len(failures), failures[0])
}

// A tester is the part of testing.TB that a check uses.
type tester interface {
	Context() context.Context
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A recorder takes down what would have failed a test.
type recorder struct {
	*testing.T
	mu       sync.Mutex
	failures []string
}

// record runs check to its end, or until Fatalf ends it.
func (r *recorder) record(check func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		check()
	}()

	<-done
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	r.Logf("%s", text) // with its line
	r.failures = append(r.failures, text)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Helper()
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.Helper()
	r.Fatalf("%s", fmt.Sprintln(args...))
}

// A suite is a harness with a backend for one check.
type suite struct {
	Harness
	Backend
	short time.Duration // a ttl whose end a check can wait for
	grace time.Duration // beyond Lag, on a busy machine in real time, before a check gives up
}

func newSuite(t testing.TB, h Harness) *suite {
	return &suite{Harness: h, Backend: h.New(t), short: max(h.MinTTL, 2*time.Second)}
}

// store returns one more store on the check's backend.
func (s *suite) store(t tester) lease.Store {
	t.Helper()
	return opened(t, func() (lease.Store, error) { return s.Open(s.Transport) })
}

// wire returns one more way to the check's backend, which has any.
func (s *suite) wire() Wire {
	if s.Backend.Wire != nil {
		return s.Backend.Wire()
	}
	return &httpWire{next: s.Transport, open: s.Open, skew: s.Skew}
}

// opened returns the store that open opens.
func opened(t tester, open func() (lease.Store, error)) lease.Store {
	t.Helper()
	store, err := open()
	fatalIf(t, err != nil, "open a store: %v", err)

	return store
}

// errorIf has the check fail if something is wrong, and go on.
func errorIf(t tester, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// fatalIf has the check fail and end if something is wrong.
func fatalIf(t tester, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}

// with is a next that leaves note.
func with(note string) func(lease.Record) (string, error) {
	return func(lease.Record) (string, error) { return note, nil }
}

func acquire(t tester, s lease.Store, key, note string, ttl time.Duration) lease.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), key, ttl, with(note))
	fatalIf(t, err != nil, "Acquire(%q) of a free key: %v", key, err)

	return l
}

// replace acquires a key that must be free, and returns the record that was there besides.
func replace(t tester, s lease.Store, key, note string) (l lease.Lease, prev lease.Record) {
	t.Helper()
	l, err := s.Acquire(t.Context(), key, long, func(r lease.Record) (string, error) {
		prev = r
		return note, nil
	})
	fatalIf(t, err != nil, "Acquire(%q) of a free key: %v", key, err)

	return l, prev
}

func extend(t tester, s lease.Store, l lease.Lease, note string, ttl time.Duration) lease.Lease {
	t.Helper()
	extended, err := s.Extend(t.Context(), l, note, ttl)
	fatalIf(t, err != nil, "Extend(%q) of a current lease: %v", l.Key, err)

	return extended
}

func release(t tester, s lease.Store, l lease.Lease, note string) {
	t.Helper()
	err := s.Release(t.Context(), l, note)
	fatalIf(t, err != nil, "Release(%q): %v", l.Key, err)
}

// refused demands that key is held and returns what the refused are told.
func refused(t tester, s lease.Store, key string) *lease.HeldError {
	t.Helper()
	_, err := s.Acquire(t.Context(), key, long, func(r lease.Record) (string, error) {
		t.Errorf("next was called for a held key, with %+v", r)
		return "unasked", nil
	})
	held := asHeld(t, key, err)
	fatalIf(t, held == nil, "Acquire(%q) of a held key: %v, want a *HeldError", key, err)

	return held
}

// refusedUntil is refused for a lease that may end soon: it returns nil, and
// demands nothing, if the answer came after l ended.
func refusedUntil(t tester, s lease.Store, l lease.Lease) *lease.HeldError {
	t.Helper()
	tooLate := errors.New("free")
	_, err := s.Acquire(t.Context(), l.Key, long, func(lease.Record) (string, error) { return "", tooLate })
	held := asHeld(t, l.Key, err)
	fatalIf(t, held == nil && time.Now().Before(l.Until), "Acquire(%q) of a held key: %v, want a *HeldError", l.Key, err)

	return held
}

// asHeld returns err as a *HeldError, nil if it is none.
func asHeld(t tester, key string, err error) *lease.HeldError {
	t.Helper()
	var held *lease.HeldError
	if !errors.As(err, &held) {
		return nil
	}

	errorIf(t, !errors.Is(err, lease.ErrHeld), "a *HeldError is not ErrHeld")

	errorIf(t, held.Key != key, "HeldError.Key is %q, want %q", held.Key, key)

	return held
}

// lost demands that l is not current.
func lost(t tester, s lease.Store, l lease.Lease) {
	t.Helper()
	_, err := s.Extend(t.Context(), l, "stale", long)
	errorIf(t, !errors.Is(err, lease.ErrLost), "Extend(%q) of a lease that is not current: %v, want ErrLost", l.Key, err)
}

// waitOut takes key from its holder l, just granted or extended for s.short, as
// soon as the store lets it, and checks that this is neither before l ends nor
// much later, and that nobody is told to wait for longer.
func (s *suite) waitOut(t tester, store lease.Store, l lease.Lease, note string, ttl time.Duration) lease.Lease {
	t.Helper()
	const step, lead = 100 * time.Millisecond, 15
	last := time.Now().Add(s.short + s.Lag + s.grace) // not from l.Until: the call that granted l may have been slow
	var told time.Time                                // the latest moment that a refused caller was told
	for i := -lead; ; i++ {
		at := l.Until.Add(time.Duration(i) * step)
		if i == -1 {
			at = l.Until.Add(-1)
		}

		time.Sleep(time.Until(at))
		tried := time.Now()
		taken, err := store.Acquire(t.Context(), l.Key, ttl, with(note))
		now := time.Now()

		if err == nil {
			if now.Before(l.Until) {
				t.Errorf("key %q was granted %v before its holder's lease ended", l.Key, l.Until.Sub(now))
			}

			if told.After(now) {
				t.Errorf("key %q: the refused were told to wait %v longer than need be", l.Key, told.Sub(now))
			}

			errorIf(t, taken.Token <= l.Token, "key %q: token %d after %d", l.Key, taken.Token, l.Token)

			return taken
		}

		held := asHeld(t, l.Key, err)
		if held == nil {
			t.Fatalf("Acquire(%q) of a key that expires: %v", l.Key, err)
			return lease.Lease{} // not reached
		}

		if held.Until.After(told) {
			told = held.Until
		}

		fatalIf(t, !tried.Before(last), "key %q is still held %v after its lease ended", l.Key, tried.Sub(l.Until))
	}
}

// outlast waits until a lease that has been granted or extended for ttl is over.
// A slow call may have done so long after its Until began to count.
func (s *suite) outlast(ttl time.Duration) { time.Sleep(ttl + s.Lag) }

// started demands that l's ttl counts from start, at the latest when the request began that granted it, in a call
// which just ended. Only in a bubble: on a busy machine a request begins late in its call.
func (s *suite) started(t tester, l lease.Lease, start time.Time, ttl time.Duration) {
	t.Helper()
	took := time.Since(start)
	late := l.Until.Sub(start.Add(ttl))
	errorIf(t, s.Bubble != nil && late > took*9/10, "key %q: Lease.Until is %v late, the call took %v", l.Key, late, took)
}

// sideBySide runs f for 0 to n-1, each in a goroutine, and waits for all.
func sideBySide(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
