// Package metrics exports the state of a replica in Prometheus' format.
//
// What the worker and its source count anyway is read at each scrape, so that it
// adds no cost to an event. Stores and receivers are measured
// by observers. No label holds a device, and every label has few values.
package metrics

import (
	"cmp"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"alertworker/internal/build"
)

const (
	namespace = "alertworker"

	maxScrapes = 4 // at a time; further ones get 503
)

// Metrics are those of one replica. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	storeCalls *prometheus.HistogramVec

	attempts *prometheus.CounterVec
	duration *prometheus.HistogramVec
	delay    *prometheus.HistogramVec
}

// New returns Metrics with a registry of their own. version names the build.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		storeCalls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace,
			Name:      "store_call_duration_seconds",
			Help:      "Duration of calls to the throttle store, including retries within a call.",
			Buckets:   []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"store", "operation", "result"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace,
			Name:      "notify_attempts_total",
			Help:      "Attempts to deliver an alert or a recovery.",
		}, []string{"receiver", "result", "reason"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace,
			Name:      "notify_duration_seconds",
			Help:      "Duration of an attempt to deliver.",
			Buckets:   []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"receiver", "result"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace,
			Name:      "delivery_delay_seconds",
			Help: "Time from the reading's arrival at the hub, by the hub's clock, until the receiver accepted the alert, " +
				"by this machine's clock. Recoveries do not count, because they wait for windows to end.",
			Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 4 * 3600, 12 * 3600},
		}, []string{"receiver"}),
	}
	m.registry.MustRegister(
		m.storeCalls, m.attempts, m.duration, m.delay,
		collector(func(to scrape) {
			to.gauge("build_info", "Always 1; the labels identify the build.", 1,
				"version", version, "revision", cmp.Or(build.Commit(), "unknown"), "goversion", runtime.Version())
		}),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Handler serves GET /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError, // some metrics are better than none
		MaxRequestsInFlight: maxScrapes,
	})
}

// Producer returns what exports the same by OTLP.
func (m *Metrics) Producer() metric.Producer {
	return bridge.NewMetricProducer(bridge.WithGatherer(m.registry))
}
