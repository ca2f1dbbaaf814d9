package amqpfilter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"alertworker/internal/telemetry/amqpvalue"
)

const (
	headerSize = 8

	// maxFrame is far above what the library offers to its peers, 64 KiB.
	maxFrame = 1 << 20

	bufferSize = 32 << 10  // of a connection, each way; the one for reading grows to the largest frame
	maxPooled  = 256 << 10 // of a buffer, between messages
)

// Performatives that say where messages are.
const (
	performBegin    = 0x11
	performAttach   = 0x12
	performFlow     = 0x13
	performTransfer = 0x14
	performDetach   = 0x16
	performEnd      = 0x17
)

// New returns c, with what is read from it filtered. Read and Write may each be called by one
// goroutine at a time, as the library does, and Write gets whole frames.
//
// It needs 64 KiB, and per link as much again, or the size of a message while that comes in several
// frames, at most MaxMessage.
func New(c net.Conn) net.Conn {
	return &conn{
		Conn: c, in: make([]byte, bufferSize),
		sessions: map[uint16]*session{}, links: map[handle]*link{}, own: map[uint16]*session{},
	}
}

// A conn hands out frames only once they are complete.
type conn struct {
	net.Conn

	in         []byte
	start, end int     // in[start:end] was read and not yet filtered
	held       []*link // that have Events which are not in out yet
	heldBytes  int
	out        []byte // frames that were filtered
	ready      []byte // the part of out that was not handed out yet
	err        error  // comes after that

	sessions map[uint16]*session // by the peer's number
	links    map[handle]*link    // on which the peer sends events

	mu  sync.Mutex
	own map[uint16]*session // by the library's number
}

// A session has at most one link of events.
type session struct {
	hasEvents bool

	// merged counts the transfers of which the library knows nothing, because their Events came with another one.
	merged atomic.Uint32
}

// A handle names a link of a connection, the way the peer does.
type handle struct {
	channel uint16
	link    uint32
}

// A link is one on which the peer sends the events of a partition.
type link struct {
	session *session
	max     int    // bytes of a message
	partial []byte // what came of the present message, if that has several frames
	large   bool   // there is more of it than is kept

	head    []byte // the transfer of the first of events, without its payload
	message []byte // of the library
	events  int    // in it
}

