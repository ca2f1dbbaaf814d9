package delivery

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"alertworker/internal/notify"
)

// A queue holds the deliveries of one Outbox to one receiver.
type queue struct {
	box *Outbox
	to  *receiver

	// Guarded by box.mu.
	deliveries map[Key]*delivery                 // all of them
	later      map[Key]*Notice                   // what is due once the delivery of its key has ended
	sharing    map[*delivery]map[string]struct{} // the devices whose readings have joined one that they share
	sharers    int                               // in all of them, at most maxSharers
	taken      map[Key]notify.Alert              // the last of each alarm that a receiver took that forgets: see Refresh

	// Guarded by to.mu.
	lines      [states]heapOf[*delivery] // those that wait, by state; none is attempting
	writing    int                       // dead letters that are being composed or written
	unwritable bool                      // the last one could not be
	closed     bool                      // nothing starts any more
	last       int64                     // number that was given: see receiver.next
}

// waiting returns how many deliveries wait to be sent, without those that wait for a window's end.
func (q *queue) waiting() int {
	return q.lines[ready].Len() + q.lines[pausing].Len() + q.lines[awaitsReceiver].Len()
}

// mayGo reports whether a delivery waits for its turn, or to be tried again in it.
func (q *queue) mayGo() bool { return q.lines[ready].Len()+q.lines[awaitsReceiver].Len() > 0 }

// isDue reports whether the first delivery of a state whose keys are times is due.
func (q *queue) isDue(s state, now time.Duration) bool {
	return q.lines[s].Len() > 0 && q.lines[s].first().key <= int64(now)
}

// take has the first delivery of a state, of which there must be one, be attempted, and returns it.
func (q *queue) take(s state) *delivery {
	d := q.lines[s].first()
	q.move(d, attempting, WaitAttempt, 0)
	return d
}

// move puts d into a state, and into the line of that under key, which does not matter to ready. q is not closed. The
// caller holds to.mu.
func (q *queue) move(d *delivery, s state, why Wait, key int64) {
	if d.index > 0 {
		q.lines[d.state].remove(d)
	}

	if d.wait != why || d.from == 0 {
		d.from = q.to.dispatcher.now()
	}

	d.state, d.wait, d.key = s, why, key
	switch s {
	case attempting:
		return
	case ready:
		if d.number == 0 { // the next, which is no further ahead of the last that went than deliveries wait
			gone := q.to.gone
			q.last = max(gone, min(q.last, gone+int64(q.lines[ready].Len()))+1)
			d.number = q.last
		}
		d.key = d.turn()
	}

	q.lines[s].add(d)
}

// withdraw takes d, which waits, out of its line. It reports false if d is being
// attempted. The caller holds box.mu.
func (q *queue) withdraw(d *delivery) bool {
	q.to.mu.Lock()
	defer q.to.mu.Unlock()
	if d.state == attempting {
		return false
	}

	q.move(d, attempting, WaitAttempt, 0)
	q.to.dispatch()

	return true
}

// giveUp has d, which waits, become a dead letter. The caller holds to.mu.
func (q *queue) giveUp(d *delivery, why cause, now time.Duration) {
	d.dead = &deadLetter{cause: why}
	q.move(d, givenUp, WaitDeadLetter, int64(now))
}

// toSend returns the deliveries that wait to be sent, in no order.
func (q *queue) toSend() []*delivery {
	return slices.Concat(q.lines[ready].all, q.lines[pausing].all, q.lines[awaitsReceiver].all)
}

// least returns the oldest of the deliveries to send that matter least. There must be one.
func (q *queue) least() *delivery {
	return slices.MaxFunc(q.toSend(), func(a, b *delivery) int {
		return cmp.Or(cmp.Compare(a.class(), b.class()), cmp.Compare(b.since, a.since))
	})
}

// gate returns the gate that d has to pass.
func (q *queue) gate(d *delivery) Gate { return d.subject.Topic.Gates[q.to.index] }

// An item is an element of a heapOf.
type item[T any] interface {
	comparable
	less(T) bool
	slot() *int32
}

// A heapOf holds elements in their order. Each knows its slot: its index plus 1, or 0 while it is in no heap.
type heapOf[T item[T]] struct{ all []T }

func (h *heapOf[T]) add(e T)    { heap.Push(h, e) }
func (h *heapOf[T]) remove(e T) { heap.Remove(h, int(*e.slot()-1)) }

// first returns the first element, zero if there is none.
func (h *heapOf[T]) first() (e T) {
	if len(h.all) > 0 {
		e = h.all[0]
	}
	return e
}

// The rest implements heap.Interface.

func (h *heapOf[T]) Len() int           { return len(h.all) }
func (h *heapOf[T]) Less(i, j int) bool { return h.all[i].less(h.all[j]) }

func (h *heapOf[T]) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	*h.all[i].slot(), *h.all[j].slot() = int32(i+1), int32(j+1)
}

func (h *heapOf[T]) Push(e any) {
	h.all = append(h.all, e.(T))
	*e.(T).slot() = int32(len(h.all))
}

func (h *heapOf[T]) Pop() any {
	last := len(h.all) - 1
	e := h.all[last]
	clear(h.all[last:])
	h.all = h.all[:last]
	*e.slot() = 0

	return e
}

// Holds are events of one log that are not settled. What is settled reaches up to the first of them. They are only as
// many as there are hot devices.
type Holds struct{ all heapOf[*Hold] }

// A Hold is one event that is not settled.
type Hold struct {
	before   Place // of the event before
	enqueued int64 // when the hub took the event, in Unix µs
	index    int32 // its slot in Holds: 0 unless it is in any
}

// A Place is a position in a log.
type Place struct {
	Sequence int64
	Offset   string // empty: before the first event that was read
	Time     int64  // when the hub took the event, in Unix ns, if it is known
}

// Add has h hold the place before an event, in any order. before is that of the event before.
func (hs *Holds) Add(h *Hold, before Place, enqueued int64) {
	h.before = before
	h.enqueued = enqueued
	hs.all.add(h)
}

// Release ends what h holds, if it does.
func (hs *Holds) Release(h *Hold) {
	if h.index > 0 {
		hs.all.remove(h)
	}
}

// Len returns how many there are.
func (hs *Holds) Len() int { return hs.all.Len() }

// First returns the place before the first event that is not settled, and when the hub took that event, in Unix µs.
// Both are zero if there is none.
func (hs *Holds) First() (before Place, enqueued int64) {
	if hs.all.Len() == 0 {
		return Place{}, 0
	}
	first := hs.all.first()
	return first.before, first.enqueued
}

func (h *Hold) slot() *int32 { return &h.index }

func (h *Hold) less(than *Hold) bool { return h.before.Sequence < than.before.Sequence }
