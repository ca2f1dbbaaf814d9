package amqpfilter

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
)

// mark begins the data section of a compact message. It is random, so that no publisher
// can write one.
var mark = func() (m [16]byte) {
	_, _ = rand.Read(m[:]) // never fails
	return m
}()

// An Event is what a compact message holds besides its sequence number. It aliases
// the message's data section.
type Event struct {
	Enqueued int64 // x-opt-enqueued-time, in milliseconds since 1970

	// Text, empty where the message has none.
	Offset, Device, Source, ContentType, ContentEncoding []byte

	Properties []byte // the application properties, an encoded map; empty if there are none
	Body       []byte
}

// Parse returns what the data section of a message holds that the filter has made
// compact, and false for that of any other message.
func Parse(data []byte) (e Event, ok bool) {
	data, ok = bytes.CutPrefix(data, mark[:])
	if !ok {
		return Event{}, false
	}
	e.Enqueued = int64(binary.BigEndian.Uint64(data))
	data = data[8:]
	for _, field := range []*[]byte{&e.Offset, &e.Device, &e.Source, &e.ContentType, &e.ContentEncoding, &e.Properties} {
		size, n := binary.Uvarint(data)
		end := n + int(size)
		*field, data = data[n:end:end], data[end:]
	}
	e.Body = data
	return e, true
}

// compact appends to b a message with the place of p and, as its data, what p holds of
// the rest. The library decodes it with a third of the allocations.
func (p *place) compact(b []byte) []byte {
	const name = "x-opt-sequence-number"
	sequence, _ := intOf(p.sequence)
	enqueued, _ := timeOf(p.enqueued)

	b = append(b, codeDescribed, codeSmallUlong, sectionAnnotations, codeMap8, 1+2+byte(len(name))+9, 2, codeSymbol8, byte(len(name)))
	b = append(append(b, name...), codeLong)
	b = binary.BigEndian.AppendUint64(b, uint64(sequence))

	b = append(b, codeDescribed, codeSmallUlong, sectionData, codeBinary32, 0, 0, 0, 0)
	start := len(b)
	b = append(b, mark[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(enqueued))
	for _, value := range [...][]byte{p.offset, p.device, p.source, p.properties[propertyContentType], p.properties[propertyContentEncoding]} {
		text, _ := textOf(value)
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	b = binary.AppendUvarint(b, uint64(len(p.application)))
	b = append(b, p.application...)
	b = append(b, p.body...)
	binary.BigEndian.PutUint32(b[start-4:], uint32(len(b)-start))
	return b
}

// usual reports whether a compact message says all that the worker reads of the message:
// each section once at most, the body as one data section, and the hub's own time.
func (p *place) usual() bool {
	const body = 1<<(sectionData-sectionHeader) | 1<<(sectionSequence-sectionHeader) | 1<<(sectionValue-sectionHeader)
	return p.sections&(body|sectionOdd) == bit(sectionData) && p.enqueued != nil
}

// sectionOdd is the bit that says that a section is there more than once, or cannot be
// read without what follows it.
const sectionOdd = 1 << 31

// saw takes note of a section.
func (p *place) saw(section byte) {
	if p.sections&bit(section) != 0 {
		p.sections |= sectionOdd
	}
	p.sections |= bit(section)
}

// bit is that of a section, of which there are nine.
func bit(section byte) uint32 { return 1 << (section - sectionHeader) }
