package devhub

import (
	"fmt"
	"time"

	amqp "github.com/Azure/go-amqp"
)

// A Message is what a device sends. The zero value of each field leaves it to
// what the hub does by default.
type Message struct {
	// Device is who sends it: iothub-connection-device-id. A message of no
	// device has none of IoT Hub's annotations, as if it had been sent to the
	// Event Hub directly.
	Device string
	Source string // iothub-message-source; "Telemetry" by default

	// The body is one data section, unless Value or Sequence is set:
	// then it is that instead.
	Body     []byte
	Value    any
	Sequence [][]any

	MessageID       string
	ContentType     string
	ContentEncoding string
	Properties      map[string]any // application properties

	// Partition is where it goes; by default the device decides, or the
	// partitions take turns if there is none.
	Partition string
	// Enqueued is the hub's clock; the current time by default. It is cut to milliseconds.
	Enqueued time.Time
	// Annotations replace those that the hub sets or add to them; nil removes
	// one. They do not touch x-opt-sequence-number, x-opt-offset and x-opt-enqueued-time.
	Annotations map[string]any
}

// Published says where in the hub a message is.
type Published struct {
	Partition string
	Sequence  int64
	Offset    string
	Enqueued  time.Time
}

// Names of annotations.
const (
	annotationKey      = "x-opt-partition-key"
	annotationSequence = "x-opt-sequence-number"
	annotationOffset   = "x-opt-offset"
	annotationEnqueued = "x-opt-enqueued-time"
)

// encode returns m's encoding at its place.
func (m Message) encode(pub Published) ([]byte, error) {
	a := amqp.Annotations{}
	if m.Device != "" {
		a[annotationKey] = m.Device
		a["iothub-connection-device-id"] = m.Device
		a["iothub-connection-auth-method"] = `{"scope":"device","type":"sas","issuer":"iothub","acceptingIpFilterRule":null}`
		a["iothub-connection-auth-generation-id"] = "638000000000000000"
		a["iothub-enqueuedtime"] = pub.Enqueued
		a["iothub-message-source"] = "Telemetry"
	}
	if m.Source != "" {
		a["iothub-message-source"] = m.Source
	}
	for name, value := range m.Annotations {
		if value == nil {
			delete(a, name)
		} else {
			a[name] = value
		}
	}
	msg := &amqp.Message{
		Annotations: a,
		Properties: &amqp.MessageProperties{
			ContentType:     optional(m.ContentType),
			ContentEncoding: optional(m.ContentEncoding),
		},
		ApplicationProperties: m.Properties,
		Value:                 m.Value,
		Sequence:              m.Sequence,
	}
	if m.MessageID != "" {
		msg.Properties.MessageID = m.MessageID
	}
	if m.Value == nil && m.Sequence == nil {
		msg.Data = [][]byte{m.Body}
	}
	return encode(msg, pub)
}

// encode returns the encoding of msg with the annotations that tell its place.
func encode(msg *amqp.Message, pub Published) ([]byte, error) {
	if msg.Annotations == nil {
		msg.Annotations = amqp.Annotations{}
	}
	msg.Annotations[annotationSequence] = pub.Sequence
	msg.Annotations[annotationOffset] = pub.Offset
	msg.Annotations[annotationEnqueued] = pub.Enqueued
	b, err := msg.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("encoding a message: %w", err)
	}
	return b, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
