package worker

import (
	"slices"
	"time"

	"alertworker/internal/telemetry"
)

// A watermark knows up to where a partition is settled. Only unsettled events
// enter it, so that it stays as small as the number of hot devices.
type watermark struct {
	entries []*entry // in order of position; the first is unsettled
	settled int      // entries that are settled, behind one that is not
	last    telemetry.Position
}

// An entry holds the watermark before one event until every receiver has settled it.
type entry struct {
	before   telemetry.Position
	enqueued int64 // when the hub took the event, in Unix µs
	pending  int32 // receivers
}

// admit lets an event in that follows position before.
func (w *watermark) admit(before telemetry.Position, enqueued int64) *entry {
	e := &entry{before: before, enqueued: enqueued}
	w.entries = append(w.entries, e)
	return e
}

// read says that every event up to p was settled or admitted.
func (w *watermark) read(p telemetry.Position) { w.last = p }

// settle says that one more receiver has settled e. Settled entries are dropped from
// the front at once, and from behind one that waits for long when
// they are the majority: a call costs O(1) on average.
func (w *watermark) settle(e *entry) {
	if e.pending--; e.pending > 0 {
		return
	}
	w.settled++
	n := 0
	for n < len(w.entries) && w.entries[n].pending == 0 {
		n++
	}
	clear(w.entries[:n])
	w.entries = w.entries[n:]
	w.settled -= n
	if w.settled > len(w.entries)/2 {
		w.entries = slices.DeleteFunc(w.entries, func(e *entry) bool { return e.pending == 0 })
		w.settled = 0
	}
}

// position is the last one with nothing unsettled up to it. It never moves back.
func (w *watermark) position() telemetry.Position {
	if len(w.entries) > 0 {
		return w.entries[0].before
	}
	return w.last
}

// unsettled is how many events hold the watermark or would if those before them did not.
func (w *watermark) unsettled() int { return len(w.entries) - w.settled }

// oldest is when the hub took the event that holds the watermark; zero if none does.
func (w *watermark) oldest() time.Time {
	if len(w.entries) == 0 {
		return time.Time{}
	}
	return fromMicros(w.entries[0].enqueued)
}
