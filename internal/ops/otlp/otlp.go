// Package otlp exports metrics by OTLP, for where nothing scrapes them.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	flushTimeout = 5 * time.Second  // for the last export
	reportPause  = 30 * time.Second // between two log lines about failures
	maxReport    = 500              // bytes of an error that are logged: collectors respond with whole pages
)

// Export exports what from produces, every minute or as OTEL_METRIC_EXPORT_INTERVAL says, if
// OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is set, or OTEL_METRICS_EXPORTER=otlp with the general endpoint. It is configured
// by OpenTelemetry's standard variables alone. replica is this one's name, version that of the build. It makes no
// connection, and fails only if the metrics would go nowhere; the error names the variable without its value. Other
// invalid variables are logged and ignored. While nothing can be exported, that is logged at most twice a minute. The
// function that it returns exports once more, for at most 5 s or until its context ends, and ends the export; it is never
// nil.
func Export(
	ctx context.Context, from metric.Producer, replica, version string, log *zap.Logger,
) (end func(context.Context), err error) {
	end = func(context.Context) {}
	if on, err := enabled(); !on || err != nil {
		return end, err
	}

	report := reporter(log)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(report))
	otel.SetLogger(logr.FromSlogHandler(reports(report)))
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return end, fmt.Errorf("OTEL_EXPORTER_OTLP_METRICS_…: %w", err)
	}

	service, err := resource.New(
		ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			semconv.ServiceName("alertworker"), semconv.ServiceVersion(version), semconv.ServiceInstanceID(replica),
		),
		resource.WithFromEnv(), // last: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
	)
	if err != nil {
		report(err) // what could be parsed of the variables is used
	}

	provider := metric.NewMeterProvider(
		metric.WithResource(service), metric.WithReader(metric.NewPeriodicReader(exporter, metric.WithProducer(from))),
	)
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			report(err)
		}
	}, nil
}

// enabled reports whether OpenTelemetry's variables ask for metrics. The exporter reads them itself: an error is
// what it would silently ignore, and names the variable without its value.
func enabled() (bool, error) {
	exporter := env("OTEL_METRICS_EXPORTER")
	variable, endpoint := setting("ENDPOINT")
	protocolVariable, protocol := setting("PROTOCOL")

	switch {
	case endpoint == "", exporter == "none", strings.EqualFold(env("OTEL_SDK_DISABLED"), "true"):
		return false, nil
	case exporter != "otlp" && variable == "OTEL_EXPORTER_OTLP_ENDPOINT":
		// Platforms set the general endpoint for everything that they run, and who scrapes metrics does not want them twice.
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, errors.New("OTEL_METRICS_EXPORTER: must be otlp, or none to disable the export")
	case protocol == "grpc":
		return false, fmt.Errorf("%s: gRPC is not supported: use http/protobuf, by convention on port 4318", protocolVariable)
	}

	u, err := url.Parse(endpoint)
	switch {
	case err != nil, !slices.Contains([]string{"http", "https"}, u.Scheme), u.Hostname() == "":
		return false, fmt.Errorf("%s: must be a URL such as http://host:4318 or https://…", variable)
	case u.User != nil:
		return false, fmt.Errorf(
			"%s: credentials in the URL are not sent: put them into OTEL_EXPORTER_OTLP_HEADERS as authorization=Basic%%20…",
			variable,
		)
	}

	return true, nil
}

func env(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// setting returns a variable of the exporter and its value. What is set for metrics takes precedence.
func setting(name string) (variable, value string) {
	variable = "OTEL_EXPORTER_OTLP_METRICS_" + name
	if env(variable) == "" {
		variable = "OTEL_EXPORTER_OTLP_" + name
	}

	return variable, env(variable)
}

// reporter returns a function that logs errors of the export, at a limited rate and without what of the variables must not
// be logged: headers, and the paths of endpoints, which may hold a key.
func reporter(log *zap.Logger) func(error) {
	var pairs []string
	hide := func(secrets ...string) {
		for _, s := range secrets {
			if s != "" {
				pairs = append(pairs, s, "[redacted]")
			}
		}
	}

	for _, of := range []string{"", "METRICS_"} {
		for header := range strings.SplitSeq(env("OTEL_EXPORTER_OTLP_"+of+"HEADERS"), ",") {
			_, written, _ := strings.Cut(header, "=")
			meant, _ := url.PathUnescape(written)
			hide(strings.TrimSpace(written), strings.TrimSpace(meant))
		}

		if u, err := url.Parse(env("OTEL_EXPORTER_OTLP_" + of + "ENDPOINT")); err == nil && len(u.Path) > 1 {
			hide(u.Path, u.EscapedPath())
		}
	}

	redact := strings.NewReplacer(pairs...)
	log = log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, reportPause, 1, 0)
	}))

	return func(err error) {
		text := redact.Replace(err.Error())
		text = strings.ToValidUTF8(text[:min(len(text), maxReport)], "")
		log.Warn("OpenTelemetry export failed; alerts are not affected", zap.String("error", text))
	}
}

// A reports reports what the SDK and the exporter find wrong in their variables, without the values, which are in the error
// and in what comes with it.
type reports func(error)

func (reports) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }
func (r reports) Handle(_ context.Context, record slog.Record) error {
	r(errors.New("an OpenTelemetry variable is ignored: " + record.Message))
	return nil
}
func (r reports) WithAttrs([]slog.Attr) slog.Handler { return r }
func (r reports) WithGroup(string) slog.Handler      { return r }
