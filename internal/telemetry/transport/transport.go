// Package transport connects to services that speak AMQP: in TLS at port 5671, or
// over WebSockets at port 443, which firewalls and proxies let through as HTTPS.
package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/coder/websocket"

	"alertworker/internal/humanize"
)

// A Transport is the way that AMQP takes to a service. The zero Transport is AMQP.
type Transport string

const (
	// AMQP is AMQP in TLS.
	AMQP Transport = "amqp"

	// WebSocket is AMQP over WebSockets in TLS, through the proxy of HTTPS_PROXY
	// unless NO_PROXY names the host.
	WebSocket Transport = "websocket"
)

// Limits of Dial.
const (
	dialTimeout = 10 * time.Second
	maxHeader   = 32 << 10 // bytes of an answer's header
)

// Ports where services listen.
const (
	amqpPort      = "5671"
	plainPort     = "5672" // an emulator's, for both transports
	webSocketPort = "443"
)

// An Address is where a service listens.
type Address struct {
	Host  string // with a port only if that is not the usual one
	Plain bool   // without TLS, as emulators do

	// Path and Subprotocol are those of the service's WebSockets.
	Path, Subprotocol string

	Network Network
}

// A Network is what tests change of the way to a service. The zero Network is the
// machine's own.
type Network struct {
	TLS     *tls.Config                                                       // nil for the system's certificates
	Proxy   func(*http.Request) (*url.URL, error)                             // nil for that of the environment
	Connect func(ctx context.Context, network, addr string) (net.Conn, error) // nil for a net.Dialer's
}

// EventHubs is the address of an Event Hubs namespace.
func EventHubs(host string) Address {
	return Address{Host: host, Path: "/$servicebus/websocket", Subprotocol: "amqp"}
}

// IoTHub is the address of an IoT Hub.
func IoTHub(host string) Address {
	return Address{Host: host, Path: "/$iothub/websocket", Subprotocol: "AMQPWSB10"}
}

// HostPort returns the host and the port that t connects to. A port in a.Host counts
// unless it is that of AMQP, which is where no service has its WebSockets.
func (a Address) HostPort(t Transport) (host, port string) {
	u := url.URL{Host: a.Host}
	port = u.Port()
	switch {
	case a.Plain:
		port = cmp.Or(port, plainPort)
	case t == WebSocket && (port == "" || port == amqpPort):
		port = webSocketPort
	default:
		port = cmp.Or(port, amqpPort)
	}

	return u.Hostname(), port
}

// A DialError says that a service could not be connected to.
type DialError struct {
	Address   Address
	Transport Transport
	Err       error
}

func (e *DialError) Error() string { return e.Err.Error() }
func (e *DialError) Unwrap() error { return e.Err }

// A ProxyError is an error of the proxy on the way to a service. It names the variable
// that the proxy is set in, and holds nothing of the proxy's password.
type ProxyError struct{ Err error }

func (e *ProxyError) Error() string { return "the proxy of HTTPS_PROXY or HTTP_PROXY " + e.Err.Error() }
func (e *ProxyError) Unwrap() error { return e.Err }

// Dial connects to a within 10 s or until ctx ends. ctx has no effect on the
// connection. The error is a *DialError.
func (t Transport) Dial(ctx context.Context, a Address) (net.Conn, error) {
	late := fmt.Errorf("no connection within %v: %w", dialTimeout, context.DeadlineExceeded)
	dialing, cancel := context.WithTimeoutCause(ctx, dialTimeout, late)
	defer cancel()

	dial := a.dialAMQP
	if t == WebSocket {
		dial = a.dialWebSocket
	}

	c, err := dial(dialing)
	if err != nil {
		if dialing.Err() != nil { // what failed because of that does not matter
			err = context.Cause(dialing)
		}

		return nil, &DialError{Address: a, Transport: cmp.Or(t, AMQP), Err: err}
	}

	return c, nil
}

