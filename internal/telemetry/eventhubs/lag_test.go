package eventhubs_test

import (
	"maps"
	"sync"
	"testing"
	"time"
)

// recorded is what a hub reported of its partitions.
type recorded struct {
	mu         sync.Mutex
	rounds     int
	partitions int
	last       map[string]int64
}

func (r *recorded) record(partitions int, last map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds++
	r.partitions = partitions
	maps.Copy(r.last, last)
}

func (r *recorded) seen() (rounds, partitions int, last map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rounds, r.partitions, maps.Clone(r.last)
}

// It reports the partitions that are read, and goes on reporting, also after a broken connection and after a hub that does
// not answer.
func TestLag(t *testing.T) {
	h := newHub(t, 3)
	h.Publish(t, "0", "a", "b")
	s := h.source(t, h.config())
	s.SetLimits(time.Millisecond, 20*time.Millisecond, time.Minute, 300*time.Millisecond, time.Hour)
	r := &recorded{last: map[string]int64{}}
	s.RecordEnds(r.record)
	_, stop := read(t, s)
	t.Cleanup(stop)

	eventually(t, "the last sequence numbers", func() bool {
		_, partitions, last := r.seen()
		return partitions == 3 && last["0"] == 1 && len(last) == 3
	})
	h.Publish(t, "0", "c")
	eventually(t, "the next one", func() bool { _, _, last := r.seen(); return last["0"] == 2 })

	more := func(what string) {
		before, _, _ := r.seen()
		eventually(t, what, func() bool { after, _, _ := r.seen(); return after > before+1 })
	}
	h.Reset()
	more("an answer after the connection broke")
	h.RefuseManagement(2, 401)
	more("an answer after refusals")
	h.LimitManagement(5)
	more("an answer of a hub that answers little")
}
