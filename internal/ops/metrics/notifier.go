package metrics

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
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
			result, reason := notify.Result(err), reasonOf(ctx, err)
			attempts.WithLabelValues(result, reason).Inc()
			duration.WithLabelValues(result).Observe(now.Sub(start).Seconds())
			if err == nil && !a.Resolved { // which may have waited for a window's end
				delay.Observe(max(0, now.Sub(a.Enqueued).Seconds()))
			}
		}
	}
}

// Reasons why an attempt at a receiver failed: what to do depends on them. The log and the page have the error.
const (
	reasonNone         = "none"         // it did not, or for good, because of what it says
	reasonUnauthorized = "unauthorized" // 401, 403
	reasonNotFound     = "not_found"    // 404, 405, 410: the path
	reasonThrottled    = "throttled"    // 429
	reasonServer       = "server_error" // 5xx
	reasonTimeout      = "timeout"
	reasonCanceled     = "canceled" // by us: the replica is stopping
	reasonOther        = "other"    // such as no connection
)

var reasons = []string{
	reasonUnauthorized, reasonNotFound, reasonThrottled, reasonServer, reasonTimeout, reasonCanceled, reasonOther,
}

// reasonOfStatus is why an attempt failed that was answered with an HTTP status, apart from 5xx.
var reasonOfStatus = map[int]string{
	http.StatusUnauthorized:     reasonUnauthorized,
	http.StatusForbidden:        reasonUnauthorized,
	http.StatusNotFound:         reasonNotFound,
	http.StatusMethodNotAllowed: reasonNotFound,
	http.StatusGone:             reasonNotFound,
	http.StatusTooManyRequests:  reasonThrottled,
	http.StatusRequestTimeout:   reasonTimeout,
}

// reasonOf returns why an attempt that was made under ctx failed.
func reasonOf(ctx context.Context, err error) string {
	e := notify.AsError(err)
	var network net.Error
	switch {
	case err == nil, e.Refused:
		return reasonNone
	case e.Status >= 500:
		return reasonServer
	case e.Status > 0:
		return cmp.Or(reasonOfStatus[e.Status], reasonOther)
	case ctx.Err() == context.Canceled:
		return reasonCanceled
	case ctx.Err() != nil, errors.As(err, &network) && network.Timeout():
		return reasonTimeout
	}

	return reasonOther
}
