package eventhubs

import (
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// appendEvents appends what the filter has read of the messages that were received.
func appendEvents(events []telemetry.Event, received []*azeventhubs.ReceivedEventData, kept *texts) []telemetry.Event {
	events = slices.Grow(events, len(received))
	for _, r := range received {
		events = append(events, event(r, kept))
	}
	return events
}

func event(r *azeventhubs.ReceivedEventData, kept *texts) telemetry.Event {
	m, ok := amqpfilter.Parse(r.Body)
	if !ok { // the connection has no filter, or the hub sends events from an address that is no partition's
		return telemetry.Event{
			Position:    telemetry.Position{Sequence: r.SequenceNumber, Offset: r.Offset},
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
	if m.Guessed {
		e.Sequence = unknownSequence
	}
	if m.Enqueued != 0 {
		e.Time = time.UnixMilli(m.Enqueued).UTC()
		e.Enqueued = e.Time
	}
	return e
}
