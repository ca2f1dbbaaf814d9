package eventhubs_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"alertworker/internal/telemetry/eventhubs"
)

// recorded is an eventhubs.LagRecorder: what a hub reported of its partitions.
type recorded struct {
	wanted []string
	asked  func() // called by Wanted if not nil

	mu         sync.Mutex
	rounds     int
	partitions int
	last       map[string]int64
}

func (r *recorded) Wanted() []string {
	if r.asked != nil {
		r.asked()
	}
	return r.wanted
}

func (r *recorded) HubPartitions(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds++
	r.partitions = n
}

func (r *recorded) LastSequence(partition string, sequence int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[partition] = sequence
}

func (r *recorded) seen() (rounds, partitions int, last map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rounds, r.partitions, maps.Clone(r.last)
}

// follow fills r until the test ends.
func follow(t *testing.T, s *eventhubs.Source, r *recorded) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.FollowLag(ctx, 20*time.Millisecond, r)
	}()
	t.Cleanup(func() {
		stop()
		select {
		case <-done:
		case <-time.After(waitLimit):
			t.Error("FollowLag did not return")
		}
	})
}

// It reports the wanted partitions that the hub has, and goes on reporting.
func TestFollowLag(t *testing.T) {
	h := newHub(t, 3)
	h.Publish(t, "0", "a", "b")
	r := &recorded{wanted: []string{"0", "2", "http"}, last: map[string]int64{}}
	follow(t, h.source(t, h.config()), r)

	eventually(t, "the last sequence numbers", func() bool {
		_, partitions, last := r.seen()
		_, other := last["2"]
		return partitions == 3 && last["0"] == 1 && other && len(last) == 2
	})
	h.Publish(t, "0", "c")
	eventually(t, "the next one", func() bool { _, _, last := r.seen(); return last["0"] == 2 })
}

// A broken connection and a hub that does not answer cost a round, no more.
func TestFollowLagSurvives(t *testing.T) {
	h := newHub(t, 1)
	r := &recorded{wanted: []string{"0"}, last: map[string]int64{}}
	follow(t, h.source(t, h.config()), r)
	more := func(what string) {
		before, _, _ := r.seen()
		eventually(t, what, func() bool { after, _, _ := r.seen(); return after > before+1 })
	}
	more("an answer")
	h.Reset()
	more("an answer after the connection broke")
	h.RefuseManagement(2, 401)
	more("an answer after refusals")
	h.LimitManagement(5)
	more("an answer of a hub that answers little")
}

// It returns when it is told to, also while the hub owes it an answer.
func TestFollowLagStops(t *testing.T) {
	h := newHub(t, 1)
	t.Cleanup(h.Resume)
	asked := make(chan struct{})
	r := &recorded{wanted: []string{"0"}, last: map[string]int64{}, asked: sync.OnceFunc(func() {
		h.Stall()
		close(asked)
	})}
	follow(t, h.source(t, h.config()), r)
	<-asked
}
