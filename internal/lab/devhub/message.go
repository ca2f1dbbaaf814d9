package devhub

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/Azure/go-amqp"

	"alertworker/internal/telemetry/amqpvalue"
)

// A Message is what a device sends. The zero value of each field leaves it to
// what the hub does by default.
type Message struct {
	// Device is who sends it: iothub-connection-device-id. A message of no
	// device has none of IoT Hub's annotations, as if it had been sent to the
	// Event Hub directly.
	Device string
	Source string // of what a device sends, iothub-message-source; "Telemetry" by default

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
		a["iothub-message-source"] = cmp.Or(m.Source, "Telemetry")
	}

	for name, value := range m.Annotations {
		if value == nil {
			delete(a, name)
		} else {
			a[name] = value
		}
	}

	a[annotationSequence] = pub.Sequence
	a[annotationOffset] = pub.Offset
	a[annotationEnqueued] = pub.Enqueued

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

	b, err := msg.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("encoding a message: %w", err)
	}

	return b, nil
}

// Sections of a message.
const (
	sectionHeader              = 0x70
	sectionDeliveryAnnotations = 0x71
	sectionAnnotations         = 0x72
	sectionProperties          = 0x73
	sectionApplication         = 0x74
	sectionData                = 0x75
	sectionValue               = 0x77
	sectionFooter              = 0x78
)

// A sent message is one of a client, taken apart as far as the hub has to: what it does not look into stays as it came,
// also values that go-amqp cannot read, such as a char.
type sent struct {
	header      []byte
	annotations [][]byte // keys and values in turn
	rest        []byte   // what comes after the annotations
	data        [][]byte // its data sections
	key         string   // of the partition
	keyed       bool

	// Of a request.
	properties, application, value amqpvalue.Value
}

// parse takes a message apart.
func parse(b []byte) (*sent, error) {
	m := &sent{}
	last := uint64(0)
	for len(b) > 0 {
		section, rest, ok := amqpvalue.Next(b)
		if !ok {
			return nil, errors.New("a section is cut short, or of an unknown type")
		}

		code, content, ok := section.Describe()
		if !ok || code < max(last, sectionHeader) || code > sectionFooter {
			return nil, errors.New("a section is none of the standard's, or not in its place")
		}

		last = code
		if code >= sectionProperties && m.rest == nil {
			m.rest = b
		}

		switch code {
		case sectionHeader:
			m.header = section

		case sectionAnnotations:
			if err := m.readAnnotations(content); err != nil {
				return nil, err
			}

		case sectionProperties:
			m.properties = content

		case sectionApplication:
			m.application = content

		case sectionData:
			data, _ := content.Bytes()
			m.data = append(m.data, data)

		case sectionValue:
			m.value = content
		}

		b = rest
	}

	return m, nil
}

// readAnnotations keeps those that the client may set.
func (m *sent) readAnnotations(content amqpvalue.Value) error {
	entries, ok := content.Entries()
	if !ok {
		return errors.New("the annotations are no map")
	}

	for !entries.Done() {
		key, _ := entries.Next()
		value, ok := entries.Next()
		if !ok {
			return errors.New("the annotations are cut short")
		}

		name, _ := key.Text()
		switch string(name) {
		case annotationSequence, annotationOffset, annotationEnqueued:
			continue

		case annotationKey:
			var text []byte
			text, m.keyed = value.Text()
			m.key = string(text)
		}

		m.annotations = append(m.annotations, key, value)
	}

	return nil
}

// texts returns those of the application properties that are text.
func (m *sent) texts() map[string]string {
	all := map[string]string{}
	entries, ok := m.application.Entries()
	for ok && !entries.Done() {
		var key, value amqpvalue.Value
		key, _ = entries.Next()
		value, ok = entries.Next()
		name, _ := key.Text()
		if text, isText := value.Text(); isText {
			all[string(name)] = string(text)
		}
	}

	return all
}

// encode returns the message with the annotations that tell its place.
func (m *sent) encode(pub Published) []byte {
	var entries []byte
	for _, part := range m.annotations {
		entries = append(entries, part...)
	}

	entries = appendText(entries, amqpvalue.Symbol8, annotationSequence)
	entries = binary.BigEndian.AppendUint64(append(entries, amqpvalue.Long), uint64(pub.Sequence))
	entries = appendText(entries, amqpvalue.Symbol8, annotationOffset)
	entries = appendText(entries, amqpvalue.String8, pub.Offset)
	entries = appendText(entries, amqpvalue.Symbol8, annotationEnqueued)
	entries = binary.BigEndian.AppendUint64(append(entries, amqpvalue.Timestamp), uint64(pub.Enqueued.UnixMilli()))

	b := append([]byte{}, m.header...)
	b = append(b, amqpvalue.Described, amqpvalue.SmallUlong, sectionAnnotations, amqpvalue.Map32)
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(entries)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.annotations)+6))
	b = append(b, entries...)

	return append(b, m.rest...)
}

// appendText appends a string or symbol of less than 256 bytes.
func appendText(b []byte, code byte, text string) []byte {
	return append(append(b, code, byte(len(text))), text...)
}

// annotate returns a message with delivery annotations that tell the state of its partition.
func annotate(message []byte, state map[string]any) []byte {
	annotations, _ := (&amqp.Message{DeliveryAnnotations: amqp.Annotations{ // of such values none fails
		"last_enqueued_sequence_number":   state["last_enqueued_sequence_number"],
		"last_enqueued_offset":            state["last_enqueued_offset"],
		"last_enqueued_time_utc":          state["last_enqueued_time_utc"],
		"runtime_info_retrieval_time_utc": time.Now(),
	}}).MarshalBinary()

	section, rest, _ := amqpvalue.Next(message)
	if code, _, _ := section.Describe(); code == sectionHeader {
		return slices.Concat(section, annotations, rest)
	}

	return slices.Concat(annotations, message)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
