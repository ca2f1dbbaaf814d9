package eventhubs

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// A dialer connects one client to the namespace it was created for: the hub may have
// moved by the time its client reconnects.
type dialer struct {
	namespace string // host name
	plain     bool   // AMQP without TLS
	tls       *tls.Config
}

// dialer returns a dialer for the current endpoint. The caller holds mu if the
// endpoint can change.
func (s *Source) dialer() dialer {
	d := dialer{namespace: s.namespace, tls: s.tls}
	if properties, err := azeventhubs.ParseConnectionString(s.config.ConnectionString); err == nil {
		d.plain = properties.Emulator
	}
	return d
}

// dial connects to the namespace for azeventhubs. It is not a WebSocket: azeventhubs
// uses the connection of this option as it is, so this is where a filter can be put
// between the library and the network. Otherwise dial does what azeventhubs does:
// TLS at port 5671, or plain TCP at port 5672 for an emulator.
func (d dialer) dial(ctx context.Context, _ azeventhubs.WebSocketConnParams) (net.Conn, error) {
	host, port := d.address()
	var (
		c   net.Conn
		err error
	)
	if d.plain {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	} else {
		config := &tls.Config{}
		if d.tls != nil {
			config = d.tls.Clone()
		}
		config.ServerName = host
		dialer := tls.Dialer{Config: config}
		c, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	}
	if err != nil {
		return nil, err
	}
	return amqpfilter.New(c), nil
}

// address returns the namespace's host and port.
func (d dialer) address() (host, port string) {
	u := url.URL{Host: d.namespace}
	port = "5671"
	if d.plain {
		port = "5672"
	}
	return u.Hostname(), cmp.Or(u.Port(), port)
}
