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

var (
	// once is for clients whose callers try again themselves.
	once = azeventhubs.RetryOptions{MaxRetries: -1}

	// retries are for a client that asks questions: all attempts together take 7 s.
	retries = azeventhubs.RetryOptions{MaxRetries: 3, RetryDelay: 500 * time.Millisecond, MaxRetryDelay: 5 * time.Second}
)

// A dial makes a client's connection from one that connect makes.
type dial func(ctx context.Context, connect func(context.Context) (net.Conn, error)) (net.Conn, error)

// filtered is the dial of a connection on which nobody watches links.
func filtered(ctx context.Context, connect func(context.Context) (net.Conn, error)) (net.Conn, error) {
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	return amqpfilter.New(c, nil), nil
}

// newClient returns a client for where the hub is at present, and that place. It connects by dial when it is first used.
func (s *Source) newClient(retries azeventhubs.RetryOptions, dial dial) (client *azeventhubs.ConsumerClient, at endpoint, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	options := &azeventhubs.ConsumerClientOptions{
		ApplicationID: "alertworker", InstanceID: s.owner, RetryOptions: retries, NewWebSocketConn: s.connecting(dial),
	}
	if s.config.ConnectionString == "" {
		client, err = azeventhubs.NewConsumerClient(s.config.Namespace, s.config.Hub, s.config.ConsumerGroup, s.config.Credential, options)
	} else {
		client, err = azeventhubs.NewConsumerClientFromConnectionString(s.config.ConnectionString, "", s.config.ConsumerGroup, options)
	}
	if err != nil {
		return nil, endpoint{}, fmt.Errorf("event hub client: %w", err)
	}
	return client, endpoint{s.namespace, s.config.Hub}, nil
}

// connecting is what azeventhubs connects by, over WebSockets or not: it uses the connection of this option as it is, so
// that a filter can be put between the library and the network. A client stays at the place that it was made for, also
// after the hub has moved. The caller holds mu if the hub can move.
func (s *Source) connecting(dial dial) func(context.Context, azeventhubs.WebSocketConnParams) (net.Conn, error) {
	address, over := s.address(), s.config.Transport
	connect := func(ctx context.Context) (net.Conn, error) { return over.Dial(ctx, address) }
	return func(ctx context.Context, _ azeventhubs.WebSocketConnParams) (net.Conn, error) {
		return dial(ctx, connect)
	}
}

// address is that of the namespace. The caller holds mu if the hub can move.
func (s *Source) address() transport.Address {
	a := transport.EventHubs(s.namespace)
	a.Network = s.network
	if properties, err := azeventhubs.ParseConnectionString(s.config.ConnectionString); err == nil {
		a.Plain = properties.Emulator
	}
	return a
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
		if c.client, _, err = cs.source.newClient(once, c.dial); err != nil {
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

func (c *connection) dial(ctx context.Context, connect func(context.Context) (net.Conn, error)) (net.Conn, error) {
	if !c.held() {
		return nil, errGivenUp
	}
	socket, err := connect(ctx)
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
