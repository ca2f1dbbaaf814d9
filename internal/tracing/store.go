package tracing

import (
	"context"
	"errors"
	"iter"
	"time"

	"go.opentelemetry.io/otel/trace"

	"alertworker/internal/lease"
)

// Store returns next, whose calls in a flight are spans of it; next itself if t is nil. name is
// one of few.
func (t *Tracing) Store(next lease.Store, name string) lease.Store {
	if t == nil {
		return next
	}
	return &store{next: next, tracer: t.tracer, name: name}
}

type store struct {
	next   lease.Store
	tracer trace.Tracer
	name   string
}

func (s *store) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	ctx, span := s.begin(ctx, "acquire")
	if span == nil {
		return s.next.Acquire(ctx, key, ttl, next)
	}
	var declined error
	l, err := s.next.Acquire(ctx, key, ttl, func(r lease.Record) (note string, err error) {
		note, declined = next(r)
		return note, declined
	})
	if declined != nil && errors.Is(err, declined) {
		span.SetAttributes(outcomeKey.String("declined"))
		span.End()
		return l, err
	}
	s.end(span, l, err)
	return l, err
}

func (s *store) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	ctx, span := s.begin(ctx, "extend")
	extended, err := s.next.Extend(ctx, l, note, ttl)
	s.end(span, l, err)
	return extended, err
}

func (s *store) Release(ctx context.Context, l lease.Lease, note string) error {
	ctx, span := s.begin(ctx, "release")
	err := s.next.Release(ctx, l, note)
	s.end(span, l, err)
	return err
}

// Break is lease.Breaker's. No flight breaks a lease, so there is no span.
func (s *store) Break(ctx context.Context, key string, next func(lease.Record) (string, error)) error {
	return lease.Break(ctx, s.next, key, next)
}

// List is lease.Lister's. No flight lists leases, so there is no span.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[lease.Entry, error] {
	return lease.List(ctx, s.next, prefix)
}

// begin returns no span outside a flight.
func (s *store) begin(ctx context.Context, operation string) (context.Context, trace.Span) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, nil
	}
	return s.tracer.Start(ctx, "lease "+operation, trace.WithAttributes(storeKey.String(s.name)))
}

// end ends span, if there is one, with what came of a call about l.
func (s *store) end(span trace.Span, l lease.Lease, err error) {
	if span == nil {
		return
	}
	switch {
	case err == nil:
		span.SetAttributes(outcomeKey.String("ok"), tokenKey.Int64(l.Token))
	case errors.Is(err, lease.ErrHeld):
		span.SetAttributes(outcomeKey.String("held"))
	case errors.Is(err, lease.ErrLost):
		span.SetAttributes(outcomeKey.String("lost"))
	default:
		span.SetAttributes(outcomeKey.String("error"))
		fail(span, "unavailable", err)
	}
	span.End()
}
