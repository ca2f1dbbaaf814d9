package delivery

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
