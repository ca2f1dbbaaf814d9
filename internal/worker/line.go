package worker

import (
	"cmp"
	"container/heap"
	"math"
	"time"
)

// A line holds deliveries of one state in the order of their keys, and of the same key
// in the order of their events.
type line struct{ heap deliveries }

func (l *line) len() int { return len(l.heap) }

// first returns the delivery with the lowest key, nil if there is none.
func (l *line) first() *delivery {
	if len(l.heap) == 0 {
		return nil
	}
	return l.heap[0]
}

// due reports whether the first of l, whose keys are times, is due.
func (l *line) due(now time.Duration) bool { return l.len() > 0 && l.first().key <= int64(now) }

// pop removes and returns the first delivery; there must be one. It is attempting then.
func (l *line) pop() *delivery {
	d := heap.Pop(&l.heap).(*delivery)
	d.state = attempting
	return d
}

// shed removes and returns the oldest of those deliveries that matter least; there must be one.
func (l *line) shed() *delivery {
	least := l.heap[0]
	for _, d := range l.heap {
		if c := cmp.Compare(d.class(), least.class()); c > 0 || c == 0 && d.since < least.since {
			least = d
		}
	}
	heap.Remove(&l.heap, int(least.index))
	least.state = attempting
	return least
}

// oldest returns the earliest since of l's deliveries.
func (l *line) oldest() int64 {
	oldest := int64(math.MaxInt64)
	for _, d := range l.heap {
		oldest = min(oldest, d.since)
	}
	return oldest
}

// drain removes and returns all deliveries, in no order.
func (l *line) drain() []*delivery {
	all := l.heap
	l.heap = nil
	for _, d := range all {
		d.state = attempting
	}
	return all
}

// deliveries implements heap.Interface.
type deliveries []*delivery

func (h deliveries) Len() int { return len(h) }
func (h deliveries) Less(i, j int) bool {
	if h[i].key != h[j].key {
		return h[i].key < h[j].key
	}
	return h[i].head.sequence < h[j].head.sequence
}
func (h deliveries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = int32(i), int32(j)
}
func (h *deliveries) Push(d any) {
	d.(*delivery).index = int32(len(*h))
	*h = append(*h, d.(*delivery))
}
func (h *deliveries) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return d
}
