package amqpfilter

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"alertworker/internal/telemetry/amqpvalue"
)

const (
	headerSize = 8

	maxFrame  = 64 << 10  // what the library offers to its peers
	maxBatch  = 64 << 10  // filtered at a time, about
	maxPooled = 256 << 10 // of a buffer, between messages
	minReused = 16 << 10  // of messages whose memory is used again
)

// Performatives.
const (
	performBegin    = 0x11
	performAttach   = 0x12
	performFlow     = 0x13
	performTransfer = 0x14
	performEnd      = 0x17
)

// New returns c, with what is read from it filtered. Read and Write may each be called by one
// goroutine at a time, as the library does, and Write gets whole frames.
//
// It needs 128 KiB, and per link as much again, or the size of a message while that comes in several
// frames, at most MaxMessage; and up to twice what was not taken back yet, which is bounded by what links have on
// request and readers hold.
func New(c net.Conn) *Conn {
	return &Conn{
		Conn:     c,
		in:       bufio.NewReaderSize(c, maxFrame),
		sessions: map[uint16]*session{},
		own:      map[uint16]*session{},
		batches:  map[uint64]batch{},
	}
}

// A Conn hands out frames only once they are complete.
type Conn struct {
	net.Conn

	in        *bufio.Reader
	held      []*session // that have messages of which the library does not know yet
	heldBytes int
	out       []byte // frames that were filtered
	ready     []byte // the part of out that was not handed out yet
	err       error  // comes after that

	sessions map[uint16]*session // by the peer's number

	spare sync.Pool // of *Messages: see Reuse

	mu      sync.Mutex
	own     map[uint16]*session // by the library's number
	last    uint64              // number of a batch
	batches map[uint64]batch    // that were not taken yet
}

// A batch is what the library gets one message for.
type batch struct {
	session  *session
	messages Messages
}

// A session is one of the library's. One that reads a partition has no other link.
type session struct {
	reads atomic.Bool // a partition

	// merged counts the transfers that the library does not know, because their messages came with another one.
	merged atomic.Uint32

	// partial is what came of the present message, if that has several frames: at most MaxMessage + 1 bytes, after its
	// size.
	partial Messages

	head     []byte   // the transfer of the first of messages, without its payload
	messages Messages // that are held
}

// Take returns, once, the Messages for which the library has got a message with this data. ok is false if that has not
// passed the filter.
func (c *Conn) Take(data []byte) (messages Messages, ok bool) {
	if len(data) != ticketSize {
		return nil, false
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	number := binary.BigEndian.Uint64(data)
	b, ok := c.batches[number]
	delete(c.batches, number)

	return b.messages, ok
}

// Reuse takes back messages that Take has returned, once nobody reads any Event of them: others come in their memory.
func (c *Conn) Reuse(messages Messages) {
	if cap(messages) >= minReused && cap(messages) <= maxPooled {
		c.spare.Put(&messages)
	}
}

func (c *Conn) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		if c.err != nil {
			return 0, c.err
		}

		if c.filter(); len(c.ready) > 0 || c.err != nil {
			continue
		}
		if _, err := c.in.Peek(c.in.Buffered() + 1); err != nil { // reads once
			return 0, err
		}
	}

	n := copy(p, c.ready)
	c.ready = c.ready[n:]

	return n, nil
}

// filter makes the complete frames that were read ready, about maxBatch at a time.
func (c *Conn) filter() {
	if cap(c.out) > maxPooled {
		c.out = nil
	}

	c.out = c.out[:0]
	for c.err == nil && len(c.out)+c.heldBytes < maxBatch {
		var frame []byte
		if frame, c.err = c.next(); frame == nil {
			break
		}

		c.err = c.frame(frame)
	}

	c.flush()
	c.ready = c.out
}

