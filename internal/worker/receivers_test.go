package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/telemetry"
)

// failing answers every alert with err.
func failing(err error) func(context.Context, notify.Alert) error {
	return func(context.Context, notify.Alert) error { return err }
}

// attempts records when alerts were tried.
type attempts struct {
	mu  sync.Mutex
	all []attempt
}

type attempt struct {
	device, id string
	at         time.Time
}

// record notes each attempt before answer decides.
func (a *attempts) record(answer func(context.Context, notify.Alert) error) func(context.Context, notify.Alert) error {
	return func(ctx context.Context, alert notify.Alert) error {
		a.mu.Lock()
		a.all = append(a.all, attempt{alert.Device, alert.ID, time.Now()})
		a.mu.Unlock()
		return answer(ctx, alert)
	}
}

// of returns the times at which alerts of device were tried.
func (a *attempts) of(device string) (at []time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.all {
		if one.device == device {
			at = append(at, one.at)
		}
	}
	return at
}

// soonest returns the shortest time between two attempts at one alert of a device whose name has the
// prefix, and its id, which is empty if there are none.
func (a *attempts) soonest(prefix string) (id string, least time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := map[string]time.Time{}
	for _, one := range a.all {
		if !strings.HasPrefix(one.device, prefix) {
			continue
		}
		if at, ok := last[one.id]; ok && (id == "" || one.at.Sub(at) < least) {
			id, least = one.id, one.at.Sub(at)
		}
		last[one.id] = one.at
	}
	return id, least
}

// A receiver that takes 9 s for an alert delays nobody else's.
func TestSlowReceiverDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, slow, quick := newPartition("0"), &receiver{answer: wait(9 * time.Second)}, &receiver{}
		for i := range 1000 {
			p.publish(fmt.Sprint("device", i), 99)
		}
		s := newSetup(t, slow, quick).start(p)
		pass(time.Second)
		if got := len(quick.alerts("")); got != 1000 {
			t.Errorf("the quick receiver has %d alerts after a second, want 1000", got)
		}
		pass(9*time.Second*1000/64 + 9*time.Second)
		if got := len(slow.alerts("")); got != 1000 || slow.most != 64 {
			t.Errorf("the slow receiver has %d alerts, %d at a time, want 1000, 64 at a time", got, slow.most)
		}
		s.end()
	})
}

// A receiver with a level gets the alerts of that level, and those without one; what no
// receiver wants is settled.
func TestLevels(t *testing.T) {
	for _, tt := range []struct {
		level    string // of the threshold
		receives []string
		taken    []int
		filtered int64
	}{
		{"", []string{"", "critical"}, []int{1, 1}, 0},
		{"critical", []string{"", "critical", "warning"}, []int{1, 1, 0}, 2},
		{"warning", []string{"critical", "other"}, []int{0, 0}, 4},
	} {
		t.Run(fmt.Sprint(tt.level, tt.receives), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPartition("0")
				var rs []*receiver
				for _, level := range tt.receives {
					rs = append(rs, &receiver{level: level})
				}
				s := newSetup(t, rs...)
				s.level = tt.level
				s.start(p)
				defer s.end()
				p.publish("hot", 99)
				p.publish("hot", 99)
				pass(2 * interval)
				for i, r := range rs {
					got := r.alerts("hot")
					if len(got) != tt.taken[i] || len(got) > 0 && got[0].Level != tt.level {
						t.Errorf("receiver of level %q got %+v, want %d", tt.receives[i], got, tt.taken[i])
					}
				}
				if got := s.worker.Stats().Filtered.Load(); got != tt.filtered {
					t.Errorf("%d are counted as filtered, want %d", got, tt.filtered)
				}
				if got := p.checkpoint(); got != 2 {
					t.Errorf("the checkpoint is at %d, want 2", got)
				}
			})
		})
	}
}

// Alerts that wait have no goroutine.
func TestWaitingAlertsHoldNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(errBusy)}
		s := newSetup(t, r).start(p)
		defer s.end()
		pass(time.Second)
		before := runtime.NumGoroutine()
		for i := range 1000 {
			p.publish(fmt.Sprint("device", i), 99)
		}
		pass(time.Minute)
		if more := runtime.NumGoroutine() - before; more > 100 { // the attempt, and what other tests have left
			t.Errorf("%d goroutines for 1000 alerts that wait", more)
		}
	})
}

