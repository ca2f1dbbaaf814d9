package eventhubs_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/transport"
)

var errOnPurpose = errors.New("store failed on purpose")

// failing makes the next n calls of a method fail. The count is what is left.
func (s *faultyStore) failing(method string, n int64) (left *atomic.Int64) {
	left = new(atomic.Int64)
	left.Store(n)
	s.failWith(func(m string) error {
		if m == method && left.Add(-1) >= 0 {
			return errOnPurpose
		}
		return nil
	})
	return left
}

// None of these disturbs who reads or leaves a partition without a reader.
func TestStoreFailuresDoNotStopReading(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"ListOwnership", "Claim", "Beat", "List"} {
		t.Run(method, func(t *testing.T) {
			h := newHub(t, 2)
			s := h.source(t, h.config())
			bodies, _ := read(t, s)
			eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })

			left := new(atomic.Int64)
			left.Store(3)
			fail := func(m string) error {
				if m == method && left.Add(-1) >= 0 {
					return errOnPurpose
				}
				return nil
			}
			h.store.failWith(fail)
			h.Publish(t, "0", "a")
			h.Publish(t, "1", "a")
			next(t, bodies, "0:a", "1:a")
			h.Detach("") // links are opened again, from checkpoints too
			h.Publish(t, "0", "b")
			h.Publish(t, "1", "b")
			next(t, bodies, "0:b", "1:b")
			if method == "ListOwnership" || method == "Beat" {
				eventually(t, "the failures to be over", func() bool { return left.Load() < 0 })
			}
			if stats := s.Stats(); stats.Lost != 0 {
				t.Errorf("%+v: want nothing lost", stats)
			}
		})
	}
}

// A checkpoint that cannot be read at first holds up nothing but its partition.
func TestFailedReadsOfCheckpoints(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	h.Publish(t, "0", "a")
	h.Publish(t, "1", "a")
	left := h.store.failing("Read", 3)
	bodies, _ := read(t, h.source(t, h.config()))
	next(t, bodies, "0:a", "1:a")
	if left.Load() >= 0 {
		t.Error("no checkpoint was read")
	}
}

// A hub that accepts connections and says nothing hangs whoever talks to it:
// the question for a partition even ignores its context.
func TestSilentHubAtTheStart(t *testing.T) { overBoth(t, silentHubAtTheStart) }

func silentHubAtTheStart(t *testing.T, over transport.Transport) {
	h := newHub(t, 2).over(over)
	h.Publish(t, "0", "a")
	h.setCheckpoint(t, "0", -1, "-1") // so that the partition is asked for
	s := h.source(t, h.config())
	s.SetQueryLimit(200 * time.Millisecond)
	stall := sync.OnceFunc(h.Stall)
	h.store.failWith(func(method string) error { // checkpoints are read right before
		if method == "List" {
			stall()
		}
		return nil
	})
	bodies, _ := read(t, s)
	eventually(t, "the Source to give up", func() bool { return s.Stats().Hub.Err != nil })
	h.Resume()
	next(t, bodies, "0:a")
}

// A hub that says nothing while a link is opened does not hold it up for longer than the hub
// is silent.
func TestSilentHubWhileOpening(t *testing.T) { overBoth(t, silentHubWhileOpening) }

func silentHubWhileOpening(t *testing.T, over transport.Transport) {
	h := newHub(t, 2).over(over)
	s := h.source(t, h.config())
	s.SetLimits(time.Millisecond, time.Hour, 300*time.Millisecond, 200*time.Millisecond, time.Hour)
	bodies, _ := read(t, s)
	eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })
	before := s.Stats().Reopened // a slow machine may have needed several attempts
	h.Stall()
	h.Reset()
	eventually(t, "some attempts at both partitions, and why they fail", func() bool {
		stats := s.Stats()
		first, second := stats.Faults["0"], stats.Faults["1"]
		return stats.Reopened > before+3 && first.Err != nil && second.Err != nil && !first.Since.IsZero() && !second.Since.IsZero()
	})
	h.Resume()
	h.Publish(t, "0", "a")
	h.Publish(t, "1", "a")
	next(t, bodies, "0:a", "1:a")
	eventually(t, "nothing to be wrong", func() bool { return len(s.Stats().Faults) == 0 }) // a slow machine may need another attempt
	if stats := s.Stats(); stats.Lost != 0 {
		t.Errorf("%+v: want nothing lost", stats)
	}
}

