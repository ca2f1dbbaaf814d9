package metrics

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"alertworker/internal/lease/observe"
)

// storeResults has what each operation can end with, so that every series is
// there from the start: Prometheus does not see the first step of one that is not.
var storeResults = map[observe.Operation][]observe.Outcome{
	observe.OpAcquire: {observe.OutcomeOK, observe.OutcomeHeld, observe.OutcomeDeclined, observe.OutcomeError},
	observe.OpExtend:  {observe.OutcomeOK, observe.OutcomeLost, observe.OutcomeError},
	observe.OpRelease: {observe.OutcomeOK, observe.OutcomeError},
	observe.OpRead:    {observe.OutcomeOK, observe.OutcomeError},
}

// Store returns what measures a store's calls. name, one of few, is the label.
func (m *Metrics) Store(name string) observe.Observer {
	calls := m.storeCalls.MustCurryWith(prometheus.Labels{"store": name})
	for operation, outcomes := range storeResults {
		for _, outcome := range outcomes {
			calls.WithLabelValues(string(operation), string(outcome))
		}
	}

	return func(ctx context.Context, op observe.Operation) (context.Context, func(observe.Call)) {
		start := time.Now()
		return ctx, func(c observe.Call) {
			calls.WithLabelValues(string(op), string(c.Outcome)).Observe(time.Since(start).Seconds())
		}
	}
}

// Clock exports how far this machine's clock is from that of the stores. ahead, of an azure.Clock, is called at each scrape.
// name is that of Store. Clock may be called once.
func (m *Metrics) Clock(name string, ahead func() (time.Duration, bool)) {
	m.registry.MustRegister(collector(func(to scrape) {
		skew := math.NaN()
		if ahead, ok := ahead(); ok {
			skew = -ahead.Seconds()
		}

		to.gauge("store_clock_skew_seconds",
			"This machine's clock minus the store's, at the last response, also at one that refuses; NaN before there is one. "+
				"Azure reports whole seconds, so up to 1 is normal.",
			skew, "store", name)
	}))
}
