package tracing

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"alertworker/internal/notify"
)

// Notifier returns next, whose attempts in a delivery are spans of it; next itself if t is nil.
// receiver is a name without secrets.
func (t *Tracing) Notifier(next notify.Notifier, receiver string) notify.Notifier {
	if t == nil {
		return next
	}
	return &notifier{next: next, tracer: t.tracer, receiver: receiver}
}

type notifier struct {
	next     notify.Notifier
	tracer   trace.Tracer
	receiver string
}

func (n *notifier) Notify(ctx context.Context, a notify.Alert) error {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return n.next.Notify(ctx, a)
	}
	ctx, span := n.tracer.Start(ctx, "notify "+n.receiver, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		receiverKey.String(n.receiver), alertKey.String(a.ID), tokenKey.Int64(a.Token), suppressedKey.Int64(a.Suppressed),
	))
	defer span.End()
	err := n.next.Notify(ctx, a)
	outcome := outcomeOf(err)
	span.SetAttributes(outcomeKey.String(outcome))
	if err != nil {
		fail(span, outcome, err)
	}
	return err
}

// outcomeOf says what is known of the alert after an attempt.
func outcomeOf(err error) string {
	if err == nil {
		return "taken"
	}
	switch e := notify.AsError(err); {
	case e.Refused:
		return "refused"
	case e.Untaken:
		return "not_taken"
	}
	return "unknown"
}
