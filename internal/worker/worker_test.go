package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

func wantAlerts(t *testing.T, r *receiver, device string, want int) []notify.Alert {
	t.Helper()
	got := r.alerts(device)
	if len(got) != want {
		t.Fatalf("%d alerts of %q, want %d: %v", len(got), device, want, got)
	}
	return got
}

func wantCheckpoint(t *testing.T, p *partition, want int64) {
	t.Helper()
	if got := p.checkpoint(); got != want {
		t.Fatalf("checkpoint at %d, want %d (of %v)", got, want, p.marks)
	}
}

// pass lets time pass, and everything happen that is due then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestOneBatchOneAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.publish("cold", 29.9)
		for range 20 {
			p.publish("hot", 30)
		}
		s := newSetup(t, r).start(p)
		defer s.end()
		synctest.Wait()
		a := wantAlerts(t, r, "", 1)[0]
		if a.Device != "hot" || a.Sequence != 2 || a.Temperature != 30 || a.Partition != "0" || a.Replica != "a" || a.Window != window || a.Source != "/ns/hub" {
			t.Errorf("alert %+v", a)
		}
		if want := fmt.Sprintf("ns/hub/0/2/%d", a.Enqueued.UnixMilli()); a.ID != want {
			t.Errorf("id %q, want %q", a.ID, want)
		}
		pass(interval)
		wantCheckpoint(t, p, 21) // also when idle
		pass(window - interval)
		p.publish("hot", 31)
		synctest.Wait()
		if a = wantAlerts(t, r, "", 2)[1]; a.Suppressed != 19 {
			t.Errorf("the second alert tells of %d suppressed, want 19", a.Suppressed)
		}
	})
}

func TestSlowReceiverOfOneDeviceDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		r.answer = func(ctx context.Context, a notify.Alert) error {
			if a.Device == "slow" {
				return wait(9*time.Second)(ctx, a)
			}
			return nil
		}
		p.publish("slow", 99)
		p.publish("quick", 99)
		s := newSetup(t, r).start(p)
		defer s.end()
		synctest.Wait()
		wantAlerts(t, r, "quick", 1)
		wantAlerts(t, r, "slow", 0)
		pass(interval)
		wantCheckpoint(t, p, 0) // slow comes first and is not settled
		pass(interval)
		wantAlerts(t, r, "slow", 1)
		wantCheckpoint(t, p, 2)
	})
}

// 10,000 devices get hot at once and every send takes 100 ms: they are told at
// the configured concurrency, shared fairly.
func TestStorm(t *testing.T) {
	t.Parallel()
	alerts := 10_000
	if testing.Short() {
		alerts = 1000
	}
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: wait(100 * time.Millisecond)}
		var ps []*partition
		for i := range 8 {
			ps = append(ps, newPartition(fmt.Sprint(i)))
		}
		for i := range alerts {
			ps[i%8].publish(fmt.Sprint("device", i), 99)
		}
		start := time.Now()
		s := newSetup(t, r).start(ps...)
		defer s.end()
		for len(r.alerts("")) < alerts && time.Since(start) < time.Minute {
			pass(100 * time.Millisecond)
		}
		least := time.Duration(alerts) * 100 * time.Millisecond / 64
		if took := time.Since(start); r.most != 64 || took < least || took > least+time.Second {
			t.Errorf("%d alerts in %v, %d at a time; want about %v, 64 at a time", len(r.alerts("")), took, r.most, least)
		}
	})
}

func TestPartitionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: wait(9 * time.Second)}
		hot, calm := newPartition("0"), newPartition("1")
		for i := range 100 {
			hot.publish(fmt.Sprint("device", i), 99)
		}
		s := newSetup(t, r)
		s.config.Concurrency = 16
		s.start(hot, calm)
		defer s.end()
		synctest.Wait()
		calm.publish("calm", 99)
		pass(2 * 9 * time.Second) // the first that ends leaves its place
		wantAlerts(t, r, "calm", 1)
	})
}

