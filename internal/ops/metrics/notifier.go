package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"alertworker/internal/notify"
)

// Results of attempts: what is known of the alert or summary.
const (
	resultDelivered = "delivered"
	resultRefused   = "refused"   // for good
	resultNotTaken  = "not_taken" // certainly; it is tried again
	resultUnknown   = "unknown"   // the receiver may have taken it
)

// Receiver returns an observer of the attempts at a receiver. name is the label: from the
// configuration, without secrets.
func (m *Metrics) Receiver(name string) notify.Observer {
	attempts := m.attempts.MustCurryWith(prometheus.Labels{"receiver": name})
	duration := m.duration.MustCurryWith(prometheus.Labels{"receiver": name})
	delay := m.delay.WithLabelValues(name)
	declare := func(result, reason string) { // makes series appear before they count
		attempts.WithLabelValues(result, reason)
		duration.WithLabelValues(result)
	}
	declare(resultDelivered, reasonNone)
	declare(resultRefused, reasonNone)
	for _, result := range []string{resultNotTaken, resultUnknown} {
		for _, reason := range reasons {
			declare(result, reason)
		}
	}
	return func(ctx context.Context, a notify.Attempt) (context.Context, func(error)) {
		start := time.Now()
		return ctx, func(err error) {
			now := time.Now()
			result, reason := verdict(ctx, err)
			attempts.WithLabelValues(result, reason).Inc()
			duration.WithLabelValues(result).Observe(now.Sub(start).Seconds())
			if err == nil && a.Alert != nil && !a.Alert.Resolved { // which may have waited for a window's end
				delay.Observe(max(0, now.Sub(a.Alert.Enqueued).Seconds()))
			}
		}
	}
}

// verdict returns the labels for an attempt that was made under ctx.
func verdict(ctx context.Context, err error) (result, reason string) {
	if err == nil {
		return resultDelivered, reasonNone
	}
	e := notify.AsError(err)
	if e.Refused {
		return resultRefused, reasonNone
	}
	result = resultUnknown
	if e.Untaken {
		result = resultNotTaken
	}
	reason = reasonOf(ctx, err, e.Status)
	if e.RetryAfter > 0 && (reason == reasonServer || reason == reasonOther) {
		reason = reasonRetryAfter
	}
	return result, reason
}
