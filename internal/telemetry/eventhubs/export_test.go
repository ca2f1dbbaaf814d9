package eventhubs

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"

	"alertworker/internal/records"
	"alertworker/internal/telemetry"
)

// SetLimits shortens the limits that a test would have to wait for.
func (s *Source) SetLimits(firstStartGrace, checkInterval, open, closing, stall time.Duration) {
	s.firstStartGrace, s.checkInterval, s.openLimit, s.closeLimit, s.stallLimit = firstStartGrace, checkInterval, open, closing, stall
}

// SetQueryLimit shortens how long the hub may be silent.
func (s *Source) SetQueryLimit(d time.Duration) { s.queryLimit = d }

// Names returns what the Source's records begin with.
func (s *Source) Names() string {
	at := s.endpoint()
	return string(NewGroup(at.namespace, at.hub, s.config.ConsumerGroup))
}

// TrustTLS makes the source trust what config does.
func (s *Source) TrustTLS(config *tls.Config) { s.config.Network.TLS = config }

// UseProxy makes the source connect through a proxy.
func (s *Source) UseProxy(proxy *url.URL) { s.config.Network.Proxy = http.ProxyURL(proxy) }

// Dial connects as a client of the source does.
func (s *Source) Dial(ctx context.Context) (net.Conn, error) {
	return s.config.Transport.Dial(ctx, s.address(s.at.namespace))
}

// Address is where a client of the source connects to.
func (s *Source) Address() string {
	return net.JoinHostPort(s.address(s.at.namespace).HostPort(s.config.Transport))
}

// Advance moves a checkpoint forward as a consumer does that knows nothing yet.
func Advance(ctx context.Context, store records.Store, g Group, partition string, p telemetry.Position) error {
	cs := &checkpoints{store: store, group: g}
	_, err := cs.advance(ctx, partition, telemetry.Checkpoint{Position: p}, nil, context.Background())
	return err
}

// Connect makes the source's connections in another way.
func (s *Source) Connect(dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	s.config.Network.Connect = dial
}

// Credit returns how many events each of n partitions may have on request.
func (c Config) Credit(n int) int { return c.credit(n) }

const MaxEventBytes = maxEventBytes

// Owner is the id under which s owns partitions.
func (s *Source) Owner() string { return s.owner }

// Ask asks the hub about itself.
func (s *Source) Ask(ctx context.Context) error {
	_, err := s.query(ctx, toRead, none)
	return err
}
