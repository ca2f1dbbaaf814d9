package eventhubs

import (
	"time"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// event returns what the filter has read of a message. The cursor completes its position.
func event(data []byte, kept *texts) telemetry.Event {
	m, ok := amqpfilter.Parse(data)
	if !ok { // the hub sends events from an address that is no partition's
		return telemetry.Event{
			Position:    telemetry.Position{Sequence: unknownSequence},
			Undecodable: "the message did not pass the filter",
		}
	}
	e := telemetry.Event{
		Position:        telemetry.Position{Sequence: m.Sequence, Offset: string(m.Offset)},
		Device:          kept.get(m.Device),
		Body:            m.Body,
		MessageSource:   kept.get(m.Source),
		ContentType:     kept.get(m.ContentType),
		ContentEncoding: kept.get(m.ContentEncoding),
		Properties:      m.Properties,
		Undecodable:     kept.get(m.Undecodable),
	}
	if m.Unnumbered {
		e.Sequence = unknownSequence
	}
	if m.Enqueued != 0 {
		e.Time = time.UnixMilli(m.Enqueued).UTC()
		e.Enqueued = e.Time
	}
	return e
}
