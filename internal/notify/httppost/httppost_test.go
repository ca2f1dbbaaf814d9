package httppost_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A poster is a Client as a notifier: it posts what webhooks do.
type poster struct{ *httppost.Client }

func (p poster) Notify(ctx context.Context, alerts ...notify.Alert) error {
	body, err := webhook.Encode(alerts[0], wording.Style{})
	if err != nil {
		return p.Unsent("alert", true, err)
	}
	return p.Post(ctx, httppost.Message{What: "alert", ContentType: webhook.ContentType, Body: body})
}

func open(t testing.TB, rawURL string, opts httppost.Options) poster {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := httppost.New(u, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return poster{c}
}

func TestAnyOf2xxIsTaken(t *testing.T) {
	r := notifytest.NewReceiver(t, webhook.Secret{})
	w := open(t, r.URL, httppost.Options{})
	for _, code := range []int{200, 201, 202, 204, 207, 299} {
		r.Behave(notifytest.Status(code))
		if err := w.Notify(t.Context(), notifytest.Alert(1)); err != nil {
			t.Errorf("%d: %v", code, err)
		}
	}
}

func TestRetryAfterIsPassedOn(t *testing.T) {
	r := notifytest.NewReceiver(t, webhook.Secret{})
	r.Behave(notifytest.Status(http.StatusServiceUnavailable, "Retry-After", "120"))
	err := open(t, r.URL, httppost.Options{}).Notify(t.Context(), notifytest.Alert(1))
	if got := notify.AsError(err).RetryAfter; got != 2*time.Minute {
		t.Errorf("RetryAfter is %v, want 2m: %v", got, err)
	}
}

func TestErrorsSayWhatHappened(t *testing.T) {
	r := notifytest.NewReceiver(t, webhook.Secret{})
	host := strings.TrimPrefix(r.URL, "http://")
	w := open(t, "http://me:password@"+host+"/T0KEN?key=T0KEN2", httppost.Options{})

	t.Run("answer", func(t *testing.T) {
		r.Behave(func(w http.ResponseWriter, r *http.Request, _ http.Handler, _ <-chan struct{}) {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, "T0KEN has no channel\r\n\x1b[2J")
		})
		err := w.Notify(t.Context(), notifytest.Alert(1))
		want := "post alert to http://" + host + `: answered 403 Forbidden ("[redacted] has no channel �[2J"): check the credentials in NOTIFY_URLS`
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
	err := open(t, "http://hooks.example.com/", httppost.Options{Transport: transport}).Notify(ctx, notifytest.Alert(1))
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
	w := open(t, r.URL, httppost.Options{Transport: &http.Transport{
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
	if err := open(t, srv.URL, httppost.Options{Transport: trusting}).Notify(t.Context(), notifytest.Alert(1)); err != nil {
		t.Error(err)
	}

	// The built-in transport does not trust the test's certificate.
	err := open(t, srv.URL+"/T0KEN", httppost.Options{}).Notify(t.Context(), notifytest.Alert(1))
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
	w := open(t, srv.URL, httppost.Options{})
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
		if _, err := httppost.New(u, httppost.Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want one with %q", tt.url, err, tt.want)
		}
	}
}
