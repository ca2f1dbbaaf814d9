package eventhubs_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/records"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/transport"
)

// A hub goes on sending, and takes no question any more: the window of the session is full, and it does not say that the session
// has ended. The library then waits for longer than its context. The question fails in its time, the next one is asked over
// another connection, and the source ends.
func TestQuestionThatTheHubDoesNotTake(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	s := h.source(t, h.config())
	s.SetLimits(200*time.Millisecond, 20*time.Millisecond, time.Minute, 300*time.Millisecond, time.Hour)
	s.SetQueryLimit(500 * time.Millisecond)
	var answers atomic.Int64
	s.RecordEnds(func(int, map[string]int64) { answers.Add(1) })
	bodies, stop := read(t, s)
	h.Publish(t, "0", "a")
	next(t, bodies, "0:a")

	h.Choke("$management", 2)
	h.Reset()
	eventually(t, "questions that are not taken", func() bool { return s.Stats().Hub.Err != nil })
	before := answers.Load()
	eventually(t, "others to be answered", func() bool { return answers.Load() > before+1 })
	h.Publish(t, "0", "b")
	next(t, bodies, "0:b")

	h.Choke("$management", 1<<30)
	h.Reset()
	eventually(t, "questions that are not taken", func() bool { return s.Stats().Hub.Err != nil })
	stop() // and the source is closed
}

// Nor does it take a claim, by which a connection is opened or goes on.
func TestClaimThatTheHubDoesNotTake(t *testing.T) {
	for name, tt := range map[string]struct {
		times int
		when  func(h *devhub.Hub)
	}{
		"the first":        {2, (*devhub.Hub).Reset},
		"another":          {2, func(*devhub.Hub) { time.Sleep(16 * time.Minute) }},
		"none":             {1 << 30, (*devhub.Hub).Reset},
		"none, from later": {1 << 30, func(*devhub.Hub) { time.Sleep(16 * time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, config := virtual(t)
				s, err := eventhubs.New(config)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				bodies, stop := read(t, s)
				defer stop()
				publish := func(body string) {
					t.Helper()
					if _, err := h.Publish(devhub.Message{Partition: "0", Device: "d", Body: []byte(body)}); err != nil {
						t.Fatal(err)
					}
				}
				publish("a")
				next(t, bodies, "0:a")

				h.Choke("$cbs", tt.times)
				tt.when(h)
				time.Sleep(5 * time.Minute)
				if name == "none" {
					return
				}
				publish("b")
				next(t, bodies, "0:b")
				if stats := s.Stats(); len(stats.AtRisk) > 0 != (tt.times > 2) || stats.Hub.Err != nil {
					t.Errorf("%+v", stats)
				}
			})
		})
	}
}

// Nor a reading. Send returns when its context ends.
func TestReadingThatTheHubDoesNotTake(t *testing.T) {
	for _, path := range []string{"telemetry", "$cbs"} {
		synctest.Test(t, func(t *testing.T) {
			h, config := virtual(t)
			h.Choke(path, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			began := time.Now()
			if err := eventhubs.Send(ctx, config, "d", []byte("{}")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", path, err)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("%s: took %v", path, took)
			}
			if err := eventhubs.Send(t.Context(), config, "d", []byte("{}")); err != nil {
				t.Errorf("%s: then %v", path, err)
			}
		})
	}
}

// A fullConn is full from some time on: a write waits until there is room, but what is written gets lost.
type fullConn struct {
	net.Conn
	full atomic.Bool
	room chan struct{}
}

func (c *fullConn) Write(b []byte) (int, error) {
	if !c.full.Load() {
		return c.Conn.Write(b)
	}
	<-c.room
	return len(b), nil
}

// A question waits to be written while another one ends the connection, and both end with the source. The library takes back
// what was not written from a link that is gone, and waits for ever: on one thread within few tries.
func TestQuestionThatEndsWithItsConnection(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			at := newMemoryListener()
			h, err := devhub.Serve(at, devhub.Config{Hub: "telemetry", Partitions: 1, IdleTimeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			s, err := eventhubs.New(eventhubs.Config{ConnectionString: h.ConnectionString()})
			if err != nil {
				t.Fatal(err)
			}
			var full *fullConn
			s.Connect(func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := at.dial(ctx, network, addr)
				full = &fullConn{Conn: c, room: make(chan struct{})}
				return full, err
			})
			if err := s.Ask(t.Context()); err != nil {
				t.Fatal(err)
			}

			h.Stall()
			var asking sync.WaitGroup
			ask := func() {
				asking.Go(func() {
					if s.Ask(t.Context()) == nil {
						t.Error("the hub answered")
					}
				})
				time.Sleep(time.Second)
			}
			ask() // and waits for the answer
			full.full.Store(true)
			time.Sleep(3 * time.Second) // a heartbeat waits to be written
			ask()                       // and waits for that
			asking.Go(s.Close)
			synctest.Wait()
			close(full.room)
			asking.Wait()
		})
	}
}

// virtual returns a hub in the bubble of the test's time, and how it is read.
func virtual(t *testing.T) (*devhub.Hub, eventhubs.Config) {
	t.Helper()
	at := newMemoryListener()
	h, err := devhub.Serve(at, devhub.Config{Hub: "telemetry", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h, eventhubs.Config{
		ConnectionString: h.ConnectionString(), Start: eventhubs.Start{Earliest: true},
		Network: transport.Network{Connect: at.dial}, Records: &records.Memory{},
	}
}
