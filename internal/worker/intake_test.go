package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
		s := newSetup(t, r).start()
		defer s.end()
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Cut()
		var failure error
		handle := func(e telemetry.Event, want telemetry.Verdict) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			got, _, err := in.Handle(ctx, e, "key-1")
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
		wantUnsettled(t, failure, "receiver", "receiver receiver0.example did not accept the alert: 503 busy")
		r.set(nil)
		pass(time.Minute)
		wantAlerts(t, r, "kiln", 0) // it is the caller's to send again
		handle(event("kiln", 99), telemetry.VerdictAlerted)
		wantAlerts(t, r, "kiln", 1)

		r.set(failing(&notify.Error{Refused: true, Untaken: true, Err: errors.New("answered 400")}))
		handle(event("press", 99), telemetry.VerdictFailed)
		wantUnsettled(t, failure, "dead_letter", "the alert was kept as a dead letter: refused for good: answered 400")

		_, _, err := in.Handle(t.Context(), event("", 99), "")
		if d := (*telemetry.DecodeError)(nil); !errors.As(err, &d) || d.Reason != telemetry.ReasonNoDevice {
			t.Errorf("an event of no device: %v", err)
		}
	})
}

// The time at which a reading is said to be covered does not depend on what this replica's clock shows.
func TestIntakeOnAWrongClock(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{}
				s := newReplica(t, leasetest.Ahead(memlease.New(), ahead), r).start()
				defer s.end()
				in := s.worker.NewIntake(t.Context(), "http")
				defer in.Cut()
				handle := func(want telemetry.Verdict) {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					if got, _, err := in.Handle(ctx, event("oven", 99), ""); got != want || (err != nil) != (want == telemetry.VerdictFailed) {
						t.Errorf("%v, %v, want %v", got, err, want)
					}
				}
				handle(telemetry.VerdictAlerted)
				pass(window - time.Second)
				handle(telemetry.VerdictThrottled)
				pass(time.Second)
				handle(telemetry.VerdictAlerted)

				wantAlerts(t, r, "oven", 2)
			})
		})
	}
}

// While as many callers wait as may, an Intake takes only what needs no outcome.
func TestIntakeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newSetup(t, r).start()
		defer s.end()
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Cut()
		if got, _, err := in.Handle(t.Context(), event("warned", 99), ""); got != telemetry.VerdictAlerted || err != nil {
			t.Fatalf("%v, %v", got, err)
		}
		r.set(wait(5 * time.Second))
		var waiting sync.WaitGroup
		var alerted, busy atomic.Int64
		for i := range 300 {
			waiting.Go(func() {
				switch got, _, err := in.Handle(t.Context(), event(fmt.Sprint("device", i), 99), ""); {
				case got == telemetry.VerdictAlerted && err == nil:
					alerted.Add(1)
				case errors.Is(err, telemetry.ErrBusy):
					busy.Add(1)
				}
			})
		}
		synctest.Wait()
		if got, _, err := in.Handle(t.Context(), event("warned", 99), ""); got != telemetry.VerdictThrottled || err != nil {
			t.Errorf("in a window that is known: %v, %v", got, err)
		}
		waiting.Wait()
		if alerted.Load() != 256 || busy.Load() != 44 {
			t.Errorf("%d alerted, %d refused", alerted.Load(), busy.Load())
		}
	})
}

// What is being sent when the replica stops may go on until it is cut off. Then its caller hears that it is not settled.
func TestIntakeIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, &receiver{answer: wait(time.Minute)}).start()
		defer s.end()
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Cut()
		time.AfterFunc(2*time.Second, in.Cut)
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if got, _, err := in.Handle(gone, event("oven", 99), ""); got != telemetry.VerdictFailed || time.Since(start) != 2*time.Second {
			t.Errorf("%v, %v after %v", got, err, time.Since(start))
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

// A refused alert is kept as a dead letter, of which there is one in a window: for the other callers it has begun.
func TestIntakeOfARefusedAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := failing(&notify.Error{Refused: true, Untaken: true, Err: errors.New("answered 400")})
		r := &receiver{answer: func(ctx context.Context, a notify.Alert) error {
			time.Sleep(time.Second)
			return refuse(ctx, a)
		}}
		s := newSetup(t, r).start()
		defer s.end()
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Cut()
		var callers sync.WaitGroup
		for i := range 3 {
			callers.Go(func() {
				got, _, err := in.Handle(t.Context(), event("oven", 98), "")
				if i > 0 {
					if got != telemetry.VerdictThrottled || err != nil {
						t.Errorf("another caller: %v, %v", got, err)
					}
					return
				}
				wantUnsettled(t, err, "dead_letter", "the alert was kept as a dead letter: refused for good: answered 400")
			})
			synctest.Wait()
		}
		callers.Wait()
		if n := len(s.dead.kept); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
	})
}

