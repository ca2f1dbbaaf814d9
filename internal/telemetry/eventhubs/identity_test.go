package eventhubs_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/poison"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// watched returns a configuration of which the test sees the log.
func (h *hub) watched() (eventhubs.Config, *observer.ObservedLogs) {
	core, logs := observer.New(zap.WarnLevel)
	config := h.latest()
	config.Logger = zap.New(core)
	return config, logs
}

// replace closes the hub and makes another one at the same address.
func (h *hub) replace(t *testing.T, c devhub.Config) {
	t.Helper()
	addr := h.Addr()
	if err := h.Hub.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // the hub's clock counts in milliseconds
	c.Hub, c.Key = "Telemetry", "key"
	again, err := devhub.Listen(addr, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Close() })
	h.Hub = again
}

// newMortal returns a hub that can be replaced.
func newMortal(t *testing.T, partitions int) *hub {
	t.Helper()
	first, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "Telemetry", Key: "key", Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Close() })
	return &hub{Hub: first, store: newFaultyStore()}
}

func numbered(n int) (bodies, seen []string) {
	for i := range n {
		bodies = append(bodies, fmt.Sprint("event", i))
		seen = append(seen, fmt.Sprint("0:event", i))
	}
	return bodies, seen
}

// A hub that was deleted and made again starts its sequences again; the old
// checkpoints would hide what it has.
func TestHubMadeAgainWhileNobodyReads(t *testing.T) {
	t.Parallel()
	h := newMortal(t, 1)
	h.Publish(t, "0", "old", "older")
	config, logs := h.watched()
	config.Start = eventhubs.Start{Earliest: true}
	bodies, stop := readAndSettle(t, h.source(t, config))
	next(t, bodies, "0:old", "0:older")
	eventually(t, "a checkpoint", func() bool { return h.checkpoints(t)["0"] == 1 })
	stop()

	h.replace(t, devhub.Config{Partitions: 1})
	texts, want := numbered(5)
	h.Publish(t, "0", texts...)
	s := h.source(t, config)
	bodies, stop = readAndSettle(t, s)
	next(t, bodies, want...)
	if got := s.Stats().StartedOver; got != 1 {
		t.Errorf("%d partitions were started over, want 1", got)
	}
	if logs.FilterMessageSnippet("another hub of this name").Len() != 1 {
		t.Errorf("the log does not say it once: %v", logs.All())
	}
	eventually(t, "the checkpoint to be the new hub's", func() bool { return h.checkpoints(t)["0"] == 4 })
	stop()

	// From then on it is a checkpoint like any other.
	h.Publish(t, "0", "newer")
	s = h.source(t, config)
	bodies, _ = readAndSettle(t, s)
	next(t, bodies, "0:newer")
	if got := s.Stats().StartedOver; got != 0 {
		t.Errorf("%d partitions were started over, want none", got)
	}
}

// The same while it is being read: the client opens its links again behind the
// last sequence number that it has seen, which the new hub has passed already.
func TestHubMadeAgainWhileItIsRead(t *testing.T) {
	t.Parallel()
	h := newMortal(t, 1)
	h.Publish(t, "0", "old", "older", "oldest")
	config, _ := h.watched()
	config.Start = eventhubs.Start{Earliest: true}
	s := h.source(t, config)
	s.SetLimits(200*time.Millisecond, 50*time.Millisecond, time.Minute, 300*time.Millisecond, time.Hour)
	bodies, _ := readAndSettle(t, s)
	next(t, bodies, "0:old", "0:older", "0:oldest")
	eventually(t, "a checkpoint", func() bool { return h.checkpoints(t)["0"] == 2 })

	texts, want := numbered(6)
	h.replace(t, devhub.Config{Partitions: 1})
	h.Publish(t, "0", texts...)
	missing := map[string]bool{}
	for _, w := range want {
		missing[w] = true
	}
	eventually(t, "everything in the new hub", func() bool {
		for len(bodies) > 0 {
			delete(missing, <-bodies) // what came before it was noticed comes again
		}
		return len(missing) == 0
	})
	eventually(t, "the checkpoint to be the new hub's", func() bool { return h.checkpoints(t)["0"] == 5 })
}

// The same while a replica that has no partition stands by: nothing of its breaks, and it takes over from one that knows
// better.
func TestHubMadeAgainWhileAReplicaStandsBy(t *testing.T) {
	t.Parallel()
	h := newMortal(t, 1)
	h.own(t, "0", "another")
	config, _ := h.watched()
	config.Start = eventhubs.Start{Earliest: true}
	s := h.source(t, config) // which checks its hub every minute
	of, stop := firstGeneration(t, s)
	eventually(t, "it to know the hub", func() bool { return s.Stats().Running })

	h.replace(t, devhub.Config{Partitions: 1})
	h.Publish(t, "0", "new")
	h.set(t, "0", eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{
		Position: telemetry.Position{Offset: "0", Generation: "of the new hub"},
	}})
	got := <-of
	stop()

	of, stop = firstGeneration(t, h.source(t, config))
	if want := <-of; got != want {
		t.Errorf("the new hub's event is of generation %s, want %s", got, want)
	}
	stop()
}

