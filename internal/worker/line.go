package worker

import (
	"cmp"
	"container/heap"
	"math"
	"time"
)

// A line holds deliveries of one state in the order of their keys, and of the same key
// in the order of their events.
type line struct{ heap heapOf[*delivery] }

func (l *line) len() int { return l.heap.Len() }

// first returns the delivery with the lowest key, nil if there is none.
func (l *line) first() *delivery {
	if l.heap.Len() == 0 {
		return nil
	}
	return l.heap.all[0]
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
	least := l.heap.all[0]
	for _, d := range l.heap.all {
		if c := cmp.Compare(d.class(), least.class()); c > 0 || c == 0 && d.since < least.since {
			least = d
		}
	}
	l.heap.remove(least)
	least.state = attempting
	return least
}

// oldest returns the earliest since of l's deliveries.
func (l *line) oldest() int64 {
	oldest := int64(math.MaxInt64)
	for _, d := range l.heap.all {
		oldest = min(oldest, d.since)
	}
	return oldest
}

// drain removes and returns all deliveries, in no order.
func (l *line) drain() []*delivery {
	all := l.heap.all
	l.heap.all = nil
	for _, d := range all {
		d.state = attempting
	}
	return all
}

func (d *delivery) slot() *int32 { return &d.index }

func (d *delivery) less(than *delivery) bool {
	if d.key != than.key {
		return d.key < than.key
	}
	return d.head.sequence < than.head.sequence
}
