package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/worker"
)

// tooMany answers every alert with a status and, if it is not 0, Retry-After.
func tooMany(status int, retryAfter time.Duration) func(context.Context, notify.Alert) error {
	return failing(&notify.Error{
		Untaken: true, Limited: true, Status: status, RetryAfter: retryAfter, Err: fmt.Errorf("answered %d", status),
	})
}

// refusals are receivers that take nothing, each in its way.
var refusals = map[string]func(context.Context, notify.Alert) error{
	"503":                       failing(errBusy),
	"503 and Retry-After":       tooMany(503, time.Hour),
	"403 and Retry-After":       tooMany(403, 10*time.Minute),
	"429":                       tooMany(429, 0),
	"429 and Retry-After: 1 h":  tooMany(429, time.Hour),
	"429 and Retry-After: 25 s": tooMany(429, 25*time.Second),
	"no answer":                 wait(time.Hour),
}

// What has waited for NOTIFY_GIVE_UP becomes a dead letter, in whatever way its receiver takes nothing. So none is lost
// after a restart with events that the hub has dropped.
func TestHoweverItIsRefusedItIsGivenUp(t *testing.T) {
	for name, answer := range refusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{answer: answer}
				s := newSetup(t, r).start(p)
				const n = 300
				for i := range n {
					p.publish(fmt.Sprint("device", i), 99)
				}
				pass(s.config.GiveUp + 5*time.Minute)
				if kept := len(s.dead.all()); kept < n || p.checkpoint() != n {
					t.Errorf("%d of %d alerts are dead letters, checkpoint at %d", kept, n, p.checkpoint())
				}
				pass(25*time.Hour - s.config.GiveUp)
				s.end() // the hub has dropped what is older than a day
				q := p.reopen()
				q.next = len(q.log)
				next := newSetup(t, r)
				next.store, next.ledgers, next.dead = s.store, s.ledgers, s.dead
				next.config.DeadLetters = s.dead
				r.set(nil)
				next.start(q)
				pass(time.Hour)
				next.end()
				if told, kept := len(r.alerts("")), len(s.dead.all()); told+kept < n {
					t.Errorf("of %d alerts %d were taken and %d are dead letters: the others are lost", n, told, kept)
				}
			})
		})
	}
}

// An alert that only waits, behind others for which the receiver has no more time, is given up by its age too.
func TestWhatWaitsBehindOthersIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{limits: notify.Limits{Rate: notify.Rate{Burst: 1, Every: 10 * time.Minute}}}
		s := newSetup(t, r)
		s.config.GiveUp = time.Hour
		s.start(p)
		defer s.end()
		const n = 50
		for i := range n {
			p.publish(fmt.Sprint("device", i), 99)
		}
		pass(s.config.GiveUp + time.Minute)
		told, dead := len(r.alerts("")), s.dead.all()
		if told+len(dead) != n || told < 6 || s.worker.Receivers()[0].Down {
			t.Errorf("%d told, %d dead letters, %+v", told, len(dead), s.worker.Receivers()[0])
		}
		for _, d := range dead {
			if want := "not taken within 1h0m0s (NOTIFY_GIVE_UP): other alerts went first"; d.Reason[:len(want)] != want {
				t.Fatal(d.Reason)
			}
		}
		wantCheckpoint(t, p, n)
	})
}

