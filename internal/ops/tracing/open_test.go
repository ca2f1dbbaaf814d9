package tracing_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/lease/observe"
	"alertworker/internal/notify"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/tracing"
)

// setenv sets these variables of OpenTelemetry and no others.
func setenv(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range variables {
		t.Setenv(name, value)
	}
}

// Without an endpoint there is nothing, and nothing is wrapped.
func TestOff(t *testing.T) {
	for _, variables := range []map[string]string{
		{},
		{"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_HEADERS": "no header"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_SDK_DISABLED": "true"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"},
	} {
		setenv(t, variables)
		tr, err := tracing.Open(t.Context(), config())
		if tr != nil || err != nil {
			t.Fatalf("%v: got %v, %v", variables, tr, err)
		}
		if tr.Deliveries() != nil {
			t.Error("deliveries are followed")
		}
		store, notifier := memlease.New(), &script{}
		if observe.Store(store, tr.Store("memory")) != store || notify.Observe(notifier, tr.Receiver("hook")) != notifier {
			t.Error("something is wrapped")
		}
		tr.Close()
	}
}

const secret = "Z9k"

// Spans that would go nowhere are an error that names the variable and not its value.
func TestWrong(t *testing.T) {
	for name, values := range map[string][]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":        {"localhost:4318/" + secret, "ftp://host/" + secret, "http://", "http://user:" + secret + "@host", "http://%" + secret},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": {"/v1/" + secret},
		"OTEL_EXPORTER_OTLP_PROTOCOL":        {"grpc"},
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": {"grpc"},
		"OTEL_TRACES_EXPORTER":               {"console"},
	} {
		for _, value := range values {
			setenv(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1"})
			t.Setenv(name, value)
			tr, err := tracing.Open(t.Context(), config())
			if tr != nil || err == nil || !strings.HasPrefix(err.Error(), name+": ") || strings.Contains(err.Error(), secret) {
				t.Errorf("%s=%s: got %v, %v", name, value, tr, err)
			}
			tr.Close()
		}
	}
}

// What the exporter finds wrong in its variables is logged, without the value.
func TestIgnored(t *testing.T) {
	for name, values := range map[string][]string{
		"OTEL_EXPORTER_OTLP_HEADERS":            {secret, "a=b," + secret, "a=%" + secret, "=" + secret, "a b=" + secret},
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS":     {secret},
		"OTEL_EXPORTER_OTLP_TIMEOUT":            {secret, "99999999999999999999"},
		"OTEL_EXPORTER_OTLP_CERTIFICATE":        {"/none", "open_test.go"},
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": {"/none"},
	} {
		for _, value := range values {
			setenv(t, map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:1", "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/key"})
			t.Setenv(name, value)
			core, logs := observer.New(zapcore.DebugLevel)
			settings := config()
			settings.Log = zap.New(core)
			tr, err := tracing.Open(t.Context(), settings)
			if tr == nil || err != nil {
				t.Fatal(err)
			}
			tr.Close()
			if text := fmt.Sprint(logs.All()); logs.Len() != 1 || strings.Contains(text, secret) {
				t.Errorf("%s=%s: the log says %v", name, value, text)
			}
		}
	}
}

// A collector is an OTLP receiver.
type collector struct {
	*httptest.Server

	mu     sync.Mutex
	taken  []*tracepb.ResourceSpans
	header http.Header
	path   string
}

// newCollector answers with status; 0 keeps it waiting until the test ends.
func newCollector(t *testing.T, status int, body func(*http.Request) string) *collector {
	c := &collector{}
	over := make(chan struct{})
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, err := io.ReadAll(r.Body)
		var request tracepb.TracesData
		if err == nil {
			err = proto.Unmarshal(sent, &request)
		}
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		c.taken = append(c.taken, request.ResourceSpans...)
		c.header, c.path = r.Header, r.URL.Path
		c.mu.Unlock()
		if status == 0 {
			select {
			case <-r.Context().Done():
			case <-over:
			}
			return
		}
		w.WriteHeader(status)
		if body != nil {
			fmt.Fprint(w, body(r))
		}
	}))
	t.Cleanup(c.Server.Close)
	t.Cleanup(func() { close(over) })
	return c
}

// Close exports what is left, as the variables say.
func TestExport(t *testing.T) {
	c := newCollector(t, http.StatusOK, nil)
	setenv(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL + "/otlp",
		"OTEL_EXPORTER_OTLP_HEADERS":  "api-key=s%20ecret",
		"OTEL_RESOURCE_ATTRIBUTES":    "service.version=9.9.9,deployment.environment.name=test",
	})
	tr, err := tracing.Open(t.Context(), config())
	if err != nil {
		t.Fatal(err)
	}
	consume(t, newReplica(t, tr, memlease.New(), &script{}, noDeadLetters{}), 100*time.Millisecond, hot(1, "oven"))
	tr.Close()

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path != "/otlp/v1/traces" || c.header.Get("Api-Key") != "s ecret" || c.header.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("it was sent to %s with %v", c.path, c.header)
	}
	if len(c.taken) != 1 || len(c.taken[0].ScopeSpans) != 1 {
		t.Fatalf("the collector got %v", c.taken)
	}
	resource := map[string]string{}
	for _, a := range c.taken[0].Resource.Attributes {
		resource[a.Key] = a.Value.GetStringValue()
	}
	for key, want := range map[string]string{
		"service.name": "alertworker", "service.instance.id": "replica-1",
		"service.version": "9.9.9", "deployment.environment.name": "test", // the variables win
	} {
		if resource[key] != want {
			t.Errorf("%s is %q, want %q", key, resource[key], want)
		}
	}

	scope := c.taken[0].ScopeSpans[0]
	if !strings.HasPrefix(scope.SchemaUrl, "https://opentelemetry.io/schemas/") {
		t.Errorf("the schema is %q", scope.SchemaUrl)
	}
	byName := map[string]*tracepb.Span{}
	for _, s := range scope.Spans {
		byName[s.Name] = s
	}
	root := byName["process telemetry"]
	if root == nil || len(byName) != 4 || root.Kind != tracepb.Span_SPAN_KIND_CONSUMER {
		t.Fatalf("the spans are %v", scope.Spans)
	}
	for _, name := range []string{"lease acquire", "notify hook", "lease extend"} {
		if s := byName[name]; s == nil || string(s.TraceId) != string(root.TraceId) || string(s.ParentSpanId) != string(root.SpanId) {
			t.Errorf("%s is %v, no child of the delivery", name, s)
		}
	}
}

