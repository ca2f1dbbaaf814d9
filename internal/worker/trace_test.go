package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// A journal follows flights.
type journal struct {
	mu    sync.Mutex
	trips []*trip
}

type trip struct {
	worker.Departure
	landings []worker.Landing
}

func (j *journal) follow(d worker.Departure) worker.Trace {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := &trip{Departure: d}
	j.trips = append(j.trips, t)
	return t
}

func (t *trip) Under(ctx context.Context) context.Context {
	return context.WithValue(ctx, (*trip)(nil), t)
}
func (t *trip) End(l worker.Landing) { t.landings = append(t.landings, l) }

// buriedBy is a worker.DeadLetters.
type buriedBy func(context.Context)

func (b buriedBy) Keep(ctx context.Context, _ notify.DeadLetter) error {
	b(ctx)
	return nil
}

// Each flight is followed from its beginning to its end, and nothing else is.
func TestTrace(t *testing.T) {
	for name, c := range map[string]struct {
		answer error // after a second
		work   time.Duration
		want   worker.Landing
	}{
		"sent": {nil, time.Minute, worker.Landing{Outcome: throttle.Sent, Settled: true, Suppressed: 2}},
		// The first becomes a dead letter, the last is tried then, and so the second has none of its own.
		"refused":   {&notify.Error{Refused: true, Err: errBusy}, time.Minute, worker.Landing{Outcome: throttle.Failed, Settled: true, Suppressed: 1, Err: errBusy}},
		"unsettled": {errBusy, 1100 * time.Millisecond, worker.Landing{Outcome: throttle.Failed, Suppressed: 2, Err: errBusy}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &journal{}
				p, r := newPartition("0"), &receiver{}
				r.answer = func(ctx context.Context, a notify.Alert) error {
					if in, _ := ctx.Value((*trip)(nil)).(*trip); in == nil || in.Device != a.Device {
						t.Errorf("an alert of %s is sent under %v", a.Device, in)
					}
					time.Sleep(time.Second)
					return c.answer
				}
				p.publish("cold", 29)
				first := p.publish("hot", 30)
				p.publish("hot", 31)
				p.publish("hot", 32)
				s := newSetup(t, r)
				s.config.Trace = j.follow
				s.config.DeadLetters = buriedBy(func(ctx context.Context) {
					if in, _ := ctx.Value((*trip)(nil)).(*trip); in == nil {
						t.Error("a dead letter is kept under no flight")
					}
				})
				s.start(p)
				pass(c.work)
				s.end()

				if len(j.trips) == 0 {
					t.Fatal("no flight is followed")
				}
				got := j.trips[0]
				want := worker.Departure{AlertID: "ns/hub/0/2/946684800000", Device: "hot", Receiver: "receiver0", Partition: "0", FromHub: true, Sequence: 2, Enqueued: first.Enqueued}
				if got.Departure != want {
					t.Errorf("departed as %+v, want %+v", got.Departure, want)
				}
				if len(got.landings) != 1 {
					t.Fatalf("landed as %+v", got.landings)
				}
				l := got.landings[0]
				if !errors.Is(l.Err, c.want.Err) {
					t.Errorf("landed with %v, want %v", l.Err, c.want.Err)
				}
				l.Err, c.want.Err = nil, nil
				if l != c.want {
					t.Errorf("landed as %+v, want %+v", l, c.want)
				}
				if len(j.trips) != 1 {
					t.Errorf("%d flights are followed, want 1", len(j.trips))
				}
			})
		})
	}
}
