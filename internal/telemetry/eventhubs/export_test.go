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

// Names returns what the Source's records begin with.
func (s *Source) Names() string {
	at := s.endpoint()
	return NewGroup(at.namespace, at.hub, s.config.ConsumerGroup).String()
}

// TrustTLS makes the source trust what config does.
func (s *Source) TrustTLS(config *tls.Config) { s.tls = config }

// Dial connects as a client of the source does.
func (s *Source) Dial(ctx context.Context) (net.Conn, error) {
	return s.dialer().dial(ctx, azeventhubs.WebSocketConnParams{})
}

// Address is where a client of the source connects to.
func (s *Source) Address() string { return net.JoinHostPort(s.dialer().address()) }

// Reader is a partition that only reads.
func Reader(client receiver, prefetch, bytes int) telemetry.Partition {
	return &partition{
		client: client,
		log:    zap.NewNop(),
		held:   context.Background(),
		lose:   func(error) {},
		missed: func(gap) {},
		window: window{budget: newBudget(bytes, 1), limit: prefetch},
	}
}

// Advance moves a checkpoint forward as a consumer does that knows nothing yet.
func Advance(ctx context.Context, records Records, g Group, partition string, p telemetry.Position) error {
	cs := &checkpoints{records: records, group: g, foreign: &foreign{}}
	_, err := cs.advance(ctx, partition, p, nil, func() error { return nil })
	return err
}

// A Budget is what the windows of a replica share.
type Budget struct{ b *budget }

func NewBudget(bytes, partitions int) Budget { return Budget{newBudget(bytes, partitions)} }

// A Window is what a partition asks for.
type Window struct{ w window }

func (b Budget) NewWindow(limit int) *Window { return &Window{window{budget: b.b, limit: limit}} }

// Ask returns how many events may be outstanding while held are in use.
func (w *Window) Ask(held int) int { return w.w.ask(held) }

func (w *Window) Took(n int) { w.w.took(n) }

func (w *Window) Close() { w.w.close() }

const MaxEventBytes = maxEventBytes
