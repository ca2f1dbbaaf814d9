package tracing

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"alertworker/internal/lease"
)

// Store returns what makes a store's calls in a delivery spans of it; nil if t is nil. name is
// one of few.
func (t *Tracing) Store(name string) lease.Observer {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, op lease.Operation) (context.Context, func(lease.Call)) {
		if op == lease.OpBreak || !trace.SpanFromContext(ctx).IsRecording() { // no delivery's
			return ctx, nil
		}
		ctx, span := t.tracer.Start(ctx, "lease "+string(op), trace.WithAttributes(storeKey.String(name)))
		return ctx, func(c lease.Call) {
			span.SetAttributes(outcomeKey.String(string(c.Outcome)))
			switch c.Outcome {
			case lease.OutcomeOK:
				span.SetAttributes(tokenKey.Int64(c.Lease.Token))
			case lease.OutcomeError:
				fail(span, "unavailable", c.Err)
			}
			span.End()
		}
	}
}
