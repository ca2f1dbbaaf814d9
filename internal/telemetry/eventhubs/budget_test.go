package eventhubs_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// Whatever the partitions of a replica ask for and hold is within its budget, and
// none is ever left without.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 40).Draw(t, "partitions")
		events := rapid.IntRange(0, 2000).Draw(t, "events")
		limit := rapid.IntRange(1, 5000).Draw(t, "limit")
		budget := eventhubs.NewBudget(events*eventhubs.MaxEventBytes, partitions)
		type reader struct {
			w                 *eventhubs.Credit
			outstanding, held int
		}
		readers := make([]reader, partitions)
		for i := range readers {
			readers[i].w = budget.NewCredit(limit)
		}
		most := max(events, partitions)
		check := func() {
			sum := 0
			for _, r := range readers {
				sum += r.outstanding + r.held
			}
			if sum > most {
				t.Fatalf("%d events are asked for or held, and the budget is %d", sum, most)
			}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			r := &readers[rapid.IntRange(0, partitions-1).Draw(t, "who")]
			if rapid.IntRange(0, 9).Draw(t, "leaves") == 0 { // another replica has it now, and gives it back
				r.w.Close()
				*r = reader{w: budget.NewCredit(limit)}
				continue
			}
			// What Receive does: drop the last batch, have one event, ask, take what there is.
			r.held = 0
			r.outstanding = max(r.outstanding, 1)
			check()
			r.outstanding, r.held = r.outstanding-1, 1
			r.w.Took(1)
			n := r.w.Ask(1)
			if n+r.held > max(limit, 1) {
				t.Fatalf("asked for %d of at most %d", n, limit)
			}
			r.outstanding = max(r.outstanding, n)
			check()
			took := rapid.IntRange(0, n).Draw(t, "took")
			r.outstanding, r.held = r.outstanding-took, r.held+took
			r.w.Took(took)
			check()
		}
	})
}

// Partitions that are idle with all that they could borrow leave their share to
// the others, and busy ones come to share alike.
func TestBudgetIsFair(t *testing.T) {
	budget := eventhubs.NewBudget(1024*eventhubs.MaxEventBytes, 32)
	idle := budget.NewCredit(1000)
	if n := idle.Ask(0); n < 256 {
		t.Errorf("a partition alone may ask for %d events, want at least 256 of 1024", n)
	}
	busy := make([]*eventhubs.Credit, 31)
	for i := range busy {
		busy[i] = budget.NewCredit(1000)
	}
	asked := make([]int, len(busy))
	for range 100 {
		for i, w := range busy {
			asked[i] = w.Ask(0)
			w.Took(asked[i])
		}
	}
	for _, n := range asked {
		if n < 16 || n > 40 {
			t.Fatalf("busy partitions ask for %v events, want about as many each", asked)
		}
	}
}

// A meter is a TCP proxy that counts what a hub sends to its clients.
type meter struct {
	addr string
	sent atomic.Int64
}

func newMeter(t *testing.T, to string) *meter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{addr: l.Addr().String()}
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			hub, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			hangUp := func() { _, _ = client.Close(), hub.Close() }
			running.Go(func() { defer hangUp(); _, _ = io.Copy(hub, client) })
			running.Go(func() { defer hangUp(); _, _ = io.Copy(io.MultiWriter(m, client), hub) })
		}
	})
	return m
}

func (m *meter) Write(b []byte) (int, error) {
	m.sent.Add(int64(len(b)))
	return len(b), nil
}

// A burst of the largest events on all partitions at once fits into the buffer,
// also while nobody takes them.
func TestBufferIsBoundedInBytesPerReplica(t *testing.T) {
	t.Parallel()
	const partitions, perPartition, size, bound = 32, 8, 255 << 10, 64 * eventhubs.MaxEventBytes
	h, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry", Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	m := newMeter(t, h.Addr())
	body := bytes.Repeat([]byte("x"), size)
	for i := range partitions * perPartition {
		if _, err := h.Publish(devhub.Message{Partition: strconv.Itoa(i % partitions), Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := eventhubs.New(eventhubs.Config{
		ConnectionString: strings.Replace(h.ConnectionString(), h.Addr(), m.addr, 1),
		Start:            eventhubs.Start{Earliest: true},
		BufferBytes:      bound,
		BalanceInterval:  100 * time.Millisecond,
		Records:          newFaultyStore(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var holding, read, dropped, most atomic.Int64
	look := func() {
		for buffered := m.sent.Load() - dropped.Load(); ; {
			before := most.Load()
			if buffered <= before || most.CompareAndSwap(before, buffered) {
				return
			}
		}
	}
	goOn := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			for first := true; ; first = false {
				events, err := p.Receive(ctx)
				if err != nil {
					return err
				}
				look()
				if first {
					holding.Add(1)
					<-goOn
				}
				read.Add(int64(len(events)))
				dropped.Add(int64(len(events) * size))
			}
		})
	}()
	eventually(t, "every partition to hold its first events", func() bool { return holding.Load() == partitions })
	for last := int64(-1); last != m.sent.Load(); { // until the hub has sent all that it may
		last = m.sent.Load()
		time.Sleep(200 * time.Millisecond)
	}
	look()
	t.Logf("while nobody takes more: %.1f MiB of %d MiB are buffered, of %d MiB that there are", float64(m.sent.Load())/(1<<20), bound>>20, partitions*perPartition*size>>20)
	close(goOn)
	eventually(t, "all events", func() bool { return read.Load() == partitions*perPartition })
	cancel()
	<-done
	t.Logf("at most: %.1f MiB", float64(most.Load())/(1<<20))
	if most.Load() > bound {
		t.Errorf("%d bytes were buffered, want at most %d", most.Load(), bound)
	}
}
