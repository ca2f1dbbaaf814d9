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
		return Frame{}, unexpected(err)
	}

	return Frame{Type(h[5]), binary.BigEndian.Uint16(h[6:]), b[offset-headerSize:]}, nil
}

// unexpected marks an end of input in the middle of something.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
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

// DeliveryOverhead is what AppendDelivery adds to a payload.
const DeliveryOverhead = headerSize + 30

// AppendDelivery appends a transfer frame of a settled delivery, the payload being
// the message or, if more is to follow, a part of it. The delivery's id is its tag
// as well. Unlike Append it allocates nothing: events leave the server this way.
func AppendDelivery(b []byte, channel uint16, handle, id uint32, more bool, payload []byte) []byte {
	last := byte(amqpvalue.False)
	if more {
		last = amqpvalue.True
	}

	b = binary.BigEndian.AppendUint32(b, uint32(DeliveryOverhead+len(payload)))
	b = append(b, headerSize/4, byte(AMQP), byte(channel>>8), byte(channel))
	b = append(b, amqpvalue.Described, amqpvalue.SmallUlong, byte((*Transfer)(nil).code()))
	b = append(b, amqpvalue.List8, DeliveryOverhead-headerSize-5, 11)
	b = binary.BigEndian.AppendUint32(append(b, amqpvalue.Uint), handle)
	b = binary.BigEndian.AppendUint32(append(b, amqpvalue.Uint), id)
	b = binary.BigEndian.AppendUint32(append(b, amqpvalue.Binary8, 4), id)
	b = append(b, amqpvalue.Uint0, amqpvalue.True, last)
	b = append(b, amqpvalue.Null, amqpvalue.Null, amqpvalue.Null, amqpvalue.Null, amqpvalue.Null)

	return append(b, payload...)
}
