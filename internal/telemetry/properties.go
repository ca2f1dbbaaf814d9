package telemetry

import (
	"iter"

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
	entries, _ := amqpvalue.Value(p).Entries()
	for {
		key, _ := entries.Next()
		value, ok := entries.Next()
		if !ok {
			return found
		}
		if text, ok := key.Text(); ok && string(text) == name {
			found = value
		}
	}
}
