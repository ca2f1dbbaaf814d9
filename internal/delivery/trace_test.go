package delivery_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/notify"
)

// A journal follows deliveries.
type journal struct {
	mu       sync.Mutex
	followed []*followed
}

type followed struct {
	delivery.Start
	ends []delivery.End
}

func (j *journal) follow(start delivery.Start) delivery.Trace {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := &followed{Start: start}
	j.followed = append(j.followed, f)
	return f
}

func (f *followed) Under(ctx context.Context) context.Context {
	return context.WithValue(ctx, (*followed)(nil), f)
}
func (f *followed) End(end delivery.End) { f.ends = append(f.ends, end) }

// keepFunc is a delivery.DeadLetters.
type keepFunc func(context.Context)

func (b keepFunc) Keep(ctx context.Context, _ notify.DeadLetter) error {
	b(ctx)
	return nil
}

// Each delivery is followed from its beginning to its end, and nothing else is.
func TestTrace(t *testing.T) {
	for name, c := range map[string]struct {
		answer error // after a second
		work   time.Duration
		want   delivery.End
	}{
		"sent":      {nil, time.Minute, delivery.End{Outcome: "sent", Suppressed: 2}},
		"refused":   {&notify.Error{Refused: true, Err: errBusy}, time.Minute, delivery.End{Outcome: "dead_letter", Suppressed: 2, Err: errBusy}},
		"unsettled": {errBusy, 1100 * time.Millisecond, delivery.End{Outcome: "unsettled", Suppressed: 2, Err: errBusy}},
		"unsettled, and its attempt ends after its owner": {errBusy, 500 * time.Millisecond, delivery.End{Outcome: "unsettled", Suppressed: 2, Err: errBusy}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &journal{}
				r := &receiver{}
				r.answer = func(ctx context.Context, a notify.Alert) error {
					if in, _ := ctx.Value((*followed)(nil)).(*followed); in == nil || in.Device != a.Device {
						t.Errorf("an alert of %s is sent under %v", a.Device, in)
					}
					time.Sleep(time.Second)
					return c.answer
				}
				s := newReplica(t, r)
				s.config.Trace = j.follow
				s.config.DeadLetters = keepFunc(func(ctx context.Context) {
					if in, _ := ctx.Value((*followed)(nil)).(*followed); in == nil {
						t.Error("a dead letter is kept under no delivery")
					}
				})
				p := s.open("0")
				for range 3 {
					p.hot("hot")
				}
				first := p.read[0]
				pass(c.work)
				s.end()

				if len(j.followed) == 0 {
					t.Fatal("no delivery is followed")
				}
				got := j.followed[0]
				want := delivery.Start{AlertID: "ns/hub/0/1/946684800000", Device: "hot", Rule: "temperature", Receiver: "receiver0.example", Partition: "0", FromHub: true, Sequence: 1, Enqueued: time.UnixMicro(first.Reading.Enqueued).UTC()}
				if got.Start != want {
					t.Errorf("started as %+v, want %+v", got.Start, want)
				}
				if len(got.ends) != 1 {
					t.Fatalf("ended as %+v", got.ends)
				}
				end := got.ends[0]
				if !errors.Is(end.Err, c.want.Err) {
					t.Errorf("ended with %v, want %v", end.Err, c.want.Err)
				}
				end.Err, c.want.Err = nil, nil
				if end != c.want {
					t.Errorf("ended as %+v, want %+v", end, c.want)
				}
				if len(j.followed) != 1 {
					t.Errorf("%d deliveries are followed, want 1", len(j.followed))
				}
			})
		})
	}
}
