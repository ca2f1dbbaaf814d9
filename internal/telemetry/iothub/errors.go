package iothub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	amqp "github.com/Azure/go-amqp"

	"alertworker/internal/telemetry/transport"
)

var (
	errTimeout = errors.New("no answer in time")
	errNoHub   = errors.New(
		"it answers, but not as an IoT Hub does: is HostName that of an IoT Hub, NAME.azure-devices.net?",
	)
)

// explain says what err, met on the way to host, means and what to do.
func (r resolver) explain(ctx context.Context, host string, err error) error {
	var dns *net.DNSError
	var remote *amqp.Error
	var certificate *tls.CertificateVerificationError
	var network net.Error
	var proxy *transport.ProxyError
	_, port := transport.IoTHub(host).HostPort(r.transport)

	switch {
	case errors.As(err, &remote) && remote.Condition == amqp.ErrCondUnauthorizedAccess, refused(err):
		return errors.New(
			"the key was rejected: check SharedAccessKeyName and SharedAccessKey (portal: IoT Hub > Shared access policies; " +
				"the policy needs \"service connect\") and this machine's clock",
		)

	case errors.As(err, &proxy):
		return err

	case errors.As(err, &dns) && ctx.Err() != context.Canceled:
		return fmt.Errorf("cannot find the host %s: check HostName, and that this machine can resolve names: %w", host, err)

	case ctx.Err() != nil:
		if context.Cause(ctx) == errTimeout {
			return unanswered(port, err)
		}
		return context.Cause(ctx)

	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens on port %s there: check HostName: %w", port, err)

	case errors.As(err, &certificate):
		return fmt.Errorf(
			"its certificate is not trusted: is HostName right, does a proxy intercept TLS, are the system's certificates "+
				"current? %w",
			err,
		)

	case errors.As(err, &network) && network.Timeout():
		return unanswered(port, err)

	case errors.As(err, &remote):
		return fmt.Errorf("%w (%s: %s)", errNoHub, remote.Condition, remote.Description)

	case errors.As(err, new(tls.RecordHeaderError)),
		errors.Is(err, io.EOF),
		errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, errNoHub):
		return errNoHub
	}

	return err
}

func unanswered(port string, err error) error {
	return fmt.Errorf("%w: is outgoing TCP to port %s allowed here? (%w)", errTimeout, port, err)
}

// refused says whether SASL ended the connection for the key's sake. go-amqp has
// no type for that, only its text and the outcome's code, 1 for the credentials.
func refused(err error) bool {
	return strings.Contains(err.Error(), "SASL PLAIN auth failed with code 0x1:")
}
