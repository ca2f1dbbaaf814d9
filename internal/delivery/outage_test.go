package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/lease/leasetest"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

// refusals are receivers that take nothing, each in its way.
var refusals = map[string]func(context.Context, notify.Alert) error{
	"503":                       failing(errBusy),
	"503 and Retry-After":       limited(503, time.Hour),
	"403 and Retry-After":       limited(403, 10*time.Minute),
	"429":                       limited(429, 0),
	"429 and Retry-After: 1 h":  limited(429, time.Hour),
	"429 and Retry-After: 25 s": limited(429, 25*time.Second),
	"no answer":                 wait(time.Hour),
}

// What has waited for NOTIFY_GIVE_UP becomes a dead letter, in whatever way its receiver takes nothing: after a restart
// the hub may have dropped its event.
func TestHoweverItIsRefusedItIsGivenUp(t *testing.T) {
	for name, answer := range refusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newReplica(t, &receiver{answer: answer})
				p := s.open("0")
				defer s.end()
				const n = 300
				for i := range n {
					p.hot(fmt.Sprint("device", i))
				}
				pass(s.config.GiveUp + 5*time.Minute)
				if kept := len(s.dead.all()); kept != n || p.watermark() != n {
					t.Errorf("%d of %d alerts are dead letters, and all are settled up to %d", kept, n, p.watermark())
				}
			})
		})
	}
}

// An alert that only waits, behind others for which the receiver has no more time, is given up by its age too.
func TestWhatWaitsBehindOthersIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{limits: notify.Limits{Rate: notify.Rate{Burst: 1, Every: 10 * time.Minute}}}
		s := newReplica(t, r)
		s.config.GiveUp = time.Hour
		p := s.open("0")
		defer s.end()
		const n = 50
		for i := range n {
			p.hot(fmt.Sprint("device", i))
		}
		pass(s.config.GiveUp + time.Minute)
		told, dead := len(r.alerts("")), s.dead.all()
		if told+len(dead) != n || told < 6 || s.dispatcher.Receivers()[0].Down {
			t.Errorf("%d told, %d dead letters, %+v", told, len(dead), s.dispatcher.Receivers()[0])
		}
		for _, d := range dead {
			if want := "not taken within 1h0m0s (NOTIFY_GIVE_UP): other alerts went first"; d.Reason[:len(want)] != want {
				t.Fatal(d.Reason)
			}
		}
		wantWatermark(t, p, n)
	})
}

// More critical alerts than a receiver takes leave the others their turn, and a first alert goes before the third
// reminder of anybody.
func TestNobodyStarves(t *testing.T) {
	for name, tt := range map[string]struct {
		warnings  int           // of 20 devices; the others are critical
		reminders bool          // all but the first of a device are
		refuses   time.Duration // at first
	}{
		"warnings beside critical alerts":      {1, false, 0},
		"reminders":                            {0, true, 0},
		"after a quarter of an hour of 429":    {0, false, 15 * time.Minute},
		"reminders after a quarter of an hour": {0, true, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{limits: notify.Limits{Rate: notify.Rate{Burst: 20, Every: 600 * time.Millisecond}}}
				r.set(limited(429, 0))
				s := newReplica(t, r)
				p := s.open("0")
				defer s.end()
				warning := s.topic("warning", func(topic *delivery.Topic) { topic.Rank = 1 })
				critical := s.topic("critical", nil)
				begin := time.Now()
				const devices = 160 // they stay hot: two alerts a second would be due, of which 1.67 can go
				known := map[string]bool{}
				for range 40 * time.Minute / (20 * time.Second) {
					if time.Since(begin) >= tt.refuses {
						r.set(nil)
					}
					for i := range devices {
						a := p.reading(fmt.Sprint("device", i), critical)
						if i%20 < tt.warnings {
							a.Key.Topic = warning
						}
						a.Reminder = tt.reminders && known[a.Device]
						known[a.Device] = true
						p.take(a)
					}
					pass(20 * time.Second)
				}
				told := map[string]int{}
				for _, a := range r.alerts("") {
					if told[a.Device]++; told[a.Device] == 4 && len(told) < devices {
						t.Fatalf("%s is told for the 4th time, and only %d of %d devices were told once", a.Device, len(told), devices)
					}
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
		r := &receiver{limits: notify.Limits{Places: 1}}
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
			return limited(429, 20*time.Second)(ctx, a)
		})
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("first")
		pass(20 * time.Second)
		r.mu.Lock()
		slow = true
		r.mu.Unlock()
		recovery := p.well("first")
		pass(window - 18*time.Second) // it is being sent
		p.box.Withdraw(p.key("first"), recovery)
		p.hot("first")
		pass(7 * time.Second)
		for i := range 100 {
			p.hot(fmt.Sprint("later", i))
		}
		pass(3 * time.Minute)
		all := r.alerts("")
		if refused != 1 || len(all) != 102 || all[1].Device != "first" {
			t.Errorf("%d refused, %d alerts, the second of %s", refused, len(all), all[min(1, len(all)-1)].Device)
		}
	})
}

