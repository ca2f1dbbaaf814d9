package eventhubs_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
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

// Each of these would end a Processor, or leave a partition without a reader.
func TestStoreFailuresDoNotStopReading(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"ListOwnership", "ClaimOwnership", "List"} {
		t.Run(method, func(t *testing.T) {
			h := newHub(t, 2)
			s := h.source(t, h.config())
			bodies, _ := read(t, s)
			eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })

			left := h.store.failing(method, 3)
			h.Publish(t, "0", "a")
			h.Publish(t, "1", "a")
			next(t, bodies, "0:a", "1:a")
			h.Detach("") // links are opened again, from checkpoints too
			h.Publish(t, "0", "b")
			h.Publish(t, "1", "b")
			next(t, bodies, "0:b", "1:b")
			if method != "List" {
				eventually(t, "the failures to be over", func() bool { return left.Load() < 0 })
			}
			if stats := s.Stats(); stats.Restarts != 0 || stats.Lost != 0 {
				t.Errorf("%+v: want no restart and nothing lost", stats)
			}
		})
	}
}

// The Processor asks for checkpoints once, when it opens a link. If that fails
// the partition has no reader until the process ends.
func TestFailedListCheckpointsOrphansNothing(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	h.Publish(t, "0", "a")
	h.Publish(t, "1", "a")
	var calls atomic.Int64
	h.store.failWith(func(method string) error {
		if method == "List" {
			if n := calls.Add(1); n > 1 && n < 5 { // the first one is not the Processor's
				return errOnPurpose
			}
		}
		return nil
	})
	s := h.source(t, h.config())
	bodies, _ := read(t, s)
	next(t, bodies, "0:a", "1:a")
	if stats := s.Stats(); stats.Restarts != 0 {
		t.Errorf("%+v: want no restart", stats)
	}
}

// An orphan can come about in ways we do not know. Here it is a checkpoint that
// the hub refuses, given to the Processor once.
func TestOwnedAndUnreadPartitionRecyclesTheProcessor(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	h.Publish(t, "0", "a")
	h.Publish(t, "1", "a")
	config := h.config()
	config.Checkpoints = &orphaning{faultyStore: h.store}
	config.BalanceInterval, config.OwnershipExpiry = 20*time.Millisecond, 100*time.Millisecond
	s := h.source(t, config)
	bodies, _ := read(t, s)
	seen := map[string]bool{}
	eventually(t, "events of both partitions", func() bool {
		select {
		case b := <-bodies:
			seen[b] = true
		default:
		}
		return len(seen) == 2
	})
	if stats := s.Stats(); stats.Unread != 1 || stats.Restarts != 1 {
		t.Errorf("%+v: want one Processor recycled because of an unread partition", stats)
	}
}

// orphaning answers the second List with an offset that no hub has.
type orphaning struct {
	*faultyStore
	calls atomic.Int64
}

func (o *orphaning) List(ctx context.Context, prefix string) (map[string]eventhubs.Record, error) {
	all, err := o.faultyStore.List(ctx, prefix)
	if o.calls.Add(1) == 2 {
		all[prefix+"1"] = eventhubs.Record{Values: map[string]string{"sequencenumber": "0", "offset": "none"}, ETag: "none"}
	}
	return all, err
}

// A hub that accepts connections and says nothing hangs whoever talks to it:
// the question for a partition even ignores its context.
func TestSilentHubAtTheStart(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	h.Publish(t, "0", "a")
	h.setCheckpoint(t, "0", -1, "-1") // so that the partition is asked for
	s := h.source(t, h.config())
	s.Hurry(time.Millisecond, time.Hour, time.Hour, 200*time.Millisecond, 300*time.Millisecond)
	h.store.failWith(func(method string) error { // checkpoints are read right before
		if method == "List" && s.Stats().Restarts == 0 {
			h.Stall()
		}
		return nil
	})
	bodies, _ := read(t, s)
	eventually(t, "the Source to start again", func() bool { return s.Stats().Restarts > 0 })
	h.Resume()
	next(t, bodies, "0:a")
}