// What comes by HTTP has no alarm, so nothing tells when it is normal again.
func TestIntakeDoesNotResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := newSetup(t, r)
		s.config.Rulebook.Rules.Rules[0].Resolved = true
		s.start(p)
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Cut()
		if v, _, err := in.Handle(t.Context(), event("kiln", 99), ""); v != telemetry.VerdictAlerted {
			t.Errorf("%v, %v", v, err)
		}
		p.publish("oven", 99)
		synctest.Wait()
		s.end()
		got := fmt.Sprint(wantAlerts(t, r, "kiln", 1)[0].WillResolve, wantAlerts(t, r, "oven", 1)[0].WillResolve)
		if got != "false true" {
			t.Errorf("a resolved follows by HTTP and by the hub: %s", got)
		}
	})
}

// A caller of the HTTP trigger whose reading meets another replica's claim is not kept waiting
// until that would end.
func TestIntakeMeetsAForeignClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		other := newReplica(t, store, &receiver{answer: wait(3 * time.Second)})
		p := newPartition("0")
		other.start(p)
		defer other.end()
		p.publish("hot", 99)
		synctest.Wait()

		s := newReplica(t, store, &receiver{}).start()
		defer s.end()
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Cut()
		start := time.Now()
		if got, _, err := in.Handle(t.Context(), event("hot", 99), ""); got != telemetry.VerdictThrottled || err != nil {
			t.Errorf("%v, %v, want it throttled", got, err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the caller waited %v for an alert that took 3 s", took)
		}
	})
}

// A device of which nothing can be read is named, and one that can be read is not.
func TestUnreadableDevicesAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("7")
		s := newSetup(t).start(p)
		defer s.end()
		start := time.Now().UTC()
		for range 7 {
			p.publish("fine", 20)
			p.publishBody("broken", "{", nil)
			pass(10 * time.Minute)
		}
		all := s.worker.Unreadable()
		if len(all.Named) != 1 || all.Devices[telemetry.ReasonMalformed] != 1 {
			t.Fatalf("got %+v", all)
		}
		u, last := all.Named[0], start.Add(time.Hour)
		if u.Device != "broken" || u.Partition != "7" || u.Since != start || u.Last != last || u.Reason != telemetry.ReasonMalformed {
			t.Errorf("got %+v", u)
		}
	})
}

// A message by HTTP with readings of several sensors has the worst of their outcomes, and each one's.
func TestIntakeOfSeveralSensors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newSetup(t, r)
		rule := &s.config.Rulebook.Rules.Rules[0]
		rule.Each, rule.Field, rule.Sensor = "readings", "t", []string{"s"}
		var err error
		if s.config.Rulebook.Decoder, err = s.config.Rulebook.Rules.Decoder(); err != nil {
			t.Fatal(err)
		}
		s.start()
		defer s.end()
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Cut()
		r.set(func(_ context.Context, a notify.Alert) error {
			if a.Sensor == "broken" {
				return errBusy
			}
			return nil
		})
		for _, tt := range []struct {
			body string
			want string
		}{
			{`{"readings":[{"s":"a","t":20},{"s":"b","t":21}]}`, "normal, a normal, b normal"},
			{`{"readings":[{"s":"a","t":99},{"s":"b","t":21}]}`, "alerted, a alerted, b normal"},
			{`{"readings":[{"s":"a","t":99},{"s":"b","t":99},{"s":"c","t":1}]}`, "alerted, a throttled, b alerted, c normal"},
			{`{"readings":[{"s":"a","t":99},{"s":"b","t":20}]}`, "throttled, a throttled, b normal"},
			{`{"readings":[{"s":"broken","t":99},{"s":"d","t":99},{"t":20}]}`, "failed, broken failed, d alerted"},
			{`{"readings":[{"t":20}]}`, "normal"},
		} {
			words := map[telemetry.Verdict]string{telemetry.VerdictFailed: "failed", telemetry.VerdictNormal: "normal", telemetry.VerdictThrottled: "throttled", telemetry.VerdictAlerted: "alerted"}
			v, sensors, _ := in.Handle(t.Context(), telemetry.Event{Device: "gw", Body: []byte(tt.body), Enqueued: time.Now()}, "")
			got := words[v]
			for _, name := range slices.Sorted(maps.Keys(sensors)) {
				got += ", " + name + " " + words[sensors[name]]
			}
			if got != tt.want {
				t.Errorf("%s: got %s, want %s", tt.body, got, tt.want)
			}
		}
	})
}
