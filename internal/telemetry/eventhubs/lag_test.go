package eventhubs_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"alertworker/internal/telemetry/eventhubs"
)

// ends are what a hub said of its partitions.
type ends struct {
	wanted []string
	asked  func() // called by Wanted if not nil

	mu         sync.Mutex
	rounds     int
	partitions int
	last       map[string]int64
}

func (e *ends) Wanted() []string {
	if e.asked != nil {
		e.asked()
	}
	return e.wanted
}

func (e *ends) Partitions(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rounds++
	e.partitions = n
}

func (e *ends) End(partition string, sequence int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last[partition] = sequence
}

func (e *ends) seen() (rounds, partitions int, last map[string]int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rounds, e.partitions, maps.Clone(e.last)
}

// follow fills e until the test ends.
func follow(t *testing.T, s *eventhubs.Source, e *ends) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.FollowEnds(ctx, 20*time.Millisecond, e)
	}()
	t.Cleanup(func() {
		stop()
		select {
		case <-done:
		case <-time.After(waitLimit):
			t.Error("FollowEnds did not return")
		}
	})
}

// It tells of the partitions wanted that the hub has, and goes on telling.
func TestFollowEnds(t *testing.T) {
	h := newHub(t, 3)
	h.Publish(t, "0", "a", "b")
	e := &ends{wanted: []string{"0", "2", "http"}, last: map[string]int64{}}
	follow(t, h.source(t, h.config()), e)

	eventually(t, "the ends", func() bool {
		_, partitions, last := e.seen()
		_, other := last["2"]
		return partitions == 3 && last["0"] == 1 && other && len(last) == 2
	})
	h.Publish(t, "0", "c")
	eventually(t, "the next end", func() bool { _, _, last := e.seen(); return last["0"] == 2 })
}

// A broken connection and a hub that does not answer cost a round, no more.
func TestFollowEndsSurvives(t *testing.T) {
	h := newHub(t, 1)
	e := &ends{wanted: []string{"0"}, last: map[string]int64{}}
	follow(t, h.source(t, h.config()), e)
	more := func(what string) {
		before, _, _ := e.seen()
		eventually(t, what, func() bool { after, _, _ := e.seen(); return after > before+1 })
	}
	more("an answer")
	h.Reset()
	more("an answer after the connection broke")
	h.RefuseManagement(2, 401)
	more("an answer after refusals")
}

// It returns when it is told to, also while the hub owes it an answer.
func TestFollowEndsStops(t *testing.T) {
	h := newHub(t, 1)
	t.Cleanup(h.Resume)
	asked := make(chan struct{})
	e := &ends{wanted: []string{"0"}, last: map[string]int64{}, asked: sync.OnceFunc(func() {
		h.Stall()
		close(asked)
	})}
	follow(t, h.source(t, h.config()), e)
	<-asked
}
