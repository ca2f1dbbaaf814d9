package worker

import (
	"container/heap"
	"math"
	"time"

	"alertworker/internal/telemetry"
)

// A watermark is the position up to which a partition is settled. It holds only
// what is unsettled, so it is as small as the number of hot devices.
type watermark struct {
	held entries // a heap: the first event is on top
	last telemetry.Position
}

// An entry holds the watermark before one event.
type entry struct {
	before   place
	enqueued int64 // when the hub took the event, in Unix µs
	index    int32 // in watermark.held, plus 1; 0 unless the entry holds the watermark
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
	heap.Push(&w.held, e)
}

// settle ends the hold of e, if it has one.
func (w *watermark) settle(e *entry) {
	if e.index > 0 {
		heap.Remove(&w.held, int(e.index-1))
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
	if len(w.held) == 0 {
		return w.last
	}
	at := w.held[0].before
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
	if len(w.held) == 0 {
		return time.Time{}
	}
	return fromMicros(w.held[0].enqueued)
}

// entries implements heap.Interface.
type entries []*entry

func (h entries) Len() int           { return len(h) }
func (h entries) Less(i, j int) bool { return h[i].before.sequence < h[j].before.sequence }
func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = int32(i+1), int32(j+1)
}
func (h *entries) Push(e any) {
	*h = append(*h, e.(*entry))
	e.(*entry).index = int32(len(*h))
}
func (h *entries) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = 0
	return e
}
