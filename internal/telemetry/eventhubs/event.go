package eventhubs

import (
	"slices"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

func appendEvents(events []telemetry.Event, received []*azeventhubs.ReceivedEventData, kept *texts) []telemetry.Event {
	events = slices.Grow(events, len(received))
	for _, r := range received {
		if c, ok := amqpfilter.Parse(r.Body); ok {
			events = append(events, compact(r, c, kept))
		} else {
			events = append(events, whole(r))
		}
	}
	return events
}

// compact returns the event of a message that the filter has made compact.
func compact(r *azeventhubs.ReceivedEventData, c amqpfilter.Event, kept *texts) telemetry.Event {
	at := time.UnixMilli(c.Enqueued).UTC()
	return telemetry.Event{
		Position:        telemetry.Position{Sequence: r.SequenceNumber, Offset: string(c.Offset), Time: at},
		Device:          kept.get(c.Device),
		Body:            c.Body,
		Enqueued:        at,
		MessageSource:   kept.get(c.Source),
		ContentType:     kept.get(c.ContentType),
		ContentEncoding: kept.get(c.ContentEncoding),
		Properties:      telemetry.EncodedProperties(c.Properties, amqpProperties{}),
	}
}

// amqpProperties decodes what the filter has checked.
type amqpProperties struct{}

func (amqpProperties) All(encoded []byte) map[string]any {
	var m amqp.Message
	_ = m.UnmarshalBinary(append([]byte("\x00\x53\x74"), encoded...)) // descriptor of a section
	return m.ApplicationProperties
}

func (amqpProperties) Get(encoded []byte, name string) telemetry.Property {
	return amqpfilter.Property(encoded, name)
}

// whole returns the event of any other message.
func whole(r *azeventhubs.ReceivedEventData) telemetry.Event {
	e := telemetry.Event{
		Position:      telemetry.Position{Sequence: r.SequenceNumber, Offset: r.Offset, Time: enqueued(r).UTC()},
		Device:        text(r.SystemProperties["iothub-connection-device-id"]),
		Body:          body(r),
		MessageSource: text(r.SystemProperties["iothub-message-source"]),
		Undecodable:   text(r.SystemProperties[amqpfilter.Annotation]),
		Properties:    telemetry.PropertiesOf(r.Properties),
	}
	e.Enqueued = e.Time
	if guessed, _ := r.SystemProperties[amqpfilter.Guessed].(bool); guessed {
		e.Sequence = unknownSequence
	}
	if r.ContentType != nil {
		e.ContentType = *r.ContentType
	}
	if p := r.RawAMQPMessage.Properties; p != nil && p.ContentEncoding != nil {
		e.ContentEncoding = *p.ContentEncoding
	}
	return e
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// body returns the message's body, in whichever section it came; nil if it is
// neither bytes nor text.
func body(r *azeventhubs.ReceivedEventData) []byte {
	b := &r.RawAMQPMessage.Body
	switch v := b.Value.(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	switch len(b.Data) {
	case 0:
		return nil
	case 1:
		return b.Data[0]
	}
	return slices.Concat(b.Data...)
}

// enqueued returns when the hub took the event: the Event Hub's time, or else the
// IoT Hub's, which is a timestamp, a number of milliseconds or text.
func enqueued(r *azeventhubs.ReceivedEventData) time.Time {
	if r.EnqueuedTime != nil {
		return *r.EnqueuedTime
	}
	switch v := r.SystemProperties["iothub-enqueuedtime"].(type) {
	case time.Time:
		return v
	case int64:
		return time.UnixMilli(v)
	case string:
		if ms, err := strconv.ParseInt(v, 10, 64); err == nil {
			return time.UnixMilli(ms)
		}
		t, _ := time.Parse(time.RFC3339, v)
		return t
	}
	return time.Time{}
}
