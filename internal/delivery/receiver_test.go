package delivery_test

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

	"alertworker/internal/delivery"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
)

// A receiver that takes 9 s for an alert delays nobody else's.
func TestSlowReceiverDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := &receiver{answer: wait(9 * time.Second)}, &receiver{}
		s := newReplica(t, slow, quick)
		p := s.open("0")
		for i := range 1000 {
			p.hot(fmt.Sprint("device", i))
		}
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

// Alerts that wait have no goroutine.
func TestWaitingAlertsHoldNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errBusy)}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		pass(time.Second)
		before := runtime.NumGoroutine()
		for i := range 1000 {
			p.hot(fmt.Sprint("device", i))
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
		down, up := &receiver{answer: failing(errBusy)}, &receiver{}
		s := newReplica(t, down, up)
		p := s.open("0")
		defer s.end()
		for i := range 10 { // they take it down
			p.hot(fmt.Sprint("device", i))
		}
		pass(2 * time.Second)
		for i := range most + more - 10 {
			p.hot(fmt.Sprint("device", 10+i))
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
		r := &receiver{answer: failing(errBusy)}
		s := newReplica(t, r)
		s.config.GiveUp = 10 * time.Minute
		p := s.open("0")
		defer s.end()
		for i := range 20 {
			p.hot(fmt.Sprint("device", i))
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
		wantWatermark(t, p, 20)
	})
}

// After an outage alerts go out in the order of their age.
func TestRecoveryIsInOrderOfAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errBusy)}
		s := newReplica(t, r)
		s.config.Concurrency = 4
		p := s.open("0")
		defer s.end()
		for i := range 200 {
			p.hot(fmt.Sprint("device", i))
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
		r := &receiver{}
		r.set(func(_ context.Context, a notify.Alert) error {
			if a.Device == "busy" {
				return &notify.Error{Untaken: true, Limited: true, RetryAfter: pause, Status: 429, Err: errors.New("429")}
			}
			return nil
		})
		s := newReplica(t, r)
		s.config.GiveUp = 10 * time.Minute
		p := s.open("0")
		defer s.end()
		p.hot("busy")
		synctest.Wait()
		for i := range 20 {
			p.hot(fmt.Sprint("well", i))
		}
		pass(2 * time.Minute)
		if n := len(r.alerts("")); n != 20 {
			t.Errorf("%d alerts, want 20", n)
		}
		at := r.attempts("busy")
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
		wantWatermark(t, p, 21)
	})
}

// A device that stays hot at a receiver that refuses it has one dead letter in a window, not one for each
// reading; after the window it is tried again.
func TestOneDeadLetterInAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errRefused)}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		const windows = 5
		for range int(windows * window / (2 * time.Second)) {
			p.hot("hot")
			p.hot("hot") // joins
			pass(2 * time.Second)
		}
		if n := len(s.dead.all()); n < windows-1 || n > windows {
			t.Errorf("%d dead letters in %d windows", n, windows)
		}
		r.set(nil)
		pass(window)
		p.hot("hot")
		synctest.Wait()
		wantAlerts(t, r, "hot", 1)
		wantWatermark(t, p, p.last)
	})
}

// A single device whose alerts fail makes the receiver look down, and delays nobody.
func TestOneDeviceThatFailsAloneDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		r.set(func(ctx context.Context, a notify.Alert) error {
			if a.Device == "odd" {
				return errBusy
			}
			return wait(time.Second)(ctx, a)
		})
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("odd")
		pass(10*time.Minute + 100*time.Millisecond)
		if !s.dispatcher.Receivers()[0].Down {
			t.Error("the receiver is up, for all that is known")
		}
		for i := range 10 {
			p.hot(fmt.Sprint("well", i))
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
		r := &receiver{answer: failing(errBusy)}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		for i := range 1000 {
			p.hot(fmt.Sprint("device", i))
		}
		pass(10 * time.Minute)
		if n := len(r.attempts("")); n > 64+7+2*10 {
			t.Errorf("%d attempts in 10 minutes, want 64 at once, and about one a minute", n)
		}
	})
}

// The dead letter of one alert too many stands for all readings of its device: its place becomes free.
func TestOneTooManyLeavesForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errBusy)}
		s := newReplica(t, r)
		s.waiting, s.config.Concurrency = 10, 1
		p := s.open("0")
		defer s.end()
		for range 2 {
			for i := range 20 {
				p.hot(fmt.Sprint("device", i))
			}
		}
		pass(time.Hour)
		// Of a device that was given up between its two readings, the second one waits anew.
		if waiting, dead := p.box.MostWaiting(), len(s.dead.all()); waiting != 10 || dead < 10 || dead > 30 {
			t.Errorf("%d wait, and %d are dead letters", waiting, dead)
		}
	})
}

