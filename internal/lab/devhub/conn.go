package devhub

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"alertworker/internal/lab/devhub/frames"
)

const (
	maxFrame   = 64 << 10  // in either direction
	maxChunk   = 128 << 10 // about as much is written at once
	maxPending = 1 << 20   // with so many bytes of answers unwritten nothing more is read
	maxChannel = 4999
	maxHandle  = 255
	maxClaims  = 4096
	window     = 5000 // of a session, in transfers

	handshakeTimeout = 30 * time.Second
	closeTimeout     = time.Second
)

// A conn is one client's connection. Its reader goroutine, serve, does what the
// client asks for; its writer goroutine, write, sends the answers and, as credit
// allows, the events.
type conn struct {
	hub     *Hub
	socket  net.Conn // as it was accepted
	net     net.Conn // what AMQP is spoken on: the socket, or a WebSocket on it; only upgrade changes it, under mu
	in      *bufio.Reader
	dead    chan struct{} // closed by kill
	once    sync.Once
	wake    chan struct{} // there may be something to write
	ended   chan struct{} // closed when nothing more will be added to out
	written chan struct{} // closed when the writer is gone

	// Settled by the handshake.
	trusted  bool // signed in with the key: needs no claims
	peerMax  int  // largest frame that the client takes
	peerIdle time.Duration

	mu       sync.Mutex
	drained  sync.Cond // out got shorter, or dead
	out      []byte    // frames to be written
	sessions map[uint16]*session
	claims   map[string]struct{} // paths that the client may use; of the reader alone, like expiries
	expiries int64               // of all claims, that it has taken notice of
	sending  []*link             // attached links on which the hub sends
	turn     int                 // which of them is first next time
}

func newConn(h *Hub, nc net.Conn) *conn {
	c := &conn{
		hub:      h,
		socket:   nc,
		net:      nc,
		in:       bufio.NewReaderSize(nc, 16<<10),
		dead:     make(chan struct{}),
		wake:     make(chan struct{}, 1),
		ended:    make(chan struct{}),
		written:  make(chan struct{}),
		sessions: map[uint16]*session{},
		claims:   map[string]struct{}{},
	}

	c.drained.L = &c.mu

	return c
}

// kill closes the connection at once. It may be called by anybody.
func (c *conn) kill() {
	c.once.Do(func() {
		close(c.dead)
		c.mu.Lock()
		nc := c.net
		c.drained.Broadcast()
		c.mu.Unlock()
		nc.Close()
	})
}

// notify tells the writer to look for something to write.
func (c *conn) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// serve runs the connection to its end.
func (c *conn) serve() {
	defer c.kill()
	c.net.SetDeadline(time.Now().Add(handshakeTimeout))
	first, err := c.in.Peek(4)
	if err != nil {
		return
	}

	if string(first) == "GET " {
		if err := c.upgrade(); err != nil {
			return
		}
		defer c.net.Close() // if killed before it was there
	}

	if err := c.handshake(); err != nil {
		return
	}

	c.net.SetDeadline(time.Time{})
	go c.write()
	problem := c.read()

	c.mu.Lock()
	for _, s := range c.sessions {
		c.forgetLinks(s)
	}

	c.out = frames.Append(c.out, frames.AMQP, 0, &frames.Close{Error: problem})
	close(c.ended)
	c.mu.Unlock()
	c.net.SetWriteDeadline(time.Now().Add(closeTimeout))
	<-c.written
}

// handshake takes the connection through SASL and open.
func (c *conn) handshake() error {
	header, err := c.readHeader()
	if err != nil {
		return err
	}

	if header == headerSASL {
		if err := c.sasl(); err != nil {
			return err
		}
		if header, err = c.readHeader(); err != nil {
			return err
		}
	}

	_, _ = io.WriteString(c.net, headerAMQP) // if that fails, so does what follows
	if header != headerAMQP {
		return fmt.Errorf("protocol %q", header)
	}

	open, err := handshakeFrame[*frames.Open](c)
	if err != nil {
		return err
	}

	c.peerMax = maxFrame
	if m := open.MaxFrameSize; m != 0 {
		c.peerMax = min(maxFrame, max(frames.MinMaxSize, int(m)))
	}

	c.peerIdle = open.IdleTimeout
	_, err = c.net.Write(frames.Append(nil, frames.AMQP, 0, &frames.Open{
		ContainerID:  "devhub",
		MaxFrameSize: maxFrame,
		ChannelMax:   maxChannel,
		IdleTimeout:  c.hub.config.IdleTimeout / 2, // half of the truth, as the standard advises
	}))

	return err
}

// Protocol headers.
const (
	headerAMQP = "AMQP\x00\x01\x00\x00"
	headerSASL = "AMQP\x03\x01\x00\x00"
)

func (c *conn) readHeader() (string, error) {
	var h [8]byte
	_, err := io.ReadFull(c.in, h[:])
	return string(h[:]), err
}

func handshakeFrame[P frames.Performative](c *conn) (p P, err error) {
	f, err := frames.Read(c.in, maxFrame)
	if err != nil {
		return p, err
	}

	got, _, err := frames.Decode(f.Body)
	if err != nil {
		return p, err
	}

	p, ok := got.(P)
	if !ok {
		return p, fmt.Errorf("%T instead of %T", got, p)
	}

	return p, nil
}

var mechanisms = &frames.Mechanisms{Names: []frames.Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}}