func (a Address) dialAMQP(ctx context.Context) (net.Conn, error) {
	host, port := a.HostPort(AMQP)
	c, err := a.connect(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil || a.Plain {
		return c, err
	}

	secure := tls.Client(c, a.tlsConfig(host))
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}

	return secure, nil
}

func (a Address) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if a.Network.Connect != nil {
		return a.Network.Connect(ctx, network, addr)
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// tlsConfig returns what to require of the certificate of host; empty for whoever is connected to.
func (a Address) tlsConfig(host string) *tls.Config {
	config := &tls.Config{}
	if a.Network.TLS != nil {
		config = a.Network.TLS.Clone()
	}

	config.ServerName = host
	return config
}

func (a Address) dialWebSocket(ctx context.Context) (net.Conn, error) {
	host, port := a.HostPort(WebSocket)
	scheme := "wss"
	if a.Plain {
		scheme = "ws"
	}

	// One connection, of HTTP/1.1: WebSockets over HTTP/2 are another protocol.
	client := &http.Transport{
		DialContext:            a.connect,
		Proxy:                  a.proxy,
		OnProxyConnectResponse: proxyAnswer,
		TLSClientConfig:        a.tlsConfig(""), // the name is that of the hub, or of a proxy that speaks TLS
		MaxResponseHeaderBytes: maxHeader,
	}
	defer client.CloseIdleConnections() // that of a refused handshake
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port), Path: a.Path}
	ws, answer, err := websocket.Dial(ctx, u.String(), &websocket.DialOptions{
		HTTPClient: &http.Client{
			Transport:     client,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Subprotocols: []string{a.Subprotocol},
	})
	if err != nil {
		return nil, explain(err, answer)
	}

	return NewConn(ws), nil
}

// proxy returns the proxy to connect through, nil for none.
func (a Address) proxy(r *http.Request) (*url.URL, error) {
	choose := a.Network.Proxy
	if choose == nil {
		choose = http.ProxyFromEnvironment
	}

	u, err := choose(r)
	if err != nil { // it repeats the variable, which may hold a password
		return nil, &ProxyError{errors.New("is not a URL")}
	}

	return u, nil
}

// proxyAnswer fails unless the proxy has made a connection.
func proxyAnswer(_ context.Context, _ *url.URL, request *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}

	return &ProxyError{
		fmt.Errorf("answered %d %s to CONNECT %s", answer.StatusCode, http.StatusText(answer.StatusCode), request.Host),
	}
}

// explain returns what an error of a WebSocket's handshake means. answer is nil if
// there was none.
func explain(err error, answer *http.Response) error {
	if answer != nil && answer.StatusCode != http.StatusSwitchingProtocols {
		text := fmt.Sprintf("it answered %d %s and opened no WebSocket", answer.StatusCode, http.StatusText(answer.StatusCode))
		date, err := http.ParseTime(answer.Header.Get("Date"))
		if off := humanize.ClockOff(time.Until(date)); err == nil && off != "" {
			text += "; " + off + ", by the answer's Date"
		}

		return errors.New(text)
	}

	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}

	var network *net.OpError
	if errors.As(err, &network) && network.Op == "proxyconnect" {
		return &ProxyError{fmt.Errorf("cannot be reached: %w", network.Err)}
	}

	return err
}

// NewConn returns what an AMQP library reads from and writes to: the bytes in the
// binary messages of ws. A message may have any length, because it is never held in memory.
func NewConn(ws *websocket.Conn) net.Conn {
	return &conn{websocket.NetConn(context.Background(), ws, websocket.MessageBinary), ws}
}

type conn struct {
	net.Conn
	ws *websocket.Conn
}

// Close closes the connection at once. AMQP has taken leave of the peer before, and the
// closing handshake of WebSockets would wait for one that does not answer.
func (c *conn) Close() error { return c.ws.CloseNow() }
