package amqpfilter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
)

const (
	headerSize = 8

	// maxFrame is far above what the library offers to its peers, 64 KiB.
	maxFrame = 1 << 20

	firstBuffer = 32 << 10  // of a connection; it grows to the largest frame
	maxPooled   = 256 << 10 // of a link, between messages
)

// Performatives that say where messages are.
const (
	performBegin    = 0x11
	performAttach   = 0x12
	performTransfer = 0x14
	performDetach   = 0x16
	performEnd      = 0x17
)

// New returns c, with what is read from it filtered. Read may be called by one
// goroutine at a time, as the library does.
//
// It needs 32 KiB, and per link the size of a message while that comes in several
// frames, at most MaxMessage.
func New(c net.Conn) net.Conn {
	return &conn{Conn: c, in: make([]byte, firstBuffer), links: map[handle]*link{}}
}

// A conn hands out frames only once they are complete.
type conn struct {
	net.Conn

	in         []byte
	start, end int    // in[start:end] was read and not yet filtered
	ready      []byte // may be handed out
	changed    []byte // may be handed out after ready: one frame
	err        error  // comes after that

	links map[handle]*link // on which the peer sends
	out   []byte           // the last frame that had to be built
}

// A handle names a link of a connection, the way the peer does.
type handle struct {
	channel uint16
	link    uint32
}

// A link is one on which the peer sends messages.
type link struct {
	address string
	replies bool     // to requests; otherwise events of a partition
	at      position // of events
	max     int      // bytes of a message

	partial []byte // what came of the present message, if that has several frames
	large   bool   // there is more of it than is kept
}

