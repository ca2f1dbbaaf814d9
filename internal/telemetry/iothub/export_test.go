package iothub

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"alertworker/internal/telemetry/transport"
)

// ResolveAt is Resolve against a hub that listens at address.
func ResolveAt(ctx context.Context, t transport.Transport, address string, config *tls.Config, timeout time.Duration, connectionString string) (string, error) {
	network := transport.Network{TLS: config, Connect: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	return Resolve(ctx, t, network, connectionString)
}

var Destination = destination
