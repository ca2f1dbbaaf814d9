package partition_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
)

// repeating returns a change of a rule's repeat.
func repeating(repeat time.Duration) func(*rules.Rule) {
	return func(r *rules.Rule) {
		r.Repeat = repeat
		r.Levels[0].Clear = threshold - 5
	}
}

// An open alarm is sent again when its repeat is over, and another one when the window is.
func TestRepeat(t *testing.T) {
	const warm, hot, cool, critical = threshold - 2, threshold + 5, threshold - 10, threshold + 60
	levels := func(r *rules.Rule) {
		r.Repeat = rules.Never
		r.Levels = []rules.Level{
			{Name: "warning", Limit: threshold, Clear: threshold},
			{Name: "critical", Limit: threshold + 50, Clear: threshold + 50},
		}
	}
	unresolved := func(r *rules.Rule) { r.Repeat, r.Resolved = rules.Never, false }
	for _, tt := range []struct {
		name   string
		change func(*rules.Rule)
		step   time.Duration
		values []float64
		want   string
	}{
		{"an alarm goes on", repeating(4 * time.Minute), 35 * time.Second, []float64{hot, hot, hot, hot, hot, hot, hot, hot, hot}, "alert 1, alert 8"},
		{"it goes on between clear and limit", repeating(4 * time.Minute), 35 * time.Second, []float64{hot, warm, warm, warm, warm, warm, warm, warm, warm}, "alert 1, alert 8"},
		{"never", repeating(rules.Never), 10 * time.Minute, []float64{hot, hot, warm, hot, cool}, "alert 1, recovery 5"},
		{"the next alarm", repeating(rules.Never), 70 * time.Second, []float64{hot, hot, cool, hot, hot}, "alert 1, recovery 3, alert 4"},
		{"the next alarm opens within the window", repeating(rules.Never), 25 * time.Second, []float64{hot, cool, hot, hot, hot, hot}, "alert 1, alert 4"},
		{"the next alarm without recoveries", unresolved, 25 * time.Second, []float64{hot, cool, hot, hot, hot, hot}, "alert 1, alert 4"},
		{"levels", levels, 70 * time.Second, []float64{hot, hot, critical, critical, hot, cool}, "warning alert 1, critical alert 3, critical recovery 5, warning recovery 6"},
		{"the milder level was not sent", levels, 70 * time.Second, []float64{critical, critical, hot, hot, cool}, "critical alert 1, critical recovery 3, warning alert 3, warning recovery 5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := with(t, tt.change, r)
				s.start(p)
				p.feed("oven", tt.step, tt.values...)
				time.Sleep(5 * time.Minute)
				s.end()
				if got := r.notified("oven"); !sameSet(got, tt.want) {
					t.Errorf("notified of %s; want %s", got, tt.want)
				}
				if n := int64(len(tt.values)); p.checkpoint() != n {
					t.Errorf("checkpoint %d of %d", p.checkpoint(), n)
				}
			})
		})
	}
}

// People see until when an open alarm is not sent again.
func TestWhatAnOpenAlarmWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, repeating(4*time.Minute), r)
		s.start(p)
		start := time.Now()
		p.feed("oven", time.Minute, hot, hot)
		alarms := s.device("oven").Alarms
		if len(alarms) != 1 || len(alarms[0].Waits) != 1 || !alarms[0].Waits[0].Next.Equal(start.Add(4*time.Minute)) {
			t.Errorf("its alarms are %+v", alarms)
		}
		s.end()
	})
}

// asked counts the claims that a store is asked for.
type asked struct {
	lease.Store
	claims int
}

func (a *asked) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	a.claims++
	return a.Store.Acquire(ctx, key, ttl, next)
}

// While a replica knows that nothing is due about an alarm, its readings cost the store nothing, hold no checkpoint,
// and count in the next alert. The next owner asks once.
func TestRepeatIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, repeating(4*time.Hour), r)
		store := &asked{Store: s.store}
		s.store = store
		s.start(p)
		for range 119 {
			p.feed("oven", time.Minute, 40)
		}
		if store.claims != 1 || p.checkpoint() < 118 {
			t.Errorf("%d claims in two hours, checkpoint %d", store.claims, p.checkpoint())
		}
		s.end()

		next := with(t, repeating(4*time.Hour), r)
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		next.start(p)
		for range 120 {
			p.feed("oven", time.Minute, 40)
		}
		if store.claims != 2 || p.checkpoint() < 238 {
			t.Errorf("%d claims in four hours, checkpoint %d", store.claims, p.checkpoint())
		}
		p.feed("oven", 2*time.Minute, 40, 40, 40)
		next.end()
		if got, want := r.notified("oven"), "alert 1, alert 241"; got != want {
			t.Errorf("notified of %s; want %s", got, want)
		}
		if a := r.alerts("oven"); a[len(a)-1].Suppressed != 121 {
			t.Errorf("counts %d suppressed readings; want the 121 of this replica", a[len(a)-1].Suppressed)
		}
	})
}

// An alert that was not taken, or became a dead letter, has told nobody of its alarm.
func TestRepeatOfWhatWasNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		refused := &notify.Error{Refused: true, Err: errors.New("400")}
		r.set(func(context.Context, notify.Alert) error { return refused })
		s := with(t, repeating(rules.Never), r)
		s.start(p)
		p.feed("oven", 40*time.Second, 40, 40, 40)
		r.set(nil)
		p.feed("oven", 40*time.Second, 40, 40, 40, 40)
		s.end()
		if got, want := r.notified("oven"), "alert 5"; got != want {
			t.Errorf("notified of %s; want %s", got, want)
		}
		if n := len(s.dead.all()); n != 2 {
			t.Errorf("%d dead letters; want one in each window", n)
		}
		if a := r.alerts("oven")[0]; a.Repeat != 0 { // never
			t.Errorf("it is repeated every %v", a.Repeat)
		}
	})
}