// Sampling is the variables' too.
func TestSampledOut(t *testing.T) {
	c := newCollector(t, http.StatusOK, nil)
	setenv(t, map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": c.URL, "OTEL_TRACES_SAMPLER": "always_off"})
	tr, err := tracing.Open(t.Context(), config())
	if err != nil {
		t.Fatal(err)
	}
	consume(t, newReplica(t, tr, memlease.New(), &script{}, noDeadLetters{}), 50*time.Millisecond, hot(1, "oven"))
	tr.Close()
	if c.path != "" {
		t.Error("spans were sent")
	}
}

// A collector that refuses is complained of: seldom, briefly, and without secrets.
func TestRefused(t *testing.T) {
	c := newCollector(t, http.StatusUnauthorized, func(r *http.Request) string {
		return "bad key " + r.Header.Get("Api-Key") + " or s%20ecret " + strings.Repeat("ö", 1000)
	})
	setenv(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=s%20ecret"})
	core, logs := observer.New(zapcore.DebugLevel)
	settings := config()
	settings.Log = zap.New(core)
	tr, err := tracing.Open(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	w := newReplica(t, tr, memlease.New(), &script{}, noDeadLetters{})
	for n := range int64(2) {
		consume(t, w, 50*time.Millisecond, hot(n, fmt.Sprint("oven-", n)))
		tr.ForceFlush()
	}
	tr.Close()
	if logs.Len() != 1 {
		t.Fatalf("%d lines are logged, want 1: %v", logs.Len(), logs.All())
	}
	line := logs.All()[0]
	text := fmt.Sprint(line.ContextMap())
	if line.Level != zapcore.WarnLevel || !strings.Contains(text, "401") || !strings.Contains(text, "bad key [redacted] or [redacted] ") {
		t.Errorf("the log says %v", text)
	}
	if strings.Contains(text, "ecret") || len(text) > 600 {
		t.Errorf("the log says %v", text)
	}
}

// A collector that does not answer holds Close up for no longer than is allowed,
// and then nothing is left behind.
func TestCloseIsBounded(t *testing.T) {
	c := newCollector(t, 0, nil)
	setenv(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL})
	tr, err := tracing.Open(t.Context(), config())
	if err != nil {
		t.Fatal(err)
	}
	tr.SetFlush(50 * time.Millisecond)
	consume(t, newReplica(t, tr, memlease.New(), &script{}, noDeadLetters{}), 50*time.Millisecond, hot(1, "oven"))
	closed := make(chan struct{})
	go func() { tr.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(5 * time.Second): // the exporter itself waits for longer
		t.Error("Close does not return")
	}
}

// Metrics are exported only if that is asked for.
func TestExportMetrics(t *testing.T) {
	for name, c := range map[string]struct {
		variables map[string]string
		exported  bool
		err       string
	}{
		"not set":         {},
		"traces alone":    {variables: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "URL"}},
		"an endpoint":     {variables: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "URL/v1/metrics"}, exported: true},
		"an exporter":     {variables: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "URL", "OTEL_METRICS_EXPORTER": "otlp"}, exported: true},
		"none":            {variables: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "URL", "OTEL_METRICS_EXPORTER": "none"}},
		"disabled":        {variables: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "URL", "OTEL_SDK_DISABLED": "true"}},
		"gRPC":            {variables: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "URL", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, err: "OTEL_EXPORTER_OTLP_PROTOCOL: "},
		"not an endpoint": {variables: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "x"}, err: "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: "},
	} {
		var mu sync.Mutex
		var got metricspb.MetricsData
		var path string
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			path = r.URL.Path
			if err != nil || proto.Unmarshal(body, &got) != nil {
				t.Errorf("%s: not metrics: %v", name, err)
			}
		}))
		for variable, value := range c.variables {
			c.variables[variable] = strings.ReplaceAll(value, "URL", server.URL)
		}
		setenv(t, c.variables)
		m := metrics.New("1.2.3")
		end, err := tracing.ExportMetrics(t.Context(), config(), m.Producer())
		if (err != nil) != (c.err != "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: %v", name, err)
		}
		end()
		server.Close()
		mu.Lock()
		text := got.String()
		if c.exported != (strings.Contains(text, "alertworker_build_info") && path == "/v1/metrics") {
			t.Errorf("%s: %s got %.300s", name, path, text)
		}
		mu.Unlock()
	}
}
