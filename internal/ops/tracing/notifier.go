package tracing

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"alertworker/internal/notify"
)

// Receiver returns an observer of the attempts at a receiver: each is a span of the
// alert's delivery. It is nil if t is. name holds no secrets.
func (t *Tracing) Receiver(name string) notify.Observer {
	if t == nil {
		return nil
	}

	return func(ctx context.Context, a *notify.Alert) (context.Context, func(error)) {
		if !trace.SpanFromContext(ctx).IsRecording() {
			return ctx, nil
		}

		ctx, span := t.tracer.Start(ctx, "notify "+name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			receiverKey.String(name), alertKey.String(a.ID), tokenKey.Int64(a.Token), suppressedKey.Int64(a.Suppressed),
		))
		return ctx, func(err error) {
			outcome := notify.Result(err)
			span.SetAttributes(outcomeKey.String(outcome))
			if err != nil {
				fail(span, outcome, err)
			}

			span.End()
		}
	}
}