// firstGeneration reads until stop, and says of which generation the first event is.
func firstGeneration(t *testing.T, s *eventhubs.Source) (of <-chan string, stop func()) {
	t.Helper()
	first := make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			events, err := p.Receive(ctx)
			if err != nil {
				return err
			}
			select {
			case first <- events[0].Generation:
			default:
			}
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	return first, func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// The same while the hub answers no question at first: who has a suspicion asks until it is answered, however long it is
// until the next check.
func TestSuspicionLastsUntilTheHubAnswers(t *testing.T) {
	t.Parallel()
	h := newMortal(t, 1)
	h.Publish(t, "0", "old", "older", "oldest")
	config, _ := h.watched()
	config.Start = eventhubs.Start{Earliest: true}
	s := h.source(t, config) // which checks its hub every hour
	bodies, _ := readAndSettle(t, s)
	next(t, bodies, "0:old", "0:older", "0:oldest")
	eventually(t, "a checkpoint", func() bool { return h.checkpoints(t)["0"] == 2 })

	texts, _ := numbered(6)
	h.replace(t, devhub.Config{Partitions: 1})
	h.RefuseManagement(2, 500)
	h.Publish(t, "0", texts...)
	eventually(t, "what is before the position in the old hub", func() bool {
		for len(bodies) > 0 {
			if <-bodies == "0:event0" {
				return true
			}
		}
		return false
	})
}

// The same, and what comes on a link that was opened meanwhile is not taken for the former hub's: the events before it
// would be missed, and come late once reading starts over.
func TestNothingIsReadBeforeTheHubSaysWhichItIs(t *testing.T) {
	t.Parallel()
	h := newMortal(t, 1)
	h.Publish(t, "0", "old", "older", "oldest")
	config, _ := h.watched()
	config.Start = eventhubs.Start{Earliest: true}
	bodies, _ := readAndSettle(t, h.source(t, config))
	next(t, bodies, "0:old", "0:older", "0:oldest")

	texts, want := numbered(6)
	h.replace(t, devhub.Config{Partitions: 1})
	h.RefuseManagement(3, 500)
	h.Publish(t, "0", texts...)
	for _, w := range want {
		next(t, bodies, w)
	}
}

// A hub that answers no question is not read on a new link, which fails for that reason until it answers.
func TestLinkWaitsForTheHubToSayWhichItIs(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "a")
	s := h.source(t, h.config())
	bodies, _ := read(t, s)
	next(t, bodies, "0:a")

	h.RefuseManagement(math.MaxInt, 500)
	h.Detach("0")
	h.Publish(t, "0", "b")
	eventually(t, "the reason to be said", func() bool {
		f := s.Stats().Faults["0"]
		return f.Err != nil && strings.Contains(f.Err.Error(), "status 500")
	})
	if len(bodies) > 0 {
		t.Errorf("it has read %s", <-bodies)
	}

	h.RefuseManagement(0, 0)
	next(t, bodies, "0:b")
}

// A checkpoint beyond the end is of another hub, whatever else it says.
func TestCheckpointBeyondTheEnd(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	h.Publish(t, "0", "first", "second")
	h.setCheckpoint(t, "0", 1_000_000, "99999999")
	h.setCheckpoint(t, "1", -1, "-1")
	config, _ := h.watched()
	s := h.source(t, config)
	bodies, _ := readAndSettle(t, s)
	next(t, bodies, "0:first", "0:second")
	eventually(t, "the checkpoint to move back", func() bool { return h.checkpoints(t)["0"] == 1 })
	if got := s.Stats().StartedOver; got != 1 {
		t.Errorf("%d partitions were started over, want 1", got)
	}
}

// What azeventhubs wrote goes on working, and is completed
// with the next write.
func TestCheckpointWithoutHubGoesOn(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "settled", "open")
	h.setCheckpoint(t, "0", 0, "0")
	config, _ := h.watched()
	s := h.source(t, config)
	bodies, _ := readAndSettle(t, s)
	next(t, bodies, "0:open")
	eventually(t, "a checkpoint that knows its hub", func() bool {
		all, _, err := eventhubs.ReadCheckpoints(t.Context(), h.store, h.group())
		c := all["0"]
		return err == nil && c.Sequence == 1 && c.Generation != "" && time.Since(c.Time) < time.Minute
	})
	if stats := s.Stats(); stats.StartedOver != 0 || stats.Expired != 0 || stats.Skipped != 0 {
		t.Errorf("%+v: want nothing amiss", stats)
	}
}

