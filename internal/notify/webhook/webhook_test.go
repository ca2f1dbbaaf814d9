package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
)

func open(t testing.TB, rawURL string, opts webhook.Options) *webhook.Webhook {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	w, err := webhook.New(u, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func TestContract(t *testing.T) {
	key, _ := base64.StdEncoding.DecodeString(testSecret[6:])
	notifytest.RunHTTP(t, func(t *testing.T, url string) notify.Notifier {
		return open(t, url, webhook.Options{Secret: secret(t, testSecret), Concurrency: 4})
	}, testSecret, testSecret[6:], string(key), hex.EncodeToString(key))
}

func TestRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer srv.Close()
	hook := strings.Replace(srv.URL, "://", "://me:p%40ss@", 1) + "/a%2Fb?k=v%20w"
	a := notifytest.Alert(1)
	want, err := webhook.Encode(a)
	if err != nil {
		t.Fatal(err)
	}

	if err := open(t, hook, webhook.Options{}).Notify(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got.Method != "POST" || got.RequestURI != "/a%2Fb?k=v%20w" || string(body) != string(want) {
		t.Errorf("got %s %s %s", got.Method, got.RequestURI, body)
	}
	if ct := got.Header.Get("Content-Type"); ct != "application/cloudevents+json" {
		t.Errorf("Content-Type is %q", ct)
	}
	if user, password, _ := got.BasicAuth(); user != "me" || password != "p@ss" {
		t.Errorf("basic authentication is %q, %q", user, password)
	}
	for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature", "Idempotency-Key"} {
		if v := got.Header.Values(name); len(v) > 0 {
			t.Errorf("unsigned request has %s: %q", name, v)
		}
	}

	s := secret(t, testSecret)
	if err := open(t, srv.URL, webhook.Options{Secret: s}).Notify(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if id := got.Header.Get("webhook-id"); id != a.ID {
		t.Errorf("webhook-id is %q, want the alert's id %q", id, a.ID)
	}
	if err := s.Verify(got.Header, body); err != nil {
		t.Error(err)
	}
	if _, _, ok := got.BasicAuth(); ok {
		t.Error("basic authentication without a user")
	}
}

func TestAnyOf2xxIsTaken(t *testing.T) {
	r := notifytest.NewReceiver(t, webhook.Secret{})
	w := open(t, r.URL, webhook.Options{})
	for _, code := range []int{200, 201, 202, 204, 207, 299} {
		r.Behave(notifytest.Status(code))
		if err := w.Notify(t.Context(), notifytest.Alert(1)); err != nil {
			t.Errorf("%d: %v", code, err)
		}
	}
}

func TestWhatCannotBeEncodedIsRefused(t *testing.T) {
	r := notifytest.NewReceiver(t, webhook.Secret{})
	a := notifytest.Alert(1)
	a.Temperature = math.NaN()
	err := open(t, r.URL, webhook.Options{}).Notify(t.Context(), a)
	var e *notify.Error
	if !errors.As(err, &e) || !e.Refused || !e.Untaken {
		t.Errorf("got %+v, want Refused and Untaken", err)
	}
}

func TestRetryAfterIsPassedOn(t *testing.T) {
	r := notifytest.NewReceiver(t, webhook.Secret{})
	r.Behave(notifytest.Status(http.StatusServiceUnavailable, "Retry-After", "120"))
	err := open(t, r.URL, webhook.Options{}).Notify(t.Context(), notifytest.Alert(1))
	if got := notify.AsError(err).RetryAfter; got != 2*time.Minute {
		t.Errorf("RetryAfter is %v, want 2m: %v", got, err)
	}
}

func TestErrorsSayWhatHappened(t *testing.T) {
	r := notifytest.NewReceiver(t, webhook.Secret{})
	host := strings.TrimPrefix(r.URL, "http://")
	w := open(t, "http://me:password@"+host+"/T0KEN?key=T0KEN2", webhook.Options{})

	t.Run("answer", func(t *testing.T) {
		r.Behave(func(w http.ResponseWriter, r *http.Request, _ http.Handler, _ <-chan struct{}) {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, "T0KEN has no channel\r\n\x1b[2J")
		})
		err := w.Notify(t.Context(), notifytest.Alert(1))
		want := "post alert to http://" + host + `: answered 403 Forbidden ("[redacted] has no channel [2J"): check the credentials in NOTIFY_URLS and NOTIFY_WEBHOOK_SECRET`
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})

	t.Run("timeout", func(t *testing.T) {
		r.Behave(notifytest.Hang)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("NOTIFY_TIMEOUT of 50ms is over"))
		defer cancel()
		err := w.Notify(ctx, notifytest.Alert(1))
		want := "post alert to http://" + host + ": no answer in time: context deadline exceeded: NOTIFY_TIMEOUT of 50ms is over"
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error("it is not context.DeadlineExceeded")
		}
	})
}

