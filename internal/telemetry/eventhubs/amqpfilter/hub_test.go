package amqpfilter_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/Azure/go-amqp"
	"pgregory.net/rapid"

	"alertworker/internal/lab/devhub/frames"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// A strictHub sends one link's events as a plan says, and holds the library to the standard: it sends no more than it
// has been asked for, and takes nothing for received that it has not sent.
type strictHub struct {
	conn  net.Conn
	plan  plan
	queue []byte // frames that are not on their way yet

	mu        sync.Mutex
	told      sync.Cond // something has come
	err       error
	channel   uint16 // that the hub has given the session
	begun     bool
	next      uint32 // number of the next transfer
	window    uint32 // the number that may not be reached
	delivered uint32 // deliveries of the link
	limit     uint32 // the delivery that may not be reached
	flow      frames.Flow
}

// A plan is what a hub does.
type plan struct {
	steps   []step // the last one is an event
	pieces  []int  // sizes of its writes, in turn
	address string // where it says that the events come from
	first   uint32 // numbers of the first transfer and delivery
	credit  int    // that the client has on request at most
}

// A step is one thing that a hub sends.
type step struct {
	what    string   // "event", "aborted", "heartbeat", "session" or "link": a flow
	parts   [][]byte // of a message
	settled bool
	echo    bool
}

// run answers the client until it closes the connection.
func (h *strictHub) run() {
	for {
		f, err := frames.Read(h.conn, 1<<20)
		if err == nil && len(f.Body) > 0 {
			err = h.take(f)
		}
		h.mu.Lock()
		h.err = cmp.Or(h.err, err)
		h.told.Broadcast()
		h.mu.Unlock()
		if err != nil {
			_ = h.conn.Close()
			return
		}
	}
}

// take answers a frame of the client.
func (h *strictHub) take(f frames.Frame) error {
	performative, _, err := frames.Decode(f.Body)
	if err != nil {
		return err
	}
	switch p := performative.(type) {
	case *frames.Open:
		return h.answer(0, &frames.Open{ContainerID: "hub", MaxFrameSize: 64 << 10, ChannelMax: 100})
	case *frames.Begin:
		h.next, h.window = h.plan.first, h.plan.first+p.IncomingWindow
		h.delivered, h.limit = h.plan.first, h.plan.first
		begin := &frames.Begin{NextOutgoingID: h.next, IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 9}
		begin.RemoteChannel = &f.Channel
		return h.answer(h.channel, begin)
	case *frames.Attach:
		h.mu.Lock()
		h.begun = true
		h.mu.Unlock()
		p.Role, p.Handle, p.InitialDeliveryCount = frames.Sender, 5, h.plan.first
		p.Source = &frames.Source{Address: h.plan.address}
		return h.answer(h.channel, p)
	case *frames.Flow:
		return h.ask(p)
	case *frames.Close:
		return io.EOF
	}
	return fmt.Errorf("the library sends %T", performative)
}

func (h *strictHub) answer(channel uint16, p frames.Performative) error {
	_, err := h.conn.Write(frames.Append(nil, frames.AMQP, channel, p))
	return err
}

// ask takes notice of what the client has received and wants.
func (h *strictHub) ask(f *frames.Flow) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.NextIncomingID == nil || int32(h.next-*f.NextIncomingID) < 0 {
		return fmt.Errorf("it has received up to %v, and %d was not sent", f, h.next)
	}
	h.window = *f.NextIncomingID + f.IncomingWindow
	h.flow.NextIncomingID = f.NextIncomingID
	if f.Handle == nil {
		return nil
	}
	if int32(h.delivered-f.DeliveryCount) < 0 || f.LinkCredit > 1<<16 {
		return fmt.Errorf("it has %+v, and %d were delivered", f, h.delivered)
	}
	h.limit = f.DeliveryCount + f.LinkCredit
	h.flow = *f
	return nil
}

// send does what the plan says.
func (h *strictHub) send() error {
	if err := h.await(func() bool { return h.begun }); err != nil {
		return err
	}
	for _, s := range h.plan.steps {
		if err := h.step(s); err != nil {
			return err
		}
	}
	return h.flush()
}

