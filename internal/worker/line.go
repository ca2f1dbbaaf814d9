package worker

import (
	"container/heap"
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