// More critical alerts than a receiver takes leave the others their turn, and a first alert goes before the third
// reminder of anybody.
func TestNobodyStarves(t *testing.T) {
	for name, tt := range map[string]struct {
		value    func(device int) float64
		stateful bool
		refuses  time.Duration // at first
	}{
		"warnings beside critical alerts":      {func(i int) float64 { return []float64{40, 90}[min(i%20, 1)] }, false, 0},
		"recoveries and reminders":             {func(int) float64 { return 90 }, true, 0},
		"after a quarter of an hour of 429":    {func(int) float64 { return 90 }, false, 15 * time.Minute},
		"reminders after a quarter of an hour": {func(int) float64 { return 90 }, true, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{limits: notify.Limits{Rate: notify.Rate{Burst: 20, Every: 600 * time.Millisecond}}}
				s := with(t, func(r *rules.Rule) {
					r.Levels = []rules.Level{{Name: "warning", Limit: 30}, {Name: "critical", Limit: 80}}
					if tt.stateful {
						r.Levels[0].Clear, r.Levels[1].Clear = 25, 75
					}
				}, r)
				r.set(tooMany(429, 0))
				s.start(p)
				defer s.end()
				begin := time.Now()
				const devices = 160 // they stay hot: two alerts a second would be due, of which 1.67 can go
				for range 2 * time.Hour / (20 * time.Second) {
					if time.Since(begin) >= tt.refuses {
						r.set(nil)
					}
					for i := range devices {
						p.publish(fmt.Sprint("device", i), tt.value(i))
					}
					pass(20 * time.Second)
				}
				told, first := map[string]int{}, map[string]bool{}
				for _, a := range r.alerts("") {
					told[a.Device]++
					if most := told[a.Device]; most == 4 && len(first) < devices {
						t.Fatalf("%s is told for the 4th time, and only %d of %d devices were told once", a.Device, len(first), devices)
					}
					first[a.Device] = true
				}
				most, least := 0, len(r.alerts(""))
				for _, n := range told {
					most, least = max(most, n), min(least, n)
				}
				if len(told) < devices || least < most/4 || len(s.dead.all()) > 0 {
					t.Errorf("%d of %d devices were told, from %d to %d times, %d dead letters", len(told), devices, least, most, len(s.dead.all()))
				}
			})
		})
	}
}

// A device that is hot again while its recovery is being refused for rate has an alert like any other: it does not wait
// for the turn of the recovery, which nobody wants any more.
func TestAlertBehindAWithdrawnRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{limits: notify.Limits{Places: 1}}
		slow, refused := false, 0
		r.set(func(ctx context.Context, a notify.Alert) error {
			r.mu.Lock()
			refuse := a.Resolved && slow
			r.mu.Unlock()
			if !refuse {
				return wait(time.Second)(ctx, a)
			}
			time.Sleep(5 * time.Second)
			refused++
			return tooMany(429, 20*time.Second)(ctx, a)
		})
		s := with(t, func(r *rules.Rule) { r.Resolved = true }, r)
		s.start(p)
		defer s.end()
		p.publish("first", 99)
		pass(20 * time.Second)
		r.mu.Lock()
		slow = true
		r.mu.Unlock()
		p.publish("first", 1)
		pass(window - 18*time.Second) // its recovery is being sent
		p.publish("first", 99)
		pass(7 * time.Second)
		for i := range 100 {
			p.publish(fmt.Sprint("later", i), 99)
		}
		pass(3 * time.Minute)
		all := r.alerts("")
		if refused != 1 || len(all) != 102 || all[1].Device != "first" {
			t.Errorf("%d refused, %d alerts, the second of %s", refused, len(all), all[min(1, len(all)-1)].Device)
		}
	})
}