// A replica that was killed leaves claims behind. Deliveries that wait for them hold no place.
func TestClaimsOfTheDeadBlockNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		for i := range 200 {
			note := `{"phase":"claim","id":"of the dead","proof":80000}`
			if _, err := store.Acquire(t.Context(), fmt.Sprintf("ns/hub/group/receiver0/dead%d", i), 20*time.Second, func(lease.Record) (string, error) { return note, nil }); err != nil {
				t.Fatal(err)
			}
		}
		p, r := newPartition("0"), &receiver{}
		for i := range 200 {
			p.publish(fmt.Sprint("dead", i), 99)
		}
		p.publish("alive", 99)
		s := newReplica(t, store, r).start(p)
		defer s.end()
		synctest.Wait()
		wantAlerts(t, r, "alive", 1)
		pass(22 * time.Second)
		wantAlerts(t, r, "", 201)
		if id := r.alerts("dead7")[0].ID; id != "of the dead" {
			t.Errorf("sent %q, want the id of the dead one's alert", id)
		}
		if n := s.worker.Stats().Ambiguous.Load(); n != 200 {
			t.Errorf("counted %d ambiguous sends, want 200", n)
		}
	})
}

func TestReplayAfterACrashSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p, r := memlease.New(), newPartition("0"), &receiver{}
		p.refuse = errors.New("it will crash before it checkpoints")
		for i := range 10 {
			p.publish(fmt.Sprint("device", i%5), 99)
		}
		first := newReplica(t, store, r)
		ctx, crash := context.WithCancelCause(t.Context())
		first.consume(ctx, p)
		synctest.Wait()
		wantAlerts(t, r, "", 5)
		crash(telemetry.ErrLost)
		first.work.Wait()

		pass(time.Hour)
		q := p.reopen()
		second := newReplica(t, store, r).start(q)
		defer second.end()
		synctest.Wait()
		wantAlerts(t, r, "", 5)
		q.publish("device0", 99)
		synctest.Wait()
		wantAlerts(t, r, "", 6)
		pass(interval)
		wantCheckpoint(t, q, 11)
	})
}

// Readings that join a delivery whose own reading turns out to be a replay need an alert all the same.
func TestFreshReadingThatJoinsAReplayIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p, r := memlease.New(), newPartition("0"), &receiver{}
		p.publish("hot", 99)
		newReplicaRuns(t, store, r, p.reopen())
		wantAlerts(t, r, "hot", 1)
		pass(time.Hour)
		p.publish("hot", 99)
		newReplicaRuns(t, store, r, p.reopen()) // reads both in one batch
		wantAlerts(t, r, "hot", 2)
	})
}

// Many alerts that fail at once are one sign of trouble, not many.
func TestShortOutageInAStormIsOverSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		r.set(func(ctx context.Context, a notify.Alert) error {
			_ = wait(100*time.Millisecond)(ctx, a)
			return errBusy
		})
		for i := range 16 {
			p.publish(fmt.Sprint("device", i), 99)
		}
		s := newSetup(t, r).start(p)
		defer s.end()
		pass(500 * time.Millisecond)
		r.set(nil)
		pass(2 * time.Second)
		wantAlerts(t, r, "", 16)
	})
}

func TestCheckpointFollowsByCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		p.largest = 100
		for range 10_000 {
			p.publish("cold", 1)
		}
		s := newSetup(t).start(p)
		defer s.end()
		synctest.Wait()
		wantCheckpoint(t, p, 10_000)
	})
}

func TestDeliveriesThatWaitForAClaimAreDroppedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		if _, err := store.Acquire(t.Context(), "ns/hub/group/receiver0/hot", 20*time.Second, func(lease.Record) (string, error) { return "", nil }); err != nil {
			t.Fatal(err)
		}
		p := newPartition("0")
		p.publish("hot", 99)
		s := newReplica(t, store, &receiver{}).start(p)
		synctest.Wait()
		start := time.Now()
		s.end()
		if took := time.Since(start); took > 0 {
			t.Errorf("drained in %v, want at once", took)
		}
		wantCheckpoint(t, p, 0)
	})
}

// newReplicaRuns has a replica read what there is, and stops it.
func newReplicaRuns(t *testing.T, store lease.Store, r *receiver, p *partition) {
	s := newReplica(t, store, r).start(p)
	synctest.Wait()
	s.end()
}

