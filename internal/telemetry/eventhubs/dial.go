package eventhubs

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"alertworker/internal/azure"
	"alertworker/internal/backoff"
	"alertworker/internal/build"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
	"alertworker/internal/telemetry/transport"
)

// linksPerConnection is how many partitions share a connection, and are read no more when it is lost. A namespace of the
// Basic tier allows 100 connections, and hubs of up to 32 partitions.
const linksPerConnection = 4

// address is that of a namespace.
func (s *Source) address(namespace string) transport.Address {
	a := transport.EventHubs(namespace)
	a.Plain = s.plain
	a.Network = s.config.Network
	return a
}

// connections are those over which a hub is read, or asked. A connection stays at the place that it was made for, also
// after the hub has moved.
type connections struct {
	source *Source

	running sync.WaitGroup
	mu      sync.Mutex
	all     []*connection
}

// acquire returns a connection for one more link, once it is open. release takes it back.
func (cs *connections) acquire(ctx context.Context) (*connection, error) {
	s := cs.source
	s.mu.Lock()
	config, at := s.config, s.at
	s.mu.Unlock()

	cs.mu.Lock()
	i := slices.IndexFunc(cs.all, func(c *connection) bool {
		return c.at == at && c.ctx.Err() == nil && c.links < linksPerConnection
	})
	if i < 0 {
		i = len(cs.all)
		c := &connection{of: cs, source: s, config: config, at: at, address: s.address(at.namespace), ready: make(chan struct{})}
		c.audience = "amqps://" + at.String()
		if c.address.Plain {
			c.audience = "amqp://" + at.String()
		}
		c.ctx, c.end = context.WithCancel(context.Background())
		cs.all = append(cs.all, c)
		cs.running.Go(c.run)
	}
	c := cs.all[i]
	c.links++
	cs.mu.Unlock()

	var err error
	select {
	case <-c.ready:
		err = c.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		cs.release(c)
		return nil, err
	}

	return c, nil
}

// release ends the connection if it has no other link.
func (cs *connections) release(c *connection) {
	cs.mu.Lock()
	defer cs.mu.Unlock()

	if c.links--; c.links == 0 {
		c.end()
		cs.all = slices.DeleteFunc(cs.all, func(other *connection) bool { return other == c })
	}
}

// A connection is one over which some partitions are read. Its goroutine opens it and renews its claim, until it ends.
type connection struct {
	of       *connections
	source   *Source
	config   Config
	at       endpoint
	address  transport.Address
	audience string
	links    int // guarded by the mu of connections

	ctx   context.Context // of the connection; ended is its cause
	end   context.CancelFunc
	ready chan struct{} // closed when it is open, or cannot be opened

	// Set before ready is closed.
	amqp   *amqp.Conn
	filter *amqpfilter.Conn // below amqp
	err    error            // why it could not be opened

	unclaimed atomic.Pointer[telemetry.Fault] // why the claim cannot be renewed; nil if it can
}

// run opens the connection, renews its claim, and closes it when it has ended.
func (c *connection) run() {
	defer func() {
		c.end()
		if c.amqp != nil {
			<-c.amqp.Done()
		}
	}()

	next, err := c.open()
	c.err = err
	close(c.ready)
	if err != nil {
		return
	}

	var fault telemetry.Fault
	for failures := 0; ; {
		select {
		case <-time.After(time.Until(next)):
		case <-c.amqp.Done():
			return
		case <-c.ctx.Done():
			return
		}

		renewed, err := c.claim()
		if err == nil {
			failures, next = 0, renewed
			fault = telemetry.Fault{}
			c.unclaimed.Store(nil)
			continue
		}

		failures++
		fault = c.source.fault(fault, c.at, err)
		said := fault
		c.unclaimed.Store(&said)
		next = time.Now().Add(backoff.Delay(failures, openMin, openMax))
	}
}

// open connects and makes the first claim. It returns when that is to be renewed.
func (c *connection) open() (time.Time, error) {
	s := c.source
	ctx, cancel := context.WithTimeoutCause(c.ctx, s.openLimit, errNotOpened)
	defer cancel()
	socket, err := c.config.Transport.Dial(ctx, c.address)
	if err != nil {
		return time.Time{}, err
	}

	c.filter = amqpfilter.New(socket)
	c.amqp, err = amqp.NewConn(ctx, c.filter, &amqp.ConnOptions{
		HostName:     c.at.namespace,
		SASLType:     amqp.SASLTypeAnonymous(),
		WriteTimeout: s.closeLimit,
		Properties: map[string]any{
			"product": "alertworker", "version": build.Version(), "platform": runtime.GOOS, "framework": runtime.Version(),
		},
	})
	if err != nil {
		_ = socket.Close()
		return time.Time{}, expired(ctx, err)
	}

	// Sends a farewell, and waits for no answer. It ends what waits for the hub, a claim too. run waits for it.
	context.AfterFunc(c.ctx, func() { _ = c.amqp.Close() })

	return c.claim()
}

var errNotOpened = fmt.Errorf("the hub has not opened the link in time: %w", context.DeadlineExceeded)

// expired returns why ctx has ended if err came after that.
func expired(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

const (
	claimEvery   = 15 * time.Minute // a claim by key is made again
	signedFor    = time.Hour        // a claim by key
	renewBefore  = 4 * time.Minute  // the end of a token; azure.Credential fetches the next one 5 minutes before it
	renewAtLeast = 5 * time.Second  // apart
)

// A token is what a hub knows a client by.
type token struct {
	kind, text string
	ends       time.Time // zero if nobody knows
	next       time.Time // when there should be another one
}

// token returns one for an audience: the URL of a hub, and of all that is in it.
func (c *Config) token(ctx context.Context, audience string) (token, error) {
	now := time.Now()

	if c.ConnectionString == "" {
		t, err := c.Credential.GetToken(ctx, azure.EventHubsScope)
		left := t.ExpiresOn.Sub(now)
		return token{"jwt", t.Token, t.ExpiresOn, now.Add(max(left-renewBefore, left/2, renewAtLeast))}, err
	}

	const signature = "servicebus.windows.net:sastoken"
	properties, err := azeventhubs.ParseConnectionString(c.ConnectionString)
	if err != nil {
		return token{}, err
	}
	if given := properties.SharedAccessSignature; given != nil {
		return token{kind: signature, text: *given, next: now.Add(claimEvery)}, nil
	}

	ends := now.Add(signedFor)
	text := transport.Signature(audience, *properties.SharedAccessKeyName, []byte(*properties.SharedAccessKey), ends)

	return token{signature, text, ends, now.Add(claimEvery)}, nil
}

// claim makes the claim by which the links of the connection are allowed, and returns when to renew it. A connection
// allows one at a time.
func (c *connection) claim() (next time.Time, err error) {
	t, err := c.config.token(c.ctx, c.audience)
	if err != nil {
		return time.Time{}, err
	}

	properties := map[string]any{"operation": "put-token", "type": t.kind, "name": c.audience}
	if !t.ends.IsZero() {
		properties["expiration"] = strconv.FormatInt(t.ends.Unix(), 10)
	}

	ctx, cancel := c.source.limited(c.ctx)
	defer cancel()
	links, err := c.openRPC(ctx, "$cbs")
	if err != nil {
		return time.Time{}, err
	}
	defer links.close()

	_, err = links.request(ctx, properties, t.text)

	return t.next, err
}
