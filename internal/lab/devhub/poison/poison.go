// Package poison makes event messages that client libraries cannot handle: each has
// broken a Go consumer of a real hub, or its decoder.
package poison

import (
	"bytes"
	"encoding/binary"

	"alertworker/internal/lab/devhub"
)

// A Message is one kind of poison.
type Message struct {
	Name string

	// Lost means that the message has no readable sequence number or no readable offset.
	Lost bool

	// Readable means that only values are poison that an event can do without: it is a reading.
	Readable bool

	encode func(annotations []byte) []byte
}

// Encode returns the message as a hub delivers it from that place: see [devhub.Hub.PublishRaw].
func (m Message) Encode(at devhub.Published) []byte {
	return m.encode(join(
		str("x-opt-sequence-number"), []byte{0x81}, binary.BigEndian.AppendUint64(nil, uint64(at.Sequence)),
		str("x-opt-offset"), str(at.Offset),
		str("x-opt-enqueued-time"), []byte{0x83}, binary.BigEndian.AppendUint64(nil, uint64(at.Enqueued.UnixMilli())),
		str("iothub-connection-device-id"), str(Device),
	))
}

// Messages returns one message of every kind.
func Messages() []Message {
	var all []Message
	// after puts sections after valid annotations.
	after := func(readable bool, name string, sections ...[]byte) {
		all = append(
			all,
			Message{
				Name:     name,
				Readable: readable,
				encode:   func(a []byte) []byte { return join(section(0x72, dict(8, a)), join(sections...)) },
			},
		)
	}

	// annotation adds one annotation to valid ones.
	annotation := func(readable bool, name string, key, value []byte) {
		all = append(
			all,
			Message{
				Name:     name,
				Readable: readable,
				encode:   func(a []byte) []byte { return join(section(0x72, dict(10, a, key, value)), body) },
			},
		)
	}

	lost := func(name string, encode func(annotations []byte) []byte) {
		all = append(all, Message{Name: name, Lost: true, encode: encode})
	}

	values := []struct {
		readable bool // has a size
		name     string
		value    []byte
	}{
		{true, "decimal32", []byte("\x74\x22\x50\x00\x01")},
		{true, "decimal64", []byte("\x84\x22\x50\x00\x00\x00\x00\x00\x01")},
		{true, "decimal128", append([]byte{0x94}, make([]byte, 16)...)},
		{true, "char", []byte("\x73\x00\x00\x00\x41")},
		{false, "unknown type", []byte("\x3f")},
	}

	for _, v := range values {
		after(v.readable, "application property of type "+v.name, section(0x74, dict(2, str("x"), v.value)), body)
		after(false, "body of type "+v.name, section(0x77, v.value))
		annotation(v.readable, "annotation of type "+v.name, str("x"), v.value)
	}

	after(true, "message id of type char", section(0x73, list(1, []byte("\x73\x00\x00\x00\x41"))), body)
	after(false, "array of decimals", section(0x77, []byte("\xe0\x0a\x02\x74\x22\x50\x00\x01\x22\x50\x00\x01")))
	after(false, "array of lists", section(0x77, []byte("\xe0\x03\x01\x45\x00")))
	after(false, "described properties in a body", section(0x77, section(0x73, []byte{0x45})))

	keys := []struct {
		name string
		key  []byte
	}{
		{"list", []byte{0x45}},
		{"map", []byte{0xc1, 1, 0}},
		{"binary", []byte{0xa0, 1, 'x'}},
		{"array", []byte{0xe0, 3, 1, 0x50, 1}},
		{"described list", []byte{0x00, 0xa3, 1, 'x', 0x45}},
	}

	for _, k := range keys {
		after(true, "footer keyed by a "+k.name, body, section(0x78, dict(2, k.key, []byte{0x40})))
		annotation(true, "annotations keyed by a "+k.name, k.key, []byte{0x40})
		after(false, "map in a body keyed by a "+k.name, section(0x77, dict(2, k.key, []byte{0x40})))
		all = append(
			all,
			Message{
				Name:     "delivery annotations keyed by a " + k.name,
				Readable: true,
				encode: func(a []byte) []byte {
					return join(section(0x71, dict(2, k.key, []byte{0x40})), section(0x72, dict(8, a)), body)
				},
			},
		)
	}

	after(true, "application properties keyed by an int", section(0x74, dict(2, []byte{0x54, 1}, str("v"))), body)
	after(true, "application properties keyed by null", section(0x74, dict(2, []byte{0x40}, str("v"))), body)

	after(false, "body cut short", []byte{0x00, 0x53, 0x75, 0xb0, 0, 0, 1, 0, 'x'})
	after(false, "section cut short", []byte{0x00, 0x53})
	after(false, "unknown section", section(0x79, []byte{0x40}))
	after(false, "bytes after the end", body, []byte("rest"))
	after(false, "list of more than there is", section(0x77, []byte("\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x43")))
	after(false, "deep lists", section(0x77, nested(10_000)))
	// The library's decoder is recursive, and a stack that is full kills a process.
	after(false, "described values a million deep", section(0x77, make([]byte, 1_000_000)))
	// Every array of a few bytes makes the library allocate for 65,536 elements.
	after(false, "arrays of nothing", section(0x77, arrays(2_000)))
	// Every empty map takes two bytes, and fifty times that once it is decoded.
	after(
		false,
		"array of empty maps",
		section(0x77, compound(0xf0, 63_000, [][]byte{{0xc1}, bytes.Repeat([]byte{1, 0}, 63_000)})),
	)

	annotation(true, "partition key that is no string", str("x-opt-partition-key"), []byte{0x54, 1})
	annotation(false, "enqueued time that is not a timestamp", str("x-opt-enqueued-time"), str("yesterday"))
	lost("sequence number that is no number", func(a []byte) []byte {
		return join(section(0x72, dict(10, a, str("x-opt-sequence-number"), str("one"))), body)
	})
	lost("offset that is no string", func(a []byte) []byte {
		return join(section(0x72, dict(10, a, str("x-opt-offset"), []byte{0x54, 1})), body)
	})
	lost("no annotations", func([]byte) []byte { return body })
	lost("nothing", func([]byte) []byte { return nil })
	lost("noise", func([]byte) []byte { return bytes.Repeat([]byte{0xff, 0x00, 0x72}, 100) })
	lost("annotations cut short", func(a []byte) []byte { return section(0x72, dict(8, a))[:20] })

	return all
}

