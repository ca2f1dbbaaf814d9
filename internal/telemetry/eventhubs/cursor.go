package eventhubs

import (
	"fmt"
	"strconv"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry"
)

// A selector says, in the hub's language, where a link begins.
type selector string

func afterOffset(offset string) selector {
	return selector("amqp.annotation.x-opt-offset > '" + offset + "'")
}

func afterSequence(n int64) selector {
	return selector("amqp.annotation.x-opt-sequence-number > '" + strconv.FormatInt(n, 10) + "'")
}

// selector returns where a link begins that begins at s, which is not the latest event.
func (s Start) selector() selector {
	if s.Time.IsZero() {
		return afterOffset(beforeFirst)
	}
	return selector(fmt.Sprintf("amqp.annotation.x-opt-enqueued-time >= '%d'", s.Time.UnixMilli()))
}

// A cursor is where reading a partition is. A hub numbers events without gaps, unless it is compacted. What an
// undecodable message claims is no evidence of one.
type cursor struct {
	start Start // where reading begins if no event is known

	known    bool               // there is a last event
	last     telemetry.Position // of the last event that could be decoded, or else of the one after which reading begins
	fresh    bool               // last is of no event that has come
	settled  int64              // no event up to this number is missed, because it is settled
	unproven int64              // undecodable messages that have come since last
	received int64              // the number of what came last, guessed if it did not tell, or else that of last
}

// cursorAfter returns the cursor before anything has come, after a position.
func cursorAfter(at telemetry.Position) cursor {
	return cursor{known: true, last: at, fresh: true, settled: at.Sequence, received: at.Sequence}
}

// selectors returns where to begin, and where instead if the hub refuses that: offsets change their form with
// geo-replication, and other tools write what they like.
func (c *cursor) selectors() (all []selector) {
	if !c.known {
		return []selector{c.start.selector(), afterOffset(beforeFirst)}
	}
	if c.fresh && c.unproven == 0 && c.last.Offset != "" {
		all = append(all, afterOffset(c.last.Offset))
	}
	all = append(all, afterSequence(c.received))
	if !c.last.Time.IsZero() {
		all = append(all, Start{Time: c.last.Time.Add(-resumeMargin)}.selector())
	}
	return append(all, afterOffset(beforeFirst))
}

// follow moves c to e, which came next, and completes its position. It returns how many events are missing before e.
func (c *cursor) follow(e *telemetry.Event) (missing int64) {
	if e.Undecodable != "" {
		c.place(e)
		c.received = e.Sequence
		return 0
	}
	c.received = e.Sequence
	switch {
	case !c.known:
		c.known = true
	case e.Sequence <= c.last.Sequence: // a repetition
		return 0
	default:
		missing = max(0, e.Sequence-max(c.last.Sequence, c.settled)-1-c.unproven)
	}
	c.last = e.Position
	c.fresh = false
	c.unproven = 0
	return missing
}

// unknownSequence is an event's sequence number until follow assigns one.
const unknownSequence = -1

// place completes the position of an undecodable message. Without a sequence number it gets the next one: if numbers
// are not consecutive, that is too low and never too high, so that nothing is skipped. If the one before is not known
// either, the message has no offset and cannot become a checkpoint.
func (c *cursor) place(e *telemetry.Event) {
	numbered := e.Sequence != unknownSequence
	if !numbered || !c.known || e.Sequence > c.last.Sequence { // else it is a repetition
		c.unproven++
	}
	switch {
	case !numbered && !c.known:
		e.Sequence, e.Offset = c.unproven-1, ""
	case !numbered:
		e.Sequence = c.last.Sequence + c.unproven
	}
	if !c.known {
		return
	}
	if e.Offset == "" {
		e.Offset = c.last.Offset
	}
	if e.Time.IsZero() {
		e.Time, e.Enqueued = c.last.Time, c.last.Time
	}
}

// behind reports whether a hub whose partition ends there holds an event that has not come.
func (c *cursor) behind(end azeventhubs.PartitionProperties) bool {
	switch {
	case end.IsEmpty:
		return false
	case c.known || c.unproven > 0:
		return end.LastEnqueuedSequenceNumber > c.received
	}
	return !end.LastEnqueuedOn.Before(c.start.Time)
}

// expired returns the event that stands for those that the hub has dropped although they have not come, up to the last
// one; false if there are none.
func (c *cursor) expired(end azeventhubs.PartitionProperties) (telemetry.Event, bool) {
	if !end.IsEmpty || !c.known || end.LastEnqueuedSequenceNumber <= max(c.received, c.last.Sequence) {
		return telemetry.Event{}, false
	}
	at := lastPosition(end)
	at.Time = end.LastEnqueuedOn
	return telemetry.Event{Position: at, Enqueued: at.Time, MessageSource: telemetry.SourceExpired}, true
}
