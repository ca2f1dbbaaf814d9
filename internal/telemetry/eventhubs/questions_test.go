package eventhubs_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// limit is how many questions Event Hubs allows a second and consumer group.
const limit = 50

// A memoryListener accepts connections that are made in this process, so that time may be virtual.
type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newMemoryListener() *memoryListener {
	return &memoryListener{make(chan net.Conn), make(chan struct{})}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	close(l.closed)
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5672} }

func (l *memoryListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A hub answers few questions a second. All partitions are read in time whatever each start has to ask: replicas keep a pace,
// keep what was answered, and ask again for what was refused.
func TestReadsWhatAHubWithALimitHas(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		partitions, replicas int
		start                eventhubs.Start
		checkpointed         bool
		within               time.Duration
	}{
		{"100, first start", 100, 1, eventhubs.Start{Earliest: true}, false, 30 * time.Second},
		{"100, latest", 100, 1, eventhubs.Start{}, false, 30 * time.Second},
		{"100, continued", 100, 1, eventhubs.Start{}, true, 30 * time.Second},
		{"100, of four replicas", 100, 4, eventhubs.Start{}, true, 30 * time.Second},
		{"1024, first start", 1024, 1, eventhubs.Start{Earliest: true}, false, 2 * time.Minute},
		{"1024, latest", 1024, 1, eventhubs.Start{}, false, 2 * time.Minute},
		{"1024, continued", 1024, 1, eventhubs.Start{}, true, 2 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() && tt.partitions > 100 {
				t.Skip("it opens a thousand links; the others do the same")
			}
			synctest.Test(t, func(t *testing.T) {
				at := newMemoryListener()
				h, err := devhub.Serve(at, devhub.Config{Hub: "telemetry", Partitions: tt.partitions})
				if err != nil {
					t.Fatal(err)
				}
				defer h.Close()
				h.LimitManagement(limit)
				store := &records.Memory{}
				config := eventhubs.Config{ConnectionString: h.ConnectionString(), Start: tt.start, Records: store}
				group := eventhubs.NewGroup("127.0.0.1:5672", "telemetry", "$Default")
				for p := range tt.partitions {
					id := strconv.Itoa(p)
					pub, err := h.Publish(devhub.Message{Partition: id, Device: "d"})
					if err == nil && tt.checkpointed {
						err = eventhubs.Advance(t.Context(), store, group, id, telemetry.Position{Sequence: pub.Sequence, Offset: pub.Offset, Time: pub.Enqueued})
					}
					if err != nil {
						t.Fatal(err)
					}
				}

				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				var sources []*eventhubs.Source
				for range tt.replicas {
					s, err := eventhubs.New(config)
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					s.Connect(at.dial)
					sources = append(sources, s)
				}
				defer running.Wait()
				defer cancel()
				began := time.Now()
				for _, s := range sources {
					running.Go(func() {
						_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
							for {
								if _, err := p.Receive(ctx); err != nil {
									return err
								}
							}
						})
					})
				}

				reading := func() (n int, report string) {
					for _, s := range sources {
						stats := s.Stats()
						n += stats.Reading
						report += fmt.Sprintf("%+v\n", stats)
					}
					return n, report
				}
				for {
					n, report := reading()
					if n == tt.partitions {
						break
					}
					if time.Since(began) > tt.within {
						t.Fatalf("%d of %d partitions are read after %v:\n%s", n, tt.partitions, time.Since(began), report)
					}
					time.Sleep(time.Second / 4)
				}
				t.Logf("all are read after %v", time.Since(began))
			})
		})
	}
}

// A hub whose answers take time is still asked where partitions end: a link on which nothing comes although the hub has
// been ahead for two minutes is opened again, also where nobody wants to know how far behind it is.
func TestStalledLinkOfAHubThatTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := newMemoryListener()
		h, err := devhub.Serve(at, devhub.Config{Hub: "telemetry", Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		s, err := eventhubs.New(eventhubs.Config{
			ConnectionString: h.ConnectionString(), Start: eventhubs.Start{Earliest: true}, Records: &records.Memory{},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.Connect(at.dial)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		came := make(chan struct{}, 1)
		running.Go(func() {
			_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
				for {
					if _, err := p.Receive(ctx); err != nil {
						return err
					}
					came <- struct{}{}
				}
			})
		})
		publish := func() {
			if _, err := h.Publish(devhub.Message{Partition: "0", Device: "d"}); err != nil {
				t.Fatal(err)
			}
		}
		publish()
		<-came

		h.SetLatency(20 * time.Millisecond)
		for _, after := range []time.Duration{time.Second, 35 * time.Second, 70 * time.Second, 105 * time.Second} {
			time.Sleep(after)
			h.Mute("0")
			published := time.Now()
			publish()
			<-came
			if took := time.Since(published); took > 2*time.Minute+35*time.Second { // it is asked every 15 s
				t.Errorf("an event came after %v", took)
			}
		}
	})
}