// A reading that is suppressed because the store says so counts like one that is suppressed from memory.
func TestSuppressedByAnothersWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, r := newPartition("0"), newPartition("1"), &receiver{}
		s := newSetup(t, r).start(first)
		defer s.end()
		other := newReplica(t, s.store, r).start(second)
		defer other.end()
		first.publish("hot", 99)
		pass(time.Second)
		for range 2 { // the store tells of the window, then the replica knows it
			second.publish("hot", 99)
			pass(time.Second)
		}
		pass(window)
		second.publish("hot", 99)
		synctest.Wait()
		if a := wantAlerts(t, r, "hot", 2)[1]; a.Suppressed != 2 {
			t.Errorf("the second alert tells of %d suppressed, want 2", a.Suppressed)
		}
	})
}

func TestEachReceiverHasItsOwnWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, well, broken := newPartition("0"), &receiver{}, &receiver{}
		broken.set(func(context.Context, notify.Alert) error { return errBusy })
		s := newSetup(t, broken, well).start(p)
		defer s.end()
		p.publish("hot", 99)
		pass(30 * time.Second)
		wantAlerts(t, well, "hot", 1) // and no repeats, whatever the other does
		wantCheckpoint(t, p, 0)
		broken.set(nil)
		pass(2 * time.Minute)
		if a, b := wantAlerts(t, broken, "hot", 1)[0], wantAlerts(t, well, "hot", 1)[0]; a.ID != b.ID {
			t.Errorf("ids %q and %q of one alert", a.ID, b.ID)
		}
		wantCheckpoint(t, p, 1)
	})
}

// A receiver that is down for hours is probed by one alert at a time; reading
// goes on, readings of one device collapse, the checkpoint waits, nothing is lost.
func TestReceiverDownForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		r.set(func(ctx context.Context, a notify.Alert) error {
			_ = wait(3*time.Second)(ctx, a)
			return errBusy
		})
		s := newSetup(t, r).start(p)
		defer s.end()
		for minute := range 4 * 60 {
			if minute == 1 { // by now it is known to be down
				r.mu.Lock()
				r.most = 0
				r.mu.Unlock()
			}
			for i := range 100 {
				p.publish(fmt.Sprint("device", i), 99)
			}
			pass(time.Minute)
		}
		if r.attempts > 4*60*3 || r.most != 1 {
			t.Errorf("%d attempts in 4 h, %d at a time; want about one a minute", r.attempts, r.most)
		}
		wantCheckpoint(t, p, 0)
		r.set(nil)
		pass(3 * time.Minute)
		for i := range 100 {
			wantAlerts(t, r, fmt.Sprint("device", i), 1)
		}
		wantCheckpoint(t, p, int64(len(p.log)))
	})
}

// While a receiver is down, its timer looks at the queues of all partitions, those included that have just been
// opened. It is the race detector that finds what goes wrong here, and not in virtual time, in which timers are synchronized with everything.
func TestPartitionsOpenWhileReceiverIsDown(t *testing.T) {
	p, r := newPartition("0"), &receiver{}
	r.set(func(context.Context, notify.Alert) error { return errBusy })
	s := newSetup(t, r).start(p)
	defer s.end()
	for i := range 3 { // enough for it to be down
		p.publish(fmt.Sprint("device", i), 99)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for round := range 3 {
		for attempts := 3 + round; ; time.Sleep(time.Millisecond) {
			r.mu.Lock()
			made := r.attempts
			r.mu.Unlock()
			if made >= attempts {
				break
			}
		}
		for i := range 10 {
			s.work.Go(func() { _ = s.worker.Consume(ctx, newPartition(fmt.Sprint(1+round*10+i))) })
		}
	}
}

// A receiver that is dead for longer than NOTIFY_GIVE_UP does not hold the checkpoint for all of that time: a
// delivery that starts again holds it at the reading that it is about, not at its first.
func TestDeadReceiverDoesNotHoldTheCheckpoint(t *testing.T) {
	t.Parallel()
	for _, resolved := range []bool{false, true} {
		if testing.Short() && !resolved {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			p, live, dead := newPartition("0"), &receiver{}, &receiver{answer: func(context.Context, notify.Alert) error { return errBusy }}
			s := with(t, func(r *rules.Rule) { r.Resolved = resolved }, live, dead)
			s.config.GiveUp = 12 * time.Hour
			s.start(p)
			defer s.end()
			for minute := range int64(60 * 60) {
				p.publish("oven", 99)
				p.publish("kiln", 20)
				pass(time.Minute)
				if behind := minute + 1 - (p.checkpoint()+1)/2; behind > 13*60 {
					t.Fatalf("the checkpoint is %d min behind", behind)
				}
			}
			if n := len(s.dead.all()); n < 4 || n > 6 {
				t.Errorf("%d dead letters in 60 h", n)
			}
			dead.set(nil)
			pass(5 * time.Minute)
			if got := dead.alerts("oven"); len(got) == 0 || got[0].Sequence < 60*60*2-24*60*2 {
				t.Errorf("the receiver that is back took %+v", got)
			}
			wantCheckpoint(t, p, int64(len(p.log)))
		})
	}
}

