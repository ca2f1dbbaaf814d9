package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"alertworker/internal/lab/nettest"
	"alertworker/internal/telemetry/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const host = "hub.example"

// An echo server accepts WebSockets where an Event Hubs namespace has them.
func echo(t *testing.T, config *tls.Config) (address string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/$servicebus/websocket" || r.Header.Get("Sec-WebSocket-Protocol") != "amqp" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"amqp"}})
		if err != nil {
			return
		}
		c := transport.NewConn(ws)
		defer c.Close()
		_, _ = io.Copy(c, c)
	}))
	if config != nil {
		s.TLS = config
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// repeat sends through a connection and expects it back.
func repeat(t *testing.T, c net.Conn) {
	t.Helper()
	defer c.Close()
	sent := strings.Repeat("x", 300<<10) // ten times what a WebSocket library takes by default
	go func() { _, _ = io.WriteString(c, sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != sent {
		t.Errorf("%d bytes came back changed: %v", len(sent), err)
	}
}

func TestWebSocket(t *testing.T) {
	certificates := nettest.NewCertificates(t, host)

	t.Run("plain", func(t *testing.T) {
		a := transport.EventHubs(echo(t, nil))
		a.Plain = true
		c, err := transport.WebSocket.Dial(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		repeat(t, c)
	})

	t.Run("through a proxy, with a private authority", func(t *testing.T) {
		address := echo(t, certificates.Server.Clone())
		proxy := nettest.NewProxy(t, map[string]string{host + ":443": address})
		a := transport.EventHubs(host + ":5671") // the port of AMQP
		a.Network = transport.Network{TLS: certificates.Client, Proxy: http.ProxyURL(proxy.URL)}
		c, err := transport.WebSocket.Dial(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		repeat(t, c)
		if got := proxy.Asked(); !slices.Equal(got, []string{host + ":443"}) {
			t.Errorf("the proxy was asked for %q", got)
		}
	})
}

// The context of Dial ends nothing that Dial returned, and Close waits for nobody.
func TestConnectionOutlivesItsContext(t *testing.T) {
	a := transport.EventHubs(echo(t, nil))
	a.Plain = true
	ctx, cancel := context.WithCancel(t.Context())
	c, err := transport.WebSocket.Dial(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	repeat(t, c)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v, want net.ErrClosed", err)
	}
}

// A proxy that speaks TLS shows a certificate of its own name.
func TestProxyOverTLS(t *testing.T) {
	hub, ofProxy := nettest.NewCertificates(t, host), nettest.NewCertificates(t, "localhost")
	address := echo(t, hub.Server.Clone())
	known := map[string]string{host + ":443": address}
	trusted := hub.Client.Clone()
	trusted.RootCAs.AppendCertsFromPEM(ofProxy.PEM)
	a := transport.EventHubs(host)

	a.Network = transport.Network{TLS: trusted, Proxy: http.ProxyURL(nettest.NewProxy(t, known, ofProxy).URL)}
	c, err := transport.WebSocket.Dial(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	repeat(t, c)

	a.Network.Proxy = http.ProxyURL(nettest.NewProxy(t, known, hub).URL)
	if c, err := transport.WebSocket.Dial(t.Context(), a); err == nil {
		c.Close()
		t.Error("connected through a proxy that shows the hub's certificate")
	}
}

// What can be in the way is told apart, and no password is told.
func TestErrors(t *testing.T) {
	certificates := nettest.NewCertificates(t, host)
	address := echo(t, certificates.Server.Clone())
	proxy := nettest.NewProxy(t, map[string]string{host + ":443": address})
	stranger, none := *proxy.URL, *proxy.URL
	stranger.User = url.UserPassword(nettest.User, "wr0ng-password")
	none.Host = nobody(t)

	for name, test := range map[string]struct {
		host  string
		proxy func(*http.Request) (*url.URL, error)
		tls   *tls.Config
		path  string
		want  string
		blame bool // the proxy
	}{
		"proxy refuses":    {"other.example", http.ProxyURL(proxy.URL), certificates.Client, "", "answered 403 Forbidden to CONNECT other.example:443", true},
		"proxy's password": {host, http.ProxyURL(&stranger), certificates.Client, "", "answered 407 Proxy Authentication Required", true},
		"proxy is down":    {host, http.ProxyURL(&none), certificates.Client, "", "cannot be reached: dial tcp", true},
		"proxy is no URL":  {host, func(*http.Request) (*url.URL, error) { return nil, errors.New(proxy.URL.String()) }, certificates.Client, "", "is not a URL", true},
		"not trusted":      {host, http.ProxyURL(proxy.URL), nil, "", "certificate", false},
		"not a WebSocket":  {host, http.ProxyURL(proxy.URL), certificates.Client, "/elsewhere", "it answered 418 I'm a teapot and opened no WebSocket", false},
		"nothing is there": {nobody(t), nil, certificates.Client, "", "connection refused", false},
		"not over HTTP":    {silent(t), nil, certificates.Client, "", "no connection within", false},
	} {
		t.Run(name, func(t *testing.T) {
			a := transport.EventHubs(test.host)
			a.Network = transport.Network{TLS: test.tls, Proxy: test.proxy}
			if test.path != "" {
				a.Path = test.path
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("no connection within a second"))
			if test.want != "no connection within" {
				ctx = t.Context()
			}
			defer cancel()
			c, err := transport.WebSocket.Dial(ctx, a)
			if err == nil {
				c.Close()
				t.Fatal("connected")
			}
			t.Log(err)
			var failed *transport.DialError
			if !errors.As(err, &failed) || failed.Address.Host != test.host || failed.Transport != transport.WebSocket {
				t.Errorf("%#v is no DialError of %s", err, test.host)
			}
			if errors.As(err, new(*transport.ProxyError)) != test.blame || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want %q, the proxy's fault: %v", err, test.want, test.blame)
			}
			for _, secret := range []string{nettest.Password, "wr0ng-password", nettest.User} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q is in %q", secret, err)
				}
			}
		})
	}
}

// A refusal says what time it is.
func TestRefusalNamesTheClock(t *testing.T) {
	for ahead, want := range map[time.Duration]string{
		20*time.Minute + time.Second: "it answered 401 Unauthorized and opened no WebSocket; this machine's clock is 20 min behind, by the answer's Date",
		0:                            "it answered 401 Unauthorized and opened no WebSocket",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusUnauthorized)
		}))
		a := transport.EventHubs(server.Listener.Addr().String())
		a.Plain = true
		_, err := transport.WebSocket.Dial(t.Context(), a)
		server.Close()
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// nobody returns an address where nothing listens.
func nobody(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silent returns an address where connections are accepted, and nothing more.
func silent(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func TestHostPort(t *testing.T) {
	for _, test := range []struct {
		host            string
		plain           bool
		amqp, webSocket string
	}{
		{"ns.example", false, "ns.example:5671", "ns.example:443"},
		{"ns.example:5671", false, "ns.example:5671", "ns.example:443"},
		{"ns.example:8443", false, "ns.example:8443", "ns.example:8443"},
		{"localhost", true, "localhost:5672", "localhost:5672"},
		{"[::1]:5679", true, "[::1]:5679", "[::1]:5679"},
	} {
		a := transport.Address{Host: test.host, Plain: test.plain}
		if got := net.JoinHostPort(a.HostPort(transport.AMQP)); got != test.amqp {
			t.Errorf("%s over AMQP is %s, want %s", test.host, got, test.amqp)
		}
		if got := net.JoinHostPort(a.HostPort(transport.WebSocket)); got != test.webSocket {
			t.Errorf("%s over WebSockets is %s, want %s", test.host, got, test.webSocket)
		}
	}
}