// Beyond 65,536 alerts that wait in a partition the oldest become dead letters;
// reading goes on, and other receivers' alerts go out at once.
func TestTooManyWait(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("65,536 alerts")
	}
	synctest.Test(t, func(t *testing.T) {
		const most, more = 65_536, 100
		p, down, up := newPartition("0"), &receiver{answer: failing(errBusy)}, &receiver{}
		s := newSetup(t, down, up).start(p)
		defer s.end()
		for i := range 10 { // they take it down
			p.publish(fmt.Sprint("device", i), 99)
		}
		pass(2 * time.Second)
		for i := range most + more - 10 {
			p.publish(fmt.Sprint("device", 10+i), 99)
		}
		pass(time.Second)
		if got := len(up.alerts("")); got != most+more {
			t.Errorf("another receiver got %d alerts, want all %d", got, most+more)
		}
		dead := s.dead.all()
		if len(dead) != more {
			t.Fatalf("%d dead letters, want %d", len(dead), more)
		}
		for _, d := range dead {
			if d.Alert.Sequence > 2*more || d.Alert.ID == "" || d.Alert.Token == 0 || !strings.Contains(d.Reason, "65536") {
				t.Fatalf("dead letter %+v: want one of the oldest, and why", d)
			}
		}
	})
}

// NOTIFY_GIVE_UP is for every alert that waits, not only for those that are tried.
func TestAllThatWaitAreGivenUpByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(errBusy)}
		s := newSetup(t, r)
		s.config.GiveUp = 10 * time.Minute
		s.start(p)
		defer s.end()
		for i := range 20 {
			p.publish(fmt.Sprint("device", i), 99)
			pass(time.Second)
		}
		pass(9 * time.Minute)
		if n := len(s.dead.all()); n != 0 {
			t.Errorf("%d dead letters too early", n)
		}
		pass(3 * time.Minute)
		if n := len(s.dead.all()); n != 20 {
			t.Errorf("%d dead letters, want 20", n)
		}
		wantCheckpoint(t, p, 20)
	})
}

// After an outage alerts go out in the order of their age.
func TestRecoveryIsInOrderOfAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(errBusy)}
		s := newSetup(t, r)
		s.config.Concurrency = 4
		s.start(p)
		defer s.end()
		for i := range 200 {
			p.publish(fmt.Sprint("device", i), 99)
			pass(time.Second)
		}
		pass(time.Hour)
		r.set(wait(100 * time.Millisecond))
		pass(2 * time.Minute)
		alerts := wantAlerts(t, r, "", 200)
		// The probe that brought it back is any; the others are four at a time.
		for i, a := range alerts[1:] {
			if int(a.Sequence) < i-4 || int(a.Sequence) > i+6 {
				t.Fatalf("alert %d is about event %d", i+1, a.Sequence)
			}
		}
	})
}

// A device whose alerts are always answered with 429 makes the whole receiver wait, but not for ever: the others
// go first then.
func TestOneDeviceThatGets429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 4 * time.Second
		var tried attempts
		p, r := newPartition("0"), &receiver{}
		r.set(tried.record(func(_ context.Context, a notify.Alert) error {
			if a.Device == "busy" {
				return &notify.Error{Untaken: true, Limited: true, RetryAfter: pause, Status: 429, Err: errors.New("429")}
			}
			return nil
		}))
		s := newSetup(t, r)
		s.config.GiveUp = 10 * time.Minute
		s.start(p)
		defer s.end()
		p.publish("busy", 99)
		synctest.Wait()
		for i := range 20 {
			p.publish(fmt.Sprint("well", i), 99)
		}
		pass(2 * time.Minute)
		if n := len(r.alerts("")); n != 20 {
			t.Errorf("%d alerts, want 20", n)
		}
		at := tried.of("busy")
		for i := 1; i < len(at); i++ {
			if d := at[i].Sub(at[i-1]); d < pause {
				t.Errorf("tried again after %v, want %v", d, pause)
			}
		}
		if len(at) < 3 {
			t.Errorf("tried %d times", len(at))
		}
		pass(9 * time.Minute)
		if n := len(s.dead.all()); n != 1 {
			t.Errorf("%d dead letters, want 1, by its age", n)
		}
		wantCheckpoint(t, p, 21)
	})
}

// A device that stays hot at a receiver that refuses it has one dead letter in a window, not one for each
// reading; after the window it is tried again.
func TestOneDeadLetterInAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(&notify.Error{Refused: true, Untaken: true, Status: 422, Err: errors.New("422")})}
		s := newSetup(t, r).start(p)
		defer s.end()
		const windows = 5
		for range int(windows * window / (2 * time.Second)) {
			p.publish("hot", 99)
			p.publish("hot", 98) // joins
			pass(2 * time.Second)
		}
		if n := len(s.dead.all()); n < windows-1 || n > windows {
			t.Errorf("%d dead letters in %d windows", n, windows)
		}
		r.set(nil)
		pass(window)
		p.publish("hot", 99)
		synctest.Wait()
		wantAlerts(t, r, "hot", 1)
		pass(interval)
		wantCheckpoint(t, p, int64(len(p.log)))
	})
}

