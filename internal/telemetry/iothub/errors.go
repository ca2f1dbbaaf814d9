package iothub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	amqp "github.com/Azure/go-amqp"

	"alertworker/internal/telemetry/transport"
)

var errNoHub = errors.New(
	"it answers, but not as an IoT Hub does: is HostName that of an IoT Hub, NAME.azure-devices.net?",
)

// explain says what err, met on the way to a hub, means and what to do.
func explain(ctx context.Context, t transport.Transport, at transport.Address, err error) error {
	var remote *amqp.Error
	isUnauthorized := errors.As(err, &remote) && remote.Condition == amqp.ErrCondUnauthorizedAccess

	// go-amqp has no type for SASL's refusal of the key, only its text and the outcome's code, 1 for the credentials.
	if isUnauthorized || strings.Contains(err.Error(), "SASL PLAIN auth failed with code 0x1:") {
		return errors.New(
			"the key was rejected: check SharedAccessKeyName and SharedAccessKey (portal: IoT Hub > Shared access policies; " +
				"the policy needs \"service connect\") and this machine's clock",
		)
	}

	if why := t.Explain(ctx, at, "HostName", err); why != nil {
		return why
	}

	switch {
	case remote != nil:
		return fmt.Errorf("%w (%s: %s)", errNoHub, remote.Condition, remote.Description)

	case errors.As(err, new(tls.RecordHeaderError)), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return errNoHub
	}

	return err
}
