package eventhubs

import "sync"

// maxEventBytes is what an event may weigh at most: what IoT Hub takes. An
// event that is asked for counts as that much, because nobody knows what will come.
const maxEventBytes = 256 << 10

// A budget bounds the events that the partitions of a replica have asked for and
// not yet settled or dropped, so that whatever comes fits into memory. Half of it
// is divided among all partitions that the hub has; who needs more than its
// share borrows from the other half, at most half of what is left there, so
// that there is always something left for the next one. Nobody waits: a
// partition that gets nothing has its share, at least one event. Safe for
// concurrent use.
type budget struct {
	share int // of each partition, in events

	mu   sync.Mutex
	free int // of the half to borrow from
}

// newBudget divides bytes among partitions. Less than one event for each of
// them is one event for each.
func newBudget(bytes, partitions int) *budget {
	events, partitions := bytes/maxEventBytes, max(1, partitions)
	share := max(1, events/2/partitions)
	return &budget{share: share, free: max(0, events-share*partitions)}
}

// exchange gives back what was borrowed and borrows anew: as much of want as may
// be, and never less than need, which is at most what was borrowed.
func (b *budget) exchange(borrowed, need, want int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += borrowed
	got := max(need, min(want, b.free/2))
	b.free -= got
	return got
}

// A window is how many events a partition may have asked the hub for and hold:
// its share of the budget and what it borrows, at most limit. Not safe for concurrent use.
type window struct {
	budget   *budget
	limit    int
	borrowed int
	asked    int // events asked for that have not come
}

// ask returns how many events to have asked for while held of those that came are
// still in use: what is asked for already, or once that is half used up all
// there is room for. So most calls need not tell the hub anything.
func (w *window) ask(held int) int {
	room := min(w.limit, w.budget.share+w.borrowed)
	if w.asked > room/2 {
		return w.asked
	}
	share := min(w.limit, w.budget.share)
	w.borrowed = w.budget.exchange(w.borrowed, max(0, w.asked+held-share), w.limit-share)
	w.asked = max(w.asked, share+w.borrowed-held)
	return w.asked
}

// took says that n events came.
func (w *window) took(n int) { w.asked = max(0, w.asked-n) }

// close gives back what is borrowed, once the hub has been told to send nothing more.
func (w *window) close() {
	w.budget.exchange(w.borrowed, 0, 0)
	w.borrowed = 0
}