func (h *strictHub) step(s step) error {
	handle, zero := uint32(5), uint32(0)
	switch s.what {
	case "heartbeat":
		h.queue = frames.AppendHeartbeat(h.queue)
	case "session", "link":
		f := &frames.Flow{NextIncomingID: &zero, IncomingWindow: 100, OutgoingWindow: 100, Echo: s.echo}
		h.mu.Lock()
		f.NextOutgoingID, f.DeliveryCount = h.next, h.delivered
		f.LinkCredit = h.limit - h.delivered
		h.mu.Unlock()
		if s.what == "link" {
			f.Handle = &handle
		}
		h.queue = frames.Append(h.queue, frames.AMQP, h.channel, f)
	default:
		if err := h.await(func() bool { return int32(h.limit-h.delivered) > 0 }); err != nil {
			return err
		}
		for i, part := range s.parts {
			if err := h.transfer(s, i, part); err != nil {
				return err
			}
		}
		h.mu.Lock()
		if s.what == "event" {
			h.delivered++
		}
		h.mu.Unlock()
	}
	return nil
}

// transfer sends part i of a step's message.
func (h *strictHub) transfer(s step, i int, part []byte) error {
	if err := h.await(func() bool { return int32(h.window-h.next) > 0 }); err != nil {
		return err
	}
	h.mu.Lock()
	id := h.next
	h.next++
	h.mu.Unlock()
	last := i == len(s.parts)-1
	t := &frames.Transfer{
		Handle: 5, DeliveryTag: []byte("tag"), Settled: s.settled, More: !last, Aborted: last && s.what == "aborted",
	}
	if i == 0 {
		t.DeliveryID = &id
	}
	start := len(h.queue)
	h.queue = append(frames.Append(h.queue, frames.AMQP, h.channel, t), part...)
	size := len(h.queue) - start
	copy(h.queue[start:], []byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)})
	return nil
}

// await waits until something is so, and sends what is queued before it has to.
func (h *strictHub) await(so func() bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !so() {
		if h.err != nil {
			return h.err
		}
		if len(h.queue) > 0 {
			h.mu.Unlock()
			err := h.flush()
			h.mu.Lock()
			if err != nil {
				return err
			}
			continue
		}
		h.told.Wait()
	}
	return h.err
}

// flush writes what is queued, in pieces.
func (h *strictHub) flush() error {
	for i := 0; len(h.queue) > 0; i++ {
		n := min(h.plan.pieces[i%len(h.plan.pieces)], len(h.queue))
		if _, err := h.conn.Write(h.queue[:n]); err != nil {
			return err
		}
		h.queue = h.queue[n:]
	}
	return nil
}

