package metrics

import (
	"maps"
	"slices"
	"sync"
	"time"

	"alertworker/internal/telemetry"
	"alertworker/internal/worker"
)

// staleAfter is for how long what the hub said of a partition's end is shown.
const staleAfter = time.Minute

// Ends know where partitions end, and so how far behind their readers are.
// Whoever asks the hub fills them, every 15 s or so. They are safe for concurrent use.
type Ends struct {
	states func() []worker.PartitionState

	mu         sync.Mutex
	partitions int
	lags       map[string]lag
	asked      map[string]int64 // up to where each partition was read when Wanted was called
}

// A lag is how far behind a reader was when the hub was asked.
type lag struct {
	asked    time.Time
	first    int64     // where the partition ended when it was asked about first
	caughtUp time.Time // when the reader was seen at the end last; zero if never
	events   int64
	waited   time.Duration // the oldest of them, at most
}

func newEnds(states func() []worker.PartitionState) *Ends {
	return &Ends{states: states, lags: map[string]lag{}}
}

// Wanted returns the partitions to ask about: those that are being read.
func (e *Ends) Wanted() []string {
	states := byPartition(e.states())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = map[string]int64{}
	for id, s := range states {
		if s.Read != (telemetry.Position{}) {
			e.asked[id] = s.Read.Sequence
		}
	}
	maps.DeleteFunc(e.lags, func(id string, _ lag) bool {
		_, ok := states[id]
		return !ok
	})
	return slices.Sorted(maps.Keys(states))
}

// Partitions says that the hub has n of them.
func (e *Ends) Partitions(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.partitions = n
}

// End says that sequence is that of the last event in a partition, now. If more
// had been read before the hub was asked, the hub is not the one that was read,
// and the lag is not known.
//
// Until the reader has read its first event nobody here knows where it stands, and
// only events that came since the first End count.
func (e *Ends) End(partition string, sequence int64) {
	now := time.Now()
	state, ok := byPartition(e.states())[partition]
	if !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if read, ok := e.asked[partition]; ok && sequence < read {
		delete(e.lags, partition)
		return
	}
	l, seen := e.lags[partition]
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
	l.waited = 0
	if l.events == 0 {
		l.caughtUp = now
	} else {
		// Both are bounds: the oldest unread event came after the reader was at the end, and
		// after the last one read.
		since := l.caughtUp
		if read && state.ReadUntil.After(since) {
			since = state.ReadUntil
		}
		l.waited = max(0, now.Sub(since))
	}
	e.lags[partition] = l
}

func (e *Ends) hubPartitions() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.partitions
}

// lag returns the lag of a partition. False if it is not known, or not any more.
func (e *Ends) lag(partition string, now time.Time) (lag, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, ok := e.lags[partition]
	return l, ok && now.Sub(l.asked) < staleAfter
}
