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

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// Partitions ask for and hold no more than the buffer has room for, unless that is less than
// a few events each. A replica has room for all partitions of the hub.
func TestCredit(t *testing.T) {
	for _, c := range []struct{ events, prefetch, partitions, want int }{
		{1024, 1000, 1, 1000},
		{1024, 1000, 4, 256},
		{1024, 1000, 32, 32},
		{1024, 1000, 1024, 8},
		{1024, 100, 1, 100},
		{1024, 1, 32, 1},
		{0, 1000, 0, 8},
	} {
		config := eventhubs.Config{BufferBytes: c.events * eventhubs.MaxEventBytes, Prefetch: c.prefetch}
		if got := config.Credit(c.partitions); got != c.want {
			t.Errorf("%+v: got %d", c, got)
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
	const partitions, perPartition, size, buffer = 8, 48, 255 << 10, 64 * eventhubs.MaxEventBytes
	const bound = 2 * buffer // what is requested, and what consumers hold
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
		BufferBytes:      buffer,
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
