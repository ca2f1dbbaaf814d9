package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"alertworker/internal/lease"
)

// Results of store calls.
const (
	resultOK       = "ok"
	resultHeld     = "held"     // an answer: somebody has the key
	resultLost     = "lost"     // an answer: the lease is not current any more
	resultDeclined = "declined" // the caller did not want the key, for the last window covers the reading
	resultError    = "error"    // no usable answer
)

// storeResults has what each operation can end with, so that every series is
// there from the start: Prometheus does not see the first step of one that is not.
var storeResults = map[string][]string{
	"acquire": {resultOK, resultHeld, resultDeclined, resultError},
	"extend":  {resultOK, resultLost, resultError},
	"release": {resultOK, resultError},
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
	var declined error
	l, err := s.next.Acquire(ctx, key, ttl, func(r lease.Record) (note string, err error) {
		s.compare(r)
		note, declined = next(r)
		return note, declined
	})
	var held *lease.HeldError
	if errors.As(err, &held) {
		s.compare(held.Record)
	}
	result := resultOf(err)
	if declined != nil && errors.Is(err, declined) {
		result = resultDeclined
	}
	s.called("acquire", result, start)
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