// While dead letters of a receiver cannot be written, what it is about to be asked about counts as one: nothing more is
// to come once there are 4,096.
func TestFullWithUnwrittenDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReplica(t, &receiver{answer: failing(errRefused)})
		s.dead.fail(errors.New("no route to the container"))
		p := s.open("0")
		defer s.end()
		p.hot("first")
		pass(time.Second)
		for i := 0; !p.box.Full() && i < 12_000; i++ {
			p.hot(fmt.Sprint("device", i))
		}
		if p.last < 4096/2 || p.last > 4096 { // what is being tried counts twice for a moment
			t.Errorf("full with %d", p.last)
		}
		pass(10 * time.Minute)
		for _, a := range p.read {
			if got := p.waits(a.Device).For; got != delivery.WaitDeadLetter {
				t.Fatalf("%s waits for %v", a.Device, got)
			}
		}
		s.dead.fail(nil)
		pass(10 * time.Minute)
		if p.box.Full() {
			t.Error("it is full still")
		}
		wantWatermark(t, p, p.last)
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
				r := &receiver{limits: notify.Limits{Batch: 100}}
				s := newReplicaOn(t, &laggard{memlease.New(), lag}, r)
				s.timeout = 2 * time.Second
				p := s.open("0")
				defer s.end()
				for i := range 60 {
					p.hot(fmt.Sprint("device", i))
				}
				for range 1200 {
					pass(250 * time.Millisecond)
					for i := range 60 {
						waits := p.waits(fmt.Sprint("device", i))
						if waits.For == delivery.WaitPause || waits.For == delivery.WaitReceiver {
							t.Fatal(waits.Text)
						}
					}
				}
				failed := s.stats.Outcomes[throttle.Failed].Load()
				if told := len(r.alerts("")); told != 60 || failed > 0 || s.dispatcher.Receivers()[0].Down {
					t.Errorf("%d told, %d attempts failed at a receiver that takes everything at once: %+v", told, failed, s.dispatcher.Receivers()[0])
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
				r := &receiver{}
				s := newReplica(t, r)
				s.config.GiveUp = 3 * time.Hour
				p := s.open("0")
				defer s.end()
				p.hot("well")
				pass(time.Hour)
				r.set(answer)
				began := time.Now()
				p.hot("hot")
				down := func(after time.Duration) {
					t.Helper()
					pass(after - time.Since(began))
					if got := s.dispatcher.Receivers()[0]; !got.Down || got.Err == nil || got.Since.Sub(began) > 15*time.Second {
						t.Errorf("after %v: %+v", after, got)
					}
				}
				for _, after := range []time.Duration{31 * time.Second, 5 * time.Minute, 59 * time.Minute, 2 * time.Hour} {
					down(after)
				}
				down(4 * time.Hour) // there is a dead letter, and nothing is due: nobody has seen that it works
				r.set(nil)
				p.hot("next")
				pass(time.Hour + time.Minute)
				if got := s.dispatcher.Receivers()[0]; got.Down || got.Err != nil {
					t.Errorf("%+v after it accepted one", got)
				}
			})
		})
	}
}

