package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"alertworker/internal/lease"
)

// Store returns what makes a store's calls in a delivery spans of it, and each other call that gets no
// answer a trace of its own; nil if t is nil. Other calls, as for the leader's lease, are too many and too much
// alike to trace. name is one of few.
func (t *Tracing) Store(name string) lease.Observer {
	if t == nil {
		return nil
	}

	start := func(ctx context.Context, op lease.Operation, at time.Time) (context.Context, trace.Span) {
		return t.tracer.Start(ctx, "lease "+string(op), trace.WithTimestamp(at), trace.WithAttributes(storeKey.String(name)))
	}
	return func(ctx context.Context, op lease.Operation) (context.Context, func(lease.Call)) {
		began := time.Now()

		if !trace.SpanFromContext(ctx).IsRecording() { // no delivery's
			return ctx, func(c lease.Call) {
				if c.Outcome == lease.OutcomeError {
					_, span := start(ctx, op, began)
					end(span, c)
				}
			}
		}

		ctx, span := start(ctx, op, began)
		return ctx, func(c lease.Call) { end(span, c) }
	}
}

// end ends the span of a store's call.
func end(span trace.Span, c lease.Call) {
	span.SetAttributes(outcomeKey.String(string(c.Outcome)))
	switch c.Outcome {
	case lease.OutcomeOK:
		span.SetAttributes(tokenKey.Int64(c.Lease.Token))
	case lease.OutcomeError:
		fail(span, "unavailable", c.Err)
	}

	span.End()
}
