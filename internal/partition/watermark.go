package partition

import (
	"math"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/telemetry"
)

// A watermark is what a partition's reader says of the position up to which everything is settled.
type watermark struct {
	held delivery.Holds     // events that hold it, but for those of deliveries
	last telemetry.Position // the last event that was read
	// the last event whose alerts were flushed, if it has any: they hold the watermark themselves, or are settled
	flushed telemetry.Position
}

const none = math.MinInt64

func placeOf(p telemetry.Position) delivery.Place {
	at := delivery.Place{Sequence: p.Sequence, Offset: p.Offset, Time: none}
	if p.Offset == "" {
		at.Sequence = none
	}

	if !p.Time.IsZero() {
		at.Time = p.Time.UnixNano()
	}

	return at
}

// positionOf returns the position that a place in the log of a generation is.
func positionOf(at delivery.Place, generation string) telemetry.Position {
	if at.Offset == "" {
		return telemetry.Position{}
	}

	p := telemetry.Position{Generation: generation, Sequence: at.Sequence, Offset: at.Offset}
	if at.Time != none {
		p.Time = time.Unix(0, at.Time).UTC()
	}

	return p
}

// read records that events up to p were read. They hold the watermark until their alerts are flushed.
func (w *watermark) read(p telemetry.Position) {
	if !p.NotAfter(w.last) {
		w.last = p
	}
}

// position returns the last position up to which everything is settled, unless a delivery holds it. It never
// moves back, unless an event before it comes to hold it.
func (w *watermark) position() telemetry.Position {
	if w.held.Len() == 0 {
		return w.flushed
	}
	before, _ := w.held.First()
	return w.before(before)
}

// before returns where the watermark is before a place, if nothing else holds it.
func (w *watermark) before(place delivery.Place) telemetry.Position {
	if w.flushed.Offset == "" || place.Sequence >= w.flushed.Sequence {
		return w.flushed
	}
	return positionOf(place, w.flushed.Generation)
}