func (c *conn) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		if c.filter(); len(c.ready) > 0 || c.err != nil {
			continue
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// filter makes the complete frames that were read ready, about bufferSize at a time.
func (c *conn) filter() {
	if cap(c.out) > maxPooled {
		c.out = nil
	}
	c.out = c.out[:0]
	for c.err == nil && len(c.out)+c.heldBytes < bufferSize {
		var frame []byte
		if frame, c.err = c.next(); frame == nil {
			break
		}
		c.start += len(frame)
		c.err = c.frame(frame)
	}
	c.flush()
	c.ready = c.out
}

// fill reads once.
func (c *conn) fill() error {
	switch {
	case c.start == c.end:
		c.start, c.end = 0, 0
	case c.end == len(c.in):
		in := c.in
		if c.start == 0 { // a frame that is larger
			in = make([]byte, min(2*len(in), maxFrame))
		}
		c.end = copy(in, c.in[c.start:c.end])
		c.in, c.start = in, 0
	}
	n, err := c.Conn.Read(c.in[c.end:])
	c.end += n
	if n > 0 {
		return nil // an error will be met again
	}
	return err
}

// next returns the next frame or protocol header, nil if it is not complete.
func (c *conn) next() ([]byte, error) {
	b := c.in[c.start:c.end]
	if len(b) < headerSize {
		return nil, nil
	}
	if string(b[:4]) == "AMQP" { // no frame is so large
		return b[:headerSize], nil
	}
	size := binary.BigEndian.Uint32(b)
	if size < headerSize || size > maxFrame {
		return nil, fmt.Errorf("amqp: frame of %d bytes: between %d and %d are allowed", size, headerSize, maxFrame)
	}
	if int(size) > len(b) {
		return nil, nil
	}
	return b[:size], nil
}

// perform returns the code of a frame's performative, 0 if it has none: it is a heartbeat or a header, or the library
// fails.
func perform(frame []byte) byte {
	const at = headerSize
	if len(frame) < at+3 || frame[at] != amqpvalue.Described || frame[at+1] != amqpvalue.SmallUlong {
		return 0
	}
	return frame[at+2]
}

// frame appends to out a frame as the library is to see it: itself, or with another payload.
func (c *conn) frame(f []byte) error {
	code := perform(f)
	if code == performTransfer {
		return c.transfer(binary.BigEndian.Uint16(f[6:]), f)
	}
	c.flush()
	c.out = append(c.out, f...)
	if code == 0 {
		return nil
	}
	channel, body := binary.BigEndian.Uint16(f[6:]), f[headerSize:]
	switch code {
	case performBegin:
		c.forget(channel)
		c.begin(channel, body)
	case performEnd:
		c.forget(channel)
	case performAttach:
		return c.attach(channel, body)
	case performDetach:
		var fields [1]amqpvalue.Value
		if on, _, err := performative(channel, body, fields[:], 0); err == nil {
			delete(c.links, on)
		}
	}
	return nil
}

// begin takes note of a session.
func (c *conn) begin(channel uint16, body []byte) {
	s := &session{}
	c.sessions[channel] = s
	v, _, _ := amqpvalue.Next(body)
	_, list, _ := v.Describe()
	var fields [1]amqpvalue.Value
	list.Fields(fields[:])
	if own, ok := fields[0].Uint(); ok {
		c.mu.Lock()
		c.own[uint16(own)] = s
		c.mu.Unlock()
	}
}

// forget drops a session and its links.
func (c *conn) forget(channel uint16) {
	delete(c.sessions, channel)
	for h := range c.links {
		if h.channel == channel {
			delete(c.links, h)
		}
	}
}

// performative sets fields to those of the performative at the beginning of a frame's body. It
// returns the link of the field at index i, which must be there, and what follows the performative.
func performative(channel uint16, body []byte, fields []amqpvalue.Value, i int) (on handle, payload []byte, err error) {
	v, payload, ok := amqpvalue.Next(body)
	if _, list, described := v.Describe(); !ok || !described || !list.Fields(fields) {
		return handle{}, nil, errShort
	}
	number, ok := fields[i].Uint()
	if !ok {
		return handle{}, nil, errors.New("no link handle")
	}
	return handle{channel, uint32(number)}, payload, nil
}

// events is part of the address that the events of a partition come from.
const events = "/partitions/"

// attach takes note of a link.
func (c *conn) attach(channel uint16, body []byte) error {
	var fields [11]amqpvalue.Value
	on, _, err := performative(channel, body, fields[:], 1)
	if err != nil {
		return fmt.Errorf("amqp: attach: %w", err)
	}
	delete(c.links, on)
	receives, _ := fields[2].Bool()
	_, terminus, _ := fields[5].Describe()
	var source [1]amqpvalue.Value
	terminus.Fields(source[:])
	address, _ := source[0].Text()
	if receives || !bytes.Contains(bytes.ToLower(address), []byte(events)) {
		return nil
	}
	s := c.sessions[channel]
	if s == nil || s.hasEvents {
		return errors.New("amqp: attach: events need a session of their own")
	}
	s.hasEvents = true
	added := &link{session: s, max: MaxMessage}
	if n, ok := fields[10].Uint(); ok && n > 0 {
		added.max = int(min(n, MaxMessage))
	}
	c.links[on] = added
	return nil
}

// transfer collects the payload of a message's frames and holds the Event that it makes of it. The frames but the last
// lose theirs: once the library has it there is no way back.
func (c *conn) transfer(channel uint16, f []byte) error {
	var fields [10]amqpvalue.Value
	on, payload, err := performative(channel, f[headerSize:], fields[:], 0)
	if err != nil {
		return fmt.Errorf("amqp: transfer: %w", err)
	}
	more, _ := fields[5].Bool()
	aborted, _ := fields[9].Bool()
	l := c.links[on]
	if l == nil { // replies, or else the library ends the session
		c.flush()
		c.out = append(c.out, f...)
		return nil
	}
	head := f[: len(f)-len(payload) : len(f)-len(payload)]
	if !more && !aborted && len(l.partial) == 0 && !l.large {
		c.hold(l, head, payload)
		return nil
	}

	if l.large = l.large || len(l.partial)+len(payload) > l.max; !l.large && !aborted {
		l.partial = append(l.partial, payload...)
	}
	c.flush()
	if more && !aborted {
		c.pass(head, nil)
		return nil
	}
	if aborted {
		c.pass(head, nil)
	} else {
		c.hold(l, head, l.partial)
	}
	l.large = false
	l.partial = l.partial[:0]
	if cap(l.partial) > maxPooled {
		l.partial = nil
	}
	return nil
}

// pass appends a transfer to out.
func (c *conn) pass(head, payload []byte) {
	start := len(c.out)
	c.out = append(append(c.out, head...), payload...)
	binary.BigEndian.PutUint32(c.out[start:], uint32(len(c.out)-start))
}

// grows is more than any Event is larger than its message.
const grows = 2 << 10

// hold adds the Event of a message to those that the library gets in one. head is the transfer that it came with.
func (c *conn) hold(l *link, head, message []byte) {
	if l.events > 0 && len(l.message)+len(message)+grows > l.max {
		c.flush()
	}
	if l.events == 0 {
		l.head = head
		l.message = begin(l.message[:0])
		c.held = append(c.held, l)
	} else {
		l.session.merged.Add(1)
	}
	before := len(l.message)
	l.message = l.add(l.message, message)
	l.events++
	c.heldBytes += len(l.message) - before
}

// flush appends to out what is held.
func (c *conn) flush() {
	for _, l := range c.held {
		seal(l.message, l.events)
		c.pass(l.head, l.message)
		l.events = 0
		if cap(l.message) > maxPooled {
			l.message = nil
		}
	}
	c.held = c.held[:0]
	c.heldBytes = 0
}

// add appends to out the Event of a message.
func (l *link) add(out, message []byte) []byte {
	var e Event
	err := e.read(message)
	if l.large || len(message) > l.max {
		err = errLarge
	}
	start := len(out)
	if err == nil {
		if out = e.append(out); eventsAt+len(out)-start > l.max { // a small message can grow
			out = out[:start]
			err = errLarge
		}
	}
	if err != nil {
		e.undecodable(message[:min(len(message), MaxKept, l.max/2)], err)
		out = e.append(out)
	}
	return out
}

// Write corrects what the library says about how much it has received.
func (c *conn) Write(frame []byte) (int, error) {
	if perform(frame) != performFlow {
		return c.Conn.Write(frame)
	}
	c.mu.Lock()
	s := c.own[binary.BigEndian.Uint16(frame[6:])]
	c.mu.Unlock()
	merged := uint32(0)
	if s != nil {
		merged = s.merged.Load()
	}
	if merged == 0 {
		return c.Conn.Write(frame)
	}
	if _, err := c.Conn.Write(correct(frame, merged)); err != nil {
		return 0, err
	}
	return len(frame), nil
}

// correct returns a flow frame of a library that does not know of so many transfers.
func correct(flow []byte, merged uint32) []byte {
	v, _, _ := amqpvalue.Next(flow[headerSize:])
	_, list, _ := v.Describe()
	var fields [11]amqpvalue.Value
	list.Fields(fields[:])
	add := func(i int, n uint32) {
		if was, ok := fields[i].Uint(); ok {
			fields[i] = binary.BigEndian.AppendUint32([]byte{amqpvalue.Uint}, uint32(was)+n)
		}
	}
	add(0, merged)  // next-incoming-id
	add(5, merged)  // delivery-count
	add(6, -merged) // link-credit

	f := append([]byte{}, flow[:headerSize]...)
	f = append(f, amqpvalue.Described, amqpvalue.SmallUlong, performFlow, amqpvalue.List32, 0, 0, 0, 0)
	start := len(f)
	f = binary.BigEndian.AppendUint32(f, uint32(len(fields)))
	for _, field := range fields {
		if len(field) == 0 {
			field = amqpvalue.Value{amqpvalue.Null}
		}
		f = append(f, field...)
	}
	binary.BigEndian.PutUint32(f[start-4:], uint32(len(f)-start))
	binary.BigEndian.PutUint32(f, uint32(len(f)))
	return f
}
