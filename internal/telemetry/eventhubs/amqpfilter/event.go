package amqpfilter

import (
	"encoding/binary"
	"errors"
	"time"

	"alertworker/internal/telemetry/amqpvalue"
)

// An Event is what the worker reads of a message.
type Event struct {
	Sequence int64     // x-opt-sequence-number; Unnumbered if the message has no readable one
	Enqueued time.Time // x-opt-enqueued-time, in UTC; zero if it is not known

	// Undecodable is why the message could not be decoded, empty if it could.
	Undecodable string

	// Text, empty where the message has none.
	Offset, Device, Module, Component, Source []byte

	Properties []byte // the application properties, an encoded map; empty if there are none

	// Body is bytes or text, in whichever section they came. Of an undecodable message it is
	// the first MaxKept bytes of the message itself.
	Body []byte
}

// Unnumbered is the sequence number of an Event whose message has none: the hub's begin at 0.
const Unnumbered = -1

// Messages are those of a hub that have come in one message of the library, each after its size.
type Messages []byte

const sizeSize = 4 // bytes of the size of a message

// add appends a message.
func (messages Messages) add(message []byte) Messages {
	return append(binary.BigEndian.AppendUint32(messages, uint32(len(message))), message...)
}

// Next returns the Event of the first of messages, which aliases it, and those after it.
func (messages Messages) Next() (e Event, rest Messages) {
	end := sizeSize + binary.BigEndian.Uint32(messages)
	message := messages[sizeSize:end:end]

	err := e.read(message)
	if len(message) > MaxMessage {
		err = errLarge
	}
	if err != nil { // the position that the message claims is kept, as far as it claims one
		kept := min(len(message), MaxKept)
		e = Event{
			Sequence: e.Sequence, Enqueued: e.Enqueued, Offset: e.Offset, Device: e.Device,
			Undecodable: err.Error(), Body: message[:kept:kept],
		}
	}

	return e, messages[end:]
}

// Sections of a message, in the order that they come in.
const (
	sectionHeader      = 0x70
	sectionAnnotations = 0x72
	sectionApplication = 0x74
	sectionData        = 0x75
	sectionSequence    = 0x76
	sectionValue       = 0x77
	sectionFooter      = 0x78
)

// Why a message is undecodable.
var (
	errShort      = errors.New("cut short, or a value of an unknown type")
	errSection    = errors.New("unknown section, or none where one must begin")
	errOrder      = errors.New("section repeated or out of order")
	errField      = errors.New("section or field of the wrong type")
	errSequence   = errors.New("sequence number that is missing or not an integer")
	errOffset     = errors.New("offset that is not text")
	errEnqueued   = errors.New("enqueued time that is not a timestamp")
	errProperties = errors.New("application properties with the same name")
	errBody       = errors.New("body that is neither bytes nor text")
	errLarge      = errors.New("message too large")
)

// read sets e to what message says, as far as the error, which says why it is undecodable.
// e aliases message.
//
// Only what the worker reads has to be readable: every other value is skipped by its size.
// Sections come once and in order, so the annotations are the hub's, whatever follows them.
func (e *Event) read(message []byte) error {
	*e = Event{Sequence: Unnumbered}
	last := byte(0)
	for len(message) > 0 {
		section, rest, ok := amqpvalue.Next(message)
		if !ok {
			return errShort
		}

		message = rest
		code, content, ok := section.Describe()
		if !ok || code < sectionHeader || code > sectionFooter {
			return errSection
		}

		switch {
		case byte(code) == last && last == sectionData: // a body may have several
		case byte(code) <= last, last >= sectionData && code != sectionFooter:
			return errOrder
		}

		last = byte(code)
		if content.IsNull() {
			continue
		}
		if err := e.section(last, content); err != nil {
			return err
		}
	}

	if e.Sequence == Unnumbered {
		return errSequence
	}

	return nil
}

// section reads what a section holds.
func (e *Event) section(code byte, content amqpvalue.Value) error {
	switch code {
	case sectionAnnotations:
		return e.annotations(content)

	case sectionApplication: // what the device has set
		entries, isMap := content.Entries()
		for more := true; more; {
			_, more = entries.Next()
		}
		if !isMap || !entries.Done() {
			return errProperties
		}

		e.Properties = content

	case sectionData:
		data, ok := content.Bytes()
		if !ok {
			return errField
		}

		if len(e.Body) == 0 {
			e.Body = data
		} else {
			e.Body = append(e.Body, data...) // not into the message: the capacity of a Value is its length
		}

	case sectionSequence:
		return errBody

	case sectionValue:
		var ok bool
		if e.Body, ok = content.Text(); !ok {
			e.Body, ok = content.Bytes()
		}
		if !ok {
			return errBody
		}
	}

	return nil
}

// annotations reads the annotations that an IoT Hub sets. Of a name that comes twice the last
// value counts.
func (e *Event) annotations(content amqpvalue.Value) error {
	entries, ok := content.Entries()
	if !ok {
		return errField
	}

	var err error
	for {
		key, _ := entries.Next()
		value, ok := entries.Next()
		if !ok {
			break
		}

		name, _ := key.Text()
		switch string(name) {
		case "x-opt-sequence-number":
			if e.Sequence, ok = value.Int(); !ok {
				e.Sequence = Unnumbered
			}

		case "x-opt-offset":
			if e.Offset, ok = value.Text(); !ok && !value.IsNull() {
				err = errOffset
			}

		case "x-opt-enqueued-time":
			if e.Enqueued, ok = value.Time(); !ok && !value.IsNull() {
				err = errEnqueued
			}

		case "iothub-connection-device-id":
			e.Device, _ = value.Text()
		case "iothub-connection-module-id":
			e.Module, _ = value.Text()
		case "dt-subject": // see https://learn.microsoft.com/azure/iot-develop/concepts-convention
			e.Component, _ = value.Text()
		case "iothub-message-source":
			e.Source, _ = value.Text()
		}
	}

	if !entries.Done() {
		err = errShort
	}

	return err
}
