package devhub_test

import (
	"bufio"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/frames"
)

// A rawClient speaks AMQP without a library between.
type rawClient struct {
	nc      net.Conn
	r       *bufio.Reader
	channel uint16 // of the last frame
}

// dialRaw signs in with the key and begins a session on channel 0.
func dialRaw(t testing.TB, h *devhub.Hub, key string, open *frames.Open) *rawClient {
	t.Helper()
	nc, err := net.Dial("tcp", h.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetReadDeadline(time.Now().Add(time.Minute)) // or a failure is a test that hangs
	c := &rawClient{nc: nc, r: bufio.NewReaderSize(nc, 256<<10)}
	b := frames.Append([]byte("AMQP\x03\x01\x00\x00"), frames.SASL, 0, &frames.Init{Mechanism: "PLAIN", InitialResponse: []byte("\x00RootManageSharedAccessKey\x00" + key)})
	b = frames.Append(append(b, "AMQP\x00\x01\x00\x00"...), frames.AMQP, 0, open)
	b = frames.Append(b, frames.AMQP, 0, &frames.Begin{IncomingWindow: 1 << 30, OutgoingWindow: 100, HandleMax: 9})
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
	c.r.Discard(8)
	c.read(t)
	if o := c.read(t).(*frames.Outcome); o.Code != frames.SASLOK {
		t.Fatalf("signing in: %d", o.Code)
	}
	c.r.Discard(8)
	c.read(t)
	c.read(t)
	return c
}

func (c *rawClient) write(t testing.TB, p ...frames.Performative) {
	t.Helper()
	var b []byte
	for _, p := range p {
		b = frames.Append(b, frames.AMQP, 0, p)
	}
	if _, err := c.nc.Write(b); err != nil {
		t.Fatal(err)
	}
}

func (c *rawClient) read(t testing.TB) frames.Performative {
	t.Helper()
	for {
		f, err := frames.Read(c.r, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Body) == 0 {
			continue
		}
		c.channel = f.Channel
		p, _, err := frames.Decode(f.Body)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// attachReceiver attaches a link with the handle 0 and grants it all credit.
func (c *rawClient) attachReceiver(t testing.TB, address string) {
	t.Helper()
	handle := uint32(0)
	c.write(t,
		&frames.Attach{Name: "l", Handle: handle, Role: frames.Receiver, Source: &frames.Source{Address: address}, Target: &frames.Target{}},
		&frames.Flow{NextIncomingID: ptr(uint32(0)), IncomingWindow: 1<<31 - 1, Handle: &handle, LinkCredit: 1 << 30})
	if a, ok := c.read(t).(*frames.Attach); !ok || a.Source == nil {
		t.Fatalf("attach was answered with %+v", a)
	}
}

// skip reads n frames without looking into them.
func (c *rawClient) skip(t testing.TB, n int) {
	t.Helper()
	for range n {
		h, err := c.r.Peek(4)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.r.Discard(int(binary.BigEndian.Uint32(h))); err != nil {
			t.Fatal(err)
		}
	}
}

// transfer sends a transfer with its payload.
func (c *rawClient) transfer(t testing.TB, p *frames.Transfer, payload []byte) {
	t.Helper()
	b := frames.Append(nil, frames.AMQP, 0, p)
	binary.BigEndian.PutUint32(b, uint32(len(b)+len(payload)))
	if _, err := c.nc.Write(append(b, payload...)); err != nil {
		t.Fatal(err)
	}
}
