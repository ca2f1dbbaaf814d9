package eventhubs

import "sync"

// maxEventBytes is the largest event that IoT Hub accepts. Every event that has been
// asked for counts as that large, since its size is not known before it comes.
const maxEventBytes = 256 << 10

// A budget bounds the events that the partitions of a replica have asked for and
// still hold, so that whatever comes fits into memory. Half of it is divided
// equally among all partitions of the hub. A partition that needs more borrows from
// the other half, at most half of what is left there, so that something is left for
// the next one. Nobody waits: every partition always has its share, at least one
// event. Safe for concurrent use.
type budget struct {
	share int // of each partition, in events

	mu   sync.Mutex
	free int // events left to borrow
}

// newBudget divides bytes among partitions; each gets one event at least.
func newBudget(bytes, partitions int) *budget {
	events, partitions := bytes/maxEventBytes, max(1, partitions)
	share := max(1, events/2/partitions)
	return &budget{share: share, free: max(0, events-share*partitions)}
}

// exchange returns what was borrowed and borrows again: up to want as far as the
// budget allows, but at least need, which must not exceed what was borrowed.
func (b *budget) exchange(borrowed, need, want int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += borrowed
	got := max(need, min(want, b.free/2))
	b.free -= got
	return got
}

// A credit is how many events a partition may have asked for and hold: its share of
// the budget and what it has borrowed, at most limit. Not safe for concurrent use.
type credit struct {
	budget   *budget
	limit    int
	borrowed int
	asked    int // events asked for that have not come yet
}

// ask returns how many events should be on request while held others are in use:
// as many as are already, or, once half of those have come, all that there is room
// for. So most calls send the hub nothing.
func (c *credit) ask(held int) int {
	room := min(c.limit, c.budget.share+c.borrowed)
	if c.asked > room/2 {
		return c.asked
	}
	share := min(c.limit, c.budget.share)
	c.borrowed = c.budget.exchange(c.borrowed, max(0, c.asked+held-share), c.limit-share)
	c.asked = max(c.asked, share+c.borrowed-held)
	return c.asked
}

// took records that n events came.
func (c *credit) took(n int) { c.asked = max(0, c.asked-n) }

// close returns what is borrowed. The hub must have stopped sending.
func (c *credit) close() {
	c.budget.exchange(c.borrowed, 0, 0)
	c.borrowed = 0
}
