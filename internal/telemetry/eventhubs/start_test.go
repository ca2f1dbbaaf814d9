package eventhubs_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

const waitLimit = 2 * time.Minute

// read runs a Source and hands out what it receives, as "partition:body",
// until the test ends or stop is called.
func read(t *testing.T, s *eventhubs.Source) (bodies <-chan string, stop func()) {
	t.Helper()
	return readThen(t, s, func(context.Context, telemetry.Partition, telemetry.Position) error { return nil })
}

// readAndSettle is read with a checkpoint after every batch.
func readAndSettle(t *testing.T, s *eventhubs.Source) (bodies <-chan string, stop func()) {
	t.Helper()
	return readThen(t, s, func(ctx context.Context, p telemetry.Partition, last telemetry.Position) error {
		if err := p.Checkpoint(context.WithoutCancel(ctx), telemetry.Checkpoint{Position: last}); !errors.Is(err, telemetry.ErrLost) {
			return err
		}
		return nil
	})
}

// readThen is read with a call of then after every batch.
func readThen(t *testing.T, s *eventhubs.Source, then func(context.Context, telemetry.Partition, telemetry.Position) error) (bodies <-chan string, stop func()) {
	t.Helper()
	received := make(chan string, 10_000)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			for {
				events, err := p.Receive(ctx)
				if err != nil {
					return err
				}
				for _, e := range events {
					if e.MessageSource == telemetry.SourceExpired {
						continue
					}
					received <- p.ID() + ":" + string(e.Body)
				}
				if err := then(ctx, p, events[len(events)-1].Position); err != nil {
					return err
				}
			}
		}); err != nil {
			t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(waitLimit):
			t.Error("Run did not return")
		}
	}
	t.Cleanup(stop)
	return received, stop
}

// eventually polls, for what is seen nowhere else.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain for %s", waitLimit, what)
		}
	}
}

// next waits for these bodies and no others, in any order.
func next(t *testing.T, bodies <-chan string, want ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, w := range want {
		missing[w] = true
	}
	end := time.After(waitLimit)
	for len(missing) > 0 {
		select {
		case b := <-bodies:
			if !missing[b] {
				t.Fatalf("got %s, want %v", b, want)
			}
			delete(missing, b)
		case <-end:
			t.Fatalf("waited %v in vain for %v", waitLimit, missing)
		}
	}
}

// checkpoints are the sequences in the store, by partition.
func (h *hub) checkpoints(t *testing.T) map[string]int64 {
	t.Helper()
	all, _, err := eventhubs.ReadCheckpoints(t.Context(), &h.store.well, h.group())
	if err != nil {
		t.Fatal(err)
	}
	sequences := map[string]int64{}
	for id, c := range all {
		sequences[id] = c.Sequence
	}
	return sequences
}

func (h *hub) group() eventhubs.Group { return eventhubs.NewGroup(h.Addr(), "telemetry", "$default") }

// setCheckpoint writes one as azeventhubs does.
func (h *hub) setCheckpoint(t *testing.T, partition string, sequence int64, offset string) {
	t.Helper()
	h.set(t, partition, eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{Position: telemetry.Position{Sequence: sequence, Offset: offset}}})
}

func (h *hub) set(t *testing.T, partition string, c eventhubs.StoredCheckpoint) {
	t.Helper()
	name := h.group().Checkpoint(partition)
	present, err := h.store.well.Stat(t.Context(), name)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := h.store.well.Write(t.Context(), records.Record{Name: name, Values: c.Values(), ETag: present.ETag}); err != nil {
		t.Fatal(err)
	}
}

func (h *hub) latest() eventhubs.Config {
	config := h.config()
	config.Start = eventhubs.Start{}
	return config
}

// What arrives after the first start is read, even if the first replica died
// before it could checkpoint anything; and idle partitions lose nothing.
func TestLatestIsWrittenDownBeforeReading(t *testing.T) {
	t.Parallel()
	h := newHub(t, 3)
	h.Publish(t, "0", "old")
	h.Publish(t, "1", "old", "older")
	first := h.source(t, h.latest())
	bodies, stop := read(t, first)
	eventually(t, "all partitions to be read", func() bool { return first.Stats().Reading == 3 })
	if got := h.checkpoints(t); len(got) != 3 || got["0"] != 0 || got["1"] != 1 || got["2"] != -1 {
		t.Errorf("checkpoints are %v while reading begins, want the last sequences 0, 1 and -1", got)
	}
	for _, id := range []string{"0", "1", "2"} {
		h.Publish(t, id, "new")
	}
	next(t, bodies, "0:new", "1:new", "2:new")
	stop()
	h.Publish(t, "2", "newer")
	bodies, _ = read(t, h.source(t, h.latest()))
	next(t, bodies, "0:new", "1:new", "2:new", "2:newer")
}