// A timeout before there was a connection leaves no doubt.
func TestTimeoutWhileConnecting(t *testing.T) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := open(t, "http://hooks.example.com/", webhook.Options{Transport: transport}).Notify(ctx, notifytest.Alert(1))
	if e := notify.AsError(err); !e.Untaken || !strings.Contains(err.Error(), "no connection in time") {
		t.Errorf("got %+v, want Untaken and no connection in time", e)
	}
}

// brittleConn is a connection that breaks before the next byte is written.
type brittleConn struct {
	net.Conn
	broken *atomic.Bool
}

func (c brittleConn) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, errors.New("broken pipe")
	}
	return c.Conn.Write(p)
}

// The transport comes again by itself where a kept connection turns out to be
// broken before anything is written: if then nobody listens, there is no doubt either.
func TestKeptConnectionBreaks(t *testing.T) {
	r := notifytest.NewReceiver(t, webhook.Secret{})
	var broken *atomic.Bool // of the last connection
	var down bool
	w := open(t, r.URL, webhook.Options{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if down {
				return nil, errors.New("connection refused")
			}
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			broken = new(atomic.Bool)
			return brittleConn{c, broken}, err
		},
	}})
	for i := range 2 {
		if err := w.Notify(t.Context(), notifytest.Alert(i)); err != nil {
			t.Fatal(err)
		}
		broken.Store(true)
	}
	if got := len(r.Taken()); got != 2 {
		t.Errorf("the receiver took %d alerts, want 2", got)
	}
	down = true
	err := w.Notify(t.Context(), notifytest.Alert(3))
	if err == nil || !notify.AsError(err).Untaken {
		t.Errorf("got %v, want Untaken", err)
	}
}

func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // the failed handshake
	srv.StartTLS()
	defer srv.Close()

	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	trusting := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	if err := open(t, srv.URL, webhook.Options{Transport: trusting}).Notify(t.Context(), notifytest.Alert(1)); err != nil {
		t.Error(err)
	}

	// The built-in transport does not trust the test's certificate.
	err := open(t, srv.URL+"/T0KEN", webhook.Options{}).Notify(t.Context(), notifytest.Alert(1))
	if e := notify.AsError(err); err == nil || !e.Untaken || e.Refused {
		t.Errorf("got %v, want Untaken, not Refused", err)
	}
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Errorf("%v does not wrap the reason", err)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	var conns atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, strings.Repeat("sorry ", 100))
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	w := open(t, srv.URL, webhook.Options{})
	for range 5 {
		if err := w.Notify(t.Context(), notifytest.Alert(1)); err == nil {
			t.Error("Notify returned nil")
		}
	}
	srv.Close()
	if n := conns.Load(); n != 1 {
		t.Errorf("5 alerts took %d connections, want 1", n)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"ftp://host/", "want http:// or https://"},
		{"http:host", "no host"},
		{"http:///path", "no host"},
		{"http://:80/", "no host"},
		{"http://host:0/", "port"},
		{"http://host:65536/", "port"},
		{"https://user:12/34@host/", "%40"},
		{"https://user:12?34@host/", "%40"},
		{"https://user:12#34@host/", "%40"},
		{"https://host/#fragment", "fragment"},
	} {
		u, err := url.Parse(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := webhook.New(u, webhook.Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want one with %q", tt.url, err, tt.want)
		}
	}
}

func BenchmarkNotify(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer srv.Close()
	w := open(b, srv.URL, webhook.Options{Secret: secret(b, testSecret)})
	a := notifytest.Alert(1)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Notify(b.Context(), a); err != nil {
			b.Fatal(err)
		}
	}
}
