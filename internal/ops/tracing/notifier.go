package tracing

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"alertworker/internal/notify"
)

// Receiver returns an observer of the attempts at a receiver: an attempt at an alert is a
// span of its delivery, one at a summary is a trace of its own. It is nil if t is. name holds no secrets.
func (t *Tracing) Receiver(name string) notify.Observer {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, a notify.Attempt) (context.Context, func(error)) {
		var span trace.Span
		switch {
		case a.Summary != nil:
			ctx, span = t.tracer.Start(ctx, "summary "+name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
				receiverKey.String(name), summaryKey.String(a.Summary.ID),
			))
		case trace.SpanFromContext(ctx).IsRecording():
			ctx, span = t.tracer.Start(ctx, "notify "+name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
				receiverKey.String(name), alertKey.String(a.Alert.ID), tokenKey.Int64(a.Alert.Token), suppressedKey.Int64(a.Alert.Suppressed),
			))
		default:
			return ctx, nil
		}
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
