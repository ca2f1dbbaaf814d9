package tracing

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// An answer is a collector's, without a network: time in a bubble stands still while one is used.
type answer func(attempt int) (*http.Response, error)

// upload sends spans to a collector that answers so, and returns how often and how long it was tried.
func upload(t *testing.T, do answer) (attempts int, took time.Duration, err error) {
	c := newClient(target{url: "https://collector/v1/traces?key=secret", timeout: time.Minute}, "1")
	c.http.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
		attempts++
		return do(attempts)
	})
	start := time.Now()
	err = c.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{SchemaUrl: "x"}})
	return attempts, time.Since(start), err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func response(code int, header http.Header) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: header, Body: http.NoBody}
}

// A busy collector is asked again, and not before it says.
func TestBusy(t *testing.T) {
	for _, code := range []int{429, 502, 503, 504} {
		synctest.Test(t, func(t *testing.T) {
			attempts, took, err := upload(t, func(attempt int) (*http.Response, error) {
				if attempt < 3 {
					return response(code, http.Header{"Retry-After": {"20"}}), nil
				}
				return response(200, nil), nil
			})
			if attempts != 3 || took != 40*time.Second || err != nil {
				t.Errorf("%d: %d attempts in %v, %v", code, attempts, took, err)
			}
		})
	}
}

// A collector that refuses, or that is not there, is not asked again. The error shows no URL.
func TestNotAgain(t *testing.T) {
	for name, do := range map[string]answer{
		"refused":    func(int) (*http.Response, error) { return response(400, nil), nil },
		"redirected": func(int) (*http.Response, error) { return response(307, http.Header{"Location": {"/"}}), nil },
		"not there":  func(int) (*http.Response, error) { return nil, errors.New("no route") },
	} {
		attempts, _, err := upload(t, do)
		if attempts != 1 || err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "send spans to collector: ") {
			t.Errorf("%s: %d attempts, %v", name, attempts, err)
		}
	}
}

// Stop ends the pause of an upload.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(target{url: "http://collector"}, "1")
		c.http.Transport = roundTripper(func(*http.Request) (*http.Response, error) { return response(503, nil), nil })
		time.AfterFunc(time.Second, func() { _ = c.Stop(t.Context()) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if err := c.UploadTraces(ctx, nil); err == nil || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// Spans that a collector takes only in part are an error, which says why.
func TestPartly(t *testing.T) {
	for _, test := range []struct{ answer, kind, want string }{
		{"\x0a\x0b\x08\x03\x12\x07too old", contentType, "it rejected 3: too old"},
		{"\x0a\x00", contentType, ""},
		{"", contentType, ""},
		{"\x10\x01\x0a\x02\x08\x01", contentType, "it rejected 1: "}, // after a field of a later version
		{"\x0a\xff", contentType, ""},
		{"\x0a\x0b\x08\x03\x12\x07too old", "text/plain", ""},
	} {
		_, _, err := upload(t, func(int) (*http.Response, error) {
			r := response(200, http.Header{"Content-Type": {test.kind}})
			r.Body = io.NopCloser(strings.NewReader(test.answer))
			return r, nil
		})
		if (err == nil) != (test.want == "") || err != nil && !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.answer, err, test.want)
		}
	}
}

func FuzzRejection(f *testing.F) {
	f.Add([]byte("\x0a\x0b\x08\x03\x12\x07too old"))
	f.Fuzz(func(t *testing.T, answer []byte) { rejection(answer) })
}

// What is said of traces wins over what is said in general.
func TestSettings(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://general/base/?x=1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "",
		"OTEL_EXPORTER_OTLP_HEADERS": "a=1,b=2", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": " c = %203 ",
		"OTEL_EXPORTER_OTLP_TIMEOUT": "1500", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "none",
		"OTEL_TRACES_EXPORTER": "", "OTEL_SDK_DISABLED": "",
	} {
		t.Setenv(name, value)
	}
	got, err := environment()
	if err != nil {
		t.Fatal(err)
	}
	if got.url != "http://general/base/v1/traces?x=1" || got.timeout != 1500*time.Millisecond || got.gzip || got.tls != nil ||
		len(got.headers) != 1 || got.headers.Get("c") != " 3" {
		t.Errorf("got %+v", got)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces")
	if got, err = environment(); err != nil || got.url != "https://traces" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Spans go out compressed, over TLS, to a collector whose certificate only a file vouches for, and
// which wants to see ours.
func TestTLS(t *testing.T) {
	var got tracepb.TracesData
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		sent, err := io.ReadAll(body)
		if err != nil || proto.Unmarshal(sent, &got) != nil || r.Header.Get("Content-Encoding") != "gzip" || r.UserAgent() != "alertworker/1" {
			t.Errorf("got %q with %v: %v", sent, r.Header, err)
		}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, kind string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip")
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", file("ca", "CERTIFICATE", pair.Certificate[0]))
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", file("cert", "CERTIFICATE", pair.Certificate[0]))
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", file("key", "PRIVATE KEY", key))
	to, err := environment()
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(*to, "1")
	if err := c.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{SchemaUrl: "x"}}); err != nil {
		t.Error(err)
	}
	if len(got.ResourceSpans) != 1 {
		t.Errorf("the collector got %v", &got)
	}
	_ = c.Stop(t.Context())
}
