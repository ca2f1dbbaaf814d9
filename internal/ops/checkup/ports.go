package checkup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"alertworker/internal/telemetry/transport"
)

// portTimeout is what withOtherPort takes at most, as long as Dial.
const portTimeout = 10 * time.Second

// withOtherPort adds to err, if there was no connection to a hub, that the other transport reaches it.
func withOtherPort(ctx context.Context, err error) error {
	var failed *transport.DialError
	if !errors.As(err, &failed) || failed.Address.Plain {
		return err
	}

	other := transport.WebSocket
	if failed.Transport == other {
		other = transport.AMQP
	}

	conn, refused := other.Dial(ctx, failed.Address)
	if refused != nil {
		return err
	}

	_ = conn.Close()
	_, closed := failed.Address.HostPort(failed.Transport)
	_, open := failed.Address.HostPort(other)

	return fmt.Errorf(
		"%w; port %s is not open from here, but port %s is: set EVENTHUB_TRANSPORT=%s",
		err,
		closed,
		open,
		other,
	)
}
