package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease/leasetest"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	partitions "alertworker/internal/partition"
	"alertworker/internal/telemetry"
)

func event(device string, temperature float64) telemetry.Event {
	return telemetry.Event{Device: device, Body: fmt.Appendf(nil, `{"temperature":%v}`, temperature), Enqueued: time.Now()}
}

// wantUnsettled checks why an event was not settled.
func wantUnsettled(t *testing.T, err error, reason, detail string) {
	t.Helper()
	var u *telemetry.UnsettledError
	if !errors.As(err, &u) || u.Reason != reason || u.Detail != detail {
		t.Errorf("got %#v, want %q, %q", err, reason, detail)
	}
}

func TestIntake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newSetup(t, r).consume(t.Context())
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Close()
		var failure error
		handle := func(e telemetry.Event, want telemetry.Verdict) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			got, err := in.Handle(ctx, e, "key-1")
			if got != want || (err != nil) != (want == telemetry.VerdictFailed) {
				t.Errorf("%v, %v, want %v", got, err, want)
			}
			failure = err
		}
		handle(event("oven", 20), telemetry.VerdictNormal)
		handle(telemetry.Event{Device: "loose", Enqueued: time.Now(), Body: []byte(`{'temperature':20,}`)}, telemetry.VerdictNormal)
		handle(telemetry.Event{Device: "loose", Enqueued: time.Now(), Body: []byte(`{'temperature':99,}`)}, telemetry.VerdictAlerted)
		if a := wantAlerts(t, r, "loose", 1)[0]; !a.Damaged {
			t.Errorf("alert %+v", a)
		}
		handle(event("oven", 99), telemetry.VerdictAlerted)
		handle(event("oven", 99), telemetry.VerdictThrottled)
		if id := wantAlerts(t, r, "oven", 1)[0].ID; id != "ns/hub/http/key-1" {
			t.Errorf("alert id %q", id)
		}

		r.set(func(context.Context, notify.Alert) error { return errBusy })
		handle(event("kiln", 99), telemetry.VerdictFailed)
		wantUnsettled(t, failure, "pause", "the alert is waiting: the last attempt to alert receiver receiver0.example failed (503 busy)")
		r.set(nil)
		pass(time.Minute)
		wantAlerts(t, r, "kiln", 1) // the work went on

		r.set(failing(&notify.Error{Refused: true, Untaken: true, Err: errors.New("answered 400")}))
		handle(event("press", 99), telemetry.VerdictFailed)
		wantUnsettled(t, failure, "dead_letter", "the alert was kept as a dead letter: refused for good: answered 400")

		_, err := in.Handle(t.Context(), event("", 99), "")
		if d := (*telemetry.DecodeError)(nil); !errors.As(err, &d) || d.Reason != telemetry.ReasonNoDevice {
			t.Errorf("an event of no device: %v", err)
		}
	})
}

// Neither the time at which a reading is said to be covered, nor its age, depends on
// what this replica's clock shows.
func TestIntakeOnAWrongClock(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{}
				s := newReplica(t, leasetest.Ahead(memlease.New(), ahead), r).consume(t.Context())
				in := s.worker.NewIntake(t.Context(), "http")
				defer in.Close()
				handle := func(want telemetry.Verdict) {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					if got, err := in.Handle(ctx, event("oven", 99), ""); got != want || (err != nil) != (want == telemetry.VerdictFailed) {
						t.Errorf("%v, %v, want %v", got, err, want)
					}
				}
				handle(telemetry.VerdictAlerted)
				pass(window - time.Second)
				handle(telemetry.VerdictThrottled)
				pass(time.Second)
				handle(telemetry.VerdictAlerted)

				// A failing alert is given up by its reading's age.
				pass(window)
				r.set(func(context.Context, notify.Alert) error { return errBusy })
				handle(telemetry.VerdictFailed)
				r.set(nil)
				pass(time.Minute)
				wantAlerts(t, r, "oven", 3)
				if n := len(s.dead.all()); n > 0 {
					t.Errorf("%d dead letters, of an alert that is a minute old", n)
				}
			})
		})
	}
}

// When not even dead letters can be kept, an Intake takes no more.
func TestIntakeIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of goroutines")
	}
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newSetup(t, r)
		s.waiting = 1000
		s.dead.err = errors.New("disk full")
		s.consume(t.Context())
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Close()
		if got, err := in.Handle(t.Context(), event("warned", 99), ""); got != telemetry.VerdictAlerted || err != nil {
			t.Fatalf("%v, %v", got, err)
		}
		r.set(failing(errBusy))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		const most = 1000 + 4096
		var busy int
		for i := range most + 1000 {
			if _, err := in.Handle(gone, event(fmt.Sprint("device", i), 99), ""); errors.Is(err, telemetry.ErrBusy) {
				busy++
			}
		}
		// what is being tried or written counts too, at times
		if more := busy - 1000; more < 0 || more > s.config.Concurrency {
			t.Errorf("refused %d of %d", busy, most+1000)
		}
		// What needs no outcome is taken all the same.
		if got, err := in.Handle(gone, event("warned", 99), ""); got != telemetry.VerdictThrottled || err != nil {
			t.Errorf("in a window that is known: %v, %v", got, err)
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
		want := partitions.State{Partition: "7", First: 1, Read: cold.Position, ReadUntil: cold.Enqueued, Unsettled: 1, Oldest: hot.Enqueued.UTC(), Delivering: 1}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		s.end()
		if left := s.worker.Partitions(); len(left) != 0 {
			t.Errorf("left %+v", left)
		}
	})
}

// The dead letter of a refused alert is that of the readings that have joined it too, and their callers hear so.
func TestIntakeOfARefusedAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := failing(&notify.Error{Refused: true, Untaken: true, Err: errors.New("answered 400")})
		r := &receiver{answer: func(ctx context.Context, a notify.Alert) error {
			time.Sleep(time.Second)
			return refuse(ctx, a)
		}}
		s := newSetup(t, r).consume(t.Context())
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Close()
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				got, err := in.Handle(t.Context(), event("oven", 98), "")
				if got != telemetry.VerdictFailed {
					t.Errorf("%v", got)
				}
				wantUnsettled(t, err, "dead_letter", "the alert was kept as a dead letter: refused for good: answered 400")
			})
			synctest.Wait()
		}
		callers.Wait()
		if n := len(s.dead.all()); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
	})
}

// What comes by HTTP has no alarm, so nothing tells when it is normal again.
func TestIntakeDoesNotResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r).start(p)
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Close()
		if v, err := in.Handle(t.Context(), event("kiln", 99), ""); v != telemetry.VerdictAlerted {
			t.Errorf("%v, %v", v, err)
		}
		p.feed("oven", time.Second, 99)
		s.end()
		got := fmt.Sprint(wantAlerts(t, r, "kiln", 1)[0].WillResolve, wantAlerts(t, r, "oven", 1)[0].WillResolve)
		if got != "false true" {
			t.Errorf("a resolved follows by HTTP and by the hub: %s", got)
		}
	})
}
