package metrics

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"alertworker/internal/lease"
)

// Results of store calls.
const (
	resultOK       = "ok"
	resultHeld     = "held"     // an answer: somebody has the key
	resultLost     = "lost"     // an answer: the lease is not current any more
	resultDeclined = "declined" // the caller, shown the record, wanted no change: the last window covers the reading
	resultError    = "error"    // no usable answer
)

// storeResults has what each operation can end with, so that every series is
// there from the start: Prometheus does not see the first step of one that is not.
var storeResults = map[string][]string{
	"acquire": {resultOK, resultHeld, resultDeclined, resultError},
	"extend":  {resultOK, resultLost, resultError},
	"release": {resultOK, resultError},
	"break":   {resultOK, resultDeclined, resultError},
}

// Store returns next, measured. name, one of few, is the label.
func (m *Metrics) Store(next lease.Store, name string) lease.Store {
	for operation, results := range storeResults {
		for _, result := range results {
			m.storeCalls.WithLabelValues(name, operation, result)
		}
	}
	return &store{
		next:  next,
		calls: m.storeCalls.MustCurryWith(prometheus.Labels{"store": name}),
		skew:  func(seconds float64) { m.storeSkew.WithLabelValues(name).Set(seconds) },
	}
}

type store struct {
	next  lease.Store
	calls prometheus.ObserverVec
	skew  func(seconds float64)
}

func (s *store) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	start := time.Now()
	asked, next := s.listen(next)
	l, err := s.next.Acquire(ctx, key, ttl, next)
	var held *lease.HeldError
	if errors.As(err, &held) {
		s.compare(held.Record)
	}
	s.called("acquire", asked.resultOf(err), start)
	return l, err
}

func (s *store) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	start := time.Now()
	l, err := s.next.Extend(ctx, l, note, ttl)
	s.called("extend", resultOf(err), start)
	return l, err
}

func (s *store) Release(ctx context.Context, l lease.Lease, note string) error {
	start := time.Now()
	err := s.next.Release(ctx, l, note)
	s.called("release", resultOf(err), start)
	return err
}

// Break is lease.Breaker's. The error Is errors.ErrUnsupported if the measured store is none.
func (s *store) Break(ctx context.Context, key string, next func(lease.Record) (string, error)) error {
	start := time.Now()
	asked, next := s.listen(next)
	err := lease.Break(ctx, s.next, key, next)
	s.called("break", asked.resultOf(err), start)
	return err
}

// List is lease.Lister's, not measured: how long it takes is the caller's affair as well. The
// error Is errors.ErrUnsupported if the measured store is none.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[lease.Entry, error] {
	return lease.List(ctx, s.next, prefix)
}

// An answer is what the caller's next answered last.
type answer struct{ declined error }

// listen returns next, whose records and answers are seen.
func (s *store) listen(next func(lease.Record) (string, error)) (*answer, func(lease.Record) (string, error)) {
	a := &answer{}
	return a, func(r lease.Record) (note string, err error) {
		s.compare(r)
		note, a.declined = next(r)
		return note, a.declined
	}
}

func (a *answer) resultOf(err error) string {
	if a.declined != nil && errors.Is(err, a.declined) {
		return resultDeclined
	}
	return resultOf(err)
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return resultOK
	case errors.Is(err, lease.ErrHeld):
		return resultHeld
	case errors.Is(err, lease.ErrLost):
		return resultLost
	}
	return resultError
}

func (s *store) called(operation, result string, start time.Time) {
	s.calls.WithLabelValues(operation, result).Observe(time.Since(start).Seconds())
}

// compare compares the clocks by a record that has just come.
func (s *store) compare(r lease.Record) {
	if !r.Now.IsZero() {
		s.skew(time.Since(r.Now).Seconds())
	}
}
