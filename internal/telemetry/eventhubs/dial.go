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

// dial connects to the namespace for azeventhubs. No WebSocket is involved: what a
// client has this option for is used as it is, so it is where a filter can be put
// between the library and the network. The rest is what azeventhubs does by itself:
// TLS at port 5671, or plain TCP at port 5672 for an emulator.
func (s *Source) dial(ctx context.Context, _ azeventhubs.WebSocketConnParams) (net.Conn, error) {
	host, port := s.address()
	var (
		c   net.Conn
		err error
	)
	if s.plain {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	} else {
		config := &tls.Config{}
		if s.tls != nil {
			config = s.tls.Clone()
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

// address is where the namespace is.
func (s *Source) address() (host, port string) {
	u := url.URL{Host: s.namespace}
	port = "5671"
	if s.plain {
		port = "5672"
	}
	return u.Hostname(), cmp.Or(u.Port(), port)
}