// What readable messages say.
const (
	Device      = "poisoner"
	Temperature = 99.5
	Body        = `{"temperature": 99.5}`
)

var body = section(0x75, append([]byte{0xa0, byte(len(Body))}, Body...))

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func section(code byte, value []byte) []byte {
	return append([]byte{0x00, 0x53, code}, value...)
}

func str(s string) []byte { return append([]byte{0xa1, byte(len(s))}, s...) }

func dict(count int, parts ...[]byte) []byte { return compound(0xd1, count, parts) }
func list(count int, parts ...[]byte) []byte { return compound(0xd0, count, parts) }

func compound(code byte, count int, parts [][]byte) []byte {
	content := join(parts...)
	b := binary.BigEndian.AppendUint32([]byte{code}, uint32(len(content)+4))
	return append(binary.BigEndian.AppendUint32(b, uint32(count)), content...)
}

// nested returns a list in a list, and so on.
func nested(depth int) []byte {
	var b []byte
	for i := depth; i > 0; i-- {
		b = binary.BigEndian.AppendUint32(append(b, 0xd0), uint32(9*i-4))
		b = binary.BigEndian.AppendUint32(b, 1)
	}

	return append(b, 0x45)
}

// arrays returns a list of n arrays of 65,536 times nothing, and enough bytes
// behind them for that to be believed.
func arrays(n int) []byte {
	var parts [][]byte
	for range n {
		parts = append(parts, []byte("\xf0\x00\x01\x00\x05\x00\x01\x00\x00\x44"))
	}

	filler := make([]byte, 1<<17)

	return list(n+1, append(parts, binary.BigEndian.AppendUint32([]byte{0xb0}, uint32(len(filler))), filler)...)
}
