package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"alertworker/internal/lease/observe"
)

// Store returns what makes a store's calls in a delivery spans of it, and each other call that gets no
// answer a trace of its own; nil if t is nil. Other calls, as for the leader's lease, are too many and too much
// alike to trace. name is one of few.
func (t *Tracing) Store(name string) observe.Observer {
	if t == nil {
		return nil
	}

	start := func(ctx context.Context, op observe.Operation, at time.Time) (context.Context, trace.Span) {
		return t.tracer.Start(ctx, "lease "+string(op), trace.WithTimestamp(at), trace.WithAttributes(storeKey.String(name)))
	}
	return func(ctx context.Context, op observe.Operation) (context.Context, func(observe.Call)) {
		began := time.Now()

		if !trace.SpanFromContext(ctx).IsRecording() { // no delivery's
			return ctx, func(c observe.Call) {
				if c.Outcome == observe.OutcomeError {
					_, span := start(ctx, op, began)
					end(span, c)
				}
			}
		}

		ctx, span := start(ctx, op, began)
		return ctx, func(c observe.Call) { end(span, c) }
	}
}

// end ends the span of a store's call.
func end(span trace.Span, c observe.Call) {
	span.SetAttributes(outcomeKey.String(string(c.Outcome)))
	switch c.Outcome {
	case observe.OutcomeOK:
		span.SetAttributes(tokenKey.Int64(c.Lease.Token))
	case observe.OutcomeError:
		fail(span, "unavailable", c.Err)
	}

	span.End()
}
