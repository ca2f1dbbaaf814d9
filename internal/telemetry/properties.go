package telemetry

import (
	"bytes"
	"encoding/binary"
	"iter"
	"maps"
	"slices"

	"alertworker/internal/telemetry/amqpvalue"
)

// Properties are an event's application properties: an encoded AMQP map, empty if there are none.
type Properties []byte

// A Property is the value of an application property, null if there is none.
type Property = amqpvalue.Value

// All iterates over the names and values, in the message's order. Of a name that comes twice the
// last value counts. A name that is no text is left out.
func (p Properties) All() iter.Seq2[[]byte, Property] {
	return func(yield func([]byte, Property) bool) {
		entries, _ := amqpvalue.Value(p).Entries()
		for {
			key, _ := entries.Next()
			value, ok := entries.Next()
			if !ok {
				return
			}
			if name, ok := key.Text(); ok && !yield(name, value) {
				return
			}
		}
	}
}

// Get returns the property of that name, which is compared exactly: an IoT Hub takes two names
// that differ only by case for one, but delivers the one that it has as it was written. It
// allocates nothing; the property aliases p.
func (p Properties) Get(name string) (found Property) {
	for text, value := range p.All() {
		if string(text) == name {
			found = value
		}
	}
	return found
}

// Find is Get in any case: of several properties that differ by case only, it returns the one that is written like name,
// else the last. It allocates nothing.
func (p Properties) Find(name []byte) (found Property) {
	isExact := false
	for text, value := range p.All() {
		exact := bytes.Equal(text, name)
		if exact || !isExact && bytes.EqualFold(text, name) {
			found, isExact = value, exact
		}
	}
	return found
}

// EncodeProperties returns properties with these values, in the order of their names.
func EncodeProperties(all map[string]Property) Properties {
	if len(all) == 0 {
		return nil
	}

	var entries []byte
	for _, name := range slices.Sorted(maps.Keys(all)) {
		entries = append(append(entries, Text(name)...), all[name]...)
	}

	b := binary.BigEndian.AppendUint32([]byte{amqpvalue.Map32}, uint32(len(entries)+4))

	return append(binary.BigEndian.AppendUint32(b, uint32(2*len(all))), entries...)
}

// Text returns a property that is text, as those of an IoT Hub are.
func Text(s string) Property {
	return append(binary.BigEndian.AppendUint32([]byte{amqpvalue.String32}, uint32(len(s))), s...)
}
