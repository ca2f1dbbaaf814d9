package worker

import (
	"math"
	"time"

	"alertworker/internal/telemetry"
)

// A watermark is the position up to which a partition is settled. It holds only
// what is unsettled, so it is as small as the number of hot devices.
type watermark struct {
	held heapOf[*entry]
	last telemetry.Position
}

// An entry holds the watermark before one event.
type entry struct {
	before   place
	enqueued int64 // when the hub took the event, in Unix µs
	index    int32 // its slot in watermark.held: 0 unless the entry holds the watermark
}

// A place is a position in the log of a watermark, without what is the same for all.
type place struct {
	sequence int64
	offset   string // empty: before the first event that was read
	time     int64  // in Unix ns; none if it is not known
}

const none = math.MinInt64

func placeOf(p telemetry.Position) place {
	at := place{sequence: p.Sequence, offset: p.Offset, time: none}
	if p.Offset == "" {
		at.sequence = none
	}
	if !p.Time.IsZero() {
		at.time = p.Time.UnixNano()
	}
	return at
}

// admit has e hold the watermark before an event, in any order. before is the position of the event before.
func (w *watermark) admit(e *entry, before place, enqueued int64) {
	e.before, e.enqueued = before, enqueued
	w.held.add(e)
}

// settle ends the hold of e, if it has one.
func (w *watermark) settle(e *entry) {
	if e.index > 0 {
		w.held.remove(e)
	}
}

// read records that every event up to p has been settled or admitted.
func (w *watermark) read(p telemetry.Position) {
	if !p.UpTo(w.last) {
		w.last = p
	}
}

// position returns the last position up to which everything is settled. It never
// moves back, unless an event before it is admitted.
func (w *watermark) position() telemetry.Position {
	if w.held.Len() == 0 {
		return w.last
	}
	at := w.held.first().before
	if at.offset == "" {
		return telemetry.Position{}
	}
	p := telemetry.Position{Generation: w.last.Generation, Sequence: at.sequence, Offset: at.offset}
	if at.time != none {
		p.Time = time.Unix(0, at.time).UTC()
	}
	return p
}

// oldest returns when the hub took the event that holds the watermark. It is zero if none does.
func (w *watermark) oldest() time.Time {
	if w.held.Len() == 0 {
		return time.Time{}
	}
	return fromMicros(w.held.first().enqueued)
}

func (e *entry) slot() *int32          { return &e.index }
func (e *entry) less(than *entry) bool { return e.before.sequence < than.before.sequence }
