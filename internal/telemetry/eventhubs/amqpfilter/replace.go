package amqpfilter

import (
	"encoding/binary"
	"errors"
)

// Why azeventhubs cannot make an event of a message, or the filter does not try.
var (
	errSequence     = errors.New("sequence number missing or no integer")
	errPartitionKey = errors.New("partition key that is not text")
	errOffset       = errors.New("offset that is not text")
	errEnqueued     = errors.New("enqueued time that is no time")
	errLarge        = errors.New("message too large")
)

// A position is that of the last event that came on a link.
type position struct {
	sequence int64  // -1 before the first event of a partition, and where it is not known
	offset   []byte // empty where it is not known
	enqueued int64  // in ms since 1970; 0 where it is not known
}

// maxText is the longest offset or device id that a replacement has. The
// hub's have at most 128 characters.
const maxText = 512

// replace appends the replacement of a message that cannot be handled, with the first
// kept bytes of that, and moves the position to it.
//
// The position that the message claims is kept. Without a sequence number it gets the
// one after the event before: numbers in a partition are consecutive, and if they are
// not, this one is too low and never too high, so nothing is skipped. Without an offset
// or time it gets those of the event before; at worst a restart reads it once more.
func (at *position) replace(b, message []byte, kept int, cause error) []byte {
	p := find(message)
	sequence, numbered := intOf(p.sequence)
	if !numbered {
		sequence = at.sequence + 1
	}
	if offset, ok := textOf(p.offset); ok && len(offset) <= maxText {
		at.offset = append(at.offset[:0], offset...)
	}
	if enqueued, ok := timeOf(p.enqueued); ok {
		at.enqueued = enqueued
	}
	at.sequence = sequence

	start := len(b)
	b = append(b, codeDescribed, codeSmallUlong, sectionAnnotations, codeMap32, 0, 0, 0, 0, 0, 0, 0, 0)
	entries := 0
	name := func(name string) {
		b = append(append(b, codeSymbol8, byte(len(name))), name...)
		entries++
	}
	name("x-opt-sequence-number")
	b = binary.BigEndian.AppendUint64(append(b, codeLong), uint64(sequence))
	if len(at.offset) > 0 {
		name("x-opt-offset")
		b = appendText(b, at.offset)
	}
	if at.enqueued != 0 {
		name("x-opt-enqueued-time")
		b = binary.BigEndian.AppendUint64(append(b, codeTimestamp), uint64(at.enqueued))
	}
	if device, ok := textOf(p.device); ok && len(device) <= maxText {
		name("iothub-connection-device-id")
		b = appendText(b, device)
	}
	if !numbered {
		name(Guessed)
		b = append(b, codeTrue)
	}
	name(Annotation)
	b = appendText(b, []byte(cause.Error()))
	binary.BigEndian.PutUint32(b[start+4:], uint32(len(b)-start-8))
	binary.BigEndian.PutUint32(b[start+8:], uint32(2*entries))

	message = message[:min(len(message), kept)]
	b = append(b, codeDescribed, codeSmallUlong, sectionData, codeBinary32)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(message))), message...)
}

func appendText(b, text []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, codeString32), uint32(len(text)))
	return append(b, text...)
}

// moveTo moves the position to an event.
func (at *position) moveTo(p *place) {
	at.sequence, _ = intOf(p.sequence)
	if offset, ok := textOf(p.offset); ok {
		at.offset = append(at.offset[:0], offset...)
	}
	if enqueued, ok := timeOf(p.enqueued); ok {
		at.enqueued = enqueued
	}
}

// find returns what can be found of the place that a message claims. It relies only on
// the sizes of the values before it.
func find(message []byte) (p place) {
	for len(message) > 0 {
		w := walker{b: message}
		code, err := w.descriptor()
		if err != nil {
			return p
		}
		value := w.b
		n := span(value)
		if byte(code) == sectionAnnotations {
			entries := value
			if n > 0 {
				entries = value[:n]
			}
			p.read(entries)
			return p
		}
		if n == 0 {
			return p
		}
		message = value[n:]
	}
	return p
}

// read takes note of a map's entries, as far as they can be read.
func (p *place) read(b []byte) {
	w := walker{b: b}
	if _, err := w.mapCount(); err != nil {
		return
	}
	for b = w.b; ; {
		k := span(b)
		if k == 0 {
			return
		}
		v := span(b[k:])
		if v == 0 {
			return
		}
		p.annotation(b[:k], b[k:k+v])
		b = b[k+v:]
	}
}

// span returns the length of the value at the beginning of b by its type code and the
// size it says it has, 0 if it is longer than b or has none.
func span(b []byte) int {
	if len(b) > 0 {
		if n := int(widths[b[0]]); n > 0 && n <= len(b) {
			return n
		}
	}
	n := 0
	for values := 1; values > 0; values-- {
		if n >= len(b) {
			return 0
		}
		size, width := 0, 0
		switch code := b[n]; code >> 4 {
		case 0x0:
			if code != codeDescribed {
				return 0
			}
			values += 2 // a descriptor and a value
		case 0x4:
		case 0x5:
			size = 1
		case 0x6:
			size = 2
		case 0x7:
			size = 4
		case 0x8:
			size = 8
		case 0x9:
			size = 16
		case 0xa, 0xc, 0xe:
			width = 1
		case 0xb, 0xd, 0xf:
			width = 4
		default:
			return 0
		}
		n++
		switch {
		case width > len(b)-n:
			return 0
		case width == 1:
			size = int(b[n])
		case width == 4:
			size = int(binary.BigEndian.Uint32(b[n:]))
		}
		n += width
		if size > len(b)-n {
			return 0
		}
		n += size
	}
	return n
}