// read returns the bodies of the events that the library receives of a hub with this plan, and what it has told the
// hub after the last one. wrap is what is between it and the connection.
func read(
	t rapid.TB, p plan, wrap func(net.Conn) net.Conn, bodies func(*amqp.Message) [][]byte,
) ([][]byte, frames.Flow) {
	t.Helper()
	ours, theirs := net.Pipe()
	h := &strictHub{conn: theirs, plan: p, channel: 7}
	h.told.L = &h.mu
	var serving sync.WaitGroup
	serving.Go(func() {
		header := make([]byte, 8)
		if _, err := io.ReadFull(theirs, header); err != nil {
			return
		}
		_, _ = theirs.Write(header)
		h.run()
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer serving.Wait()
	defer theirs.Close()
	defer context.AfterFunc(ctx, func() { _ = theirs.Close() })()
	client, err := amqp.NewConn(ctx, wrap(ours), &amqp.ConnOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	session, err := client.NewSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := session.NewReceiver(ctx, events, &amqp.ReceiverOptions{Credit: -1})
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	serving.Go(func() { sent <- h.send() })

	credit := p.credit
	var got [][]byte
	requested, want := 0, 0
	for _, s := range p.steps {
		if s.what == "event" {
			want++
		}
	}
	for len(got) < want {
		if requested <= credit*3/4 {
			if err := receiver.IssueCredit(uint32(credit - requested)); err != nil {
				t.Fatal(err)
			}
			requested = credit
		}
		m, err := receiver.Receive(ctx, nil)
		if err != nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Fatalf("after %d of %d: %v; the hub: %v", len(got), want, err, h.err)
		}
		some := bodies(m)
		got = append(got, some...)
		requested -= len(some)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	_ = receiver.IssueCredit(1) // tells how much has come
	last := p.first + uint32(requested+1+want)
	err = h.await(func() bool { return h.limit == last && *h.flow.NextIncomingID == h.next })
	if err != nil {
		t.Fatalf("at the end: %v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return got, h.flow
}

// Whatever a hub does that the standard allows, and however it comes: the library receives the same with the filter as
// without, and tells the hub the same about it.
func TestHubAndLibraryAgree(t *testing.T) { rapid.Check(t, agree) }

func FuzzHubAndLibraryAgree(f *testing.F) { f.Fuzz(rapid.MakeFuzz(agree)) }

func agree(t *rapid.T) {
	p := plan{
		pieces:  rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(20, 9000)), 1, 5).Draw(t, "pieces"),
		address: rapid.SampledFrom([]string{events, "", "somewhere else"}).Draw(t, "address"),
		first:   rapid.SampledFrom([]uint32{0, 1, 1<<32 - 20}).Draw(t, "first"),
		credit:  rapid.SampledFrom([]int{8, 40}).Draw(t, "credit"),
	}
	kinds := []string{"event", "event", "event", "event", "aborted", "heartbeat", "session", "link"}
	for n := range rapid.IntRange(0, 150).Draw(t, "steps") {
		s := step{what: rapid.SampledFrom(kinds).Draw(t, "what")}
		switch s.what {
		case "event", "aborted":
			s.settled = rapid.Bool().Draw(t, "settled")
			rest := numbered(n)
			for range rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(t, "cuts") {
				cut := rapid.IntRange(0, len(rest)).Draw(t, "cut")
				s.parts = append(s.parts, rest[:cut])
				rest = rest[cut:]
			}
			s.parts = append(s.parts, rest)
		case "session", "link":
			s.echo = rapid.Bool().Draw(t, "echo")
		}
		p.steps = append(p.steps, s)
	}
	p.steps = append(p.steps, step{what: "event", parts: [][]byte{numbered(len(p.steps))}})
	check(t, p)
}

// The window of the session, 5,000 transfers, is never used up for good, although the library counts a part of them.
func TestWindow(t *testing.T) {
	p := plan{pieces: []int{9000, 1, 30_000}, address: events, first: 1<<32 - 3000, credit: 5000}
	for n := range 15_000 {
		s := step{what: "event", settled: true, parts: [][]byte{numbered(n)}}
		if n%7 == 0 { // in three frames
			whole := s.parts[0]
			s.parts = [][]byte{whole[:5], whole[5:9], whole[9:]}
		}
		p.steps = append(p.steps, s)
	}
	check(t, p)
}

// check holds what the library does with the filter to what it does without.
func check(t rapid.TB, p plan) {
	plain := func(c net.Conn) net.Conn { return c }
	want, told := read(t, p, plain, func(m *amqp.Message) [][]byte { return [][]byte{m.GetData()} })
	var c *amqpfilter.Conn
	filter := func(plain net.Conn) net.Conn {
		c = amqpfilter.New(plain)
		return c
	}
	got, toldFiltered := read(t, p, filter, func(m *amqp.Message) (all [][]byte) {
		passed, ok := c.Take(m.GetData())
		if !ok {
			t.Fatalf("%q did not pass the filter", m.GetData())
		}
		for len(passed) > 0 {
			var e amqpfilter.Event
			e, passed = passed.Next()
			all = append(all, e.Body)
		}
		return all
	})
	if !slices.EqualFunc(got, want, bytes.Equal) {
		t.Fatalf("got %q, want %q", got, want)
	}
	if *toldFiltered.NextIncomingID != *told.NextIncomingID || toldFiltered.DeliveryCount != told.DeliveryCount {
		t.Fatalf("the hub was told %+v, without the filter %+v", toldFiltered, told)
	}
}

// numbered returns a message with that number in it.
func numbered(n int) []byte {
	m := amqp.Message{
		Annotations: amqp.Annotations{"x-opt-sequence-number": int64(n)},
		Data:        [][]byte{fmt.Appendf(nil, "event %d", n)},
	}
	b, _ := m.MarshalBinary()
	return b
}