// The first alert about an alarm that nobody was told of goes before recoveries and reminders, whatever kept the first
// readings of the alarm quiet, and also after a take-over.
func TestFirstAlertAfterWhatKeptItQuiet(t *testing.T) {
	for _, tt := range []struct{ muted, handedOver bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				levels := func(r *rules.Rule) {
					r.Levels = []rules.Level{{Name: "warning", Limit: 30, Clear: 25}, {Name: "critical", Limit: 80, Clear: 75}}
				}
				p, r := newPartition("0"), &receiver{limits: notify.Limits{Rate: notify.Rate{Burst: 1, Every: time.Second}}}
				s := with(t, levels, r)
				value := 90.0 // critical
				if tt.muted {
					value = 40
					mute := rules.Mutes{{Device: "oven", From: time.Now(), Until: time.Now().Add(5 * time.Minute)}}
					s.config.Mutes = func() rules.Mutes { return mute }
				}
				p.publish("oven", value)
				s.start(p)
				pass(6 * time.Minute)
				if tt.handedOver {
					s.end()
					next := with(t, levels, r)
					next.store, next.ledgers = s.store, s.ledgers
					next.config.DeadLetters = next.dead
					p, s = p.reopen(), next
					s.start(p)
				}
				defer func() { s.end() }()
				for range 2 { // alerts of others, and then reminders
					for i := range 100 {
						p.publish(fmt.Sprint("other", i), 40)
					}
					pass(150 * time.Second)
				}
				for i := range 100 {
					p.publish(fmt.Sprint("other", i), 40)
				}
				p.publish("oven", 40)
				pass(5 * time.Second)
				for _, a := range r.alerts("oven") {
					if a.Level == "warning" {
						return
					}
				}
				t.Error("the first alert of the oven waits behind reminders of others")
			})
		})
	}
}

// While dead letters of a receiver cannot be written there are no more than 4,096 alerts of a partition for it, and
// reading pauses.
func TestReadingPausesWithUnwrittenDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(errRefused)}
		p.largest = 100
		s := newSetup(t, r)
		s.dead.err = errors.New("no route to the container")
		s.start(p)
		defer s.end()
		const n = 12_000
		for i := range n {
			p.publish(fmt.Sprint("device", i), 99)
			if i%500 == 0 {
				synctest.Wait()
			}
		}
		pass(10 * time.Minute)
		unwritten := 0
		for i := range n {
			if d := s.worker.Device(fmt.Sprint("device", i)).Deliveries; len(d) == 1 && d[0].Waits.For == delivery.WaitDeadLetter {
				unwritten++
			}
		}
		if read := s.worker.Partitions()[0].Read.Sequence; read == n || unwritten < 4096 || unwritten > 4096+600 {
			t.Errorf("%d dead letters cannot be written, and %d of %d events are read", unwritten, read, n)
		}
		s.dead.mu.Lock()
		s.dead.err = nil
		s.dead.mu.Unlock()
		pass(10 * time.Minute)
		wantCheckpoint(t, p, n)
	})
}

// laggard is a store whose every claim takes a while.
type laggard struct {
	lease.Store
	lag time.Duration
}

func (l *laggard) Acquire(
	ctx context.Context,
	key string,
	ttl time.Duration,
	next func(lease.Record) (string, error),
) (lease.Lease, error) {
	select {
	case <-time.After(l.lag):
	case <-ctx.Done():
		return lease.Lease{}, context.Cause(ctx)
	}
	return l.Store.Acquire(ctx, key, ttl, next)
}

// That the throttle store is slow is no failure of a receiver, which has not been asked.
func TestSlowStoreIsNoFailureOfTheReceiver(t *testing.T) {
	for _, lag := range []time.Duration{900 * time.Millisecond, 2500 * time.Millisecond, 3 * time.Second} {
		t.Run(lag.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{limits: notify.Limits{Batch: 100}}
				s := newSetup(t)
				store := &laggard{s.store, lag}
				s.receivers = nil
				s.config.Receivers = []worker.Receiver{{ID: "r", Name: "r.example", Limits: r.limits, Notifier: r,
					Gate: func(rule *rules.Rule, level *rules.Level) delivery.Gate {
						return recent.New(throttle.Config{Store: store, Scope: "s", Receiver: "r", Rule: rule.Name, Level: level.Name,
							Window: rule.Window, SendTimeout: 2 * time.Second}, recent.NewWindows())
					}}}
				s.start(p)
				defer s.end()
				for i := range 60 {
					p.publish(fmt.Sprint("device", i), 99)
				}
				for range 1200 {
					pass(250 * time.Millisecond)
					for i := range 60 {
						d := s.worker.Device(fmt.Sprint("device", i)).Deliveries
						if len(d) > 0 && (d[0].Waits.For == delivery.WaitPause || d[0].Waits.For == delivery.WaitReceiver) {
							t.Fatal(d[0].Waits.Text)
						}
					}
				}
				failed := s.worker.Stats().Outcomes[throttle.Failed].Load()
				if told := len(r.alerts("")); told != 60 || failed > 0 || s.worker.Receivers()[0].Down {
					t.Errorf("%d told, %d attempts failed at a receiver that takes everything at once: %+v", told, failed, s.worker.Receivers()[0])
				}
			})
		})
	}
}

