package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"alertworker/internal/partition"
	"alertworker/internal/telemetry"
)

// staleAfter is how long the hub's last answer about a partition is shown. One of 1,024 may be asked about once a minute.
const staleAfter = 2 * time.Minute

// A LagTracker computes how far reading is behind the ends of partitions. Whoever
// asks the hub reports to it, every 15 s or so. It is safe for concurrent use.
type LagTracker struct {
	states func() []partition.State

	hubPartitions atomic.Int64

	mu   sync.Mutex
	lags map[string]lag
}

// A lag is how far behind a reader was when the hub was asked.
type lag struct {
	asked    time.Time
	first    int64     // the partition's last sequence number when the hub was first asked
	caughtUp time.Time // when the reader was last seen at the end; zero if never
	events   int64
	waited   time.Duration // the oldest of them, at most
	behind   int64         // events after the checkpoint
}

// Record reports that the hub has so many partitions, and the sequence numbers of the last events of those that it was
// asked about, now. Until the first event of one is read, the reader's position is unknown, and only events that arrived
// since the first Record count.
func (t *LagTracker) Record(partitions int, last map[string]int64) {
	t.hubPartitions.Store(int64(partitions))
	states := byPartition(t.states())
	t.mu.Lock()
	defer t.mu.Unlock()

	maps.DeleteFunc(t.lags, func(id string, _ lag) bool {
		_, ok := states[id]
		return !ok
	})
	for id, sequence := range last {
		if state, ok := states[id]; ok {
			t.last(id, sequence, state)
		}
	}
}

// last records the sequence number of the last event of a partition that is read. The caller holds t.mu.
func (t *LagTracker) last(partition string, sequence int64, state partition.State) {
	now := time.Now()
	l, seen := t.lags[partition]
	if !seen {
		l.first = sequence
	}

	read := state.Read != telemetry.Position{}
	from := l.first
	if read {
		from = state.Read.Sequence
	}

	l.asked = now
	l.events = max(0, sequence-from) // more was read since the hub was asked

	switch {
	case state.Committed != telemetry.Position{}:
		l.behind = max(0, sequence-state.Committed.Sequence)
	case read: // from the checkpoint on, and none has been written since
		l.behind = max(0, sequence-state.First+1)
	default:
		l.behind = l.events
	}

	l.waited = 0
	if l.events == 0 {
		l.caughtUp = now
	} else {
		// Both are bounds: the oldest unread event arrived after the reader was at the end, and
		// after the last event read.
		since := l.caughtUp
		if state.ReadUntil.After(since) {
			since = state.ReadUntil
		}

		l.waited = max(0, now.Sub(since))
	}

	t.lags[partition] = l
}

// Late returns how long the oldest event that has not been read may have waited, of all partitions that are being
// read: an upper bound. It is 0 while the hub does not answer.
func (t *LagTracker) Late() (most time.Duration) {
	now, states := time.Now(), byPartition(t.states())
	t.mu.Lock()
	defer t.mu.Unlock()

	for id, l := range t.lags {
		if _, isRead := states[id]; isRead && now.Sub(l.asked) < staleAfter {
			most = max(most, l.waited)
		}
	}

	return most
}

// lag returns the lag of a partition; false if it is unknown or out of date.
func (t *LagTracker) lag(partition string, now time.Time) (lag, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.lags[partition]
	return l, ok && now.Sub(l.asked) < staleAfter
}
