package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"

	"alertworker/internal/azure"
)

// Explain returns what an error means that was met while talking to a, and what to do about it; nil if the way there is
// no reason for it. named says where people have named the host.
func (t Transport) Explain(ctx context.Context, a Address, named string, err error) error {
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		network     net.Error
		proxy       *ProxyError
	)

	switch {
	case errors.As(err, &proxy):
		return fmt.Errorf("cannot connect to %s: %w", a.Host, proxy)

	case errors.As(err, &dns) && ctx.Err() != context.Canceled:
		const text = "cannot find the host %s: check %s, and that this machine can resolve names: %w"
		return fmt.Errorf(text, a.Host, named, err)

	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens at %s: check %s: %w", net.JoinHostPort(a.HostPort(t)), named, err)

	case errors.As(err, &certificate):
		return fmt.Errorf(
			"the certificate of %s is not trusted: check %s; %s: %w",
			a.Host, named, azure.Untrusted(), err,
		)

	case ctx.Err() == context.Canceled:
		return ctx.Err()

	case ctx.Err() != nil, errors.As(err, &network) && network.Timeout():
		_, port := a.HostPort(t)
		return fmt.Errorf("no answer from %s in time: is outgoing TCP to port %s allowed here? %w", a.Host, port, err)
	}

	return nil
}