func (c *conn) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		switch {
		case c.changed != nil:
			c.ready, c.changed = c.changed, nil
		case c.err != nil:
			return 0, c.err
		case !c.advance():
			if err := c.fill(); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// advance filters what was read: frames that stay as they are, up to one that changes,
// and that one. It returns false if there is no complete frame.
func (c *conn) advance() bool {
	first := c.start
	for c.changed == nil && c.err == nil {
		var frame, after []byte
		if frame, c.err = c.next(); frame == nil {
			break
		}
		if after, c.err = c.frame(frame); c.err != nil {
			break
		}
		if len(after) == len(frame) && &after[0] == &frame[0] {
			c.start += len(frame)
			continue
		}
		c.ready, c.changed = c.in[first:c.start], after
		c.start += len(frame)
		return true
	}
	c.ready = c.in[first:c.start]
	return len(c.ready) > 0 || c.err != nil
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

// frame returns a frame as the library is to see it: itself, or with another payload.
func (c *conn) frame(f []byte) ([]byte, error) {
	body := f[headerSize:]
	if len(body) < 3 || body[0] != codeDescribed || body[1] != codeSmallUlong {
		return f, nil // a heartbeat or a header, or the library fails
	}
	channel := binary.BigEndian.Uint16(f[6:])
	switch body[2] {
	case performTransfer:
		return c.transfer(channel, f)
	case performAttach:
		return f, c.attach(channel, body)
	case performDetach:
		l := list{walker: walker{b: body}}
		if l.begin(); l.err == nil {
			delete(c.links, handle{channel, l.uint()})
		}
	case performBegin, performEnd:
		for h := range c.links {
			if h.channel == channel {
				delete(c.links, h)
			}
		}
	}
	return f, nil
}

// attach takes note of a link.
func (c *conn) attach(channel uint16, body []byte) error {
	l := list{walker: walker{b: body}}
	l.begin()
	l.skip(1) // name
	h := handle{channel, l.uint()}
	receives := l.bool()
	l.skip(2) // settle modes
	source := l.any()
	l.skip(4) // target, unsettled, initial delivery count
	most := l.any()
	if l.err != nil {
		return fmt.Errorf("amqp: attach: %w", l.err)
	}
	delete(c.links, h)
	if receives {
		return nil
	}
	added := &link{at: position{sequence: -1}, max: MaxMessage}
	if n, ok := ulongOf(most); ok && n > 0 {
		added.max = int(min(n, MaxMessage))
	}
	if len(source) > 1 {
		s := list{walker: walker{b: source}}
		s.begin()
		if address, ok := textOf(s.any()); ok {
			added.address = string(address)
		}
		s.skip(6)
		added.at.selected(s.any())
	}
	added.replies = len(added.address) > 0 && added.address[0] == '$'
	c.links[h] = added
	return nil
}

// selected sets the position before the first event of a link by the filters that the
// link has: those after a sequence number, an offset or the beginning are understood.
func (at *position) selected(filters []byte) {
	const sequence, offset = "amqp.annotation.x-opt-sequence-number > '", "amqp.annotation.x-opt-offset > '"
	if _, value, ok := bytes.Cut(filters, []byte(sequence)); ok {
		if n, err := strconv.ParseInt(quoted(value), 10, 64); err == nil {
			at.sequence = n
		}
	}
	if _, value, ok := bytes.Cut(filters, []byte(offset)); ok {
		if text := quoted(value); text != "@latest" && len(text) <= maxText {
			at.offset = []byte(text)
		}
	}
}

// quoted returns what stands before a quote.
func quoted(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte("'"))
	return string(text)
}

// transfer collects the payload of a message's frames and hands it on, checked, with
// the last of them. The others lose theirs: once the library has it there is no way back.
func (c *conn) transfer(channel uint16, f []byte) ([]byte, error) {
	p := list{walker: walker{b: f[headerSize:]}}
	p.begin()
	h := handle{channel, p.uint()}
	p.skip(4) // delivery's id, tag and format; settled
	more := p.bool()
	p.skip(3) // settle mode, state, resume
	aborted := p.bool()
	p.skip(1) // batchable
	if p.err == nil && p.left > 0 {
		p.err = errCount
	}
	if p.err != nil {
		return nil, fmt.Errorf("amqp: transfer: %w", p.err)
	}
	payload := p.b
	performative := f[:len(f)-len(payload)]
	l := c.links[h]
	if l == nil {
		return f, nil // the library ends the session
	}
	if aborted {
		l.reset()
		return f, nil
	}

	message := payload
	if more || len(l.partial) > 0 || l.large {
		if l.large = l.large || len(l.partial)+len(payload) > l.max; !l.large {
			l.partial = append(l.partial, payload...)
		}
		message = l.partial
	}
	if more {
		binary.BigEndian.PutUint32(f, uint32(len(performative)))
		return performative, nil
	}
	if cap(c.out) > maxPooled {
		c.out = nil
	}
	c.out = append(c.out[:0], performative...)
	after, err := l.message(c.out, message)
	switch {
	case err != nil:
		return nil, err
	case after != nil:
		c.out = after
	case len(l.partial) == 0: // it came in one frame
		return f, nil
	default:
		c.out = append(c.out, message...)
	}
	l.reset()
	binary.BigEndian.PutUint32(c.out, uint32(len(c.out)))
	return c.out, nil
}

// reset makes the link ready for another message.
func (l *link) reset() {
	l.large = false
	l.partial = l.partial[:0]
	if cap(l.partial) > maxPooled {
		l.partial = nil
	}
}

// message decides about a message that came on the link. It appends to out what the
// library is to get instead, or returns nil if it can have the message.
func (l *link) message(out, m []byte) ([]byte, error) {
	var p place
	err := errLarge
	if !l.large && len(m) <= l.max {
		err = check(m, &p)
	}
	if l.replies {
		if err == nil && p.sections&bit(sectionProperties) == 0 {
			err = errRequired // azeventhubs panics
		}
		if err != nil {
			return nil, fmt.Errorf("amqp: a reply from %s cannot be decoded: %w", l.address, err)
		}
		return nil, nil
	}
	if err == nil {
		err = p.event()
	}
	if err == nil {
		l.at.moveTo(&p)
		if p.usual() {
			if after := p.compact(out); len(after)-len(out) <= l.max { // a small message can grow
				return after, nil
			}
		}
		return nil, nil
	}
	return l.at.replace(out, m, min(MaxKept, l.max/2), err), nil
}

// A list reads the fields of a performative, or of another composite, one after the
// other. Fields that are not there are null. It keeps the first error.
type list struct {
	walker
	left int
	err  error
}

func (l *list) begin() {
	if _, l.err = l.descriptor(); l.err == nil {
		l.left, l.err = l.listCount()
	}
}

// any reads the next field and returns it encoded, nil if it is null.
func (l *list) any() []byte {
	if l.err != nil || l.left == 0 {
		return nil
	}
	l.left--
	n := span(l.b)
	if n == 0 {
		l.err = errShort
		return nil
	}
	b := l.b[:n]
	l.b = l.b[n:]
	if b[0] == codeNull {
		return nil
	}
	return b
}

func (l *list) skip(n int) {
	for range n {
		l.any()
	}
}

// uint reads a field that must be there.
func (l *list) uint() uint32 {
	switch b := l.any(); {
	case len(b) > 0 && b[0] == codeUint0:
		return 0
	case len(b) > 0 && b[0] == codeSmallUint:
		return uint32(b[1])
	case len(b) > 0 && b[0] == codeUint:
		return binary.BigEndian.Uint32(b[1:])
	}
	if l.err == nil {
		l.err = errField
	}
	return 0
}

// bool reads a field; null is false.
func (l *list) bool() bool {
	switch b := l.any(); {
	case b == nil || b[0] == codeFalse:
		return false
	case b[0] == codeTrue:
		return true
	case b[0] == codeBool:
		return b[1] != 0
	}
	if l.err == nil {
		l.err = errField
	}
	return false
}
