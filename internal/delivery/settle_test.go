package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

// Everything is settled up to the first reading whose alert is still on its way, whatever comes of later ones.
func TestSlowAlertHoldsTheWatermarkAndDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(ctx context.Context, a notify.Alert) error {
			if a.Device == "slow" {
				return wait(9*time.Second)(ctx, a)
			}
			return nil
		}}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("slow")
		p.hot("quick")
		synctest.Wait()
		wantAlerts(t, r, "quick", 1)
		wantAlerts(t, r, "slow", 0)
		if n, before, at := p.box.Unsettled(); n != 1 || before.Sequence != 0 || at != p.read[0].Reading.Enqueued {
			t.Errorf("%d are not settled, after %+v, the first of %d", n, before, at)
		}
		pass(9 * time.Second)
		wantAlerts(t, r, "slow", 1)
		wantWatermark(t, p, 2)
	})
}

// What joins an alert that is taken is settled with it, and counts once in the next one, and in Stats.
func TestWhatJoinsIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: wait(time.Second)}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		for range 4 { // three join
			p.hot("oven")
		}
		if all := p.box.States([]delivery.Key{p.key("oven")}); len(all) != 1 || all[0].Joined != 3 || all[0].Waits.For != delivery.WaitAttempt {
			t.Errorf("%+v", all)
		}
		pass(time.Second)
		wantWatermark(t, p, 4)
		p.hot("oven") // the window covers it
		wantWatermark(t, p, 5)
		if n := s.stats.Suppressed.Load(); n != 4 {
			t.Errorf("%d suppressed, want 4", n)
		}
		pass(window)
		p.hot("oven")
		pass(time.Second)
		if a := wantAlerts(t, r, "oven", 2)[1]; a.Suppressed != 4 || a.Sequence != 6 {
			t.Errorf("the second alert is about event %d and tells of %d suppressed, want 6 and 4", a.Sequence, a.Suppressed)
		}
	})
}

// What joins an alert that becomes a dead letter is not settled with it: the latest becomes an alert of its own, and the
// others count in it. It holds the watermark at its own place, not any more at the first.
func TestWhatJoinsADeadLetterGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errBusy)}
		s := newReplica(t, r)
		s.config.GiveUp = 5 * time.Minute
		p := s.open("0")
		defer s.end()
		p.hot("oven")
		pass(4 * time.Minute)
		p.hot("oven")
		p.hot("oven")
		p.hot("kiln")
		pass(2 * time.Minute)
		wantWatermark(t, p, 2)
		if dead := s.dead.all(); len(dead) != 1 || dead[0].Alert.Sequence != 1 {
			t.Errorf("dead letters %+v", dead)
		}
		r.set(nil)
		pass(2 * time.Minute)
		if a := wantAlerts(t, r, "oven", 1)[0]; a.Sequence != 3 || a.Suppressed != 1 {
			t.Errorf("the alert is about event %d and tells of %d suppressed, want 3 and 1", a.Sequence, a.Suppressed)
		}
	})
}

// A receiver that was down for longer than NOTIFY_GIVE_UP does not hold the watermark for all of that time.
func TestDeadReceiverDoesNotHoldTheWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, dead := &receiver{}, &receiver{answer: failing(errBusy)}
		s := newReplica(t, live, dead)
		p := s.open("0")
		defer s.end()
		for minute := range int64(40 * 60) {
			p.hot("oven")
			pass(time.Minute)
			if behind := minute + 1 - p.watermark(); behind > 13*60 {
				t.Fatalf("the watermark is %d min behind", behind)
			}
		}
		if n := len(s.dead.all()); n < 2 || n > 4 {
			t.Errorf("%d dead letters in 40 h", n)
		}
		dead.set(nil)
		pass(5 * time.Minute)
		if got := dead.alerts("oven"); len(got) == 0 || got[0].Sequence < 16*60 {
			t.Errorf("the receiver that is back took %+v", got)
		}
		wantWatermark(t, p, p.last)
	})
}

func TestEachReceiverHasItsOwnWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well, broken := &receiver{}, &receiver{answer: failing(errBusy)}
		s := newReplica(t, broken, well)
		p := s.open("0")
		defer s.end()
		p.hot("hot")
		pass(30 * time.Second)
		wantAlerts(t, well, "hot", 1) // and no repeats, whatever the other does
		wantWatermark(t, p, 0)
		broken.set(nil)
		pass(2 * time.Minute)
		if a, b := wantAlerts(t, broken, "hot", 1)[0], wantAlerts(t, well, "hot", 1)[0]; a.ID != b.ID {
			t.Errorf("ids %q and %q of one alert", a.ID, b.ID)
		}
		wantWatermark(t, p, 1)
	})
}

// Only the receivers that want a reading get it.
func TestOnlyWhoWantsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &receiver{}, &receiver{}
		s := newReplica(t, first, second)
		p := s.open("0")
		defer s.end()
		a := p.reading("oven", s.topic("", nil))
		a.Receivers = 1 << 1
		p.take(a)
		synctest.Wait()
		wantAlerts(t, first, "oven", 0)
		wantAlerts(t, second, "oven", 1)
		wantWatermark(t, p, 1)
	})
}

// A reading that is suppressed because the store says so counts like one that is suppressed from memory.
func TestSuppressedByAnothersWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		first := s.open("0")
		defer s.end()
		other := newReplicaOn(t, s.store, r)
		second := other.open("1")
		defer other.end()
		first.hot("hot")
		pass(time.Second)
		for range 2 { // the store tells of the window, for all that joined, then the replica knows it
			second.hot("hot")
			second.hot("hot")
			pass(time.Second)
		}
		if n, asked := other.stats.Suppressed.Load(), other.stats.Outcomes[throttle.Throttled].Load(); n != 4 || asked != 1 {
			t.Errorf("%d suppressed, want 4; the gate was asked %d times", n, asked)
		}
		wantWatermark(t, second, 4)
		pass(window)
		second.hot("hot")
		synctest.Wait()
		if a := wantAlerts(t, r, "hot", 2)[1]; a.Suppressed != 4 {
			t.Errorf("the second alert tells of %d suppressed, want 4", a.Suppressed)
		}
	})
}

// What another owner of the log had sent before it died is not sent again, and whatever joins a reading that is only
// read again needs an alert all the same.
func TestReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		first := newReplica(t, r)
		p := first.open("0")
		p.hot("hot")
		p.hot("warm")
		synctest.Wait()
		first.end()
		wantAlerts(t, r, "", 2)

		pass(time.Hour)
		s := newReplicaOn(t, first.store, r)
		q := s.open("0")
		defer s.end()
		q.take(p.read...)
		q.hot("hot") // joins
		synctest.Wait()
		wantAlerts(t, r, "warm", 1)
		if a := wantAlerts(t, r, "hot", 2)[1]; a.Sequence != 3 {
			t.Errorf("the second alert is about event %d, want 3", a.Sequence)
		}
		wantWatermark(t, q, 3)
		if n := s.stats.Outcomes[throttle.Throttled].Load(); n != 2 {
			t.Errorf("the gate covered %d, want 2", n)
		}
	})
}

// An answer that was lost may have been a yes: the alert comes again with its id, and each time counts as one that may
// have come twice.
func TestLostAnswerComesAgainWithTheSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		r.set(func(context.Context, notify.Alert) error {
			if len(r.attempts("")) < 3 {
				return errLost
			}
			return nil
		})
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("hot")
		pass(time.Second / 4)
		p.hot("hot")
		pass(window)
		if ids := r.tried; len(ids) != 3 || ids[0].id != ids[1].id || ids[1].id != ids[2].id {
			t.Fatalf("tried %v, want one id three times", ids)
		}
		if n := s.stats.Ambiguous.Load(); n != 2 || !r.alerts("")[0].Ambiguous {
			t.Errorf("counted %d ambiguous sends, want 2: %+v", n, r.alerts("")[0])
		}
	})
}