// A Processor that hangs while it opens a link renews nothing.
func TestHangingProcessorIsRecycled(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	s := h.source(t, h.config())
	s.Hurry(time.Millisecond, time.Hour, 500*time.Millisecond, time.Second, 300*time.Millisecond)
	fail := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reading := make(chan struct{}, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			reading <- struct{}{}
			select {
			case <-fail:
				return errors.New("consumer failed on purpose")
			case <-ctx.Done():
				return nil
			}
		})
	}()
	<-reading
	<-reading
	h.Stall()
	fail <- struct{}{} // the Processor opens a link for it, and hangs
	eventually(t, "the Source to start again", func() bool { return s.Stats().Restarts > 0 })
	h.Resume()
	<-reading
	cancel()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("Run did not return")
	}
}

// Run ends even if the hub says nothing any more.
func TestRunEndsWithASilentHub(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
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
	s.Hurry(time.Millisecond, 50*time.Millisecond, time.Hour, 10*time.Second, 300*time.Millisecond)
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

// A replica that was killed renews nothing and hands nothing back.
func TestPartitionsOfADeadReplicaAreTakenOver(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	for _, id := range h.Partitions() {
		dead := azeventhubs.Ownership{FullyQualifiedNamespace: h.Addr(), EventHubName: "telemetry", ConsumerGroup: "$default", PartitionID: id, OwnerID: "dead"}
		if got, err := h.store.MemoryCheckpoints.ClaimOwnership(t.Context(), []azeventhubs.Ownership{dead}, nil); err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
	}
	s := h.source(t, h.config())
	_, _ = read(t, s)
	eventually(t, "both partitions to be taken over", func() bool { return s.Stats().Reading == 2 })
}

func TestEndHandsPartitionsBack(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	s := h.source(t, h.config())
	_, stop := read(t, s)
	owned := func() (mine int) {
		all, err := h.store.ListOwnership(t.Context(), h.Addr(), "telemetry", "$default", nil) // as lower case as KEDA wants it
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if o.OwnerID == s.Owner() {
				mine++
			}
		}
		return mine
	}
	eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })
	if n := owned(); n != 2 {
		t.Errorf("the store has %d partitions of ours, want 2", n)
	}
	stop()
	if n := owned(); n != 0 {
		t.Errorf("the store has %d partitions of ours after Run returned, want 0", n)
	}
	if stats := s.Stats(); stats.Reading != 0 || stats.Owned != 0 || stats.Lost != 0 {
		t.Errorf("%+v: want nothing left and nothing lost", stats)
	}
}

// The end cuts off a round of claims that the store carries out all the same.
func TestEndHandsBackClaimsItCutOff(t *testing.T) {
	t.Parallel()
	for _, cutOff := range []string{"the first round", "a later round"} {
		t.Run(cutOff, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, 2)
			config := h.config()
			store := &unheard{faultyStore: h.store, asked: make(chan struct{}, 1)}
			config.Checkpoints = store
			s := h.source(t, config)
			first := cutOff == "the first round"
			store.hang.Store(first)
			_, stop := read(t, s)
			if !first {
				eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })
				store.hang.Store(true)
			}
			<-store.asked
			store.hang.Store(false)
			stop()
			all, err := h.store.ListOwnership(t.Context(), h.Addr(), "telemetry", "$default", nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range all {
				if o.OwnerID != "" {
					t.Errorf("partition %s still belongs to %s", o.PartitionID, o.OwnerID)
				}
			}
		})
	}
}

// unheard claims and answers only when nobody listens any more.
type unheard struct {
	*faultyStore
	hang  atomic.Bool
	asked chan struct{}
}

