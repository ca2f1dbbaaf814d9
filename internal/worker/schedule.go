package worker

import (
	"container/heap"
	"time"
)

// A schedule holds waiting deliveries in the order of their keys, and of the same key
// in the order of their events. The key is the time of the next attempt, by the
// worker's clock, or the time of the reading.
type schedule struct {
	heap  deliveries
	place place
}

// A place is one of a queue's schedules, or none.
type place uint8

const (
	nowhere place = iota
	inReady
	inLater
	inFailed
	inDead
	inWindow
)

func (s *schedule) len() int { return len(s.heap) }

// first returns the delivery with the lowest key, nil if there is none.
func (s *schedule) first() *delivery {
	if len(s.heap) == 0 {
		return nil
	}
	return s.heap[0]
}

// due reports whether the first of s, whose keys are times, is due.
func (s *schedule) due(now time.Duration) bool { return s.len() > 0 && s.first().key <= int64(now) }

func (s *schedule) push(d *delivery, key int64) {
	d.key, d.in = key, s.place
	heap.Push(&s.heap, d)
}

// pop removes and returns the first delivery; there must be one.
func (s *schedule) pop() *delivery {
	d := heap.Pop(&s.heap).(*delivery)
	d.in = nowhere
	return d
}

// remove removes d, which must be in s.
func (s *schedule) remove(d *delivery) {
	heap.Remove(&s.heap, int(d.index))
	d.in = nowhere
}

// drain removes and returns all deliveries, in no order.
func (s *schedule) drain() []*delivery {
	all := s.heap
	s.heap = nil
	for _, d := range all {
		d.in = nowhere
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
