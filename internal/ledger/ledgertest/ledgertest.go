// Package ledgertest holds a ledger.Store, and what is built on it, to their contracts. Every
// store runs it.
package ledgertest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"alertworker/internal/ledger"
)

// A Harness is what the suite has to know of a store.
type Harness struct {
	// New returns a backend without records. Every check has one of its own.
	New func(t testing.TB) Backend

	// Take takes a ledger over; ledger.Open if nil.
	Take func(ctx context.Context, store ledger.Store, name string) (Holder, ledger.Content, error)
}

// A Backend is where stores keep their records.
type Backend struct {
	// Open returns a store as another process would have it: a client of its own on the same
	// records.
	Open func() ledger.Store

	// Delete removes a record behind the stores' back.
	Delete func(ctx context.Context, name string) error
}

// A Holder is what holds a ledger: a *ledger.Ledger.
type Holder interface {
	ID() string
	Write(ctx context.Context, c ledger.Content) error
	Check(ctx context.Context) error
}

// Run checks a store.
func Run(t *testing.T, h Harness) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newSuite(t, h))
		})
	}
}

// MustFail runs the named check against what is broken on purpose, and fails t if the check does
// not notice.
func MustFail(t *testing.T, h Harness, name string) {
	t.Helper()
	for _, c := range checks {
		if c.name != name {
			continue
		}
		r := &recorder{T: t}
		done := make(chan struct{})
		go func() { // which Fatalf ends
			defer close(done)
			c.run(r, newSuite(t, h))
		}()
		<-done
		if len(r.failures) == 0 {
			t.Fatalf("%s does not notice", name)
		}
		t.Logf("%d failures, the first: %s", len(r.failures), r.failures[0])
		return
	}
	t.Fatalf("no check %q", name)
}

// A tester is the part of testing.TB that a check uses.
type tester interface {
	Context() context.Context
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A recorder takes down what would have failed a test.
type recorder struct {
	*testing.T
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// A suite is a harness with a backend for one check.
type suite struct {
	Harness
	Backend
}

func newSuite(t testing.TB, h Harness) *suite {
	if h.Take == nil {
		h.Take = func(ctx context.Context, store ledger.Store, name string) (Holder, ledger.Content, error) {
			l, c, err := ledger.Open(ctx, store, name)
			return l, c, err
		}
	}
	return &suite{Harness: h, Backend: h.New(t)}
}