// A replica that cannot write all first checkpoints does not take the rest for
// partitions whose checkpoints were lost, which would begin at the earliest.
func TestLatestSurvivesAFailureHalfWay(t *testing.T) {
	t.Parallel()
	h := newHub(t, 3)
	for _, id := range []string{"0", "1", "2"} {
		h.Publish(t, id, "old")
	}
	var writes atomic.Int64
	h.store.failWith(func(method string) error {
		if method == "Write" && writes.Add(1) == 2 {
			return errOnPurpose
		}
		return nil
	})
	s := h.source(t, h.latest())
	bodies, _ := read(t, s)
	eventually(t, "all partitions to be read", func() bool { return s.Stats().Reading == 3 })
	for _, id := range []string{"0", "1", "2"} {
		h.Publish(t, id, "new")
	}
	next(t, bodies, "0:new", "1:new", "2:new")
}

func TestPartitionWithoutCheckpointStartsAtEarliestIfOthersHaveOne(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	h.Publish(t, "0", "settled", "open")
	h.Publish(t, "1", "never seen")
	h.setCheckpoint(t, "0", 0, "0")
	bodies, _ := read(t, h.source(t, h.latest()))
	next(t, bodies, "0:open", "1:never seen")
}

// One replica is in the middle of writing the first checkpoints when another
// one looks. It must not take the missing ones for lost.
func TestReplicasThatStartTogetherAgreeOnLatest(t *testing.T) {
	t.Parallel()
	h := newHub(t, 4)
	missing := map[string]bool{}
	for _, id := range []string{"0", "1", "2", "3"} {
		h.Publish(t, id, "old")
		missing[id+":new"] = true
	}
	writing, resume := make(chan struct{}), make(chan struct{})
	var writes, lists atomic.Int64
	h.store.failWith(func(method string) error {
		switch method {
		case "Write":
			if writes.Add(1) == 2 {
				close(writing)
				<-resume
			}
		case "List":
			lists.Add(1)
		}
		return nil
	})
	one, two := h.source(t, h.latest()), h.source(t, h.latest())
	first, _ := read(t, one)
	<-writing
	lists.Store(0)
	second, _ := read(t, two)
	eventually(t, "the other replica to look twice", func() bool { return lists.Load() >= 2 })
	close(resume)
	eventually(t, "all partitions to be read", func() bool { return one.Stats().Reading+two.Stats().Reading >= 4 })
	for _, id := range []string{"0", "1", "2", "3"} {
		h.Publish(t, id, "new")
	}
	eventually(t, "the new events", func() bool {
		for _, bodies := range []<-chan string{first, second} {
			for len(bodies) > 0 {
				b := <-bodies
				if strings.HasSuffix(b, ":old") {
					t.Fatalf("%s was read although it was there before the first start", b)
				}
				delete(missing, b)
			}
		}
		return len(missing) == 0
	})
}

func TestStartAtATime(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i, offset := range []time.Duration{-time.Minute, 0, time.Minute} {
		if _, err := h.Hub.Publish(devhub.Message{Device: "d", Partition: "0", Body: []byte(strconv.Itoa(i)), Enqueued: at.Add(offset)}); err != nil {
			t.Fatal(err)
		}
	}
	config := h.config()
	config.Start = eventhubs.Start{Time: at}
	for range 2 { // the time holds until there is a checkpoint
		bodies, stop := read(t, h.source(t, config))
		next(t, bodies, "0:1", "0:2")
		stop()
	}
}

// First checkpoints are written side by side, so that a store far away holds up a first start but once.
func TestFirstCheckpointsAreWrittenSideBySide(t *testing.T) {
	t.Parallel()
	served, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "Telemetry", Partitions: 32})
	if err != nil {
		t.Fatal(err)
	}
	h := &hub{Hub: served, store: newFaultyStore()}
	t.Cleanup(func() { _ = served.Close() })
	config := h.latest()
	var mu sync.Mutex
	writing, most := 0, 0
	many := make(chan struct{})
	config.Records = records.Around(h.store, func(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
		if method(op, name) != "Write" {
			return call(ctx)
		}
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			if writing += n; writing == 8 && most == 7 {
				close(many)
			}
			most = max(most, writing)
		}
		count(1)
		defer count(-1)
		select { // no write ends before some are under way
		case <-many:
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
		return call(ctx)
	})
	s := h.source(t, config)
	_, stop := read(t, s)
	eventually(t, "all partitions to be read", func() bool { return s.Stats().Reading == 32 })
	stop()
	if most < 8 || most > 16 {
		t.Errorf("%d were written at a time", most)
	}
}
