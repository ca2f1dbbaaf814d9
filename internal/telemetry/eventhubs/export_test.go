package eventhubs

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/records"
	"alertworker/internal/telemetry"
)

// SetLimits shortens the limits that a test would have to wait for.
func (s *Source) SetLimits(firstStartGrace, checkInterval, hang, start, closing time.Duration) {
	s.firstStartGrace, s.checkInterval, s.hangLimit, s.startLimit, s.closeLimit = firstStartGrace, checkInterval, hang, start, closing
}

// Names returns what the Source's records begin with.
func (s *Source) Names() string {
	at := s.endpoint()
	return NewGroup(at.namespace, at.hub, s.config.ConsumerGroup).String()
}

// TrustTLS makes the source trust what config does.
func (s *Source) TrustTLS(config *tls.Config) { s.network.TLS = config }

// UseProxy makes the source connect through a proxy.
func (s *Source) UseProxy(proxy *url.URL) { s.network.Proxy = http.ProxyURL(proxy) }

// Dial connects as a client of the source does.
func (s *Source) Dial(ctx context.Context) (net.Conn, error) {
	return s.dialer().dial(ctx, azeventhubs.WebSocketConnParams{})
}

// Address is where a client of the source connects to.
func (s *Source) Address() string {
	d := s.dialer()
	return net.JoinHostPort(d.address.HostPort(d.transport))
}

// Reader is a partition that only reads.
func Reader(client receiver, prefetch, bytes int) telemetry.Partition {
	return &partition{
		client:      client,
		log:         zap.NewNop(),
		checkpoints: &checkpoints{},
		held:        context.Background(),
		lose:        func(error) {},
		missed:      func(gap) {},
		unanswered:  func(error) {},
		credit:      credit{budget: newBudget(bytes, 1), limit: prefetch},
	}
}

// Advance moves a checkpoint forward as a consumer does that knows nothing yet.
func Advance(ctx context.Context, store records.Store, g Group, partition string, p telemetry.Position) error {
	cs := &checkpoints{store: store, group: g, rejected: &sync.Map{}}
	_, err := cs.advance(ctx, partition, telemetry.Checkpoint{Position: p}, nil, func() error { return nil })
	return err
}

// A Budget is shared by the partitions of a replica.
type Budget struct{ b *budget }

func NewBudget(bytes, partitions int) Budget { return Budget{newBudget(bytes, partitions)} }

// A Credit is what a partition may ask for.
type Credit struct{ c credit }

func (b Budget) NewCredit(limit int) *Credit { return &Credit{credit{budget: b.b, limit: limit}} }

// Ask returns how many events may be outstanding while held are in use.
func (c *Credit) Ask(held int) int { return c.c.ask(held) }

func (c *Credit) Took(n int) { c.c.took(n) }

func (c *Credit) Close() { c.c.close() }

const MaxEventBytes = maxEventBytes
