package metrics

import (
	"maps"
	"slices"
	"sync"
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

	mu            sync.Mutex
	hubPartitions int
	lags          map[string]lag
	read          map[string]int64 // the sequence number read last when Wanted was called, by partition
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

// Wanted returns the partitions to ask the hub about: those that are being read.
func (t *LagTracker) Wanted() []string {
	states := byPartition(t.states())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read = map[string]int64{}
	for id, s := range states {
		if s.Read != (telemetry.Position{}) {
			t.read[id] = s.Read.Sequence
		}
	}

	maps.DeleteFunc(t.lags, func(id string, _ lag) bool {
		_, ok := states[id]
		return !ok
	})
	return slices.Sorted(maps.Keys(states))
}

// HubPartitions reports that the hub has n partitions.
func (t *LagTracker) HubPartitions(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hubPartitions = n
}

// LastSequence reports the sequence number of the last event in a partition, now. If more
// had been read before the hub was asked, this is not the hub that was read,
// and the lag is unknown.
//
// Until the first event is read, the reader's position is unknown, and
// only events that arrived since the first LastSequence count.
func (t *LagTracker) LastSequence(partition string, sequence int64) {
	now := time.Now()
	state, ok := byPartition(t.states())[partition]
	if !ok {
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	if read, ok := t.read[partition]; ok && sequence < read {
		delete(t.lags, partition)
		return
	}

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
		if read && state.ReadUntil.After(since) {
			since = state.ReadUntil
		}

		l.waited = max(0, now.Sub(since))
	}

	t.lags[partition] = l
}

func (t *LagTracker) partitions() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hubPartitions
}

// Late returns how long the oldest event that has not been read may have waited, of all partitions that are being
// read: an upper bound. It is 0 while the hub does not answer.
func (t *LagTracker) Late() (most time.Duration) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, l := range t.lags {
		if now.Sub(l.asked) < staleAfter {
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
