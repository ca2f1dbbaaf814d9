package eventhubs

import (
	"context"
	"net"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry/eventhubs/amqpfilter"
	"alertworker/internal/telemetry/transport"
)

// A dialer connects one client to the namespace it was created for: the hub may have
// moved by the time its client reconnects.
type dialer struct {
	address   transport.Address
	transport transport.Transport
}

// dialer returns a dialer for the current endpoint. The caller holds mu if the
// endpoint can change.
func (s *Source) dialer() dialer {
	d := dialer{address: transport.EventHubs(s.namespace), transport: s.config.Transport}
	d.address.Network = s.network
	if properties, err := azeventhubs.ParseConnectionString(s.config.ConnectionString); err == nil {
		d.address.Plain = properties.Emulator
	}
	return d
}

// dial connects to the namespace for azeventhubs, over WebSockets or not: azeventhubs
// uses the connection of this option as it is, so this is where a filter can be put
// between the library and the network.
func (d dialer) dial(ctx context.Context, _ azeventhubs.WebSocketConnParams) (net.Conn, error) {
	c, err := d.transport.Dial(ctx, d.address)
	if err != nil {
		return nil, err
	}
	return amqpfilter.New(c), nil
}