// Another replica sends the id of an alert whose answer was lost, whoever it was that sent it. One that was certainly
// not taken leaves nothing behind.
func TestNextReplicaAfterALostAnswer(t *testing.T) {
	for _, tt := range []struct {
		answer    error
		ambiguous int64
	}{
		{errLost, 1},
		{errBusy, 0},
		{&notify.Error{Refused: true, Err: errors.New("answered 422")}, 0},
	} {
		t.Run(fmt.Sprint(tt.answer), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{answer: failing(tt.answer)}
				first := newReplica(t, r)
				first.open("0").hot("oven")
				synctest.Wait()
				first.end()
				r.set(nil)
				pass(window)
				s := newReplicaOn(t, first.store, r)
				p := s.open("0")
				defer s.end()
				p.last = 7
				p.hot("oven")
				pass(window)
				a := wantAlerts(t, r, "oven", 1)[0]
				if n := s.stats.Ambiguous.Load(); n != tt.ambiguous || a.Ambiguous != (n > 0) || (a.ID == r.tried[0].id) != (n > 0) {
					t.Errorf("%d ambiguous, want %d: %+v after %v", n, tt.ambiguous, a, r.tried[0])
				}
			})
		})
	}
}

// Two replicas whose owners both read one log, one of them a zombie, tell of a device once in a window.
func TestZombie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, r := memlease.New(), &receiver{answer: wait(time.Second)}
		var owners []*owner
		for range 2 {
			s := newReplicaOn(t, store, r)
			owners = append(owners, s.open("0"))
			defer s.end()
		}
		for range 10 * 60 {
			for _, p := range owners {
				p.hot("hot")
			}
			pass(time.Second)
		}
		alerts := r.alerts("hot")
		if len(alerts) < 9 {
			t.Errorf("%d alerts in 10 min", len(alerts))
		}
		slices.SortFunc(alerts, func(a, b notify.Alert) int { return int(a.Token - b.Token) })
		for i := 1; i < len(alerts); i++ {
			if d := alerts[i].Enqueued.Sub(alerts[i-1].Enqueued); d < window {
				t.Errorf("alerts %v apart", d)
			}
		}
	})
}

// claimed has another replica hold the key of a device for 20 s.
func claimed(t *testing.T, store lease.Store, device, note string) lease.Lease {
	t.Helper()
	l, err := store.Acquire(t.Context(), "ns/hub/group/receiver0/"+device, 20*time.Second, func(lease.Record) (string, error) { return note, nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A replica that was killed leaves claims behind. Deliveries that wait for them hold no place.
func TestClaimsOfTheDeadBlockNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, r := memlease.New(), &receiver{}
		s := newReplicaOn(t, store, r)
		p := s.open("0")
		defer s.end()
		for i := range 200 {
			device := fmt.Sprint("dead", i)
			claimed(t, store, device, `{"phase":"claim","id":"of the dead","proof":80000}`)
			p.hot(device)
		}
		p.hot("alive")
		synctest.Wait()
		wantAlerts(t, r, "alive", 1)
		if got := p.waits("dead7").For; got != delivery.WaitClaim {
			t.Errorf("waits for %v", got)
		}
		pass(22 * time.Second)
		wantAlerts(t, r, "", 201)
		if id := r.alerts("dead7")[0].ID; id != "of the dead" {
			t.Errorf("sent %q, want the id of the dead one's alert", id)
		}
		if n := s.stats.Ambiguous.Load(); n != 200 {
			t.Errorf("counted %d ambiguous sends, want 200", n)
		}
	})
}

// A claim usually ends early: who meets a foreign one asks again soon.
func TestForeignClaimThatEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, r := memlease.New(), &receiver{}
		l := claimed(t, store, "hot", `{"phase":"claim","id":"x","proof":80000}`)
		s := newReplicaOn(t, store, r)
		p := s.open("0")
		defer s.end()
		p.hot("hot")
		pass(3 * time.Second)
		if err := store.Release(t.Context(), l, ""); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		wantAlerts(t, r, "hot", 1)
	})
}

