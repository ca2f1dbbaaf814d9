package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"alertworker/internal/notify"
)

// Results of attempts: what is known of the alert.
const (
	resultTaken    = "taken"
	resultRefused  = "refused"   // for good
	resultNotTaken = "not_taken" // certainly; it is tried again
	resultUnknown  = "unknown"   // the receiver may have taken it
)

// Reasons why an attempt failed that was not refused.
const (
	reasonNone       = "none"        // it did not
	reasonRetryAfter = "retry_after" // the receiver asked to be left alone
	reasonTimeout    = "timeout"
	reasonCanceled   = "canceled" // by us: the replica stops
	reasonOther      = "other"    // see the log
)

// Notifier returns next, measured. receiver is the label: a name from the
// configuration without secrets.
func (m *Metrics) Notifier(next notify.Notifier, receiver string) notify.Notifier {
	n := &notifier{
		next:     next,
		attempts: m.attempts.MustCurryWith(prometheus.Labels{"receiver": receiver}),
		duration: m.duration.MustCurryWith(prometheus.Labels{"receiver": receiver}),
		delay:    m.delay.WithLabelValues(receiver),
	}
	n.declare(resultTaken, reasonNone)
	n.declare(resultRefused, reasonNone)
	for _, result := range []string{resultNotTaken, resultUnknown} {
		for _, reason := range []string{reasonRetryAfter, reasonTimeout, reasonCanceled, reasonOther} {
			n.declare(result, reason)
		}
	}
	return n
}

type notifier struct {
	next     notify.Notifier
	attempts *prometheus.CounterVec
	duration prometheus.ObserverVec
	delay    prometheus.Observer
}

// declare makes series appear before they count.
func (n *notifier) declare(result, reason string) {
	n.attempts.WithLabelValues(result, reason)
	n.duration.WithLabelValues(result)
}

func (n *notifier) Notify(ctx context.Context, a notify.Alert) error {
	start := time.Now()
	err := n.next.Notify(ctx, a)
	now := time.Now()

	result, reason := verdict(ctx, err)
	n.attempts.WithLabelValues(result, reason).Inc()
	n.duration.WithLabelValues(result).Observe(now.Sub(start).Seconds())
	if err == nil {
		n.delay.Observe(max(0, now.Sub(a.Enqueued).Seconds()))
	}
	return err
}

// verdict says what came of an attempt that was made under ctx.
func verdict(ctx context.Context, err error) (result, reason string) {
	if err == nil {
		return resultTaken, reasonNone
	}
	e := notify.AsError(err)
	if e.Refused {
		return resultRefused, reasonNone
	}
	result = resultUnknown
	if e.Untaken {
		result = resultNotTaken
	}
	switch {
	case e.RetryAfter > 0:
		return result, reasonRetryAfter
	case ctx.Err() == context.Canceled:
		return result, reasonCanceled
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return result, reasonTimeout
	}
	return result, reasonOther
}