// A receiver that takes nothing is down as soon if each alert is given up, or withdrawn, before the next one is due.
func TestReceiverThatTakesNothingOfOneAfterAnotherIsDown(t *testing.T) {
	for name, answer := range refusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newReplica(t, &receiver{answer: answer})
				s.config.GiveUp = 20 * time.Second
				p := s.open("0")
				defer s.end()
				p.hot("first")
				pass(21 * time.Second)
				if n := len(s.dead.all()); n != 1 && name != "no answer" { // else it is being asked
					t.Fatalf("%d dead letters, want 1", n)
				}
				p.hot("second")
				pass(12 * time.Second)
				if got := s.dispatcher.Receivers()[0]; !got.Down || got.Err == nil {
					t.Errorf("%+v, and something was due for 32 s", got)
				}
			})
		})
	}
}

// One alert that was refused once, and then by nobody, says nothing about its receiver an hour later.
func TestOneRefusalIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errRefused)}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("odd")
		pass(time.Hour)
		r.set(wait(8 * time.Second))
		p.hot("well")
		for range 10 {
			pass(time.Second)
			if got := s.dispatcher.Receivers()[0]; got.Down {
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
				r := &receiver{answer: answer}
				s := newReplica(t, r)
				p := s.open("0")
				defer s.end()
				for _, device := range []string{"a", "b", "c"} {
					p.hot(device)
				}
				pass(20 * time.Minute)
				before := len(r.attempts(""))
				receiver := s.dispatcher.Receivers()[0]
				s.dispatcher.Accepted("another")
				s.dispatcher.Accepted(receiver.Name)
				pass(0)
				if asked := len(r.attempts("")) - before; asked > 1 || asked == 0 && name != "no answer" { // else it is being asked
					t.Errorf("asked %d times, %+v", asked, receiver)
				}
				pass(21 * time.Second) // it was refused
				r.set(nil)
				s.dispatcher.Accepted(receiver.Name)
				pass(15 * time.Second)
				if state := s.dispatcher.Receivers()[0]; len(r.alerts("")) == 0 || state.Down {
					t.Errorf("nothing within 15 s: %+v", state)
				}
				pass(90 * time.Second)
				if told := len(r.alerts("")); told != 3 {
					t.Errorf("%d alerts of 3: %+v", told, s.dispatcher.Receivers()[0])
				}
			})
		})
	}
}

// Many alerts that fail at once are one sign of trouble, not many.
func TestShortOutageInAStormIsOverSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(ctx context.Context, a notify.Alert) error {
			_ = wait(100*time.Millisecond)(ctx, a)
			return errBusy
		}}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		for i := range 16 {
			p.hot(fmt.Sprint("device", i))
		}
		pass(500 * time.Millisecond)
		r.set(nil)
		pass(2 * time.Second)
		wantAlerts(t, r, "", 16)
	})
}

// A receiver that is down for hours is probed by one alert at a time; readings of one device join, and nothing is lost.
func TestReceiverDownForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(ctx context.Context, a notify.Alert) error {
			_ = wait(3*time.Second)(ctx, a)
			return errBusy
		}}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		for minute := range 4 * 60 {
			if minute == 1 { // by now it is known to be down
				r.mu.Lock()
				r.most = 0
				r.mu.Unlock()
			}
			for i := range 100 {
				p.hot(fmt.Sprint("device", i))
			}
			pass(time.Minute)
		}
		if n := len(r.attempts("")); n > 4*60*3 || r.most != 1 {
			t.Errorf("%d attempts in 4 h, %d at a time; want about one a minute", n, r.most)
		}
		wantWatermark(t, p, 0)
		r.set(nil)
		pass(3 * time.Minute)
		for i := range 100 {
			wantAlerts(t, r, fmt.Sprint("device", i), 1)
		}
		wantWatermark(t, p, p.last)
	})
}

// While a receiver is down, its timer looks at the queues of all owners, those included that have just begun. It is the
// race detector that finds what goes wrong here, and not in virtual time, in which timers are synchronized with everything.
func TestOwnersBeginWhileReceiverIsDown(t *testing.T) {
	t.Parallel()
	r := &receiver{answer: failing(errBusy)}
	s := newReplica(t, r)
	p := s.open("0")
	defer s.end()
	for i := range 3 { // enough for it to be down
		p.hot(fmt.Sprint("device", i))
	}
	for round := range 3 {
		for len(r.attempts("")) < 3+round {
			time.Sleep(time.Millisecond)
		}
		for i := range 10 {
			s.open(fmt.Sprint(1 + round*10 + i))
		}
	}
}

