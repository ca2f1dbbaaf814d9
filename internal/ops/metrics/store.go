package metrics

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"alertworker/internal/lease"
)

// storeResults has what each operation can end with, so that every series is
// there from the start: Prometheus does not see the first step of one that is not.
var storeResults = map[lease.Operation][]lease.Outcome{
	lease.OpAcquire: {lease.OutcomeOK, lease.OutcomeHeld, lease.OutcomeDeclined, lease.OutcomeError},
	lease.OpExtend:  {lease.OutcomeOK, lease.OutcomeLost, lease.OutcomeError},
	lease.OpRelease: {lease.OutcomeOK, lease.OutcomeError},
	lease.OpRead:    {lease.OutcomeOK, lease.OutcomeError},
	lease.OpBreak:   {lease.OutcomeOK, lease.OutcomeDeclined, lease.OutcomeError},
}

// storeReasons are why a call can have no usable answer.
var storeReasons = slices.DeleteFunc(
	slices.Clone(reasons),
	func(reason string) bool { return reason == reasonRetryAfter },
)

// Store returns what measures a store's calls. name, one of few, is the label.
func (m *Metrics) Store(name string) lease.Observer {
	calls := m.storeCalls.MustCurryWith(prometheus.Labels{"store": name})
	for operation, outcomes := range storeResults {
		for _, outcome := range outcomes {
			calls.WithLabelValues(string(operation), string(outcome))
		}
	}

	failures := m.storeErrors.MustCurryWith(prometheus.Labels{"store": name})
	for _, reason := range storeReasons {
		failures.WithLabelValues(reason)
	}

	return func(ctx context.Context, op lease.Operation) (context.Context, func(lease.Call)) {
		start := time.Now()
		return ctx, func(c lease.Call) {
			calls.WithLabelValues(string(op), string(c.Outcome)).Observe(time.Since(start).Seconds())
			if c.Outcome == lease.OutcomeError {
				failures.WithLabelValues(reasonOf(ctx, c.Err, statusOf(c.Err))).Inc()
			}

			if !c.Record.Now.IsZero() {
				m.storeSkew.WithLabelValues(name).Set(c.Seen.Sub(c.Record.Now).Seconds())
			}
		}
	}
}

// statusOf returns the HTTP status in an error of a store, 0 if there is none.
func statusOf(err error) int {
	var answer interface{ HTTPStatus() int }
	if errors.As(err, &answer) {
		return answer.HTTPStatus()
	}
	return 0
}