func (c *conn) sasl() error {
	_, _ = c.net.Write(frames.Append([]byte(headerSASL), frames.SASL, 0, mechanisms)) // if that fails, so does what follows
	init, err := handshakeFrame[*frames.Init](c)
	if err != nil {
		return err
	}

	isTaken := slices.Contains(mechanisms.Names, init.Mechanism)
	if init.Mechanism == "PLAIN" {
		parts := bytes.SplitN(init.InitialResponse, []byte{0}, 3)
		c.trusted = len(parts) == 3 && c.hub.signIn(string(parts[1]), string(parts[2]))
		isTaken = c.trusted
	}

	if isTaken {
		_, err = c.net.Write(frames.Append(nil, frames.SASL, 0, &frames.Outcome{Code: frames.SASLOK}))
		return err
	}

	_, _ = c.net.Write(frames.Append(nil, frames.SASL, 0, &frames.Outcome{Code: frames.SASLAuth}))

	return fmt.Errorf("SASL %s refused", init.Mechanism)
}

// read handles frames until the connection ends and returns why it had to, if
// there is something to tell the client.
func (c *conn) read() *frames.Error {
	for {
		c.net.SetReadDeadline(time.Now().Add(c.hub.config.IdleTimeout))
		f, err := frames.Read(c.in, maxFrame)
		if err != nil {
			return problem("amqp:connection:framing-error", "%v", err)
		}

		if len(f.Body) == 0 {
			continue
		}

		if d := time.Duration(c.hub.faults.latency.Load()); d > 0 {
			select {
			case <-time.After(d):
			case <-c.dead:
			}
		}

		c.awaitDrained()
		p, payload, err := frames.Decode(f.Body)
		if err != nil {
			return problem(condDecode, "%v", err)
		}

		if _, ok := p.(*frames.Close); ok {
			return nil
		}

		if err := c.handle(f.Channel, p, payload); err != nil {
			return err
		}
	}
}

// awaitDrained waits while the client does not read what it asked for.
func (c *conn) awaitDrained() {
	c.mu.Lock()
	defer c.mu.Unlock()

	for len(c.out) > maxPending {
		select {
		case <-c.dead:
			return
		default:
			c.drained.Wait()
		}
	}
}

// handle does what a frame asks for. An error ends the connection.
func (c *conn) handle(channel uint16, p frames.Performative, payload []byte) *frames.Error {
	if b, ok := p.(*frames.Begin); ok {
		return c.begin(channel, b)
	}

	s := c.sessions[channel] // only this goroutine writes the map
	if s == nil {
		return notAllowed("A %T came on channel %d, which has no session.", p, channel)
	}

	if _, isEnd := p.(*frames.End); s.ended && !isEnd {
		return nil // it was sent before the client knew
	}

	switch p := p.(type) {
	case *frames.Attach:
		return c.attach(s, p)

	case *frames.Flow:
		c.flow(s, p)
		return nil

	case *frames.Transfer:
		return c.transfer(s, p, payload)

	case *frames.Disposition: // all deliveries go out settled
		return nil

	case *frames.Detach:
		c.detached(s, p)
		return nil

	case *frames.End:
		if s.choked {
			return nil
		}

		c.mu.Lock()
		defer c.mu.Unlock()

		c.forgetLinks(s)
		delete(c.sessions, channel)
		if !s.ended {
			c.send(s, &frames.End{})
		}

		return nil
	}

	return notAllowed("A %T is not expected here.", p)
}

func notAllowed(format string, args ...any) *frames.Error {
	return problem("amqp:not-allowed", format, args...)
}

// send queues a performative of a session. The caller holds c.mu.
func (c *conn) send(s *session, p frames.Performative) {
	c.out = frames.Append(c.out, frames.AMQP, s.channel, p)
	c.notify()
}

// write writes what there is to write, until the connection ends.
func (c *conn) write() {
	defer close(c.written)
	defer c.kill()
	var heartbeat <-chan time.Time
	if c.peerIdle > 0 {
		t := time.NewTicker(max(c.peerIdle/2, time.Millisecond))
		defer t.Stop()
		heartbeat = t.C
	}

	echo := time.NewTicker(c.hub.config.EchoEvery)
	defer echo.Stop()
	var b []byte
	for {
		last := false

		select {
		case <-c.wake:
		case <-heartbeat:
			b = frames.AppendHeartbeat(b)
		case <-echo.C:
			c.echo()
		case <-c.ended:
			last = true
		case <-c.dead:
			return
		}

		for {
			b = c.collect(b)
			if len(b) == 0 {
				break
			}

			if stalled := c.hub.faults.stall(); stalled != nil {
				select {
				case <-stalled:
				case <-c.ended:
					return
				case <-c.dead:
					return
				}
			}

			if _, err := c.net.Write(b); err != nil {
				return
			}

			b = b[:0]
		}

		if last {
			return
		}
	}
}

// echo asks for the windows of sessions that read.
func (c *conn) echo() {
	c.mu.Lock()
	defer c.mu.Unlock()

	asked := map[*session]bool{}
	for _, l := range c.sending {
		if l.partition != nil && !asked[l.session] {
			asked[l.session] = true
			f := l.session.flow()
			f.Echo = true
			c.send(l.session, f)
		}
	}
}

// collect appends what is to be written next: the answers, then events.
func (c *conn) collect(b []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()

	b = append(b, c.out...)
	c.out = c.out[:0]
	c.drained.Signal()
	n := len(c.sending)
	if n == 0 {
		return b
	}

	share := max(maxChunk/n, maxChunk/8)
	c.turn++
	for i := range n {
		b = c.sending[(c.turn+i)%n].fill(b, min(len(b)+share, maxChunk))
	}

	return b
}
