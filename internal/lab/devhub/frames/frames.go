// Package frames encodes and decodes AMQP 1.0 frames and performatives, as far
// as a server needs them. Whatever bytes it is given, it does not panic, does
// not recurse without bound and allocates in proportion to what it was
// given.
package frames

import (
	"encoding/binary"
	"fmt"
	"io"

	"alertworker/internal/telemetry/amqpvalue"
)

// A Type says whose frame it is.
type Type byte

// The types of frames.
const (
	AMQP Type = 0
	SASL Type = 1
)

// MinMaxSize is the smallest maximum frame size that a peer may ask for.
const MinMaxSize = 512

const headerSize = 8

// A Frame is one frame as it came. An empty body is a heartbeat.
type Frame struct {
	Type    Type
	Channel uint16
	Body    []byte
}

// Read reads the next frame from r. A frame of more than limit bytes is an error.
func Read(r io.Reader, limit uint32) (Frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, err
	}

	size, offset := binary.BigEndian.Uint32(h[:]), 4*uint32(h[4])
	switch {
	case size > limit:
		return Frame{}, fmt.Errorf("frame of %d bytes, at most %d are allowed", size, limit)
	case offset < headerSize || offset > size:
		return Frame{}, fmt.Errorf("frame of %d bytes whose body starts at %d", size, offset)
	case Type(h[5]) != AMQP && Type(h[5]) != SASL:
		return Frame{}, fmt.Errorf("frame of unknown type %d", h[5])
	}

	b := make([]byte, size-headerSize)
	if _, err := io.ReadFull(r, b); err != nil {
		return Frame{}, fmt.Errorf("frame of %d bytes is cut short: %w", size, err)
	}

	return Frame{Type(h[5]), binary.BigEndian.Uint16(h[6:]), b[offset-headerSize:]}, nil
}

// Append appends a frame that carries p.
func Append(b []byte, t Type, channel uint16, p Performative) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, headerSize/4, byte(t), byte(channel>>8), byte(channel))
	b = appendList(b, p)
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start))

	return b
}

// AppendHeartbeat appends an empty frame.
func AppendHeartbeat(b []byte) []byte {
	return append(b, 0, 0, 0, headerSize, headerSize/4, byte(AMQP), 0, 0)
}

// A Delivery is what a transfer says of a message or, of a large one, of a part.
type Delivery struct {
	Handle, ID uint32
	First      bool // part of the message
	More       bool // is to follow
	Settled    bool // Then its tag is empty, else it is the id.
}

// DeliveryOverhead is the most that AppendDelivery adds to a payload.
const DeliveryOverhead = headerSize + 30

// AppendDelivery appends a transfer frame as the service writes it: what holds for the whole message is in the first
// only. Unlike Append it allocates nothing: events leave the server this way.
func AppendDelivery(b []byte, channel uint16, d Delivery, payload []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, headerSize/4, byte(AMQP), byte(channel>>8), byte(channel))
	b = append(b, amqpvalue.Described, amqpvalue.SmallUlong, byte((*Transfer)(nil).code()))
	b = append(b, amqpvalue.List8, 0, 11)
	list := len(b) - 1
	b = binary.BigEndian.AppendUint32(append(b, amqpvalue.Uint), d.Handle)
	settled := byte(amqpvalue.Null)
	if d.Settled {
		settled = amqpvalue.True
	}

	switch {
	case !d.First:
		b = append(b, amqpvalue.Null, amqpvalue.Null, amqpvalue.Null, amqpvalue.Null)
	case d.Settled:
		b = binary.BigEndian.AppendUint32(append(b, amqpvalue.Uint), d.ID)
		b = append(b, amqpvalue.Binary8, 0, amqpvalue.Uint0, settled)
	default:
		b = binary.BigEndian.AppendUint32(append(b, amqpvalue.Uint), d.ID)
		b = binary.LittleEndian.AppendUint32(append(b, amqpvalue.Binary8, 4), d.ID)
		b = append(b, amqpvalue.Uint0, settled)
	}

	more, batchable := byte(amqpvalue.False), byte(amqpvalue.Null)
	if d.More {
		more = amqpvalue.True
	}
	if d.First {
		batchable = amqpvalue.True
	}

	b = append(b, more, amqpvalue.Null, amqpvalue.Null, amqpvalue.False, amqpvalue.False, batchable)
	b[list-1] = byte(len(b) - list)
	b = append(b, payload...)
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start))

	return b
}