// A single device whose alerts fail makes the receiver look down, and delays nobody.
func TestOneDeviceThatFailsAloneDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		r.set(func(ctx context.Context, a notify.Alert) error {
			if a.Device == "odd" {
				return errBusy
			}
			return wait(time.Second)(ctx, a)
		})
		s := newSetup(t, r).start(p)
		defer s.end()
		p.publish("odd", 99)
		pass(10*time.Minute + 100*time.Millisecond)
		if !s.worker.Receivers()[0].Down {
			t.Error("the receiver is up, for all that is known")
		}
		for i := range 10 {
			p.publish(fmt.Sprint("well", i), 99)
		}
		pass(time.Second)
		if n := len(r.alerts("")); n != 10 {
			t.Errorf("%d alerts after a second, want 10", n)
		}
	})
}

// However many wait, a receiver that is down is tried seldom.
func TestProbesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(errBusy)}
		for i := range 1000 {
			p.publish(fmt.Sprint("device", i), 99)
		}
		s := newSetup(t, r).start(p)
		defer s.end()
		pass(10 * time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.attempts > 64+7+2*10 {
			t.Errorf("%d attempts in 10 minutes, want 64 at once, and about one a minute", r.attempts)
		}
	})
}

// The dead letter of one alert too many stands for all readings of its device: its place becomes free.
func TestOneTooManyLeavesForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(errBusy)}
		s := newSetup(t, r)
		s.waiting, s.config.Concurrency = 10, 1
		s.start(p)
		defer s.end()
		for range 2 {
			for i := range 20 {
				p.publish(fmt.Sprint("device", i), 99)
			}
		}
		pass(time.Hour)
		// Of a device that was given up between its two readings, the second one waits anew.
		if waiting, dead := s.worker.MostWaiting(), len(s.dead.all()); waiting != 10 || dead < 10 || dead > 30 {
			t.Errorf("%d wait, and %d are dead letters", waiting, dead)
		}
	})
}

// A receiver that is dead shows if a single device is hot.
func TestDeadReceiverShowsWithOneHotDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(errBusy)}
		s := newSetup(t, r)
		s.start(p)
		defer s.end()
		began := time.Now()
		p.publish("hot", 99)
		synctest.Wait()
		if got := s.worker.Receivers()[0]; got.Down || got.Err != nil || got.Waiting != 1 {
			t.Errorf("%+v after one failure", got)
		}
		pass(10 * time.Second)
		if got := s.worker.Receivers()[0]; !got.Down || !got.Retry.After(time.Now()) || !got.Since.Equal(began) || got.Err == nil || got.Waiting != 1 {
			t.Errorf("%+v after %d failures", got, r.attempts)
		}
		r.set(nil)
		pass(time.Minute)
		wantAlerts(t, r, "hot", 1)
		if got := s.worker.Receivers()[0]; got.Down || !got.Since.IsZero() || got.Waiting != 0 {
			t.Errorf("%+v after it took one", got)
		}
	})
}

// Devices whose alerts always fail do not delay the others': what has not been tried goes first.
func TestAlertsThatFailDoNotProbeBeforeOthers(t *testing.T) {
	for range 20 { // pauses are random
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			r.set(func(_ context.Context, a notify.Alert) error {
				if strings.HasPrefix(a.Device, "odd") {
					return &notify.Error{Untaken: true, Err: errors.New("401")}
				}
				return nil
			})
			s := newSetup(t, r).start(p)
			defer s.end()
			for i := range 4 {
				p.publish(fmt.Sprint("odd", i), 99)
			}
			pass(time.Minute)
			for i := range 20 {
				p.publish(fmt.Sprint("even", i), 99)
				pass(time.Second)
				wantAlerts(t, r, fmt.Sprint("even", i), 1)
				pass(5 * time.Second)
			}
		})
	}
}

// A claim usually ends early: who meets a foreign one asks again soon.
func TestForeignClaimThatEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		key := "ns/hub/group/receiver0/hot"
		l, err := store.Acquire(t.Context(), key, 20*time.Second, func(lease.Record) (string, error) { return `{"phase":"claim","id":"x","proof":80000}`, nil })
		if err != nil {
			t.Fatal(err)
		}
		p, r := newPartition("0"), &receiver{}
		s := newReplica(t, store, r).start(p)
		defer s.end()
		p.publish("hot", 99)
		pass(3 * time.Second)
		if err := store.Release(t.Context(), l, ""); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		wantAlerts(t, r, "hot", 1)
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

		s := newReplica(t, store, &receiver{}).consume(t.Context())
		in := s.worker.NewIntake(t.Context(), "http")
		defer in.Close()
		start := time.Now()
		if got, err := in.Handle(t.Context(), event("hot", 99), ""); got != telemetry.VerdictThrottled || err != nil {
			t.Errorf("%v, %v, want it throttled", got, err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the caller waited %v for an alert that took 3 s", took)
		}
	})
}