// A receiver that is dead shows if a single device is hot.
func TestDeadReceiverShowsWithOneHotDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errBusy)}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		began := time.Now()
		p.hot("hot")
		synctest.Wait()
		if got := s.dispatcher.Receivers()[0]; got.Down || got.Err != nil || got.Waiting != 1 {
			t.Errorf("%+v after one failure", got)
		}
		pass(10 * time.Second)
		if got := s.dispatcher.Receivers()[0]; !got.Down || !got.Retry.After(time.Now()) || !got.Since.Equal(began) || got.Err == nil || got.Waiting != 1 {
			t.Errorf("%+v after %d failures", got, len(r.attempts("")))
		}
		r.set(nil)
		pass(time.Minute)
		wantAlerts(t, r, "hot", 1)
		if got := s.dispatcher.Receivers()[0]; got.Down || !got.Since.IsZero() || got.Waiting != 0 {
			t.Errorf("%+v after it took one", got)
		}
	})
}

// Devices whose alerts always fail do not delay the others': what has not been tried goes first.
func TestAlertsThatFailDoNotProbeBeforeOthers(t *testing.T) {
	for range 20 { // pauses are random
		synctest.Test(t, func(t *testing.T) {
			r := &receiver{}
			r.set(func(_ context.Context, a notify.Alert) error {
				if strings.HasPrefix(a.Device, "odd") {
					return &notify.Error{Untaken: true, Err: errors.New("401")}
				}
				return nil
			})
			s := newReplica(t, r)
			p := s.open("0")
			defer s.end()
			for i := range 4 {
				p.hot(fmt.Sprint("odd", i))
			}
			pass(time.Minute)
			for i := range 20 {
				p.hot(fmt.Sprint("even", i))
				pass(time.Second)
				wantAlerts(t, r, fmt.Sprint("even", i), 1)
				pass(5 * time.Second)
			}
		})
	}
}

// What is given up while it waits goes through the gate first: an alert that was
// delivered before, and is only read again, is no dead letter.
func TestNothingDeliveredIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, r := memlease.New(), &receiver{}
		first := newReplicaOn(t, store, r)
		p := first.open("0")
		for i := range 10 {
			p.hot(fmt.Sprint("told", i))
		}
		synctest.Wait()
		first.end() // before it writes a checkpoint
		wantAlerts(t, r, "", 10)

		pass(time.Minute)
		r.limits.Rate = notify.Rate{Burst: 1, Every: time.Hour}
		s := newReplicaOn(t, store, r)
		s.config.GiveUp = 10 * time.Minute
		other, q := s.open("1"), s.open("0")
		defer s.end()
		for i := range 10 {
			other.hot(fmt.Sprint("new", i))
		}
		q.take(p.read...)
		pass(time.Second)
		if n := q.box.MostWaiting(); n != 10 {
			t.Errorf("%d alerts of an owner wait, want 10", n)
		}
		pass(15 * time.Minute)
		wantAlerts(t, r, "", 11)
		wantWatermark(t, q, 10)
		wantWatermark(t, other, 10)
		dead := s.dead.all()
		if len(dead) != 9 {
			t.Errorf("%d dead letters, want 9", len(dead))
		}
		for _, d := range dead {
			if !strings.HasPrefix(d.Alert.Device, "new") || !strings.Contains(d.Reason, "NOTIFY_GIVE_UP") {
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
		down, up := &receiver{answer: failing(errBusy)}, &receiver{}
		s := newReplica(t, down, up)
		s.config.GiveUp, s.config.DeadLetters, s.config.Concurrency = 10*time.Minute, dead, 8
		p := s.open("0")
		defer s.end()
		for i := range 1000 {
			p.hot(fmt.Sprint("device", i))
		}
		pass(11 * time.Minute)
		p.hot("another")
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
				r := &receiver{limits: notify.Limits{Batch: 10}}
				r.answer = func(_ context.Context, first notify.Alert) error {
					time.Sleep(100 * time.Millisecond)
					if first.Device == "a-poison" {
						return &notify.Error{Status: status, Untaken: true, Err: fmt.Errorf("%d", status)}
					}
					return nil
				}
				s := newReplica(t, r)
				s.config.GiveUp = 5 * time.Minute
				p := s.open("0")
				p.hot("a-poison")
				const others = 30_000 // so many that there always is more than one to go
				for n := range others {
					p.hot(fmt.Sprint("oven-", n))
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

func TestRefusedAlertsAreSettledOnceKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(_ context.Context, a notify.Alert) error {
			if a.Device == "odd" {
				return errRefused
			}
			return nil
		}}
		s := newReplica(t, r)
		s.dead.fail(errors.New("disk full"))
		p := s.open("0")
		defer s.end()
		p.hot("odd")
		p.hot("even")
		pass(time.Minute)
		wantAlerts(t, r, "even", 1)
		wantWatermark(t, p, 0)
		if got := p.waits("odd").For; got != delivery.WaitDeadLetter {
			t.Errorf("waits for %v", got)
		}
		if n := s.dead.calls; n > 8 {
			t.Errorf("it was written %d times in a minute", n)
		}
		s.dead.fail(nil)
		pass(2 * time.Minute)
		wantWatermark(t, p, 2)
		if dead := s.dead.all(); len(dead) != 1 || dead[0].Alert.Device != "odd" || dead[0].Receiver != "receiver0" || dead[0].Alert.Sequence != 1 {
			t.Errorf("dead letters %+v", dead)
		}
		if n := len(r.attempts("odd")); n != 1 || s.stats.DeadLetters.Load() != 1 {
			t.Errorf("it was refused %d times, and is %d dead letters", n, s.stats.DeadLetters.Load())
		}
	})
}

