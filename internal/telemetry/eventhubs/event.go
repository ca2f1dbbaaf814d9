package eventhubs

import (
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// appendEvents appends the events that the messages are. The cursor completes their positions.
func appendEvents(to []telemetry.Event, messages amqpfilter.Messages, kept *texts) []telemetry.Event {
	for len(messages) > 0 {
		var m amqpfilter.Event
		m, messages = messages.Next()
		to = append(to, event(&m, kept))
	}

	return to
}

// event returns what the filter has read of a message.
func event(m *amqpfilter.Event, kept *texts) telemetry.Event {
	return telemetry.Event{
		Position:        telemetry.Position{Sequence: m.Sequence, Offset: string(m.Offset), Time: m.Enqueued},
		Device:          sensor.Device(kept.get(m.Device)),
		Module:          kept.get(m.Module),
		Component:       kept.get(m.Component),
		Body:            m.Body,
		Enqueued:        m.Enqueued,
		MessageSource:   kept.get(m.Source),
		ContentType:     kept.get(m.ContentType),
		ContentEncoding: kept.get(m.ContentEncoding),
		Properties:      m.Properties,
		Undecodable:     m.Undecodable,
	}
}
