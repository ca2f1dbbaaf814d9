package checkup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"alertworker/internal/telemetry/transport"
)

// portsTimeout is what withPorts takes at most, as long as Dial.
const portsTimeout = 10 * time.Second

// withPorts adds to err, if there was no connection to a hub, which of its ports are
// open from here and how to use them.
func withPorts(ctx context.Context, err error) error {
	var failed *transport.DialError
	if !errors.As(err, &failed) || failed.Address.Plain {
		return err
	}
	var amqp, webSocket bool
	var trying sync.WaitGroup
	trying.Go(func() { amqp = open(ctx, transport.AMQP, failed.Address) })
	trying.Go(func() { webSocket = open(ctx, transport.WebSocket, failed.Address) })
	trying.Wait()

	_, amqpPort := failed.Address.HostPort(transport.AMQP)
	_, webSocketPort := failed.Address.HostPort(transport.WebSocket)
	switch {
	case amqp && webSocket:
		return fmt.Errorf("%w; ports %s and %s are open now: try again", err, amqpPort, webSocketPort)
	case webSocket:
		return fmt.Errorf("%w; port %s is not open from here, but port %s is: set EVENTHUB_TRANSPORT=websocket", err, amqpPort, webSocketPort)
	case amqp:
		return fmt.Errorf("%w; port %s is not open from here, but port %s is: set EVENTHUB_TRANSPORT=amqp", err, webSocketPort, amqpPort)
	case errors.As(err, new(*net.DNSError)):
		return err
	}
	return fmt.Errorf("%w; neither port %s nor port %s is open from here: allow one of them, or set HTTPS_PROXY and EVENTHUB_TRANSPORT=websocket", err, amqpPort, webSocketPort)
}

// open reports whether a can be connected to by way of t.
func open(ctx context.Context, t transport.Transport, a transport.Address) bool {
	c, err := t.Dial(ctx, a)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