// Run ends even if the hub says nothing any more.
func TestRunEndsWithASilentHub(t *testing.T) { overBoth(t, runEndsWithASilentHub) }

func runEndsWithASilentHub(t *testing.T, over transport.Transport) {
	h := newHub(t, 2).over(over)
	s := h.source(t, h.config())
	_, stop := read(t, s)
	eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })
	h.Stall()
	defer h.Resume()
	stop()
}

func TestPartitionsThatAreAddedAreRead(t *testing.T) {
	t.Parallel()
	few, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "Telemetry", Partitions: 1, Key: "key"})
	if err != nil {
		t.Fatal(err)
	}
	h := &hub{Hub: few, store: newFaultyStore()}
	s := h.source(t, h.config())
	s.SetLimits(time.Millisecond, 50*time.Millisecond, time.Minute, 300*time.Millisecond, time.Hour)
	bodies, _ := read(t, s)
	h.Publish(t, "0", "a")
	next(t, bodies, "0:a")
	addr := few.Addr()
	if err := few.Close(); err != nil {
		t.Fatal(err)
	}
	many, err := devhub.Listen(addr, devhub.Config{Hub: "Telemetry", Partitions: 3, Key: "key"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { many.Close() })
	h.Hub = many
	h.Publish(t, "2", "b")
	next(t, bodies, "2:b")
}

// The store says nothing for longer than ownerships last. Reading goes on, and
// checkpoints work again afterwards.
func TestStoreOutage(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	config := h.config()
	config.BalanceInterval, config.OwnershipExpiry = 20*time.Millisecond, 100*time.Millisecond
	s := h.source(t, config)
	bodies, _ := read(t, s)
	eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })
	h.store.failWith(func(string) error { return errOnPurpose })
	began := time.Now()
	for n := 0; time.Since(began) < 3*config.OwnershipExpiry; n++ {
		h.Publish(t, "0", "x")
		next(t, bodies, "0:x")
		time.Sleep(10 * time.Millisecond) // the outage lasts as long as it lasts
	}
	h.store.failWith(func(string) error { return nil })
	if stats := s.Stats(); stats.Lost != 0 {
		t.Errorf("%+v: want nothing lost", stats)
	}
	h.Publish(t, "1", "y")
	next(t, bodies, "1:y")
}

func TestFailedCheckpointCanBeRepeated(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "a")
	results := make(chan error, 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.source(t, h.config()).Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			events, err := p.Receive(ctx)
			if err != nil {
				return err
			}
			h.store.failing("Write", 1)
			results <- p.Checkpoint(ctx, telemetry.Checkpoint{Position: events[0].Position})
			results <- p.Checkpoint(ctx, telemetry.Checkpoint{Position: events[0].Position})
			<-ctx.Done()
			return nil
		})
	}()
	if err := <-results; !errors.Is(err, errOnPurpose) {
		t.Errorf("Checkpoint: %v, want the store's error", err)
	}
	if err := <-results; err != nil {
		t.Errorf("Checkpoint again: %v", err)
	}
	cancel()
	<-done
	if got := h.checkpoints(t); got["0"] != 0 || len(got) != 1 {
		t.Errorf("checkpoints are %v, want 0 at 0", got)
	}
}

// Another owner came further; ours must not take that back.
func TestCheckpointDoesNotRewindAnotherOwners(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "a", "b", "c")
	result := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.source(t, h.config()).Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			events, err := p.Receive(ctx)
			if err != nil {
				return err
			}
			h.setCheckpoint(t, "0", 2, "2")
			result <- p.Checkpoint(ctx, telemetry.Checkpoint{Position: events[0].Position})
			<-ctx.Done()
			return nil
		})
	}()
	if err := <-result; err != nil {
		t.Error(err)
	}
	cancel()
	<-done
	if got := h.checkpoints(t)["0"]; got != 2 {
		t.Errorf("the checkpoint is at %d, want 2", got)
	}
}