// An owner that ends drops what waits at once. Attempts under way are settled if they end in time.
func TestEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		claimed bool
		answer  func(context.Context, notify.Alert) error
		before  time.Duration // the end
		drain   time.Duration
		lasts   time.Duration
		settled int64
	}{
		"an attempt ends in time":      {false, wait(4 * time.Second), 0, drain, 4 * time.Second, 1},
		"an attempt does not":          {false, wait(9 * time.Second), 0, time.Second, time.Second, 0},
		"it waits for a claim":         {true, nil, 0, drain, 0, 0},
		"it waits for a receiver":      {false, failing(errBusy), time.Hour, drain, 0, 0},
		"it waits for its dead letter": {false, failing(errRefused), time.Minute, drain, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{answer: tt.answer}
				s := newReplica(t, r)
				s.dead.fail(errors.New("no room"))
				if tt.claimed {
					claimed(t, s.store, "hot", "")
				}
				p := s.open("0")
				p.hot("hot")
				pass(tt.before)
				start := time.Now()
				p.end(tt.drain)
				if took := time.Since(start); took != tt.lasts {
					t.Errorf("it ended after %v, want %v", took, tt.lasts)
				}
				wantWatermark(t, p, tt.settled)
				if state := s.dispatcher.Receivers()[0]; state.Waiting != 0 {
					t.Errorf("%+v after the end", state)
				}

				r.set(nil)
				pass(2 * window)
				next := newReplicaOn(t, s.store, r)
				q := next.open("0")
				defer next.end()
				q.take(p.read...)
				pass(window)
				wantAlerts(t, r, "hot", 1)
				wantWatermark(t, q, 1)
			})
		})
	}
}

// What is not sent, because a window covers it, takes nothing of the pace of the receiver.
func TestWhatIsNotSentTakesNoPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		first := newReplica(t, r)
		p := first.open("0")
		for i := range 5 {
			p.hot(fmt.Sprint("told", i))
		}
		synctest.Wait()
		first.end()
		r.limits.Rate = notify.Rate{Burst: 1, Every: time.Minute}
		s := newReplicaOn(t, first.store, r)
		q := s.open("0")
		defer s.end()
		q.take(p.read...)
		q.hot("new")
		pass(time.Second)
		wantAlerts(t, r, "new", 1)
		wantWatermark(t, q, 6)
	})
}

// Who sends a dead letter again gets to know, once, how its delivery ended, and why the last attempt failed.
func TestLetterEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		answer  error // after a second
		work    time.Duration
		outcome string
	}{
		"sent":      {nil, time.Minute, throttle.Sent.String()},
		"refused":   {errRefused, time.Minute, delivery.OutcomeDeadLetter},
		"unsettled": {errBusy, 1100 * time.Millisecond, delivery.OutcomeUnsettled},
		"unsettled, and its attempt ends after its owner": {errBusy, 500 * time.Millisecond, delivery.OutcomeUnsettled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newReplica(t, &receiver{answer: func(context.Context, notify.Alert) error {
					time.Sleep(time.Second)
					return tt.answer
				}})
				o := s.open("0")
				var ended []string
				var last error
				n := &delivery.Notice{Reading: delivery.Reading{Enqueued: time.Now().UnixMicro()}, Letter: &delivery.Letter{
					Request: throttle.Request{Device: "hot", ID: "1", Arrived: time.Now()},
					Ended:   func(outcome string, err error) { ended, last = append(ended, outcome), err },
				}}
				n.SetReceivers(1)
				o.box.Give(o.key("hot"), n)
				pass(tt.work)
				s.end()
				if !slices.Equal(ended, []string{tt.outcome}) || !errors.Is(last, tt.answer) {
					t.Errorf("ended as %q with %v, want %q with %v", ended, last, tt.outcome, tt.answer)
				}
			})
		})
	}
}
