package tracing

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
)

// ExportMetrics exports what from produces, every minute or as OTEL_METRIC_EXPORT_INTERVAL says, if
// OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is set, or OTEL_METRICS_EXPORTER=otlp with the general endpoint. It makes no
// connection. The function that it returns exports once more, for at most 5 s, and ends the export; it is never nil.
func ExportMetrics(ctx context.Context, c Config, from metric.Producer) (end func(), err error) {
	end = func() {}
	if on, err := metrics.enabled(); !on || err != nil {
		return end, err
	}

	report := handle(c.Log)
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return end, fmt.Errorf("OTEL_EXPORTER_OTLP_METRICS_…: %w", err)
	}

	provider := metric.NewMeterProvider(
		metric.WithResource(service(c)),
		metric.WithReader(metric.NewPeriodicReader(exporter, metric.WithProducer(from))),
	)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			report(err)
		}
	}, nil
}
