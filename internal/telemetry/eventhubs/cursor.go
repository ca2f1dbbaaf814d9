package eventhubs

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// A selector says, in the hub's language, where a link begins.
type selector string

func afterOffset(offset string) selector {
	return selector("amqp.annotation.x-opt-offset > '" + offset + "'")
}

// selector returns where a link begins that begins at s, which is not the latest event.
func (s Start) selector() selector {
	if s.Time.IsZero() {
		return afterOffset(beforeFirst)
	}
	return selector(fmt.Sprintf("amqp.annotation.x-opt-enqueued-time >= '%d'", s.Time.UnixMilli()))
}

// A cursor is where reading a partition is. A hub numbers events without gaps, unless it is compacted. A message of
// which the number or the offset cannot be read has no place of its own, whether or not the rest can be decoded.
type cursor struct {
	start Start // where reading begins if no event is known

	known    bool               // there is a last event
	last     telemetry.Position // of the last event that told its place, or else of that after which reading begins
	fresh    bool               // last is of no event that has come
	settled  int64              // no event up to this number is missed, because it is settled
	unplaced int64              // messages without a place that have come since last
}

// cursorAt returns the cursor before anything has come, if no event is known.
func cursorAt(start Start) cursor {
	return cursor{start: start, last: telemetry.Position{Sequence: -1}}
}

// cursorAfter returns the cursor before anything has come, after a position.
func cursorAfter(at telemetry.Position) cursor {
	return cursor{known: true, last: at, fresh: true, settled: at.Sequence}
}

// reached returns the number of what came last, a guess if it did not tell.
func (c *cursor) reached() int64 { return c.last.Sequence + c.unplaced }

// restart returns where a link begins, and where instead if the hub refuses that: offsets change their form with
// geo-replication, and other tools write what they like. What came since the last event that told its place comes
// again.
func (c *cursor) restart() (all []selector) {
	c.unplaced = 0
	if !c.known {
		return []selector{c.start.selector(), afterOffset(beforeFirst)}
	}

	if c.fresh && c.last.Offset != "" {
		all = append(all, afterOffset(c.last.Offset))
	}

	all = append(all, selector(fmt.Sprintf("amqp.annotation.x-opt-sequence-number > '%d'", c.last.Sequence)))
	if !c.last.Time.IsZero() {
		all = append(all, Start{Time: c.last.Time.Add(-resumeMargin)}.selector())
	}

	return append(all, afterOffset(beforeFirst))
}

// follow moves c to e, which came next, and completes its position. It returns how many events are missing before e.
//
// Without a number e gets the next one: if numbers are not consecutive, that is too low and never too high, so that
// nothing is skipped. Without an offset it gets that of the last event before it, and none if there is no such event or
// e is a repetition: then it cannot become a checkpoint.
func (c *cursor) follow(e *telemetry.Event) (missing int64) {
	placed := e.Sequence != amqpfilter.Unnumbered && e.Offset != ""
	if e.Sequence == amqpfilter.Unnumbered {
		e.Sequence = c.reached() + 1
	}

	if e.Time.IsZero() {
		e.Time, e.Enqueued = c.last.Time, c.last.Time
	}

	if c.known && e.Sequence <= c.last.Sequence { // a repetition
		return 0
	}

	if !placed {
		e.Offset = c.last.Offset
		c.unplaced++
		return 0
	}

	if c.known {
		missing = max(0, e.Sequence-max(c.last.Sequence, c.settled)-1-c.unplaced)
	}

	c.known = true
	c.last = e.Position
	c.fresh = false
	c.unplaced = 0

	return missing
}

// behind reports whether a hub whose partition ends there holds an event that has not come.
func (c *cursor) behind(end azeventhubs.PartitionProperties) bool {
	switch {
	case end.IsEmpty:
		return false
	case c.known || c.unplaced > 0:
		return end.LastEnqueuedSequenceNumber > c.reached()
	}

	return !end.LastEnqueuedOn.Before(c.start.Time)
}

// expired returns the event that stands for those that the hub has dropped although they have not come, up to the last
// one; false if there are none. They may be older than the first start.
func (c *cursor) expired(end azeventhubs.PartitionProperties) (telemetry.Event, bool) {
	if !end.IsEmpty || end.LastEnqueuedSequenceNumber <= c.reached() {
		return telemetry.Event{}, false
	}

	at := lastPosition(end)
	at.Time = end.LastEnqueuedOn
	return telemetry.Event{Position: at, Enqueued: at.Time, MessageSource: telemetry.SourceExpired}, true
}