func (u *unheard) ClaimOwnership(ctx context.Context, claims []azeventhubs.Ownership, o *azeventhubs.ClaimOwnershipOptions) ([]azeventhubs.Ownership, error) {
	got, err := u.faultyStore.ClaimOwnership(ctx, claims, o)
	if u.hang.Load() {
		select {
		case u.asked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return got, err
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
	if stats := s.Stats(); stats.Restarts != 0 || stats.Lost != 0 {
		t.Errorf("%+v: want no restart and nothing lost", stats)
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
			results <- p.Checkpoint(ctx, events[0].Position)
			results <- p.Checkpoint(ctx, events[0].Position)
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
			result <- p.Checkpoint(ctx, events[0].Position)
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

// A claim whose answer was lost is not a partition lost.
func TestLostAnswerOfAClaim(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	config := h.config()
	store := &forgetful{faultyStore: h.store}
	config.Checkpoints = store
	s := h.source(t, config)
	bodies, _ := read(t, s)
	eventually(t, "both partitions to be read", func() bool { return s.Stats().Reading == 2 })
	store.forget.Store(3)
	eventually(t, "the answers to be lost", func() bool { return store.forget.Load() < 0 })
	h.Publish(t, "0", "a")
	next(t, bodies, "0:a")
	if stats := s.Stats(); stats.Lost != 0 || stats.Restarts != 0 {
		t.Errorf("%+v: want nothing lost and no restart", stats)
	}
}

// forgetful claims and then fails, as often as it is told.
type forgetful struct {
	*faultyStore
	forget atomic.Int64
}

func (f *forgetful) ClaimOwnership(ctx context.Context, claims []azeventhubs.Ownership, o *azeventhubs.ClaimOwnershipOptions) ([]azeventhubs.Ownership, error) {
	got, err := f.faultyStore.ClaimOwnership(ctx, claims, o)
	if f.forget.Add(-1) >= 0 {
		return nil, errOnPurpose
	}
	return got, err
}

var _ eventhubs.Store = (*eventhubs.MemoryCheckpoints)(nil)

// While consumers settle, their partitions are renewed and no more are taken.
func TestEndKeepsPartitionsUntilConsumersReturn(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	claim := func(o azeventhubs.Ownership) azeventhubs.Ownership {
		o.FullyQualifiedNamespace, o.EventHubName, o.ConsumerGroup, o.PartitionID = h.Addr(), "telemetry", "$default", "1"
		got, err := h.store.MemoryCheckpoints.ClaimOwnership(t.Context(), []azeventhubs.Ownership{o}, nil)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		return got[0]
	}
	others := claim(azeventhubs.Ownership{OwnerID: "another"})
	config := h.config()
	config.BalanceInterval, config.OwnershipExpiry = 20*time.Millisecond, time.Minute
	s := h.source(t, config)
	reading, settled := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			close(reading)
			<-settled
			return nil
		})
	}()
	<-reading
	owner := func(id string) (owner string, etag string) {
		all, err := h.store.MemoryCheckpoints.ListOwnership(t.Context(), h.Addr(), "telemetry", "$default", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if o.PartitionID == id {
				return o.OwnerID, string(*o.ETag)
			}
		}
		return "", ""
	}
	cancel()
	others.OwnerID = ""
	claim(others) // the other one is free from now on
	for range 3 {
		_, before := owner("0")
		eventually(t, "the partition to be renewed", func() bool {
			who, etag := owner("0")
			return who == s.Owner() && etag != before
		})
	}
	if who, _ := owner("1"); who != "" {
		t.Errorf("%s took a partition while it was ending", who)
	}
	select {
	case <-done:
		t.Error("Run returned before its consumer")
	default:
	}
	close(settled)
	<-done
	if who, _ := owner("0"); who != "" {
		t.Errorf("partition 0 still belongs to %s", who)
	}
}

// Another replica has claimed the partition and has yet to open its link: the
// hub says nothing of it.
func TestLossInTheStoreEndsReceive(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	s := h.source(t, h.config())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reading, result, done := make(chan struct{}, 10), make(chan error, 10), make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			reading <- struct{}{}
			_, err := p.Receive(t.Context())
			result <- err
			<-ctx.Done()
			return nil
		})
	}()
	<-reading
	eventually(t, "the partition to change hands", func() bool {
		all, err := h.store.MemoryCheckpoints.ListOwnership(t.Context(), h.Addr(), "telemetry", "$default", nil)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		all[0].OwnerID = "another"
		got, err := h.store.MemoryCheckpoints.ClaimOwnership(t.Context(), all, nil)
		return err == nil && len(got) == 1
	})
	select {
	case err := <-result:
		if !errors.Is(err, telemetry.ErrLost) {
			t.Errorf("Receive: %v, want ErrLost", err)
		}
	case <-time.After(patience):
		t.Error("Receive did not notice")
	}
	h.Close() // in case it did not
	cancel()
	<-done
}
