package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"alertworker/internal/backoff"
)

const (
	firstPause   = 5 * time.Second  // after a collector was busy; doubled up to
	longestPause = 30 * time.Second // this
	maxAnswer    = 4 << 10          // bytes of a response that are read

	contentType = "application/x-protobuf"
)

// A client sends spans to a collector: OTLP over HTTP, in protobuf. OpenTelemetry's own
// client is not used because it links gRPC, which is a tenth of the binary.
type client struct {
	target  target
	agent   string
	http    *http.Client
	stopped context.Context // ends with Stop
	stop    context.CancelFunc
}

var _ otlptrace.Client = (*client)(nil)

func newClient(t target, version string) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = t.tls
	c := &client{
		target: t,
		agent:  "alertworker/" + version,
		http: &http.Client{
			Transport: transport,
			Timeout:   t.timeout,
			// A redirected POST becomes a GET, so it is a failure.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	c.stopped, c.stop = context.WithCancel(context.Background())
	return c
}

// Start does nothing: the first upload connects.
func (c *client) Start(context.Context) error { return nil }

// Stop aborts uploads in progress, and closes connections.
func (c *client) Stop(context.Context) error {
	c.stop()
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans. It tries again, until ctx ends, while the collector says that
// it is busy, but not if there is none: spans are not worth a late shutdown.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.stopped, cancel)()

	// TracesData is on the wire what the service's request is, in a package without gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	if c.target.gzip {
		body = compress(body)
	}
	for n := 1; ; n++ {
		busy, retryAfter, err := c.send(ctx, body)
		if err == nil || !busy || !backoff.Sleep(ctx, max(retryAfter, backoff.Delay(n, firstPause, longestPause))) {
			return err
		}
	}
}

// send makes one attempt. busy says that a later one may succeed, not before retryAfter.
func (c *client) send(ctx context.Context, body []byte) (busy bool, retryAfter time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.target.url, bytes.NewReader(body))
	if err != nil {
		return false, 0, errors.New("send spans: the collector's URL is invalid")
	}
	maps.Copy(request.Header, c.target.headers)
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("User-Agent", c.agent)
	if c.target.gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	response, err := c.http.Do(request)
	if err != nil {
		var withURL *url.Error // the URL may hold a key
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		return false, 0, fmt.Errorf("send spans to %s: %w", request.URL.Host, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return false, 0, fmt.Errorf("send spans to %s: read the response: %w", request.URL.Host, err)
	}
	switch code := response.StatusCode; {
	case code/100 == 2:
		if spans, why := rejection(answer); response.Header.Get("Content-Type") == contentType && (spans > 0 || why != "") {
			return false, 0, fmt.Errorf("send spans to %s: it rejected %d: %s", request.URL.Host, spans, why)
		}
		return false, 0, nil
	case code == http.StatusTooManyRequests || code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout:
		busy = true
		if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
			retryAfter = time.Duration(min(seconds, 3600)) * time.Second
		}
	}
	return busy, retryAfter, fmt.Errorf("send spans to %s: %s: %s", request.URL.Host, response.Status, strings.TrimSpace(string(answer)))
}

// rejection returns what an ExportTraceServiceResponse says about spans that the collector
// did not accept: how many, and why.
func rejection(answer []byte) (spans uint64, why string) {
	_, partial := find(answer, 1)
	spans, _ = find(partial, 1)
	_, text := find(partial, 2)
	return spans, string(text)
}

// find returns the value of a field in an encoded message: a number, or bytes.
func find(message []byte, field protowire.Number) (number uint64, content []byte) {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			break
		}
		message = message[size:]
		if n == field && kind == protowire.VarintType {
			number, _ = protowire.ConsumeVarint(message)
			return number, nil
		}
		if n == field && kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(message)
			return 0, content
		}
		if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
			break
		}
		message = message[size:]
	}
	return 0, nil
}

func compress(body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b) // a Buffer takes all
	_, _ = w.Write(body)
	_ = w.Close()
	return b.Bytes()
}