// A receiver is down, more alerts wait for it than may, and the dead letters cannot be kept.
func TestReadingPausesWhenNothingMoreCanBeKept(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("thousands of goroutines")
	}
	synctest.Test(t, func(t *testing.T) {
		const waiting, givenUp, more = 1000, 4096, 1000
		const most = waiting + givenUp
		p, r := newPartition("0"), &receiver{answer: failing(errBusy)}
		p.largest = 100
		for i := range most + more {
			p.publish(fmt.Sprint("device", i), 99)
		}
		s := newSetup(t, r)
		s.waiting = waiting
		s.dead.err = errors.New("disk full")
		s.start(p)
		defer s.end()
		pass(time.Minute)
		p.mu.Lock()
		read := p.next
		p.mu.Unlock()
		if read < most || read >= most+100 {
			t.Fatalf("read %d events, want to pause at %d", read, most)
		}
		s.dead.mu.Lock()
		s.dead.err = nil
		s.dead.mu.Unlock()
		r.set(nil)
		pass(5 * time.Minute)
		wantCheckpoint(t, p, most+more)
		if alerts, dead := len(r.alerts("")), len(s.dead.all()); alerts < waiting || alerts+dead != most+more {
			t.Errorf("%d alerts and %d dead letters of %d devices", alerts, dead, most+more)
		}
	})
}

func TestLostAnswerComesAgainWithTheSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		var ids []string
		r.set(func(_ context.Context, a notify.Alert) error {
			if ids = append(ids, a.ID); len(ids) < 3 {
				return errors.New("connection reset") // after it was taken, for all we know
			}
			return nil
		})
		s := newSetup(t, r).start(p)
		defer s.end()
		p.publish("hot", 99)
		pass(time.Second / 4)
		p.publish("hot", 99)
		pass(window)
		if len(ids) != 3 || ids[0] != ids[1] || ids[1] != ids[2] {
			t.Fatalf("ids %v, want one id three times", ids)
		}
		if n := s.worker.Stats().Ambiguous.Load(); n != 2 {
			t.Errorf("counted %d ambiguous sends, want 2", n)
		}
	})
}

func TestRefusedAlertsAreSettledOnceKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		r.set(func(_ context.Context, a notify.Alert) error {
			if a.Device == "odd" {
				return &notify.Error{Refused: true, Untaken: true, Err: errors.New("422")}
			}
			return nil
		})
		s := newSetup(t, r)
		s.dead.err = errors.New("disk full")
		s.start(p)
		defer s.end()
		p.publish("odd", 99)
		p.publish("even", 99)
		pass(time.Minute)
		wantAlerts(t, r, "even", 1)
		wantCheckpoint(t, p, 0)
		s.dead.mu.Lock()
		s.dead.err = nil
		s.dead.mu.Unlock()
		pass(2 * time.Minute)
		wantCheckpoint(t, p, 2)
		if len(s.dead.all()) != 1 || s.dead.all()[0].Alert.Device != "odd" || s.dead.all()[0].Receiver != "receiver0" || s.dead.all()[0].Alert.Sequence != 1 {
			t.Errorf("dead letters %+v", s.dead.all())
		}
	})
}

func TestAlertThatFailsAloneIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		r.set(func(_ context.Context, a notify.Alert) error {
			if a.Device == "poison" {
				return &notify.Error{Untaken: true, Status: 404, Err: errors.New("404")}
			}
			if a.Device == "slow" {
				return errors.New("500")
			}
			return nil
		})
		s := newSetup(t, r).start(p)
		defer s.end()
		p.publish("poison", 99)
		p.publish("slow", 99) // its age alone will give it up
		for range 30 {
			pass(time.Minute)
			p.publish("well", 99)
		}
		pass(10 * time.Second)
		wantAlerts(t, r, "well", 30) // never held up
		if len(s.dead.all()) != 1 || s.dead.all()[0].Alert.Device != "poison" {
			t.Errorf("dead letters %+v", s.dead.all())
		}
		wantCheckpoint(t, p, 1)
	})
}