// next returns the next frame or protocol header, nil if it is not complete. It is valid until more is read.
func (c *Conn) next() ([]byte, error) {
	b, _ := c.in.Peek(c.in.Buffered())
	if len(b) < headerSize {
		return nil, nil
	}

	size := int(binary.BigEndian.Uint32(b))
	switch {
	case string(b[:4]) == "AMQP": // no frame is so large
		size = headerSize
	case size < headerSize || size > maxFrame:
		return nil, fmt.Errorf("amqp: frame of %d bytes: between %d and %d are allowed", size, headerSize, maxFrame)
	case size > len(b):
		return nil, nil
	}

	_, err := c.in.Discard(size)

	return b[:size:size], err
}

// perform returns the code of a frame's performative, 0 if it has none: it is a heartbeat or a header, or the library
// fails.
func perform(frame []byte) byte {
	body := frame[headerSize:]
	if len(body) < 3 || body[0] != amqpvalue.Described || body[1] != amqpvalue.SmallUlong {
		return 0
	}

	return body[2]
}

func channelOf(frame []byte) uint16 { return binary.BigEndian.Uint16(frame[6:]) }

// performative sets fields to those of a frame's performative, and returns what follows that. ok is false if it cannot
// be read.
func performative(frame []byte, fields []amqpvalue.Value) (payload []byte, ok bool) {
	v, payload, ok := amqpvalue.Next(frame[headerSize:])
	_, list, described := v.Describe()
	return payload, ok && described && list.Fields(fields)
}

// frame appends to out a frame as the library is to see it: itself, or with another payload or other numbers.
func (c *Conn) frame(f []byte) error {
	code, s := perform(f), c.sessions[channelOf(f)]
	reads := s != nil && s.reads.Load()
	if reads && code == performTransfer {
		return c.transfer(s, f)
	}

	c.flush()
	var fields [11]amqpvalue.Value
	switch {
	case code == performBegin:
		performative(f, fields[:])
		own, _ := fields[0].Uint()
		c.sessions[channelOf(f)] = c.session(uint16(own))

	case code == performEnd:
		delete(c.sessions, channelOf(f))
		c.mu.Lock()
		maps.DeleteFunc(c.own, func(_ uint16, o *session) bool { return o == s })
		maps.DeleteFunc(c.batches, func(_ uint64, b batch) bool { return b.session == s })
		c.mu.Unlock()

	case reads && code == performFlow:
		f = correct(f, func(fields []amqpvalue.Value) {
			increase(fields, nextOutgoingID, -s.merged.Load())
			fields[drain] = nil // the library asks for none, and would forget how much is on request
		})
	}

	c.out = append(c.out, f...)

	return nil
}

// session returns the one to which the library has given a number.
func (c *Conn) session(number uint16) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own[number]
}

// transfer collects the payload of a message's frames and holds the message. The frames but the last lose theirs: once
// the library has it there is no way back.
func (c *Conn) transfer(s *session, f []byte) error {
	var fields [10]amqpvalue.Value
	payload, ok := performative(f, fields[:])
	if !ok {
		return errors.New("amqp: transfer cannot be read") // and must not pass: the library may find a message in it
	}

	more, _ := fields[5].Bool()
	aborted, _ := fields[9].Bool()
	head := f[: len(f)-len(payload) : len(f)-len(payload)]
	if more || aborted {
		c.flush()
		c.pass(head, nil)
	}
	if aborted {
		s.drop()
		return nil
	}

	if more || len(s.partial) > 0 {
		if len(s.partial) == 0 {
			s.partial = s.partial.add(nil)
		}
		room := sizeSize + MaxMessage + 1 - len(s.partial)
		s.partial = append(s.partial, payload[:min(len(payload), room)]...)
		binary.BigEndian.PutUint32(s.partial, uint32(len(s.partial)-sizeSize))
	}
	if more {
		return nil
	}

	if len(s.messages) == 0 { // the library gets this transfer, for all messages that are held by then
		s.head = head
		c.held = append(c.held, s)
	} else {
		s.merged.Add(1)
	}

	if len(s.partial) == 0 {
		s.messages = s.messages.add(payload)
		c.heldBytes += len(payload)
		return nil
	}

	// Nothing else is held: what was went with the head of this message's first frame.
	s.messages, s.partial = s.partial, s.messages
	c.heldBytes += len(s.messages)
	s.drop()

	return nil
}