// The hub dropped what was not read yet.
func TestRetentionOverrun(t *testing.T) {
	t.Parallel()
	small, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "Telemetry", Partitions: 1, MaxEvents: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = small.Close() })
	h := &hub{Hub: small, store: newFaultyStore()}
	texts, _ := numbered(10)
	h.Publish(t, "0", texts...)
	settled := time.Now().Add(-24 * time.Hour).UTC().Truncate(time.Second)
	h.set(t, "0", eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{Position: telemetry.Position{Sequence: 3, Offset: "300", Time: settled}}})
	config, logs := h.watched()
	s := h.source(t, config)
	bodies, _ := readAndSettle(t, s)
	next(t, bodies, "0:event8", "0:event9")
	if stats := s.Stats(); stats.Expired != 4 || stats.Skipped != 0 {
		t.Errorf("%+v: want 4 events expired", stats)
	}
	said := logs.FilterMessageSnippet("events are lost").FilterField(zap.String("partition", "0")).FilterField(zap.Int64("events", 4)).FilterField(zap.Time("after_time", settled))
	if said.Len() != 1 {
		t.Errorf("the log does not say which, how many and from when: %v", logs.All())
	}
}

// The client drops an event that it cannot read without a word, for example one
// whose partition key is no string. No event goes uncounted.
func TestEventsThatTheClientDropsAreCounted(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "a")
	for range 2 {
		if _, err := h.Hub.Publish(devhub.Message{Device: "d", Partition: "0", Annotations: map[string]any{"x-opt-partition-key": int64(1)}}); err != nil {
			t.Fatal(err)
		}
	}
	h.Publish(t, "0", "b")
	s := h.source(t, h.config())
	bodies, _ := read(t, s)
	received := int64(0)
	for b := ""; b != "0:b"; received++ {
		select {
		case b = <-bodies:
		case <-time.After(waitLimit):
			t.Fatal("the last event did not come")
		}
	}
	if stats := s.Stats(); received+stats.Skipped != 4 || stats.Expired != 0 {
		t.Errorf("%d events came, and %+v: want 4 in all that came or were skipped", received, stats)
	}
}

// The hub drops events while reading pauses.
func TestRetentionOverrunsAPause(t *testing.T) {
	t.Parallel()
	small, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "Telemetry", Partitions: 1, MaxEvents: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = small.Close() })
	h := &hub{Hub: small, store: newFaultyStore()}
	const published = 500 // more than the hub looks ahead for a reader
	h.Publish(t, "0", "0")
	config, logs := h.watched()
	config.Start, config.Prefetch = eventhubs.Start{Earliest: true}, 1
	s := h.source(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var received int64
	if err := s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
		defer cancel()
		for {
			events, err := p.Receive(ctx)
			if err != nil {
				t.Error(err)
				return err
			}
			if received += int64(len(events)); received == 1 {
				texts, _ := numbered(published)
				h.Publish(t, "0", texts...)
			}
			if events[len(events)-1].Sequence == published {
				return nil
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if stats := s.Stats(); stats.Skipped == 0 || received+stats.Skipped != published+1 {
		t.Errorf("%d events came and %d were skipped, of %d", received, stats.Skipped, published+1)
	}
	if n := logs.FilterMessageSnippet("events are missing").FilterField(zap.String("partition", "0")).Len(); n != 1 {
		t.Errorf("the log says it %d times, want once", n)
	}
}

// Two replicas start for the first time, and this one is late: between its look
// and its write the other one has begun to read, and events have come that it
// has not settled.
func TestFirstCheckpointLeavesAnothersAlone(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "old")
	var once atomic.Bool
	h.store.failWith(func(method string) error {
		if method == "Write" && once.CompareAndSwap(false, true) {
			h.setCheckpoint(t, "0", 0, "0") // the other replica's, from when there was one event
		}
		return nil
	})
	// What this one finds to be the latest.
	h.Publish(t, "0", "not settled yet")
	config, _ := h.watched()
	bodies, _ := readAndSettle(t, h.source(t, config))
	next(t, bodies, "0:not settled yet")
}

// A consumer's checkpoints while others write the same: forward only, one call
// each unless somebody else wrote, and never a list.
func TestCheckpointsMoveForward(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "a")
	s := h.source(t, h.config())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	var lists, reads, writes atomic.Int64
	_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
		defer cancel()
		h.store.failWith(func(method string) error {
			switch method {
			case "List":
				lists.Add(1)
			case "Read":
				reads.Add(1)
			case "Write":
				writes.Add(1)
			}
			return nil
		})
		failed <- func() error {
			for _, step := range []struct {
				others, own, want    int64 // others writes nothing if it is 0
				reads, writes, lists int64 // so far
			}{
				{0, 5, 5, 1, 1, 0}, // nothing is known yet
				{0, 6, 6, 1, 2, 0},
				{0, 7, 7, 1, 3, 0},
				{0, 6, 7, 1, 3, 0}, // not back
				{9, 8, 9, 2, 4, 0}, // the other one was further
				{10, 12, 12, 3, 6, 0},
			} {
				if step.others > 0 {
					h.setCheckpoint(t, "0", step.others, "1")
				}
				if err := p.Checkpoint(ctx, telemetry.Checkpoint{Position: telemetry.Position{Sequence: step.own, Offset: "1"}}); err != nil {
					return err
				}
				got := h.checkpoints(t)["0"]
				if got != step.want || reads.Load() != step.reads || writes.Load() != step.writes || lists.Load() != step.lists {
					return fmt.Errorf("%+v: the checkpoint is at %d after %d reads, %d writes and %d lists", step, got, reads.Load(), writes.Load(), lists.Load())
				}
			}
			return nil
		}()
		return nil
	})
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

