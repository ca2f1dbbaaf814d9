package otlp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/otlp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// export exports the metrics of a replica as the variables say, and returns the error and what is logged.
func export(t *testing.T, limit time.Duration) (logs *observer.ObservedLogs, err error) {
	t.Helper()
	ending, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	core, logs := observer.New(zapcore.DebugLevel)
	end, err := otlp.Export(t.Context(), metrics.New("1.2.3").Producer(), "replica-1", "1.2.3", zap.New(core))
	end(ending)
	return logs, err
}

// A post is what a collector was sent.
type post struct {
	path   string
	header http.Header
	body   metricspb.MetricsData
}

// newCollector returns the URL of an OTLP receiver that takes what it is sent, and what it got.
func newCollector(t *testing.T) (url string, posts chan *post) {
	posts = make(chan *post, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p := &post{path: r.URL.Path, header: r.Header}
		body, err := io.ReadAll(r.Body)
		if err != nil || proto.Unmarshal(body, &p.body) != nil {
			t.Errorf("not metrics: %v", err)
		}
		posts <- p
	}))
	t.Cleanup(server.Close)
	return server.URL, posts
}

// Metrics are exported only if that is asked for. Variables for traces, or for everything that a platform runs, are no
// error.
func TestExport(t *testing.T) {
	for name, c := range map[string]struct {
		variables map[string]string
		path      string // where they are sent to; empty: nowhere
	}{
		"not set":        {},
		"for everything": {variables: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "URL"}},
		"traces":         {variables: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "URL", "OTEL_TRACES_EXPORTER": "console"}},
		"headers alone":  {variables: map[string]string{"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_HEADERS": "no header"}},
		"an endpoint":    {variables: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "URL/v1/metrics"}, path: "/v1/metrics"},
		"an exporter":    {variables: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "URL/otlp", "OTEL_METRICS_EXPORTER": "otlp"}, path: "/otlp/v1/metrics"},
		"none":           {variables: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "URL", "OTEL_METRICS_EXPORTER": "none"}},
		"disabled":       {variables: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "URL", "OTEL_SDK_DISABLED": "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			url, posts := newCollector(t)
			for variable, value := range c.variables {
				c.variables[variable] = strings.ReplaceAll(value, "URL", url)
			}
			setenv(t, c.variables)
			if logs, err := export(t, time.Minute); err != nil || logs.Len() > 0 {
				t.Errorf("%v, and the log says %v", err, logs.All())
			}
			close(posts)
			p := <-posts
			if (p != nil) != (c.path != "") || p != nil && (p.path != c.path || !strings.Contains(p.body.String(), "alertworker_build_info")) {
				t.Errorf("sent %+v", p)
			}
		})
	}
}

// What is exported says which replica it is from, and the variables win.
func TestExportResource(t *testing.T) {
	url, posts := newCollector(t)
	setenv(t, map[string]string{
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": url,
		"OTEL_EXPORTER_OTLP_HEADERS":          "api-key=s%20ecret",
		"OTEL_RESOURCE_ATTRIBUTES":            "service.version=9.9.9,deployment.environment.name=test",
	})
	if logs, err := export(t, time.Minute); err != nil || logs.Len() > 0 {
		t.Fatal(err, logs.All())
	}
	p := <-posts
	if p.header.Get("Api-Key") != "s ecret" || p.header.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("it was sent with %v", p.header)
	}
	got := map[string]string{}
	for _, a := range p.body.ResourceMetrics[0].Resource.Attributes {
		got[a.Key] = a.Value.GetStringValue()
	}
	for key, want := range map[string]string{
		"service.name": "alertworker", "service.instance.id": "replica-1",
		"service.version": "9.9.9", "deployment.environment.name": "test",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
}

const secret = "Z9k"

// Metrics that would go nowhere are an error that names the variable and not its value.
func TestExportWrong(t *testing.T) {
	for name, values := range map[string][]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":         {"localhost:4318/" + secret, "ftp://host/" + secret, "http://", "http://user:" + secret + "@host", "http://%" + secret},
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": {"/v1/" + secret},
		"OTEL_EXPORTER_OTLP_PROTOCOL":         {"grpc"},
		"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": {"grpc"},
	} {
		for _, value := range values {
			setenv(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1", "OTEL_METRICS_EXPORTER": "otlp"})
			t.Setenv(name, value)
			if _, err := export(t, time.Minute); err == nil || !strings.HasPrefix(err.Error(), name+": ") || strings.Contains(err.Error(), secret) {
				t.Errorf("%s=%s: got %v", name, value, err)
			}
		}
	}
	setenv(t, map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://localhost:1", "OTEL_METRICS_EXPORTER": "console"})
	if _, err := export(t, time.Minute); err == nil || !strings.HasPrefix(err.Error(), "OTEL_METRICS_EXPORTER: ") {
		t.Errorf("got %v", err)
	}
}

// What the exporter finds wrong in its variables is logged, without the value.
func TestExportIgnores(t *testing.T) {
	for name, values := range map[string][]string{
		"OTEL_EXPORTER_OTLP_HEADERS":            {secret, "a=b," + secret, "a=%" + secret, "=" + secret, "a b=" + secret},
		"OTEL_EXPORTER_OTLP_METRICS_HEADERS":    {secret},
		"OTEL_EXPORTER_OTLP_TIMEOUT":            {secret, "99999999999999999999"},
		"OTEL_EXPORTER_OTLP_CERTIFICATE":        {"/none", "otlp_test.go"},
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": {"/none"},
	} {
		for _, value := range values {
			url, _ := newCollector(t)
			setenv(t, map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": url, "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/key"})
			t.Setenv(name, value)
			logs, err := export(t, time.Minute)
			if text := fmt.Sprint(err, logs.All()); err != nil || logs.Len() != 1 || strings.Contains(text, secret) {
				t.Errorf("%s=%s: the log says %v", name, value, text)
			}
		}
	}
}

// A collector that refuses is complained of briefly, and without secrets.
func TestExportRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, "bad key "+r.Header.Get("Api-Key")+" or s%20ecret "+strings.Repeat("ö", 1000))
	}))
	defer server.Close()
	setenv(t, map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": server.URL, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=s%20ecret"})
	logs, err := export(t, time.Minute)
	if err != nil || logs.Len() != 1 {
		t.Fatalf("%v, and the log says %v", err, logs.All())
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

// A collector that does not answer delays the end for no longer than is allowed, and then nothing is left behind.
func TestExportEndIsBounded(t *testing.T) {
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
		case <-over:
		}
	}))
	defer server.Close()
	defer close(over)
	setenv(t, map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": server.URL})
	ended := make(chan error)
	go func() {
		_, err := export(t, 50*time.Millisecond)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the end does not return")
	}
}
