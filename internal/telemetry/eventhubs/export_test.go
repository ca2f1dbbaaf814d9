package eventhubs

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/telemetry"
)

// Hurry shortens the bounds that a test would have to wait for.
func (s *Source) Hurry(firstStartGrace, recheck, silence, begin, closing time.Duration) {
	s.firstStartGrace, s.recheck, s.silence, s.beginTimeout, s.closing = firstStartGrace, recheck, silence, begin, closing
}

// TrustTLS makes the source trust what config does.
func (s *Source) TrustTLS(config *tls.Config) { s.tls = config }

// Dial connects as a client of the source does.
func (s *Source) Dial(ctx context.Context) (net.Conn, error) {
	return s.dial(ctx, azeventhubs.WebSocketConnParams{})
}

// Address is where a client of the source connects to.
func (s *Source) Address() string { return net.JoinHostPort(s.address()) }

// Reader is a partition that only reads.
func Reader(client receiver, prefetch, bytes int) telemetry.Partition {
	return &partition{
		client: client,
		log:    zap.NewNop(),
		held:   context.Background(),
		lose:   func(error) {},
		window: window{events: prefetch, bytes: bytes},
	}
}

// Window is what a partition asks for. It calls back with what is asked of the
// hub in all.
type Window struct{ w window }

func NewWindow(events, bytes int) *Window { return &Window{window{events: events, bytes: bytes}} }

// Ask returns how many events may be outstanding.
func (w *Window) Ask() int { return w.w.ask() }

// Took says that these came.
func (w *Window) Took(events []telemetry.Event) {
	w.w.took(len(events))
	w.w.fit(events)
}