// What somebody else put where a checkpoint belongs costs only that partition its checkpoint: it is read from the earliest
// event, once, because its next checkpoint takes that place. One that names no partition costs nothing.
func TestForeignRecordCostsOnePartition(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	h.Publish(t, "0", "settled", "open")
	h.Publish(t, "1", "a", "b")
	h.setCheckpoint(t, "0", 0, "0")
	foreign := h.group().Checkpoint("1")
	for _, name := range []string{foreign, h.group().Checkpoint("README")} {
		if _, err := h.store.well.Write(t.Context(), records.Record{Name: name, Values: map[string]string{"author": "someone"}}); err != nil {
			t.Fatal(err)
		}
	}
	config, logs := h.watched()
	for n := range 2 {
		bodies, stop := readAndSettle(t, h.source(t, config))
		if n == 0 {
			next(t, bodies, "0:open", "1:a", "1:b")
		}
		h.Publish(t, "1", fmt.Sprint("later ", n))
		next(t, bodies, fmt.Sprint("1:later ", n))
		eventually(t, "the checkpoint", func() bool { return h.checkpoints(t)["1"] == int64(2+n) })
		stop()
		said := logs.FilterMessageSnippet("a checkpoint cannot be read")
		if said.Len() != 1 || said.FilterField(zap.String("name", foreign)).Len() != 1 {
			t.Errorf("the log has not said it once: %v", logs.All())
		}
	}
}

// A message that does not tell its number proves nothing: neither that events are
// missing nor that the hub is another one. Read again and again it moves no checkpoint.
func TestLostNumbersProveNothing(t *testing.T) {
	t.Parallel()
	var lost poison.Message
	for _, m := range poison.Messages() {
		if m.Name == "no annotations" {
			lost = m
		}
	}
	h := newHub(t, 1)
	config, logs := h.watched()
	config.Start = eventhubs.Start{Earliest: true}
	h.Publish(t, "0", "a")
	h.publishPoison(t, "0", lost)
	for _, begun := range []string{"0:a", "", ""} {
		s := h.source(t, config)
		bodies, stop := readAndSettle(t, s)
		if begun != "" {
			next(t, bodies, begun)
		}
		select {
		case <-bodies: // the message
		case <-time.After(waitLimit):
			t.Fatal("the message did not come")
		}
		eventually(t, "the checkpoint", func() bool { return h.checkpoints(t)["0"] == 0 })
		stop()
		if at := h.checkpoints(t)["0"]; at != 0 {
			t.Errorf("the checkpoint is at %d, want 0: the last with a sequence number", at)
		}
		if stats := s.Stats(); stats.Expired+stats.Skipped+int64(stats.StartedOver) != 0 {
			t.Errorf("%+v: want nothing lost and nothing started over", stats)
		}
	}
	h.publishPoison(t, "0", lost)
	h.Publish(t, "0", "b")
	s := h.source(t, config)
	bodies, _ := readAndSettle(t, s)
	for b := ""; b != "0:b"; {
		select {
		case b = <-bodies:
		case <-time.After(waitLimit):
			t.Fatal("the last event did not come")
		}
	}
	eventually(t, "the checkpoint at the last event", func() bool { return h.checkpoints(t)["0"] == 3 })
	if stats := s.Stats(); stats.Expired+stats.Skipped+int64(stats.StartedOver)+stats.Reopened != 0 {
		t.Errorf("%+v: want nothing lost, nothing started over and no link opened again", stats)
	}
	if n := logs.FilterMessageSnippet("lost").Len() + logs.FilterMessageSnippet("starting over where").Len(); n != 0 {
		t.Errorf("logged %v", logs.All())
	}
}