// What is given up while it waits goes through the gate first: an alert that was
// delivered before, and is only read again, is no dead letter.
func TestNothingDeliveredIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p, r := memlease.New(), newPartition("0"), &receiver{}
		p.refuse = errors.New("it will crash before it checkpoints")
		for i := range 10 {
			p.publish(fmt.Sprint("told", i), 99)
		}
		ctx, crash := context.WithCancelCause(t.Context())
		first := newReplica(t, store, r).consume(ctx, p)
		synctest.Wait()
		crash(telemetry.ErrLost)
		first.work.Wait()
		wantAlerts(t, r, "", 10)

		pass(time.Minute)
		r.set(failing(errBusy))
		other := newPartition("1")
		for i := range 10 {
			other.publish(fmt.Sprint("new", i), 99)
		}
		s := newReplica(t, store, r)
		s.config.GiveUp = 10 * time.Minute
		s.start(other)
		defer s.end()
		pass(2 * time.Second) // the receiver is down by now
		q := p.reopen()
		ctx, stop := context.WithCancel(t.Context())
		s.work.Go(func() { _ = s.worker.Consume(ctx, q) })
		pass(time.Second)
		if n := s.worker.MostWaiting(); n != 10 {
			t.Errorf("%d alerts wait in a partition, want 10", n)
		}
		pass(15 * time.Minute)
		stop()
		wantAlerts(t, r, "", 10)
		wantCheckpoint(t, q, 10)
		wantCheckpoint(t, other, 10)
		dead := s.dead.all()
		if len(dead) != 10 {
			t.Errorf("%d dead letters, want 10", len(dead))
		}
		for _, d := range dead {
			if !strings.HasPrefix(d.Alert.Device, "new") || !strings.Contains(d.Reason, "NOTIFY_GIVE_UP") || !strings.Contains(d.Reason, "503") {
				t.Errorf("dead letter of %s: %s", d.Alert.Device, d.Reason)
			}
		}
	})
}

// slowDeadLetters takes its time for each dead letter.
type slowDeadLetters struct {
	mu              sync.Mutex
	now, most, kept int
}

func (g *slowDeadLetters) Keep(context.Context, notify.DeadLetter) error {
	g.mu.Lock()
	g.now++
	g.most = max(g.most, g.now)
	g.mu.Unlock()
	time.Sleep(time.Second)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
	g.kept++
	return nil
}

// Many alerts that are given up at once are written a bounded number at a time, beside everything else.
func TestDeadLettersAreWrittenAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := &slowDeadLetters{}
		p, down, up := newPartition("0"), &receiver{answer: failing(errBusy)}, &receiver{}
		s := newSetup(t, down, up)
		s.config.GiveUp, s.config.DeadLetters, s.config.Concurrency = 10*time.Minute, dead, 8
		s.start(p)
		defer s.end()
		for i := range 1000 {
			p.publish(fmt.Sprint("device", i), 99)
		}
		pass(11 * time.Minute)
		p.publish("another", 99)
		synctest.Wait()
		wantAlerts(t, up, "another", 1)
		pass(1000 / 8 * time.Second)
		if dead.most != 8 || dead.kept != 1000 {
			t.Errorf("kept %d dead letters, %d at a time, want 1000, 8 at a time", dead.kept, dead.most)
		}
	})
}

// An alert for which a receiver of messages about many fails, whatever else is in them, holds up the others once, and is
// given up as any other: by its age, or after eight answers about it.
func TestOneAlertFailsItsMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("60,000 alerts")
	}
	for status, want := range map[int]string{500: "not taken within 5m0s", 409: "failed 10 times"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{limits: notify.Limits{Batch: 10}}
				r.answer = func(_ context.Context, first notify.Alert) error {
					time.Sleep(100 * time.Millisecond)
					if first.Device == "a-poison" {
						return &notify.Error{Status: status, Untaken: true, Err: fmt.Errorf("%d", status)}
					}
					return nil
				}
				s := newSetup(t, r)
				s.config.GiveUp = 5 * time.Minute
				s.start(p)
				p.publish("a-poison", hot)
				const others = 30_000 // so many that there always is more than one to go
				for n := range others {
					p.publish(fmt.Sprint("oven-", n), hot)
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(time.Minute)
				s.end()
				dead := s.dead.all()
				if len(dead) != 1 || dead[0].Alert.Device != "a-poison" || !strings.HasPrefix(dead[0].Reason, want) {
					t.Errorf("%d dead letters: %+v", len(dead), dead)
				}
				if n := len(r.alerts("")); n != others {
					t.Errorf("%d alerts of %d", n, others)
				}
			})
		})
	}
}
