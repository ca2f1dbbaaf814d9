package worker

import (
	"slices"
	"time"

	"alertworker/internal/telemetry"
)

// A watermark knows up to where a partition is settled. Only unsettled events
// enter it, so that it stays as small as the number of hot devices.
type watermark struct {
	unsettled []*entry // in order of position
	last      telemetry.Position
}

// An entry holds the watermark before one event until every receiver has settled it.
type entry struct {
	before   telemetry.Position
	enqueued time.Time // when the hub took the event
	pending  int       // receivers
}

// admit lets an event in that follows position before.
func (w *watermark) admit(before telemetry.Position, enqueued time.Time) *entry {
	e := &entry{before: before, enqueued: enqueued}
	w.unsettled = append(w.unsettled, e)
	return e
}

// read says that every event up to p was settled or admitted.
func (w *watermark) read(p telemetry.Position) { w.last = p }

// settle drops what no receiver waits for any more, wherever it is: behind an
// entry that waits for a receiver that is down many others come and go.
func (w *watermark) settle() {
	w.unsettled = slices.DeleteFunc(w.unsettled, func(e *entry) bool { return e.pending == 0 })
}

// position is the last one with nothing unsettled up to it. It never moves back.
func (w *watermark) position() telemetry.Position {
	if len(w.unsettled) > 0 {
		return w.unsettled[0].before
	}
	return w.last
}
