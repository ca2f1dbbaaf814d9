package eventhubs_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

const patience = 15 * time.Second

// read runs a Source and hands out what it receives, as "partition:body",
// until the test ends or stop is called.
func read(t *testing.T, s *eventhubs.Source) (bodies <-chan string, stop func()) {
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
					received <- p.ID() + ":" + string(e.Body)
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
		case <-time.After(patience):
			t.Error("Run did not return")
		}
	}
	t.Cleanup(stop)
	return received, stop
}

// eventually polls, for what is seen nowhere else.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain for %s", patience, what)
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
	end := time.After(patience)
	for len(missing) > 0 {
		select {
		case b := <-bodies:
			if !missing[b] {
				t.Fatalf("got %s, want %v", b, want)
			}
			delete(missing, b)
		case <-end:
			t.Fatalf("waited %v in vain for %v", patience, missing)
		}
	}
}

// checkpoints are the sequences in the store, by partition.
func (h *hub) checkpoints(t *testing.T) map[string]int64 {
	t.Helper()
	all, err := h.store.MemoryCheckpoints.ListCheckpoints(t.Context(), h.Addr(), "telemetry", "$default", nil)
	if err != nil {
		t.Fatal(err)
	}
	sequences := map[string]int64{}
	for _, c := range all {
		sequences[c.PartitionID] = *c.SequenceNumber
	}
	return sequences
}

func (h *hub) setCheckpoint(t *testing.T, partition string, sequence int64, offset string) {
	t.Helper()
	c := azeventhubs.Checkpoint{FullyQualifiedNamespace: h.Addr(), EventHubName: "telemetry", ConsumerGroup: "$default", PartitionID: partition, SequenceNumber: &sequence, Offset: &offset}
	if err := h.store.MemoryCheckpoints.SetCheckpoint(t.Context(), c, nil); err != nil {
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
	h := newHub(t, 3)
	for _, id := range []string{"0", "1", "2"} {
		h.Publish(t, id, "old")
	}
	writes := 0
	h.store.failWith(func(method string) error {
		if method == "SetCheckpoint" {
			if writes++; writes == 2 {
				return errors.New("store failed on purpose")
			}
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
	h := newHub(t, 2)
	h.Publish(t, "0", "settled", "open")
	h.Publish(t, "1", "never seen")
	h.setCheckpoint(t, "0", 0, "0")
	bodies, _ := read(t, h.source(t, h.latest()))
	next(t, bodies, "0:open", "1:never seen")
}

func TestReplicasThatStartTogetherAgreeOnLatest(t *testing.T) {
	h := newHub(t, 4)
	ids := []string{"0", "1", "2", "3"}
	for _, id := range ids {
		h.Publish(t, id, "old")
	}
	sources := make([]*eventhubs.Source, 3)
	bodies := make([]<-chan string, 3)
	for i := range sources {
		sources[i] = h.source(t, h.latest())
		bodies[i], _ = read(t, sources[i])
	}
	eventually(t, "all partitions to be read", func() bool {
		reading := 0
		for _, s := range sources {
			reading += s.Stats().Reading
		}
		return reading >= 4 && len(h.checkpoints(t)) == 4
	})
	for _, id := range ids {
		h.Publish(t, id, "new")
	}
	missing := map[string]bool{"0:new": true, "1:new": true, "2:new": true, "3:new": true}
	eventually(t, "the new events", func() bool {
		for _, c := range bodies {
			for len(c) > 0 {
				b := <-c
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

// A hub that was deleted and made again starts its sequences again; the old
// checkpoints would hide everything.
func TestCheckpointOfAnotherHubIsDropped(t *testing.T) {
	h := newHub(t, 2)
	h.Publish(t, "0", "first", "second")
	h.setCheckpoint(t, "0", 1_000_000, "99999999")
	h.setCheckpoint(t, "1", -1, "-1")
	bodies, _ := read(t, h.source(t, h.latest()))
	next(t, bodies, "0:first", "0:second")
	if got := h.checkpoints(t)["0"]; got != -1 {
		t.Errorf("the checkpoint is at %d, want -1: it would refuse to move", got)
	}
}
