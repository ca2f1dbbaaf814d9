package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"alertworker/internal/notify"
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
	declare(notify.ResultDelivered, reasonNone)
	declare(notify.ResultRefused, reasonNone)
	for _, result := range []string{notify.ResultNotTaken, notify.ResultUnknown} {
		for _, reason := range reasons {
			declare(result, reason)
		}
	}

	return func(ctx context.Context, a *notify.Alert) func(error) {
		start := time.Now()
		return func(err error) {
			now := time.Now()
			result, reason := notify.Result(err), failure(ctx, err)
			attempts.WithLabelValues(result, reason).Inc()
			duration.WithLabelValues(result).Observe(now.Sub(start).Seconds())
			if err == nil && !a.Resolved { // which may have waited for a window's end
				delay.Observe(max(0, now.Sub(a.Enqueued).Seconds()))
			}
		}
	}
}

// failure returns why an attempt that was made under ctx failed, if that says anything about it.
func failure(ctx context.Context, err error) (reason string) {
	e := notify.AsError(err)
	if err == nil || e.Refused {
		return reasonNone
	}

	reason = reasonOf(ctx, err, e.Status)
	if e.RetryAfter > 0 && (reason == reasonServer || reason == reasonOther) {
		reason = reasonRetryAfter
	}

	return reason
}
