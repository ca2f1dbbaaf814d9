// Package tracing exports by OTLP. Each alert is an OpenTelemetry trace: one span for
// the delivery, with one child for each store call and each attempt to notify. The metrics are those that
// Prometheus scrapes, for where there is none.
//
// Readings that are settled without a delivery are not traced and cost nothing.
// It is configured only by OpenTelemetry's standard variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
// Without them [Open] returns nil, and a nil *Tracing
// observes nothing.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

const (
	flushTimeout = 5 * time.Second  // for the last spans
	reportPause  = 30 * time.Second // between two log lines about failures
	maxReport    = 500              // bytes of an error that are logged: collectors respond with whole pages
)

// Config says what is traced. All fields are required.
type Config struct {
	Version string // of this build
	Replica string
	Source  Source
	Log     *zap.Logger
}

// A Source is the hub that readings come from.
type Source struct {
	Host          string // of the namespace
	Hub           string
	ConsumerGroup string
}

// A Tracing creates spans and exports them in the background. The queue is
// bounded: spans that a slow collector does not accept in time are dropped. It is safe for
// concurrent use. All methods may be called on nil.
type Tracing struct {
	tracer   trace.Tracer
	source   Source
	provider *sdktrace.TracerProvider
	flush    time.Duration
	cut      func() // aborts exports in progress
	report   func(error)
}

// Open reads OpenTelemetry's variables and returns nil if they do not enable tracing. It
// makes no connection, and fails only if spans would go nowhere; the error
// names the variable without its value. Other invalid variables are logged and ignored. While spans cannot be
// exported, that is logged at most twice a minute.
func Open(ctx context.Context, c Config) (*Tracing, error) {
	if on, err := traces.enabled(); !on || err != nil {
		return nil, err
	}

	report := handle(c.Log)
	client := otlptracehttp.NewClient()
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_…: %w", err)
	}

	t := start(c, sdktrace.WithBatcher(exporter))
	t.cut = func() { _ = client.Stop(context.Background()) }
	t.report = report

	return t, nil
}

// handle has errors of OpenTelemetry logged, and returns what logs them.
func handle(log *zap.Logger) func(error) {
	report := reporter(log, secrets())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(report))
	otel.SetLogger(logr.New(sink{report}))
	return report
}

// start returns a Tracing whose spans go where the option says.
func start(c Config, to sdktrace.TracerProviderOption) *Tracing {
	provider := sdktrace.NewTracerProvider(to, sdktrace.WithResource(service(c)))
	return &Tracing{
		tracer: provider.Tracer(
			"alertworker",
			trace.WithInstrumentationVersion(c.Version),
			trace.WithSchemaURL(semconv.SchemaURL),
		),
		source:   c.Source,
		provider: provider,
		flush:    flushTimeout,
		cut:      func() {},
		report:   func(error) {},
	}
}

// service describes this replica.
func service(c Config) *resource.Resource {
	service, err := resource.New(
		context.Background(),
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			semconv.ServiceName("alertworker"),
			semconv.ServiceVersion(c.Version),
			semconv.ServiceInstanceID(c.Replica),
		),
		resource.WithFromEnv(), // last: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
	)
	if err != nil {
		otel.Handle(err) // what could be parsed of the variables is used
	}

	return service
}

// Close exports the remaining spans, for at most 5 s, and returns when all goroutines of t have ended.
func (t *Tracing) Close() {
	if t == nil {
		return
	}

	late := time.AfterFunc(t.flush, t.cut)
	defer late.Stop()
	if err := t.provider.Shutdown(context.Background()); err != nil {
		t.report(err)
	}
}

// reporter returns a function that logs errors of tracing, at a limited rate and without secrets.
func reporter(log *zap.Logger, secrets []string) func(error) {
	var pairs []string
	for _, s := range secrets {
		if s != "" {
			pairs = append(pairs, s, "[redacted]")
		}
	}

	redact := strings.NewReplacer(pairs...)
	var last atomic.Int64

	return func(err error) {
		if err == nil { // the SDK hands over what ForceFlush returns, whatever that is
			return
		}

		now := time.Now().UnixNano()
		if then := last.Load(); now-then > int64(reportPause) && last.CompareAndSwap(then, now) {
			text := redact.Replace(err.Error())
			text = strings.ToValidUTF8(text[:min(len(text), maxReport)], "")
			log.Warn("OpenTelemetry export failed; alerts are not affected", zap.String("error", text))
		}
	}
}

// A sink reports what the SDK and the exporter find wrong in their variables, without the values.
type sink struct{ report func(error) }

func (sink) Init(logr.RuntimeInfo)    {}
func (sink) Enabled(int) bool         { return false }
func (sink) Info(int, string, ...any) {}
func (s sink) Error(_ error, msg string, _ ...any) {
	s.report(errors.New("an OpenTelemetry variable is ignored: " + msg)) // the error and what comes with it have the value
}
func (s sink) WithValues(...any) logr.LogSink { return s }
func (s sink) WithName(string) logr.LogSink   { return s }
