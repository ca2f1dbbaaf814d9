package eventhubs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry/eventhubs/amqpfilter"
	"alertworker/internal/telemetry/transport"
)

// linksPerConnection is how many partitions share a connection. azeventhubs opens the links of
// one connection one after another, each in some six round trips.
const linksPerConnection = 4

// maxConnections bounds a replica's connections: a namespace of the Basic tier allows 100.
const maxConnections = 32

// A dialer connects one client to the namespace it was created for: the hub may have
// moved by the time its client reconnects.
type dialer struct {
	address   transport.Address
	transport transport.Transport
}

// dialer returns a dialer for the current endpoint. The caller holds mu if the
// endpoint can change.
func (s *Source) dialer() dialer {
	d := dialer{address: transport.EventHubs(s.namespace), transport: s.config.Transport}
	d.address.Network = s.network
	if properties, err := azeventhubs.ParseConnectionString(s.config.ConnectionString); err == nil {
		d.address.Plain = properties.Emulator
	}
	return d
}

// dial connects to the namespace for azeventhubs, over WebSockets or not: azeventhubs
// uses the connection of this option as it is, so this is where a filter can be put
// between the library and the network.
func (d dialer) dial(ctx context.Context, _ azeventhubs.WebSocketConnParams) (net.Conn, error) {
	c, err := d.transport.Dial(ctx, d.address)
	if err != nil {
		return nil, err
	}
	return amqpfilter.New(c, nil), nil
}

// connections are those over which the partitions of a hub are read.
type connections struct {
	source *Source
	held   func() bool // whether this replica still owns what it has claimed

	mu  sync.Mutex
	all []*connection
}

// acquire returns a connection for one more link, which release takes back.
func (cs *connections) acquire() (*connection, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var least *connection
	for _, c := range cs.all {
		if !c.isKilled() && (least == nil || c.links < least.links) {
			least = c
		}
	}
	if least == nil || least.links >= linksPerConnection && len(cs.all) < maxConnections {
		c := &connection{held: cs.held, reading: map[string]*link{}}
		var err error
		if c.dialer, c.client, err = cs.source.newReaderClient(c.dial); err != nil {
			return nil, err
		}
		cs.all, least = append(cs.all, c), c
	}
	least.links++
	return least, nil
}

// release closes the connection if it has no other link.
func (cs *connections) release(c *connection, partition string) {
	c.mu.Lock()
	delete(c.reading, partition)
	c.mu.Unlock()
	cs.mu.Lock()
	c.links--
	last := c.links == 0
	if last {
		cs.all = slices.DeleteFunc(cs.all, func(o *connection) bool { return o == c })
	}
	cs.mu.Unlock()
	if last {
		defer time.AfterFunc(cs.source.closeLimit, c.kill).Stop()
		_ = c.client.Close(context.Background())
	}
}

// A connection is a client that reads some partitions. It reconnects by itself.
type connection struct {
	dialer dialer
	client *azeventhubs.ConsumerClient
	held   func() bool
	links  int // guarded by the mu of connections

	mu      sync.Mutex
	reading map[string]*link // by partition
	socket  net.Conn         // the last one
	killed  bool
}

// errGivenUp is why a replica connects to nothing.
var errGivenUp = errors.New("this replica's heartbeat is overdue, so another one may own its partitions")

func (c *connection) dial(ctx context.Context, _ azeventhubs.WebSocketConnParams) (net.Conn, error) {
	if !c.held() {
		return nil, errGivenUp
	}
	socket, err := c.dialer.transport.Dial(ctx, c.dialer.address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed {
		_ = socket.Close()
		return nil, net.ErrClosed
	}
	c.socket = socket
	return fenced{amqpfilter.New(socket, c.watcher), c}, nil
}

// watcher returns who watches the link of a partition, nil if nobody does.
func (c *connection) watcher(partition string) amqpfilter.Watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.reading[partition]; ok {
		return l
	}
	return nil
}

// kill drops the connection for good, without a word: the hub does not answer.
func (c *connection) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	if c.socket != nil {
		_ = c.socket.Close()
	}
}

func (c *connection) isKilled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

// lost tells all links that the connection has ended.
func (c *connection) lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.reading {
		l.Detached()
	}
}

// A fenced connection attaches no link to a partition that another replica may own.
// azeventhubs attaches links again whenever it sees fit.
type fenced struct {
	net.Conn
	connection *connection
}

func (f fenced) Write(b []byte) (int, error) {
	const attach = 0x12
	if len(b) > 10 && b[10] == attach && bytes.Contains(b, []byte("/Partitions/")) && !f.connection.held() {
		return 0, errGivenUp
	}
	return f.Conn.Write(b)
}

func (f fenced) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if err != nil {
		f.connection.lost()
	}
	return n, err
}

// newReaderClient returns a client that tries everything once, and connects by dial.
func (s *Source) newReaderClient(dial func(context.Context, azeventhubs.WebSocketConnParams) (net.Conn, error)) (dialer, *azeventhubs.ConsumerClient, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client, err := s.connect(azeventhubs.RetryOptions{MaxRetries: -1}, dial)
	if err != nil {
		return dialer{}, nil, fmt.Errorf("event hub client: %w", err)
	}
	return s.dialer(), client, nil
}