// A refusal covers a window from when it came, however long its dead letter takes: what comes later is tried anew.
func TestRefusalCoversItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errRefused)}
		s := newReplica(t, r)
		s.dead.fail(errors.New("disk full"))
		p := s.open("0")
		defer s.end()
		p.hot("odd")
		pass(window / 2)
		p.hot("odd") // within
		pass(window)
		p.hot("odd") // after
		s.dead.fail(nil)
		pass(2 * time.Minute)
		wantWatermark(t, p, 3)
		dead := s.dead.all()
		if n := len(r.attempts("odd")); n != 2 || len(dead) != 2 || dead[1].Alert.Sequence != 3 {
			t.Errorf("it was refused %d times, and is dead letters %+v", n, dead)
		}
	})
}

// An alert that fails again and again while others are taken is given up after eight answers about it. If there is no
// answer, or one that may be about anything, only its age gives it up.
func TestAlertThatFailsAloneIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(_ context.Context, a notify.Alert) error {
			switch a.Device {
			case "poison":
				return &notify.Error{Untaken: true, Status: 404, Err: errors.New("404")}
			case "slow":
				return errors.New("500")
			}
			return nil
		}}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("poison")
		p.hot("slow")
		for range 30 {
			pass(time.Minute)
			p.hot("well")
		}
		pass(10 * time.Second)
		wantAlerts(t, r, "well", 30) // never held up
		if dead := s.dead.all(); len(dead) != 1 || dead[0].Alert.Device != "poison" || !strings.HasSuffix(dead[0].Reason, "times while the receiver took others: 404") {
			t.Errorf("dead letters %+v", dead)
		}
		wantWatermark(t, p, 1)
	})
}

// What is read late is tried before it is given up for its age.
func TestOldAlertIsGivenUpOnlyAfterItWasTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(_ context.Context, a notify.Alert) error {
			if a.Device == "later" {
				return errBusy
			}
			return nil
		}}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		for _, device := range []string{"late", "later"} {
			a := p.reading(device, s.topic("", nil))
			a.Reading.Enqueued = time.Now().Add(-13 * time.Hour).UnixMicro()
			p.take(a)
		}
		synctest.Wait()
		wantAlerts(t, r, "late", 1)
		if dead := s.dead.all(); len(dead) != 1 || dead[0].Alert.Device != "later" {
			t.Errorf("dead letters %+v", dead)
		}
		wantWatermark(t, p, 2)
	})
}

// A dead letter is kept once, however long the gate then takes to note it.
func TestDeadLetterIsKeptOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, r := &outage{Store: memlease.New()}, &receiver{}
		r.set(func(context.Context, notify.Alert) error {
			store.down.Store(true)
			return errRefused
		})
		s := newReplicaOn(t, store, r)
		p := s.open("0")
		defer s.end()
		p.hot("oven")
		pass(time.Minute)
		wantWatermark(t, p, 0)
		if got := p.waits("oven"); got.For != delivery.WaitStore || store.calls.Load() < 3 {
			t.Errorf("it waits for %+v, after %d calls", got, store.calls.Load())
		}
		store.down.Store(false)
		pass(2 * time.Minute)
		wantWatermark(t, p, 1)
		if n := len(s.dead.all()); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
	})
}

// What fails in a message with others is tried alone from then on.
func TestAlertThatFailsAMessageGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{limits: notify.Limits{Batch: 10}}
		r.set(func(_ context.Context, first notify.Alert) error {
			time.Sleep(100 * time.Millisecond)
			if first.Device == "a-poison" {
				return errBusy
			}
			return nil
		})
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("a-poison")
		const others = 3000
		for n := range others {
			p.hot(fmt.Sprint("oven-", n))
			time.Sleep(20 * time.Millisecond) // so that there always are some to go
		}
		pass(time.Minute)
		together, alone := 0, 0
		for _, one := range r.tried {
			switch {
			case one.device == "a-poison" && one.alerts > 1:
				together++
			case one.device == "a-poison":
				alone++
			}
		}
		if together > 2 || alone < 3 || len(r.alerts("")) != others {
			t.Errorf("it failed %d messages for many, and %d of its own; %d others of %d", together, alone, len(r.alerts("")), others)
		}
	})
}
