package admin

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"alertworker/internal/lease"
)

// Calls of the store are remembered for so long, and so many of each operation.
const (
	callsFor = 5 * time.Minute
	maxCalls = 1000
)

// An operation of a lease.Store.
type operation int

const (
	acquire operation = iota
	extend
	release
	operations
)

// A call of an operation that has ended.
type call struct {
	at     time.Time
	took   time.Duration
	failed bool // it gave no usable answer
}

// Store returns next, its calls timed for the status page. lease.Break and lease.List do with
// it what they do with next, untimed.
func (r *Recorder) Store(next lease.Store) lease.Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store = true
	return &timed{next: next, recorder: r}
}

type timed struct {
	next     lease.Store
	recorder *Recorder
}

func (s *timed) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	start := time.Now()
	var declined error
	l, err := s.next.Acquire(ctx, key, ttl, func(r lease.Record) (note string, err error) {
		note, declined = next(r)
		return note, declined
	})
	answered := errors.Is(err, lease.ErrHeld) || declined != nil && errors.Is(err, declined)
	s.recorder.called(acquire, start, err != nil && !answered)
	return l, err
}

func (s *timed) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	start := time.Now()
	l, err := s.next.Extend(ctx, l, note, ttl)
	s.recorder.called(extend, start, err != nil && !errors.Is(err, lease.ErrLost))
	return l, err
}

func (s *timed) Release(ctx context.Context, l lease.Lease, note string) error {
	start := time.Now()
	err := s.next.Release(ctx, l, note)
	s.recorder.called(release, start, err != nil)
	return err
}

func (s *timed) Break(ctx context.Context, key string, next func(lease.Record) (string, error)) error {
	return lease.Break(ctx, s.next, key, next)
}

func (s *timed) List(ctx context.Context, prefix string) iter.Seq2[lease.Entry, error] {
	return lease.List(ctx, s.next, prefix)
}

func (r *Recorder) called(op operation, start time.Time, failed bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[op].add(call{at: now, took: now.Sub(start), failed: failed}, maxCalls)
}

// A latency is how an operation did of late.
type latency struct {
	calls    int
	more     bool // there were more calls than are remembered
	errors   int
	p50, p95 time.Duration // at most so long took half of the calls, and 95 %
}

// latencies returns how the operations did until now. False if there is no store.
func (r *Recorder) latencies(now time.Time) (all [operations]latency, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for op := range r.calls {
		var l latency
		var took []time.Duration
		for _, c := range r.calls[op].latest() {
			if now.Sub(c.at) > callsFor {
				break
			}
			took = append(took, c.took)
			if c.failed {
				l.errors++
			}
		}
		if l.calls = len(took); l.calls > 0 {
			slices.Sort(took)
			l.p50, l.p95 = took[(l.calls*50+99)/100-1], took[(l.calls*95+99)/100-1]
		}
		l.more = l.calls == maxCalls
		all[op] = l
	}
	return all, r.store
}
