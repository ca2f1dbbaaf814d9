package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/telemetry"
	"alertworker/internal/worker"
)

func event(device string, temperature float64) telemetry.Event {
	return telemetry.Event{Device: device, Body: fmt.Appendf(nil, `{"temperature":%v}`, temperature), Enqueued: time.Now()}
}

func TestIntake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newSetup(t, r).consume(t.Context())
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Close()
		handle := func(e telemetry.Event, want telemetry.Verdict) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if got, err := in.Handle(ctx, e, "key-1"); got != want || err != nil {
				t.Errorf("%v, %v, want %v", got, err, want)
			}
		}
		handle(event("oven", 20), telemetry.VerdictNormal)
		handle(event("oven", 99), telemetry.VerdictAlerted)
		handle(event("oven", 99), telemetry.VerdictThrottled)
		if id := wantAlerts(t, r, "oven", 1)[0].ID; id != "ns/hub/http/key-1" {
			t.Errorf("alert id %q", id)
		}

		r.set(func(context.Context, notify.Alert) error { return errBusy })
		handle(event("kiln", 99), telemetry.VerdictFailed)
		r.set(nil)
		pass(time.Minute)
		wantAlerts(t, r, "kiln", 1) // the work went on

		_, err := in.Handle(t.Context(), event("", 99), "")
		if d := (*telemetry.DecodeError)(nil); !errors.As(err, &d) || d.Reason != telemetry.ReasonNoDevice {
			t.Errorf("an event of no device: %v", err)
		}
	})
}

// When not even dead letters can be kept, an Intake takes no more.
func TestIntakeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, &receiver{answer: failing(errBusy)})
		s.waiting = 1000
		s.dead.err = errors.New("disk full")
		s.consume(t.Context())
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Close()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		const most = 1000 + 4096
		var busy int
		for i := range most + 1000 {
			if _, err := in.Handle(gone, event(fmt.Sprint("device", i), 99), ""); errors.Is(err, telemetry.ErrBusy) {
				busy++
			}
		}
		if busy != 1000 {
			t.Errorf("refused %d of %d", busy, most+1000)
		}
	})
}

func TestPartitionsTellWhereTheyStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("7"), &receiver{answer: wait(9 * time.Second)}
		s := newSetup(t, r).start(p)
		hot := p.publish("hot", 99)
		time.Sleep(time.Second)
		cold := p.publish("cold", 1)
		pass(0)
		got := s.worker.Partitions()
		want := worker.PartitionState{Partition: "7", Read: cold.Position, ReadUntil: cold.Enqueued, Unsettled: 1, Oldest: hot.Enqueued.UTC(), Delivering: 1}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		s.end()
		if left := s.worker.Partitions(); len(left) != 0 {
			t.Errorf("left %+v", left)
		}
	})
}
