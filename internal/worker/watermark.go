package worker

import (
	"math"
	"slices"
	"time"

	"alertworker/internal/telemetry"
)

// A watermark is the position up to which a partition is settled. It holds only
// unsettled events, so it is as small as the number of hot devices.
type watermark struct {
	entries []*entry // in order of position; the first is unsettled
	settled int      // entries that are settled, behind one that is not
	last    telemetry.Position
}

// An entry holds the watermark before one event until every receiver has settled that.
// The position is taken apart, because a time.Time is three words.
type entry struct {
	sequence int64
	offset   string
	time     int64 // in Unix ns; noTime if it is not known
	enqueued int64 // when the hub took the event, in Unix µs
	pending  int32 // receivers that have not settled it
}

const noTime = math.MinInt64

// before returns the position before the event.
func (e *entry) before() telemetry.Position {
	p := telemetry.Position{Sequence: e.sequence, Offset: e.offset}
	if e.time != noTime {
		p.Time = time.Unix(0, e.time).UTC()
	}
	return p
}

// admit adds an unsettled event, the next after position before.
func (w *watermark) admit(before telemetry.Position, enqueued int64) *entry {
	e := &entry{sequence: before.Sequence, offset: before.Offset, time: noTime, enqueued: enqueued}
	if !before.Time.IsZero() {
		e.time = before.Time.UnixNano()
	}
	w.entries = append(w.entries, e)
	return e
}

// newest returns the last event that was admitted and is not forgotten, nil if there is none.
func (w *watermark) newest() *entry {
	if len(w.entries) == 0 {
		return nil
	}
	return w.entries[len(w.entries)-1]
}

// read records that every event up to p has been settled or admitted.
func (w *watermark) read(p telemetry.Position) { w.last = p }

// settle records that one more receiver has settled e. Settled entries are dropped at
// once from the front, and elsewhere when they are the majority, so a call costs O(1)
// on average.
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

// position returns the last position up to which everything is settled. It never
// moves back.
func (w *watermark) position() telemetry.Position {
	if len(w.entries) > 0 {
		return w.entries[0].before()
	}
	return w.last
}

// unsettled returns how many events are unsettled.
func (w *watermark) unsettled() int { return len(w.entries) - w.settled }

// oldest returns when the hub took the event that holds the watermark; zero if none
// does.
func (w *watermark) oldest() time.Time {
	if len(w.entries) == 0 {
		return time.Time{}
	}
	return fromMicros(w.entries[0].enqueued)
}
