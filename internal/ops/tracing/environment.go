package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// defaultTimeout is OpenTelemetry's.
const defaultTimeout = 10 * time.Second

// A target is where and how spans are sent, as OpenTelemetry's variables say.
type target struct {
	url     string
	headers http.Header
	secrets []string // values that must not be logged
	timeout time.Duration
	gzip    bool
	tls     *tls.Config // nil for the default
}

// environment reads the variables of the exporter; the SDK reads the others itself. It returns
// nil if they do not enable tracing. An error names each invalid variable, without its value.
func environment() (*target, error) {
	if get("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" ||
		strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") || get("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	t := &target{headers: http.Header{}, timeout: defaultTimeout}
	var wrong []error
	complain := func(name string, err error) {
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
	}
	for _, signal := range []string{"", "TRACES_"} { // in this order: what is said of traces wins
		prefix := "OTEL_EXPORTER_OTLP_" + signal
		for _, v := range []struct {
			name string
			set  func(string) error
		}{
			{"ENDPOINT", func(v string) error { return t.setEndpoint(v, signal == "") }},
			{"HEADERS", t.setHeaders},
			{"PROTOCOL", checkProtocol},
			{"TIMEOUT", t.setTimeout},
			{"COMPRESSION", t.setCompression},
			{"CERTIFICATE", t.setAuthorities},
		} {
			if value := get(prefix + v.name); value != "" {
				complain(prefix+v.name, v.set(value))
			}
		}
		if file, key := get(prefix+"CLIENT_CERTIFICATE"), get(prefix+"CLIENT_KEY"); file != "" || key != "" {
			complain(prefix+"CLIENT_CERTIFICATE", t.setCertificate(file, key))
		}
	}
	if e := get("OTEL_TRACES_EXPORTER"); e != "" && e != "otlp" {
		complain("OTEL_TRACES_EXPORTER", errors.New("must be otlp, or none to disable tracing"))
	}
	return t, errors.Join(wrong...)
}

func get(name string) string { return strings.TrimSpace(os.Getenv(name)) }

func (t *target) setEndpoint(endpoint string, general bool) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("must be a URL such as http://host:4318 or https://…")
	case u.User != nil:
		return errors.New("credentials in the URL are not sent: put them into OTEL_EXPORTER_OTLP_HEADERS as authorization=Basic%20…")
	}
	if general {
		u = u.JoinPath("v1/traces")
	}
	t.url = u.String()
	return nil
}

// setHeaders reads a list such as "api-key=a,b=c%20d".
func (t *target) setHeaders(list string) error {
	t.headers = http.Header{}
	for i, header := range strings.Split(list, ",") {
		name, written, ok := strings.Cut(header, "=")
		meant, err := url.PathUnescape(strings.TrimSpace(written))
		if name = strings.TrimSpace(name); !ok || err != nil || name == "" || strings.Trim(name, nameChars) != "" || strings.ContainsAny(meant, "\r\n\x00") {
			return fmt.Errorf("header %d must be name=value, with %%XX for special characters", i+1)
		}
		t.headers.Set(name, meant)
		for _, v := range []string{strings.TrimSpace(meant), strings.TrimSpace(written)} {
			if v != "" {
				t.secrets = append(t.secrets, v)
			}
		}
	}
	return nil
}

// nameChars are the characters allowed in the name of a header.
const nameChars = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func checkProtocol(protocol string) error {
	if protocol != "http/protobuf" {
		return errors.New("must be http/protobuf, by convention on port 4318; gRPC and JSON are not supported")
	}
	return nil
}

func (t *target) setTimeout(milliseconds string) error {
	n, err := strconv.Atoi(milliseconds)
	if err != nil || n < 1 || n > 3_600_000 {
		return errors.New("must be a number of milliseconds, 1 to 3600000")
	}
	t.timeout = time.Duration(n) * time.Millisecond
	return nil
}

func (t *target) setCompression(method string) error {
	if method != "gzip" && method != "none" {
		return errors.New("must be gzip or none")
	}
	t.gzip = method == "gzip"
	return nil
}

func (t *target) setAuthorities(file string) error {
	pem, err := os.ReadFile(file)
	if err != nil {
		return errors.New("the file cannot be read")
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return errors.New("the file holds no certificates in PEM")
	}
	t.withTLS().RootCAs = pool
	return nil
}

func (t *target) setCertificate(file, key string) error {
	pair, err := tls.LoadX509KeyPair(file, key)
	if err != nil {
		return errors.New("it and …_CLIENT_KEY must both name files with a certificate and its key in PEM")
	}
	t.withTLS().Certificates = []tls.Certificate{pair}
	return nil
}

func (t *target) withTLS() *tls.Config {
	if t.tls == nil {
		t.tls = &tls.Config{}
	}
	return t.tls
}