// outage is a store that can be out of reach, for as long as it takes.
type outage struct {
	lease.Store
	down  atomic.Bool
	calls atomic.Int64 // while it was
}

func (o *outage) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	if o.down.Load() {
		o.calls.Add(1)
		return lease.Lease{}, errors.New("no route to store")
	}
	return o.Store.Acquire(ctx, key, ttl, next)
}

func TestStoreOutageDelaysAlertsAndLosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, r := &outage{Store: memlease.New()}, &receiver{}
		s := newReplicaOn(t, store, r)
		p := s.open("0")
		defer s.end()
		p.hot("told")
		pass(time.Minute - time.Second)
		store.down.Store(true)
		began := time.Now()
		for i := range 100 {
			p.hot(fmt.Sprint("device", i))
		}
		p.well("told") // whose window is known, without the store
		pass(10 * time.Minute)
		wantAlerts(t, r, "", 1)
		wantWatermark(t, p, 1)
		if got := p.waits("device7"); got.For != delivery.WaitStore || got.Since.Sub(began).Abs() > time.Second {
			t.Errorf("waits for %+v", got)
		}
		if state := s.dispatcher.Receivers()[0]; state.Down {
			t.Errorf("the receiver is down, it is said: %+v", state)
		}
		if n := store.calls.Load(); n > 64+30 {
			t.Errorf("asked %d times in 10 minutes", n)
		}
		store.down.Store(false)
		pass(2 * time.Minute)
		wantAlerts(t, r, "", 102)
		wantWatermark(t, p, 102)
	})
}

// clockThatIsSet is a store whose clock is ahead until somebody sets it.
type clockThatIsSet struct {
	lease.Store
	ahead lease.Store
	set   atomic.Bool
}

func (c *clockThatIsSet) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	if c.set.Load() {
		return c.Store.Acquire(ctx, key, ttl, next)
	}
	return c.ahead.Acquire(ctx, key, ttl, next)
}

// How old an alert is follows from the store's clock when it is given up, and not from an estimate.
func TestNothingIsGivenUpByAnEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inMemory := memlease.New()
		s := newReplicaOn(t, nil, &receiver{answer: limited(429, time.Hour)}) // so that the store is not asked meanwhile
		store := &clockThatIsSet{Store: inMemory, ahead: leasetest.Ahead(inMemory, s.config.GiveUp-time.Minute)}
		s.store = store
		p := s.open("0")
		defer s.end()
		p.hot("oven")
		pass(time.Second)
		store.set.Store(true)
		pass(s.config.GiveUp - time.Minute)
		if n := len(s.dead.all()); n > 0 {
			t.Errorf("%d dead letters too early", n)
		}
		pass(5 * time.Minute)
		if n := len(s.dead.all()); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
	})
}

// One alert alone asks a store that does not answer less and less often.
func TestStoreIsAskedSeldomAboutOneAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &outage{Store: memlease.New()}
		s := newReplicaOn(t, store, &receiver{})
		store.down.Store(true)
		p := s.open("0")
		defer s.end()
		p.hot("oven")
		pass(10 * time.Minute)
		if n := store.calls.Load(); n < 8 || n > 30 {
			t.Errorf("asked %d times in 10 minutes", n)
		}
	})
}

// A receiver that takes alerts is not down because of one refusal while an alert of its own fault pauses.
func TestOneRefusalBesideAFailureIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		tries := 0
		r.set(func(_ context.Context, a notify.Alert) error {
			switch a.Device {
			case "poison":
				tries++
				return &notify.Error{Untaken: true, Status: 500, Err: errors.New("answered 500")}
			case "bad":
				return errRefused
			}
			return nil
		})
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("poison")
		for i := 0; tries < 7; i++ { // after which it pauses for more than half a minute
			p.hot(fmt.Sprint("well", i))
			pass(time.Second)
		}
		p.hot("bad")
		for tries == 7 {
			if state := s.dispatcher.Receivers()[0]; state.Down {
				t.Fatalf("it is down: %+v", state)
			}
			pass(time.Second)
		}
	})
}
