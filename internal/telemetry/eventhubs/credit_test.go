package eventhubs_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// As TestBufferIsBoundedInBytesPerReplica, of a replica that has taken over what others read before.
func TestBufferIsBoundedAfterTakeOvers(t *testing.T) {
	t.Parallel()
	const partitions, perPartition, size, buffer = 8, 80, 255 << 10, 64 * eventhubs.MaxEventBytes
	const bound = 2 * buffer
	h, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry", Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	m := newMeter(t, h.Addr())
	store := newFaultyStore()
	var holding atomic.Int64
	goOn := make(chan struct{})
	run := func(cs string) (*eventhubs.Source, func()) {
		s, err := eventhubs.New(eventhubs.Config{ConnectionString: cs, Start: eventhubs.Start{Earliest: true}, BufferBytes: buffer, BalanceInterval: 100 * time.Millisecond, OwnershipExpiry: 2 * time.Second, Records: store})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
				for {
					if _, err := p.Receive(ctx); err != nil {
						return err
					}
					holding.Add(1)
					<-goOn
				}
			})
		}()
		return s, func() { cancel(); <-done }
	}
	// They use the name of the proxy, so that all share the same records; only A is measured.
	cs := strings.Replace(h.ConnectionString(), h.Addr(), m.addr, 1)
	var others []func()
	for i := range partitions - 1 {
		s, stop := run(cs)
		others = append(others, stop)
		eventually(t, "it to read", func() bool { return s.Stats().Reading == partitions/(i+1) })
	}
	a, stopA := run(cs)
	eventually(t, "the last to read one", func() bool { return a.Stats().Reading == 1 && a.Stats().Owned == 1 })
	for i, stop := range others {
		stop()
		least := partitions / (partitions - 1 - i)
		eventually(t, "its share", func() bool { return a.Stats().Reading >= least })
	}
	eventually(t, "all", func() bool { return a.Stats().Reading == partitions })
	before := m.sent.Load()
	body := bytes.Repeat([]byte("x"), size)
	for i := range partitions * perPartition {
		if _, err := h.Publish(devhub.Message{Partition: strconv.Itoa(i % partitions), Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "every partition to hold its first events", func() bool { return holding.Load() == partitions })
	for last := int64(-1); last != m.sent.Load(); {
		last = m.sent.Load()
		time.Sleep(500 * time.Millisecond)
	}
	got := m.sent.Load() - before
	t.Logf("while nobody takes more: %.1f MiB, bound %d MiB", float64(got)/(1<<20), bound>>20)
	if got > bound {
		t.Errorf("%d bytes were buffered, want at most %d", got, bound)
	}
	close(goOn)
	stopA()
}

// A partition that stays where it is when replicas join is read as fast as one that moved.
func TestScaleOutIsFaster(t *testing.T) {
	t.Parallel()
	h := newHub(t, 8)
	config := h.config()
	config.BufferBytes = 64 * eventhubs.MaxEventBytes // 8 each for 8, 64 for one
	config.OwnershipExpiry = 3 * time.Second
	measure := func(t *testing.T, s *eventhubs.Source, bodies <-chan string) time.Duration {
		id := ""
		for p, owner := range h.Owners() {
			if owner == s.Owner() {
				id = p
			}
		}
		const n = 640
		var texts []string
		for i := range n {
			texts = append(texts, fmt.Sprint(i))
		}
		began := time.Now()
		h.Publish(t, id, texts...)
		for range n {
			select {
			case <-bodies:
			case <-time.After(waitLimit):
				t.Fatal("nothing comes")
			}
		}
		return time.Since(began)
	}
	const roundTrip = 50 * time.Millisecond
	a := h.source(t, config)
	far(a, roundTrip)
	bodiesA, _ := read(t, a)
	eventually(t, "all", func() bool { return a.Stats().Reading == 8 })
	var last *eventhubs.Source
	var lastBodies <-chan string
	for range 7 {
		last = h.source(t, config)
		far(last, roundTrip)
		lastBodies, _ = read(t, last)
	}
	eventually(t, "one each", func() bool { return a.Stats().Reading == 1 && last.Stats().Reading == 1 && len(h.Owners()) == 8 })
	time.Sleep(2 * time.Second)
	eventually(t, "one each", func() bool { return a.Stats().Reading == 1 && last.Stats().Reading == 1 && len(h.Owners()) == 8 })
	moved, stayed := measure(t, last, lastBodies), measure(t, a, bodiesA)
	t.Logf("640 events: %v where the partition moved, %v where it stayed", moved, stayed)
	if stayed > 3*moved {
		t.Errorf("it stays slow: %v instead of %v", stayed, moved)
	}
}
