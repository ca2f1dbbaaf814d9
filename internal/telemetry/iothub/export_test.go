package iothub

import (
	"context"
	"crypto/tls"
	"time"
)

// ResolveAt is Resolve against a hub that listens at address.
func ResolveAt(ctx context.Context, address string, config *tls.Config, timeout time.Duration, connectionString string) (string, error) {
	return resolver{address: address, tls: config, timeout: timeout}.resolve(ctx, connectionString)
}

var Destination = destination