// drop forgets what has come of a message.
func (s *session) drop() {
	s.partial = s.partial[:0]
	if cap(s.partial) > maxPooled {
		s.partial = nil
	}
}

// pass appends a transfer to out.
func (c *Conn) pass(head, payload []byte) {
	start := len(c.out)
	c.out = append(append(c.out, head...), payload...)
	binary.BigEndian.PutUint32(c.out[start:], uint32(len(c.out)-start))
}

// ticketSize is that of the data of a message that the library gets: the number of a batch.
const ticketSize = 8

// flush appends to out what is held.
func (c *Conn) flush() {
	for _, s := range c.held {
		messages := s.messages
		s.messages = nil
		if len(messages) < cap(messages)/2 { // most of it would be wasted
			s.messages = messages[:0]
			messages = slices.Clone(messages)
		} else if spare, ok := c.spare.Get().(*Messages); ok {
			s.messages = (*spare)[:0]
		}

		c.mu.Lock()
		c.last++
		c.batches[c.last] = batch{s, messages}
		c.mu.Unlock()

		ticket := []byte{amqpvalue.Described, amqpvalue.SmallUlong, sectionData, amqpvalue.Binary8, ticketSize}
		c.pass(s.head, binary.BigEndian.AppendUint64(ticket, c.last))
	}

	c.held = c.held[:0]
	c.heldBytes = 0
}

// Write takes note of sessions that read partitions, and corrects what the library says that it has received on them.
func (c *Conn) Write(frame []byte) (int, error) {
	s, sent := c.session(channelOf(frame)), frame
	switch code := perform(frame); {
	case code == performBegin:
		c.mu.Lock()
		c.own[channelOf(frame)] = &session{}
		c.mu.Unlock()

	case s != nil && code == performAttach:
		if fromPartition(frame) {
			s.reads.Store(true)
		}

	case s != nil && code == performFlow:
		n := s.merged.Load()
		sent = correct(frame, func(fields []amqpvalue.Value) {
			increase(fields, nextIncomingID, n)
			increase(fields, deliveryCount, n)
			increase(fields, linkCredit, -n)
		})
	}

	if _, err := c.Conn.Write(sent); err != nil {
		return 0, err
	}

	return len(frame), nil
}

// fromPartition reports whether the library attaches a link on which events of a partition come. That the peer repeats
// the address in its answer is not certain.
func fromPartition(attach []byte) bool {
	var fields [6]amqpvalue.Value
	performative(attach, fields[:])
	receives, _ := fields[2].Bool()

	_, source, _ := fields[5].Describe()
	var address [1]amqpvalue.Value
	source.Fields(address[:])
	text, _ := address[0].Text()

	return receives && bytes.Contains(bytes.ToLower(text), []byte("/partitions/"))
}

// Fields of a flow.
const (
	nextIncomingID = 0
	nextOutgoingID = 2
	deliveryCount  = 5
	linkCredit     = 6
	drain          = 8
)

// increase adds n to a number, if it is there.
func increase(fields []amqpvalue.Value, i int, n uint32) {
	if was, ok := fields[i].Uint(); ok {
		fields[i] = binary.BigEndian.AppendUint32([]byte{amqpvalue.Uint}, uint32(was)+n)
	}
}

// correct returns a flow frame with other fields.
func correct(flow []byte, change func(fields []amqpvalue.Value)) []byte {
	var fields [11]amqpvalue.Value
	if _, ok := performative(flow, fields[:]); !ok {
		return flow
	}

	change(fields[:])

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