// A receiver that takes nothing of what is due is down within 30 s, with the reason, in whatever way it takes nothing,
// and up once it has accepted something.
func TestReceiverThatTakesNothingIsDown(t *testing.T) {
	for name, answer := range refusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := newSetup(t, r)
				s.config.GiveUp = 3 * time.Hour
				s.start(p)
				defer s.end()
				p.publish("well", 99)
				pass(time.Hour)
				r.set(answer)
				began := time.Now()
				p.publish("hot", 99)
				down := func(after time.Duration) {
					t.Helper()
					pass(after - time.Since(began))
					if got := s.worker.Receivers()[0]; !got.Down || got.Err == nil || got.Since.Sub(began) > 15*time.Second {
						t.Errorf("after %v: %+v", after, got)
					}
				}
				for _, after := range []time.Duration{31 * time.Second, 5 * time.Minute, 59 * time.Minute, 2 * time.Hour} {
					down(after)
				}
				down(4 * time.Hour) // there is a dead letter, and nothing is due: nobody has seen that it works
				r.set(nil)
				p.publish("next", 99)
				pass(time.Hour + time.Minute)
				if got := s.worker.Receivers()[0]; got.Down || got.Err != nil {
					t.Errorf("%+v after it accepted one", got)
				}
			})
		})
	}
}

// One alert that was refused once, and then by nobody, says nothing about its receiver an hour later.
func TestOneRefusalIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(errRefused)}
		s := newSetup(t, r).start(p)
		defer s.end()
		p.publish("odd", 99)
		pass(time.Hour)
		r.set(wait(8 * time.Second))
		p.publish("well", 99)
		for range 10 {
			pass(time.Second)
			if got := s.worker.Receivers()[0]; got.Down {
				t.Fatalf("%+v", got)
			}
		}
	})
}

// A receiver that is down is asked at once when another replica says that it has accepted something: neither the pause
// between probes nor one that the receiver asked for is waited out. If it still takes nothing, that costs one message.
func TestReceiverThatAnotherReplicaReachesIsAskedAtOnce(t *testing.T) {
	for name, answer := range refusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tried attempts
				p, r := newPartition("0"), &receiver{answer: tried.record(answer)}
				s := newSetup(t, r).start(p)
				defer s.end()
				for _, device := range []string{"a", "b", "c"} {
					p.publish(device, 99)
				}
				pass(20 * time.Minute)
				count := func() (n int) {
					for _, device := range []string{"a", "b", "c"} {
						n += len(tried.of(device))
					}
					return n
				}
				before := count()
				receiver := s.worker.Receivers()[0]
				s.worker.Accepted("another")
				s.worker.Accepted(receiver.Name)
				pass(0)
				if asked := count() - before; asked > 1 || asked == 0 && name != "no answer" { // else it is being asked
					t.Errorf("asked %d times, %+v", asked, receiver)
				}
				pass(21 * time.Second) // it was refused
				r.set(nil)
				s.worker.Accepted(receiver.Name)
				pass(15 * time.Second)
				if state := s.worker.Receivers()[0]; len(r.alerts("")) == 0 || state.Down {
					t.Errorf("nothing within 15 s: %+v", state)
				}
				pass(90 * time.Second)
				if told := len(r.alerts("")); told != 3 {
					t.Errorf("%d alerts of 3: %+v", told, s.worker.Receivers()[0])
				}
			})
		})
	}
}
