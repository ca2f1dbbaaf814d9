package devhub

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"alertworker/internal/lab/devhub/frames"
)

// Config says what hub to serve. The zero value of each field stands for its default.
type Config struct {
	Hub        string // its name; "devhub" by default
	Partitions int    // 1 to 1024; 4 by default
	KeyName    string // of the shared access key; "RootManageSharedAccessKey" by default
	Key        string // random by default

	// A partition keeps its newest events, as many as are within both bounds,
	// and always the last one. By default 65536 events and 32 MiB.
	MaxEvents int
	MaxBytes  int

	// IdleTimeout is after how much silence a client is cut off; 2 minutes by default.
	IdleTimeout time.Duration
	// EchoEvery is how often the clients of sessions that read are asked for their windows; 5 seconds by default.
	EchoEvery time.Duration
	// GeoReplicated makes offsets those of a geo-replicated namespace, "0:12", for links that ask for that; they cannot
	// begin after others.
	GeoReplicated bool
	// TLS, if set, makes the hub speak TLS.
	TLS *tls.Config
	// RedirectTo, if set, makes the hub an IoT Hub besides: who attaches to
	// /messages/events/… is sent to this address, "amqps://NAMESPACE:5671/HUB/".
	RedirectTo string
}

// A Hub is a running Event Hubs namespace with one hub. Its methods are safe
// for concurrent use.
type Hub struct {
	config     Config
	redirect   *url.URL // Config.RedirectTo
	partitions []*partition
	created    time.Time
	listener   net.Listener
	wg         sync.WaitGroup
	robin      atomic.Uint32 // where the next message without a key goes
	faults     faults
	accepted   atomic.Int64

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
}

// Listen serves a hub at the TCP address addr, such as "127.0.0.1:0", until Close.
func Listen(addr string, c Config) (*Hub, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("devhub: %w", err)
	}

	h, err := Serve(l, c)
	if err != nil {
		_ = l.Close()
	}

	return h, err
}

// Serve serves a hub on l until Close, which closes l.
func Serve(l net.Listener, c Config) (*Hub, error) {
	c.Hub = cmp.Or(c.Hub, "devhub")
	c.Partitions = cmp.Or(c.Partitions, 4)
	c.KeyName = cmp.Or(c.KeyName, "RootManageSharedAccessKey")
	c.Key = cmp.Or(c.Key, rand.Text())
	c.MaxEvents = cmp.Or(c.MaxEvents, 1<<16)
	c.MaxBytes = cmp.Or(c.MaxBytes, 32<<20)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 2*time.Minute)
	c.EchoEvery = cmp.Or(c.EchoEvery, 5*time.Second)
	if c.Partitions < 1 || c.Partitions > 1024 {
		return nil, fmt.Errorf("devhub: %d partitions: give 1 to 1024", c.Partitions)
	}

	redirect, err := url.Parse(c.RedirectTo)
	if err != nil || c.RedirectTo != "" && redirect.Hostname() == "" {
		return nil, fmt.Errorf("devhub: redirect to %q: give amqps://NAMESPACE:5671/HUB/", c.RedirectTo)
	}

	if c.TLS != nil {
		l = tls.NewListener(l, c.TLS)
	}

	h := &Hub{
		config:   c,
		redirect: redirect,
		created:  time.Now().Truncate(time.Millisecond),
		listener: l,
		conns:    map[*conn]struct{}{},
		faults:   faults{refusals: map[string]refusals{}},
	}
	h.LimitManagement(ManagementLimit)

	for i := range c.Partitions {
		h.partitions = append(h.partitions, &partition{
			id:        strconv.Itoa(i),
			maxEvents: c.MaxEvents,
			maxBytes:  c.MaxBytes,
			geo:       c.GeoReplicated,
			newest:    event{offset: -1},
			readers:   map[*link]struct{}{},
		})
	}

	h.wg.Go(h.accept)

	return h, nil
}

func (h *Hub) accept() {
	for {
		nc, err := h.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}

		if err != nil { // out of descriptors, say
			time.Sleep(10 * time.Millisecond)
			continue
		}

		h.accepted.Add(1)
		c := newConn(h, nc)
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			nc.Close()
			return
		}

		h.conns[c] = struct{}{}
		h.wg.Go(func() {
			c.serve()
			h.mu.Lock()
			delete(h.conns, c)
			h.mu.Unlock()
		})

		h.mu.Unlock()
	}
}

