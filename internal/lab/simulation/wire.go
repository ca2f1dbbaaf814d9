package simulation

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A listener accepts connections that are made in this process.
type listener struct {
	host   string
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// listen returns a listener that is called host.
func listen(host string) *listener {
	return &listener{
		host:   host,
		conns:  make(chan net.Conn),
		closed: make(chan struct{}),
	}
}

// Accept waits for somebody to dial.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close has nobody accept or connect any more.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return address(l.host) }

// dial connects who to l.
func (l *listener) dial(ctx context.Context, who string) (net.Conn, error) {
	near, far := newConn(address(who), address(l.host))
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: l.Addr(), Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// An address is a host, with a port or without one.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// A conn is one end of a connection whose writes do not wait for the other end's reads. Nothing on it takes time: a
// library may hold a mutex while it waits for the other end, and virtual time stands still while somebody waits for
// that mutex.
type conn struct {
	in, out       *pipe
	local, remote address
}

// newConn returns both ends of a connection.
func newConn(from, to address) (near, far *conn) {
	there, back := newPipe(), newPipe()
	near = &conn{in: back, out: there, local: from, remote: to}
	far = &conn{in: there, out: back, local: to, remote: from}

	return near, far
}

func (c *conn) Read(p []byte) (int, error)       { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error)      { return c.out.write(p) }
func (c *conn) LocalAddr() net.Addr              { return c.local }
func (c *conn) RemoteAddr() net.Addr             { return c.remote }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.until(t)
	return nil
}

// Close lets the other end read what was written before.
func (c *conn) Close() error {
	c.out.end(io.EOF)
	c.in.fail(net.ErrClosed)
	return nil
}

// reset ends the connection as a network does that drops it.
func (c *conn) reset() {
	c.out.fail(syscall.ECONNRESET)
	c.in.fail(syscall.ECONNRESET)
}

// hold has nothing arrive at either end until a time.
func (c *conn) hold(until time.Time) {
	c.in.hold(until)
	c.out.hold(until)
}

// A pipe carries bytes one way.
type pipe struct {
	mu       sync.Mutex
	changed  sync.Cond
	data     []byte
	ended    error     // after data; nil: it goes on
	failed   error     // at once
	held     time.Time // nothing arrives before
	deadline time.Time
	timer    *time.Timer // wakes the reader at deadline
}

func newPipe() *pipe {
	p := &pipe{}
	p.changed.L = &p.mu
	return p
}

// read waits for bytes, for the end or for the deadline.
func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for {
		isHeld := time.Now().Before(p.held)

		switch {
		case p.failed != nil:
			return 0, p.failed

		case isHeld: // nothing arrives but the deadline

		case len(p.data) > 0:
			n := copy(b, p.data)
			p.data = p.data[n:]
			return n, nil

		case p.ended != nil:
			return 0, p.ended

		case len(b) == 0:
			return 0, nil
		}

		if !p.deadline.IsZero() && !time.Now().Before(p.deadline) {
			return 0, os.ErrDeadlineExceeded
		}

		p.changed.Wait()
	}
}

// write has bytes arrive, and does not wait for the reader.
func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	switch {
	case p.failed != nil:
		return 0, syscall.EPIPE
	case p.ended != nil:
		return 0, net.ErrClosed
	}

	if len(p.data) == 0 {
		p.data = nil // what was read need not be kept
	}

	p.data = append(p.data, b...)
	p.changed.Broadcast()

	return len(b), nil
}

// hold has nothing arrive until a time, when all that was written arrives at once.
func (p *pipe) hold(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.held.After(until) {
		return
	}

	p.held = until
	time.AfterFunc(time.Until(until), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})
}

// until sets the reader's deadline; zero: none.
func (p *pipe) until(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.deadline = t
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}

	if !t.IsZero() {
		p.timer = time.AfterFunc(time.Until(t), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.changed.Broadcast()
		})
	}

	p.changed.Broadcast()
}

// end has the reader get err after what it has not read yet.
func (p *pipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.ended == nil {
		p.ended = err
	}

	p.changed.Broadcast()
}

// fail has both ends get an error at once.
func (p *pipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.failed == nil {
		p.failed = err
	}

	if p.timer != nil {
		p.timer.Stop()
	}

	p.changed.Broadcast()
}
