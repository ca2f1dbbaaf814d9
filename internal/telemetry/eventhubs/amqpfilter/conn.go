package amqpfilter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

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
	performTransfer = 0x14
	performDetach   = 0x16
	performEnd      = 0x17
)

// New returns c, with what is read from it filtered. Read may be called by one
// goroutine at a time, as the library does.
//
// It needs 64 KiB, and per link the size of a message while that comes in several
// frames, at most MaxMessage.
func New(c net.Conn) net.Conn {
	return &conn{Conn: c, in: make([]byte, bufferSize), links: map[handle]*link{}}
}

// A conn hands out frames only once they are complete.
type conn struct {
	net.Conn

	in         []byte
	start, end int    // in[start:end] was read and not yet filtered
	out        []byte // frames that were filtered
	ready      []byte // the part of out that was not handed out yet
	err        error  // comes after that

	links map[handle]*link // on which the peer sends events
}

// A handle names a link of a connection, the way the peer does.
type handle struct {
	channel uint16
	link    uint32
}

// A link is one on which the peer sends the events of a partition.
type link struct {
	max     int    // bytes of a message
	partial []byte // what came of the present message, if that has several frames
	large   bool   // there is more of it than is kept
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
	for c.err == nil && len(c.out) < bufferSize {
		var frame []byte
		if frame, c.err = c.next(); frame == nil {
			break
		}
		c.start += len(frame)
		c.err = c.frame(frame)
	}
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

// frame appends to out a frame as the library is to see it: itself, or with another payload.
func (c *conn) frame(f []byte) error {
	body := f[headerSize:]
	// else a heartbeat or a header, or the library fails
	if len(body) >= 3 && body[0] == amqpvalue.Described && body[1] == amqpvalue.SmallUlong {
		channel := binary.BigEndian.Uint16(f[6:])
		switch body[2] {
		case performTransfer:
			return c.transfer(channel, f)
		case performAttach:
			if err := c.attach(channel, body); err != nil {
				return err
			}
		case performDetach:
			var fields [1]amqpvalue.Value
			if on, _, err := performative(channel, body, fields[:], 0); err == nil {
				delete(c.links, on)
			}
		case performBegin, performEnd:
			for h := range c.links {
				if h.channel == channel {
					delete(c.links, h)
				}
			}
		}
	}
	c.out = append(c.out, f...)
	return nil
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
	added := &link{max: MaxMessage}
	if n, ok := fields[10].Uint(); ok && n > 0 {
		added.max = int(min(n, MaxMessage))
	}
	c.links[on] = added
	return nil
}

// transfer collects the payload of a message's frames and appends the Event that it makes of
// it to the last of them. The others lose theirs: once the library has it there is no way back.
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
		c.out = append(c.out, f...)
		return nil
	}
	start := len(c.out)
	c.out = append(c.out, f[:len(f)-len(payload)]...)
	message := payload
	if more || len(l.partial) > 0 || l.large {
		if l.large = l.large || len(l.partial)+len(payload) > l.max; !l.large && !aborted {
			l.partial = append(l.partial, payload...)
		}
		message = l.partial
	}
	if !more && !aborted {
		c.out = l.message(c.out, message)
	}
	if !more || aborted {
		l.large, l.partial = false, l.partial[:0]
		if cap(l.partial) > maxPooled {
			l.partial = nil
		}
	}
	binary.BigEndian.PutUint32(c.out[start:], uint32(len(c.out)-start))
	return nil
}

// message appends to out what the library gets in place of a message.
func (l *link) message(out, message []byte) []byte {
	var e Event
	err := e.read(message)
	if l.large || len(message) > l.max {
		err = errLarge
	}
	start := len(out)
	if err == nil {
		if out = e.append(out); len(out)-start > l.max { // a small message can grow
			out, err = out[:start], errLarge
		}
	}
	if err != nil {
		e.undecodable(message[:min(len(message), MaxKept, l.max/2)], err)
		out = e.append(out)
	}
	return out
}