// Of a hub that was recreated nothing says that its alarms were sent, so they are sent once more, also about its very
// first event, which has the number 0.
func TestRepeatAfterAnotherHub(t *testing.T) {
	repeatAfterAnotherHub(t, 1, "alert 1, alert 1, recovery 6")
	repeatAfterAnotherHub(t, 0, "alert 1, alert 0, recovery 5")
}

// That alert is not sent twice, also if who sent it dies before it has written the ledger: what it has read since was reason
// enough for a checkpoint.
func TestRepeatAfterAnotherHubAndACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, repeating(rules.Never), r)
		s.start(p)
		p.feed("oven", time.Minute, 40, 40)
		s.end()

		p = newPartition("0")
		p.generation = "2"
		dies := with(t, repeating(rules.Never), r)
		dies.store, dies.ledgers = s.store, s.ledgers
		dies.start(p)
		p.publish("oven", 40)
		synctest.Wait()
		for range 10_000 {
			p.publish("kiln", 20)
		}
		synctest.Wait()
		if _, _, err := ledger.Open(t.Context(), s.ledgers, "0"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * interval)
		dies.end()
		wantCheckpoint(t, p, 10_001)

		next := with(t, repeating(rules.Never), r)
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		next.start(p)
		p.feed("oven", 2*window, 40, 40)
		next.end()
		if got, want := r.notified("oven"), "alert 1, alert 1"; got != want {
			t.Errorf("notified of %s; want %s", got, want)
		}
	})
}

// repeatAfterAnotherHub has another hub number its events from first on.
func repeatAfterAnotherHub(t *testing.T, first int64, want string) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, repeating(rules.Never), r)
		s.start(p)
		p.feed("oven", time.Minute, 40, 40, 40)
		s.end()

		other := newPartition("0")
		other.generation = "2"
		other.dropped = first - 1
		next := with(t, repeating(rules.Never), r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(other)
		other.feed("oven", time.Minute, 40, 40, 40)
		next.end()

		last := with(t, repeating(rules.Never), r)
		last.store, last.ledgers = s.store, s.ledgers
		again := other.reopen()
		again.dropped = other.dropped
		last.start(again)
		again.feed("oven", time.Minute, 40, 40, 20)
		time.Sleep(5 * time.Minute)
		last.end()
		if got := r.notified("oven"); got != want {
			t.Errorf("notified of %s; want %s", got, want)
		}
	})
}

// An operator removes a device while another receiver is down, and its partition changes owners before that is saved: the
// alarm goes on. Who has got its recovery is told of it again, although the rule repeats nothing.
func TestRecoveredAlarmThatGoesOnIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, down := newPartition("0"), &receiver{}, &receiver{answer: failing(errBusy)}
		configure := func() *setup {
			return with(t, func(r *rules.Rule) { r.Repeat = rules.Never }, r, down)
		}
		s := configure()
		s.start(p)
		p.publish("oven", hot)
		pass(2 * window)
		ctx, cancel := context.WithTimeout(t.Context(), window)
		defer cancel()
		if known, err := s.forget(ctx, "oven"); !known || err == nil {
			t.Errorf("known %v, %v: an alert waits", known, err)
		}
		s.end()
		next := configure()
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		next.start(p)
		pass(window)
		p.publish("oven", hot)
		pass(window)
		next.end()
		if got, want := r.notified("oven"), "alert 1, recovery 1, alert 2"; got != want {
			t.Errorf("notified of %s, want %s", got, want)
		}
	})
}

// An alarm that opened while its rule had no repeat is none that was told of before, whatever the rule says then.
func TestRepeatIsAddedWhileAnAlarmIsOpen(t *testing.T) {
	for name, test := range map[string]struct {
		repeat  time.Duration
		isMuted bool // while the rule has no repeat
		want    string
	}{
		"a rollout that goes forth and back": {24 * time.Hour, false, "alert 1, alert 13"},
		"off and on around a mute":           {rules.Never, true, "alert 1, alert 5"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				var mute rules.Mutes
				var was *setup
				live := func(repeat time.Duration, values ...float64) {
					s := with(t, func(r *rules.Rule) {
						r.Repeat, r.Resolved, r.Levels[0].Clear = repeat, !test.isMuted, threshold-5
					}, r)
					s.config.Mutes = func() rules.Mutes { return mute }
					if was != nil {
						s.store, s.ledgers = was.store, was.ledgers
						p = p.reopen()
					}
					was = s
					s.start(p)
					p.feed("oven", 5*time.Second, values...)
					if test.isMuted {
						time.Sleep(2 * window)
					}
					s.end()
				}

				live(test.repeat, 40, 20)
				if test.isMuted {
					mute = rules.Mutes{{Device: "oven", From: time.Now(), Until: time.Now().Add(time.Hour)}}
				}
				live(0, 40, 40)
				if test.isMuted {
					time.Sleep(2 * time.Hour)
				}
				live(test.repeat, slices.Repeat([]float64{40}, 20)...)
				if got := r.notified("oven"); got != test.want {
					t.Errorf("notified of %s; want %s", got, test.want)
				}
			})
		})
	}
}