func TestOldAlertIsGivenUpOnlyAfterItWasTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.publish("late", 99)
		p.publish("later", 99)
		pass(13 * time.Hour)
		r.set(func(_ context.Context, a notify.Alert) error {
			if a.Device == "later" {
				return errBusy
			}
			return nil
		})
		s := newSetup(t, r).start(p)
		synctest.Wait()
		s.end()
		wantAlerts(t, r, "late", 1)
		if len(s.dead.all()) != 1 || s.dead.all()[0].Alert.Device != "later" {
			t.Errorf("dead letters %+v", s.dead.all())
		}
		wantCheckpoint(t, p, 2)
	})
}

func TestDrain(t *testing.T) {
	for _, tt := range []struct {
		name       string
		takes      time.Duration
		drain      time.Duration
		alerts     int
		checkpoint int64
	}{
		{"a send that ends is settled", 4 * time.Second, drain, 1, 2},
		{"a send that does not is left unsettled", 9 * time.Second, time.Second, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{answer: wait(tt.takes)}
				s := newSetup(t, r)
				s.config.DrainTimeout = tt.drain
				s.start(p)
				p.publish("cold", 1)
				p.publish("hot", 99)
				synctest.Wait()
				start := time.Now()
				s.end()
				if took := time.Since(start); took > min(tt.takes, tt.drain) {
					t.Errorf("drained in %v", took)
				}
				wantAlerts(t, r, "hot", tt.alerts)
				wantCheckpoint(t, p, tt.checkpoint)
			})
		})
	}
}

func TestDeliveriesThatWaitForAReceiverAreDroppedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		r.set(func(context.Context, notify.Alert) error { return errBusy })
		s := newSetup(t, r).start(p)
		for i := range 100 {
			p.publish(fmt.Sprint("device", i), 99)
		}
		pass(time.Hour)
		start := time.Now()
		s.end()
		if took := time.Since(start); took > 0 {
			t.Errorf("drained in %v, want at once", took)
		}
		wantCheckpoint(t, p, 0)
		r.set(nil)
		newReplicaRuns(t, s.store, r, p.reopen())
		wantAlerts(t, r, "", 100)
	})
}

func TestNoCheckpointAfterThePartitionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: wait(time.Second)}
		s := newSetup(t, r)
		ctx, lose := context.WithCancelCause(t.Context())
		s.consume(ctx, p)
		p.publish("hot", 99)
		synctest.Wait()
		lose(telemetry.ErrLost)
		s.work.Wait()
		wantAlerts(t, r, "hot", 1) // what is under way is brought to its end
		wantCheckpoint(t, p, 0)
	})
}

func TestStoreOutageDelaysAlertsAndLosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &outage{Store: memlease.New()}
		p, r := newPartition("0"), &receiver{}
		s := newReplica(t, store, r).start(p)
		defer s.end()
		store.down.Store(true)
		for i := range 100 {
			p.publish(fmt.Sprint("device", i), 99)
		}
		pass(10 * time.Minute)
		wantAlerts(t, r, "", 0)
		wantCheckpoint(t, p, 0)
		if n := store.calls.Load(); n > 64+30 {
			t.Errorf("asked %d times in 10 minutes", n)
		}
		store.down.Store(false)
		pass(2 * time.Minute)
		wantAlerts(t, r, "", 100)
		wantCheckpoint(t, p, 100)
	})
}

// Two replicas that both read the partition, one of them a zombie, tell of a device once.
func TestZombie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p, r := memlease.New(), newPartition("0"), &receiver{answer: wait(time.Second)}
		var replicas []*setup
		var ps []*partition
		for range 2 {
			q := p.reopen()
			ps = append(ps, q)
			replicas = append(replicas, newReplica(t, store, r).start(q))
		}
		for range 10 * 60 {
			for _, q := range ps {
				q.publish("hot", 99)
			}
			pass(time.Second)
		}
		for _, s := range replicas {
			s.end()
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