// Close drops all connections and returns once nothing of the hub runs any more.
func (h *Hub) Close() error {
	h.mu.Lock()
	h.closed = true
	for c := range h.conns {
		c.kill()
	}

	h.mu.Unlock()
	err := h.listener.Close()
	h.wg.Wait()
	if errors.Is(err, net.ErrClosed) { // closed twice
		return nil
	}

	return err
}

// Addr returns the address that the hub listens at.
func (h *Hub) Addr() string { return h.listener.Addr().String() }

// ConnectionString returns what clients connect with.
func (h *Hub) ConnectionString() string {
	s := fmt.Sprintf(
		"Endpoint=sb://%s;SharedAccessKeyName=%s;SharedAccessKey=%s;",
		h.Addr(),
		h.config.KeyName,
		h.config.Key,
	)

	if h.config.TLS == nil {
		s += "UseDevelopmentEmulator=true;"
	}

	return s + "EntityPath=" + h.config.Hub
}

// Publish adds m to the hub as if its device had sent it. An error means that it cannot be
// encoded or names a partition that does not exist; nothing was added then.
func (h *Hub) Publish(m Message) (Published, error) {
	partition := m.Partition
	switch {
	case partition != "":
	case m.Device != "":
		partition = h.byKey(m.Device).id
	default:
		partition = h.next().id
	}

	return h.publish(partition, m.Enqueued, m.encode)
}

// PublishRaw adds a message of any bytes at all to a partition: what encode makes of
// the place that the message gets. Clients may choke on it.
func (h *Hub) PublishRaw(partition string, encode func(Published) []byte) (Published, error) {
	return h.publish(
		partition,
		time.Time{},
		func(pub Published) ([]byte, error) { return append([]byte{}, encode(pub)...), nil },
	)
}

func (h *Hub) publish(partition string, enqueued time.Time, encode func(Published) ([]byte, error)) (Published, error) {
	p := h.byID(partition)
	if p == nil {
		return Published{}, fmt.Errorf(
			"devhub: publishing to partition %q: the hub has 0 to %d",
			partition,
			len(h.partitions)-1,
		)
	}

	pub, err := p.append(enqueued, encode)
	if err != nil {
		return Published{}, fmt.Errorf("devhub: %w", err)
	}

	return pub, nil
}

// Accepted returns how many connections there have been.
func (h *Hub) Accepted() int64 { return h.accepted.Load() }

// Readers returns how many links read the partition, or any partition if it is "".
func (h *Hub) Readers(partition string) int { return len(h.readers(partition)) }

// Owners returns the name of the receiver with an epoch, which is the only one of its
// consumer group, that reads a partition, by partition.
func (h *Hub) Owners() map[string]string {
	owners := map[string]string{}
	for _, l := range h.readers("") {
		if l.epoch != nil {
			owners[l.partition.id] = l.receiver
		}
	}

	return owners
}

// readers returns the links that read the partition, or any partition if it is "".
func (h *Hub) readers(partition string) (all []*link) {
	for _, p := range h.partitions {
		if partition == "" || partition == p.id {
			p.mu.Lock()
			all = slices.AppendSeq(all, maps.Keys(p.readers))
			p.mu.Unlock()
		}
	}

	return all
}

// byID returns nil if there is no such partition.
func (h *Hub) byID(id string) *partition {
	if i := slices.IndexFunc(h.partitions, func(p *partition) bool { return p.id == id }); i >= 0 {
		return h.partitions[i]
	}

	return nil
}

// next returns the partitions in turn.
func (h *Hub) next() *partition {
	return h.partitions[(h.robin.Add(1)-1)%uint32(len(h.partitions))]
}

// Conditions of errors that several problems have.
const (
	condStolen   frames.Symbol = "amqp:link:stolen"
	condLimit    frames.Symbol = "amqp:resource-limit-exceeded"
	condNotFound frames.Symbol = "amqp:not-found"
	condDecode   frames.Symbol = "amqp:decode-error"
	condArgument frames.Symbol = "com.microsoft:argument-error"
)

// problem returns an error to tell a client, short enough for the smallest frame.
func problem(condition frames.Symbol, format string, args ...any) *frames.Error {
	description := fmt.Sprintf(format, args...)
	return &frames.Error{Condition: condition, Description: description[:min(len(description), 400)]}
}
