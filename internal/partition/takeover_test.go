package partition_test

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
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// What was pending when events passed without rules is forgotten for good, also if the owner that forgot it has
// written a checkpoint, and dies before it has written the ledger.
func TestPassedWithoutRulesAndCrashed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		sustained := func(r *rules.Rule) { r.Levels[0].For = time.Minute }
		s := with(t, sustained, r)
		s.start(p)
		p.feed("oven", time.Second, 40)
		s.end()

		off := newSetup(t, r)
		off.store, off.ledgers = s.store, s.ledgers
		p = p.reopen()
		off.start(p)
		p.feed("oven", time.Second, 20)
		off.end()

		dies := with(t, sustained, r)
		dies.store, dies.ledgers = s.store, s.ledgers
		p = p.reopen()
		dies.start(p)
		for range 10_000 {
			p.publish("kiln", 20)
		}
		synctest.Wait() // so many are a reason for a checkpoint
		if _, _, err := ledger.Open(t.Context(), s.ledgers, "0"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * interval)
		dies.end()

		next := with(t, sustained, r)
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		time.Sleep(2 * time.Minute)
		next.start(p)
		p.feed("oven", time.Second, 40)
		next.end()
		if got := r.notified("oven"); got != "" {
			t.Errorf("notified of %s, which has lasted for a second", got)
		}
	})
}

// A ledger may have been written last when events came from another hub, as before an IoT Hub failed over. Its
// position says nothing about how far this one has been settled.
func TestLedgerOfAnotherHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: func(context.Context, notify.Alert) error { return errBusy }}
		s := with(t, nil, r)
		l, _, err := ledger.Open(t.Context(), s.ledgers, "0")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Write(t.Context(), ledger.Content{Position: telemetry.Position{Sequence: 1_000_000, Offset: "x", Time: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		p.generation = "new"
		p.resumed = telemetry.Checkpoint{Position: p.publish("kiln", 20).Position, Ledger: l.ID()}
		p.next = 1
		s.start(p)
		synctest.Wait()
		if state := s.states()[0]; state.Read.Sequence != 0 || state.Settled.Sequence != 1 {
			t.Errorf("nothing has been read: %+v", state)
		}
		p.feed("oven", 3*interval, 40)
		s.end()
		if c := readLedger(t, s.ledgers); len(c.Alarms) > 0 {
			t.Errorf("the ledger at %v has %+v, and the alert is not settled", c.Position, c.Alarms)
		}
	})
}

// A recovery that waits in the ledger of one partition is not sent after an alert of the same device from another
// partition of the hub, which was recreated: the device is hot. (The second alert has the number 1 there.)
func TestRecoveryOfAFormerHubAfterAnAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := func(r *rules.Rule) { r.Resolved, r.Window = true, 30*time.Minute }
		r := &receiver{}
		old := newPartition("0")
		old.generation = "old"
		s := with(t, rule, r)
		s.start(old)
		old.publish("oven", 40)
		pass(time.Minute)
		old.publish("oven", 20) // its recovery waits for the end of the window
		pass(time.Minute)
		s.end()

		zero, three := newPartition("0"), newPartition("3") // of the new hub, which has more partitions
		zero.generation, three.generation = "new", "new"
		next := with(t, rule, r)
		next.store, next.ledgers = s.store, s.ledgers
		r.set(failing(errBusy)) // the receiver is down when the window ends
		next.start(zero, three)
		zero.publish("other", 1)
		pass(40 * time.Minute)
		three.publish("oven", 40) // hot again
		pass(10 * time.Second)
		r.set(nil)
		for range 60 {
			pass(time.Minute)
		}
		open := next.open()
		next.end()
		if got := r.notified("oven"); got != "alert 1, alert 1" || len(open) != 1 {
			t.Errorf("notified of %s; open are %+v", got, open)
		}
	})
}

// The first checkpoint of a recreated hub's partition is before its first event. It belongs to the new hub, the
// ledger's position to the old one, and alerts of the new hub that wait are not passed over.
func TestEmptyPartitionOfARecreatedHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, r := newPartition("0"), &receiver{}
		old.generation = "old"
		s := with(t, nil, r)
		s.start(old)
		for range 20 {
			old.feed("kiln", time.Second, 40, 20)
		}
		time.Sleep(2 * window)
		s.end()

		r.set(func(context.Context, notify.Alert) error { return errBusy })
		p := newPartition("0")
		p.generation = "new"
		p.written = telemetry.Checkpoint{Position: telemetry.Position{Generation: "new", Sequence: -1, Offset: "-1"}}
		p.resumed, p.largest = p.written, 1
		for i := range 2 {
			next := with(t, nil, r)
			next.store, next.ledgers = s.store, s.ledgers
			next.start(p)
			time.Sleep(2 * interval) // a checkpoint could be written
			if i == 0 {
				for _, device := range []string{"a", "b", "c"} {
					p.feed(device, interval, 40)
				}
			} else {
				r.set(nil)
				time.Sleep(5 * time.Minute) // until the receiver is tried again
			}
			time.Sleep(2 * interval)
			next.end()
			p = p.reopen()
		}
		if got := r.notified("a") + r.notified("b") + r.notified("c"); got != "alert 1alert 2alert 3" {
			t.Errorf("notified of %q", got)
		}
	})
}

// The hub's times may go back by milliseconds. What counts is the order of events: an alarm that has
// cleared is resolved also after a crash between the writes of ledger and checkpoint.
func TestHubTimesThatGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		s.start(p)
		time.Sleep(time.Second)
		p.fail(telemetry.ErrLost) // no checkpoint is written any more
		hot, cool := p.publish("oven", 40), p.publish("oven", 20)
		p.mu.Lock()
		p.log[cool.Sequence-1].Enqueued = hot.Enqueued.Add(-5 * time.Millisecond)
		p.log[cool.Sequence-1].Time = hot.Enqueued.Add(-5 * time.Millisecond)
		p.mu.Unlock()
		time.Sleep(2 * interval)
		s.end()
		next := with(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		next.start(p)
		time.Sleep(3 * time.Minute)
		next.end()
		if got := r.notified("oven"); got != "alert 1, recovery 2" {
			t.Errorf("notified of %s", got)
		}
		if c := readLedger(t, s.ledgers); len(c.Alarms) > 0 || c.Position.Sequence != cool.Sequence {
			t.Errorf("the ledger at %d has %+v", c.Position.Sequence, c.Alarms)
		}
	})
}

// leaveRoomForOne fills the ledger of a partition so that there is room for one more alarm.
func leaveRoomForOne(t *testing.T, ledgers records.Store) {
	t.Helper()
	l, _, err := ledger.Open(t.Context(), ledgers, "0")
	if err != nil {
		t.Fatal(err)
	}
	var full ledger.Content
	for i := range ledger.MaxAlarms/2 - 1 {
		full.Alarms = append(full.Alarms, ledger.Alarm{Device: ledger.Text(fmt.Sprint("device-", i)), Rule: "temperature", Open: true, Since: time.Now()})
	}
	if err := l.Write(t.Context(), full); err != nil {
		t.Fatal(err)
	}
}

// Without room for one more alarm a device that has one, because a resolved is owed, keeps it. Another one alerts without
// state.
func TestNoRoomForAlarms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		leaveRoomForOne(t, s.ledgers)
		s.start(p)
		p.feed("oven", time.Second, 40, 20)
		p.feed("kiln", time.Second, 40)
		p.feed("oven", time.Second, 40)
		p.feed("kiln", time.Second, 20)
		p.feed("oven", 3*time.Minute, 40)
		if got := r.notified("oven") + "; " + r.notified("kiln"); got != "alert 1; alert 3" {
			t.Errorf("notified of %s", got)
		}
		if n := s.stats.Untracked.Load(); n != 1 {
			t.Errorf("%d untracked", n)
		}
		s.end()
		if p.checkpoint() != 6 {
			t.Errorf("checkpoint %d", p.checkpoint())
		}
	})
}

// silentOwner is a store that, for as long as it takes, does not say who the owner is.
type silentOwner struct {
	records.Store
	silent atomic.Bool
}

func (s *silentOwner) Stat(ctx context.Context, name string) (records.Record, error) {
	if s.silent.Load() {
		<-ctx.Done()
		return records.Record{}, ctx.Err()
	}
	return s.Store.Stat(ctx, name)
}

// An alert of a device whose alarm is not kept, because there is no room, promises no recovery.
func TestUntrackedPromisesNoRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		leaveRoomForOne(t, s.ledgers)
		s.start(p)
		p.feed("oven", time.Second, 40)
		p.feed("kiln", time.Second, 40)
		s.end()
		if a, b := r.alerts("oven"), r.alerts("kiln"); len(a) != 1 || len(b) != 1 || !a[0].WillResolve || b[0].WillResolve {
			t.Errorf("tracked %+v, untracked %+v", a, b)
		}
	})
}

// claims counts them.
type claims struct {
	lease.Store
	n atomic.Int64
}

func (c *claims) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	c.n.Add(1)
	return c.Store.Acquire(ctx, key, ttl, next)
}

// What is due is sent only when the new owner has read what the hub held: the device may be hot again.
func TestDueAfterATakeOverWaitsForTheLog(t *testing.T) {
	for _, again := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			s := with(t, nil, r)
			s.start(p)
			p.feed("oven", 10*time.Second, 40, 20)
			s.end()
			time.Sleep(2 * window)
			if again {
				p.publish("oven", 40)
			}
			next := with(t, nil, r)
			next.store, next.ledgers = s.store, s.ledgers
			p = p.reopen()
			p.opens = 700 * time.Millisecond
			next.start(p)
			time.Sleep(3 * time.Minute)
			next.end()
			want := "alert 1, recovery 2"
			if again {
				want = "alert 1, alert 3"
			}
			if got := r.notified("oven"); got != want {
				t.Errorf("notified of %s, want %s", got, want)
			}
		})
	}
}

// A device that flaps within its window costs no store call per opening: in one owner's time a window that it remembers
// in force means that no recovery was sent since.
func TestFlappingAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) { r.Window = time.Hour }, r)
		store := &claims{Store: s.store}
		s.store = store
		s.start(p)
		for range 900 {
			p.feed("oven", 2*time.Second, 40, 20)
		}
		if n := store.n.Load(); n > 3 {
			t.Errorf("%d claims in an hour", n)
		}
		s.end()
	})
}

// While the ledger cannot be asked no recovery is sent, and few are claimed in vain. Alerts do not need it: they
// wait no longer than one question may take.
func TestAlertsWhileTheLedgerIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		ledgers, store := &silentOwner{Store: s.ledgers}, &claims{Store: s.store}
		s.ledgers, s.store = records.Reliable(ledgers), store
		s.start(p)
		devices := 2000
		if testing.Short() {
			devices = 400
		}
		for _, value := range []float64{40, 20} {
			for i := range devices {
				p.publish(fmt.Sprint("oven-", i), value)
			}
			synctest.Wait()
		}
		ledgers.silent.Store(true)
		store.n.Store(0)
		time.Sleep(window)
		for i := range 60 {
			device := fmt.Sprint("kiln-", i)
			p.publish(device, 40)
			time.Sleep(5 * time.Second)
			if got := r.notified(device); got == "" {
				t.Fatalf("nobody is notified of %s", device)
			}
		}
		if n := store.n.Load(); n > 60+200 {
			t.Errorf("%d claims", n)
		}
		ledgers.silent.Store(false)
		time.Sleep(45 * time.Second) // a question that hangs, and the pause after it
		s.end()
		if n := len(r.alerts("")); n != 2*devices+60 {
			t.Errorf("%d notices", n)
		}
	})
}

// A rule that is removed long after an alarm was opened, and told again, resolves it too: the ledger has not
// been written since.
func TestRemovedRuleAfterReminders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) { r.Name = "hot" }, r)
		s.start(p)
		p.feed("oven", 35*time.Second, 40, 40, 40, 40)
		s.end()
		next := with(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p.reopen())
		time.Sleep(12 * time.Minute)
		next.end()
		if got := r.notified("oven"); got != "alert 1, alert 3, recovery 4" {
			t.Errorf("notified of %s", got)
		}
	})
}

// The last rule with state is removed: its alarms still end, with the words and the window that it had, also if the partition
// changes owners before that. After that no ledger is taken over any more.
func TestLastRuleRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) {
			r.Name, r.Window, r.Below, r.Field, r.Title, r.Unit = "cold", 20*time.Minute, true, "temperature", "Cold store", "°C"
		}, r)
		s.start(p)
		p.feed("oven", time.Second, 20)
		s.end()
		var taken atomic.Int64
		for _, life := range []time.Duration{4 * time.Minute, 30 * time.Minute, time.Minute} {
			next := newSetup(t, r)
			next.store, next.ledgers = s.store, records.Around(s.ledgers, func(ctx context.Context, _ records.Op, _ string, call func(context.Context) error) error {
				taken.Add(1)
				return call(ctx)
			})
			p = p.reopen()
			p.publish("kiln", 20)
			next.start(p)
			time.Sleep(life / 2) // the recovery waits for the window
			if d := next.device("oven").Deliveries; life == 30*time.Minute && (len(d) != 1 || d[0].Rule != "cold" || d[0].Waits.For != delivery.WaitWindow) {
				t.Errorf("waiting: %+v", d)
			}
			time.Sleep(life / 2)
			p.publish("kiln", 20)
			synctest.Wait()
			time.Sleep(2 * interval)
			next.end()
			if life < 2*time.Minute && taken.Load() > 0 {
				t.Errorf("%d calls for a ledger without alarms", taken.Load())
			}
			taken.Store(0)
		}
		if got := r.notified("oven"); got != "alert 1, recovery 4" {
			t.Fatalf("notified of %s", got)
		}
		a := r.alerts("oven")[1]
		if a.Window != 20*time.Minute || !a.Below || a.Field != "temperature" || a.Title != "Cold store" || a.Unit != "°C" || !a.Removed {
			t.Errorf("the recovery is %+v", a)
		}
	})
}

// An alarm goes on if a rule that was missing is back with the next owner.
func TestRuleIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) { r.Name = "hot" }, r)
		s.start(p)
		p.feed("oven", time.Second, 40)
		s.end()
		for _, name := range []string{"", "hot"} {
			next := with(t, func(r *rules.Rule) { r.Name = name }, r)
			next.store, next.ledgers = s.store, s.ledgers
			p = p.reopen()
			next.start(p)
			time.Sleep(8 * time.Minute)
			next.end()
		}
		if got := r.notified("oven"); got != "alert 1" {
			t.Errorf("notified of %s", got)
		}
		if c := readLedger(t, s.ledgers); len(c.Levels) != 1 || !c.Levels[0].Removed.IsZero() {
			t.Errorf("the ledger calls the rule missing: %+v", c.Levels)
		}
	})
}

// An alarm of a removed rule ends as soon as no replica has the rule any more, and not before: the partition may go on to
// one that has it.
func TestRemovedRuleThatAnotherReplicaHas(t *testing.T) {
	for _, rollout := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			s := with(t, func(r *rules.Rule) { r.Name = "hot" }, r)
			s.start(p)
			p.feed("oven", time.Second, 40)
			pass(2 * time.Minute)
			s.end()
			next := with(t, nil, r)
			next.store, next.ledgers = s.store, s.ledgers
			asked := time.Time{}
			next.config.Alike = func(since time.Time) bool {
				asked = since
				return time.Since(since) >= rollout
			}
			begun := time.Now()
			next.start(p.reopen())
			pass(rollout - time.Minute)
			if got := r.notified("oven"); rollout > 0 && got != "alert 1" {
				t.Errorf("notified of %s while another replica has the rule", got)
			}
			pass(time.Minute + 3*interval)
			if got := r.notified("oven"); got != "alert 1, recovery 1" {
				t.Errorf("after a rollout of %v notified of %s", rollout, got)
			}
			if asked.Before(begun) {
				t.Errorf("asked about %v, before the take-over", asked)
			}
			next.end()
		})
	}
}

// A receiver that is down delays the recovery of a removed rule, also in a partition that has long been idle: it is not
// older than the moment at which the rule counted as removed.
func TestRecoveryOfARemovedRuleInAnIdlePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) { r.Name = "hot" }, r)
		s.start(p)
		p.feed("oven", time.Second, 40)
		pass(13 * time.Hour)
		s.end()
		failures := 0
		r.set(func(context.Context, notify.Alert) error {
			if failures++; failures <= 3 {
				return errBusy
			}
			return nil
		})
		next := with(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		next.start(p)
		pass(11 * time.Minute)
		next.end() // while it is due
		last := with(t, nil, r)
		last.store, last.ledgers = s.store, s.ledgers
		last.start(p.reopen())
		pass(time.Hour)
		last.end()
		dead := append(next.dead.all(), last.dead.all()...)
		if got := r.notified("oven"); got != "alert 1, recovery 1" || len(dead) > 0 {
			t.Errorf("notified of %s; dead letters: %+v", got, dead)
		}
	})
}

// The recoveries of a removed rule are all about the last event read; a receiver that drops ids that it knows must not drop one of
// them for another device's.
func TestRecoveriesOfARemovedRuleHaveTheirOwnIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) { r.Name = "hot" }, r)
		s.start(p)
		p.feed("oven", time.Second, 40)
		p.feed("kiln", time.Second, 40)
		pass(time.Minute)
		s.end()
		next := with(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p.reopen())
		pass(15 * time.Minute)
		next.end()
		ids := map[string]string{}
		for _, a := range r.alerts("") {
			if other, known := ids[a.ID]; known {
				t.Errorf("%s and %s have the id %s", other, a.Device, a.ID)
			}
			ids[a.ID] = a.Device
		}
		if len(ids) != 4 {
			t.Errorf("%d ids, of two alerts and two recoveries", len(ids))
		}
	})
}

// The recovery of a removed rule is behind all that the last message says: who was alerted about one of its elements gets it.
func TestRecoveryOfARemovedRuleAboutAnElement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) { r.Name, r.Each, r.Sensor = "hot", ".", []string{"s"} }, r)
		s.start(p)
		p.publishBody("oven", `[{"s":"a","temperature":20},{"s":"b","temperature":91}]`)
		pass(2 * time.Minute)
		s.end()
		next := with(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p.reopen())
		pass(15 * time.Minute)
		next.end()
		if got, want := r.heard(), "b +91, b -91"; got != want {
			t.Errorf("heard %s; want %s", got, want)
		}
	})
}

// A rule is removed, and the hub recreated, to whose partition nothing has come yet: the recovery is about the last event that
// is known.
func TestRecoveryOfARemovedRuleOfAnotherHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.generation = "old"
		s := with(t, func(r *rules.Rule) { r.Name = "hot" }, r)
		s.start(p)
		last := p.publish("oven", hot)
		pass(2 * time.Minute)
		s.end()
		p = newPartition("0")
		p.generation = "new"
		next := with(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p)
		pass(15 * time.Minute)
		next.end()
		got := r.alerts("oven")
		if len(got) != 2 || !got[1].Resolved || got[1].Sequence != last.Sequence || !got[1].Enqueued.Equal(last.Enqueued) {
			t.Errorf("notified of %+v", got)
		}
	})
}

// Once a higher level that was removed has ended, the milder one that is still open alerts about the next reading.
func TestHigherLevelRemoved(t *testing.T) {
	plain := func(value float64) (string, map[string]any) { return fmt.Sprintf(`{"temperature":%v}`, value), nil }
	for _, tt := range []struct {
		name    string
		change  func(*rules.Rule)
		body    func(value float64) (string, map[string]any)
		opening []float64 // six minutes apart
		want    string
	}{
		{"limits", nil, plain, []float64{90}, "critical alert 1, critical recovery 1, warning alert 2"},
		{"limits counted from the message", func(r *rules.Rule) {
			for i := range r.Levels {
				r.Levels[i].LimitAt = rules.Reference{Name: "base", Plus: true}
			}
		}, func(value float64) (string, map[string]any) {
			return fmt.Sprintf(`{"temperature":%v,"base":-100}`, value-100), nil
		}, []float64{90}, "critical alert 1, critical recovery 1, warning alert 2"},
		{"limits from below counted from the message", func(r *rules.Rule) {
			r.Below = true
			for i := range r.Levels {
				r.Levels[i].LimitAt = rules.Reference{Name: "base", Plus: true}
				r.Levels[i].Limit *= -1
				r.Levels[i].Clear *= -1
			}
		}, func(value float64) (string, map[string]any) {
			return fmt.Sprintf(`{"temperature":%v,"base":100}`, 100-value), nil
		}, []float64{90}, "critical alert 1, critical recovery 1, warning alert 2"},
		{"a device's own limits", func(r *rules.Rule) {
			for i := range r.Levels {
				r.Levels[i].LimitAt.Name = r.Levels[i].Name
			}
		}, func(value float64) (string, map[string]any) {
			return fmt.Sprintf(`{"temperature":%v}`, value-100), map[string]any{"warning": -70.0, "critical": -20.0}
		}, []float64{90}, "critical alert 1, critical recovery 1, warning alert 2"},
		{"one limit for both, the higher one takes longer", func(r *rules.Rule) {
			for i := range r.Levels {
				r.Levels[i].Limit = 30
				r.Levels[i].Clear = 25
				r.Levels[i].For = time.Duration(i) * 5 * time.Minute
			}
		}, plain, []float64{40, 40}, "warning alert 1, critical alert 2, critical recovery 2, warning alert 3"},
	} {
		for _, values := range [][]float64{{40}, {27}, {27, 40}} { // 27 is between clear and limit
			for _, crash := range []bool{false, true} {
				t.Run(fmt.Sprint(tt.name, values, crash), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p, r := newPartition("0"), &receiver{}
						var s *setup
						owner := func(critical bool) {
							next := with(t, func(r *rules.Rule) {
								r.Levels = []rules.Level{{Name: "warning", Limit: 30, Clear: 25}, {Name: "critical", Limit: 80, Clear: 75}}
								if tt.change != nil {
									tt.change(r)
								}
								if !critical {
									r.Levels = r.Levels[:1]
								}
							}, r)
							if s != nil {
								s.end()
								next.store, next.ledgers = s.store, s.ledgers
								p = p.reopen()
							}
							s = next
							s.start(p)
						}
						owner(true)
						for _, value := range tt.opening {
							body, properties := tt.body(value)
							p.publishProperties("oven", body, properties)
							pass(6 * time.Minute)
						}
						owner(false)
						pass(12 * time.Minute)
						if crash {
							owner(false)
						}
						for _, value := range values {
							body, properties := tt.body(value)
							p.publishProperties("oven", body, properties)
							pass(10 * time.Second)
						}
						pass(time.Minute)
						s.end()
						if got := r.notified("oven"); got != tt.want {
							t.Errorf("notified of %s, want %s", got, tt.want)
						}
					})
				})
			}
		}
	}
}

// A reading that its device took before another one that the alarm has seen changes nothing, nor after a higher level
// was removed.
func TestLateReadingAfterAHigherLevelWasRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		levels := func(critical bool) func(*rules.Rule) {
			return func(r *rules.Rule) {
				r.Levels = []rules.Level{{Name: "warning", Limit: 30, Clear: 25}}
				if critical {
					r.Levels = append(r.Levels, rules.Level{Name: "critical", Limit: 80, Clear: 75})
				}
			}
		}
		timed := func(s *setup) {
			s.config.Rules.Time = "taken"
			clock, err := s.config.Rules.Clock()
			if err != nil {
				t.Fatal(err)
			}
			s.config.Clock = clock
		}
		p, r := newPartition("0"), &receiver{}
		s := with(t, levels(true), r)
		timed(s)
		s.start(p)
		begin := time.Now()
		taken := func(at time.Time) map[string]any { return map[string]any{"taken": at.Format(time.RFC3339)} }
		p.publishProperties("oven", `{"temperature":90}`, taken(begin))
		pass(window)
		s.end()
		next := with(t, levels(false), r)
		timed(next)
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		next.start(p)
		pass(12 * time.Minute)
		p.publishProperties("oven", `{"temperature":10}`, taken(begin.Add(-time.Minute))) // late: from before the alarm
		pass(2 * time.Minute)
		if got, want := r.notified("oven"), "critical alert 1, critical recovery 1"; got != want {
			t.Errorf("after a late reading: notified of %s, want %s", got, want)
		}
		p.publishProperties("oven", `{"temperature":40}`, taken(time.Now()))
		pass(2 * time.Minute)
		next.end()
		if got, want := r.notified("oven"), "critical alert 1, critical recovery 1, warning alert 3"; got != want {
			t.Errorf("notified of %s, want %s", got, want)
		}
	})
}

// A rule comes to have a sensor while alarms are open, or another one: they end as those of a rule that was removed, and
// what is said of sensors says nothing of them, also as the next owner finds it.
func TestAlarmsOfARuleWithAnotherSensor(t *testing.T) {
	for _, tt := range []struct{ was, is, want string }{
		{"", "s", "+91, a +92, -91"},
		{"s", "t", "a +91, b +92, a -91"},
		{"s", "", "a +91, +92, a -91"},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.was, " to ", tt.is, " ", again), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					by := func(name string) func(*rules.Rule) {
						return func(r *rules.Rule) {
							if r.Sensor = nil; name != "" {
								r.Sensor = []string{name}
							}
						}
					}
					p, r := newPartition("0"), &receiver{}
					s := with(t, by(tt.was), r)
					owner := func() {
						s.end()
						next := with(t, by(tt.is), r)
						next.store, next.ledgers = s.store, s.ledgers
						p, s = p.reopen(), next
						s.start(p)
					}
					s.start(p)
					p.publishBody("oven", `{"temperature":91,"s":"a","t":"b"}`)
					pass(2 * time.Minute)
					owner()
					p.publishBody("oven", `{"temperature":92,"s":"a","t":"b"}`)
					pass(time.Minute)
					if again {
						owner()
					}
					pass(15 * time.Minute)
					s.end()
					if got := r.heard(); got != tt.want {
						t.Errorf("heard %s; want %s", got, tt.want)
					}
				})
			})
		}
	}
}

// A rule that had levels compares words under the same name. The level that is removed ends while the door is still open,
// also as the next owner finds it; then the word is none that opens the alarm.
func TestWordsAfterLevels(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("another owner ", again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				levels := func(r *rules.Rule) {
					r.Name, r.Field = "door", "door"
					r.Levels = []rules.Level{{Name: "ajar", Limit: 1, Clear: 1}, {Name: "open", Limit: 2, Clear: 2}}
				}
				words := func(r *rules.Rule) {
					r.Name, r.Field = "door", "door"
					r.Is = []string{"ajar", "open"}
					r.ClearedFor = 5 * time.Minute
					r.Levels = []rules.Level{{Limit: 1, Clear: 1}}
				}
				p, r := newPartition("0"), &receiver{}
				s := with(t, levels, r)
				owner := func() {
					s.end()
					next := with(t, words, r)
					next.store, next.ledgers = s.store, s.ledgers
					p, s = p.reopen(), next
					s.start(p)
				}
				s.start(p)
				p.publishBody("door-1", `{"door":2}`)
				pass(time.Minute)
				owner()
				p.publishBody("door-1", `{"door":"open"}`)
				pass(15 * time.Minute) // the levels count as removed
				if again {
					owner()
				}
				p.publishBody("door-1", `{"door":"closed"}`)
				pass(6 * time.Minute)
				p.publishBody("door-1", `{"door":"closed"}`)
				pass(10 * time.Minute)
				s.end()
				if got, want := r.notified("door-1"), "open alert 1, alert 2, open recovery 2, recovery 4"; got != want {
					t.Errorf("notified of %s, want %s", got, want)
				}
			})
		})
	}
}

// A mute ends while an alarm that compares words is still open, although the word is none of those that opened it.
func TestMuteEndsWhileAWordIsClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) {
			r.Name, r.Field = "door", "door"
			r.Is = []string{"ajar", "open"}
			r.ClearedFor = time.Hour
			r.Levels = []rules.Level{{Limit: 1, Clear: 1}}
		}, r)
		start := time.Now()
		s.config.Mutes = func() rules.Mutes { return rules.Mutes{{From: start, Until: start.Add(5 * time.Minute)}} }
		s.start(p)
		p.publishBody("door-1", `{"door":"open"}`)
		pass(6 * time.Minute)
		p.publishBody("door-1", `{"door":"closed"}`)
		pass(time.Minute)
		s.end()
		if got := r.alerts("door-1"); len(got) != 1 || got[0].Word != "ajar or open" {
			t.Errorf("got %+v", got)
		}
	})
}

// While a rule about silence is missing nothing is said of its alarms, because nobody knows who is heard: not if it was the
// only one, nor if it was renamed. If it comes back within ten minutes, what was due is sent.
func TestSilenceRuleMissingWhileItsAlertWaits(t *testing.T) {
	renamed := func(r *rules.Rule) { r.Name = "silent-devices" }
	for _, tt := range []struct {
		name    string
		renamed bool
		back    time.Duration // after which the rule is back; 0: it is not
		want    string
	}{
		{"removed", false, 0, ""},
		{"renamed", true, 0, ""},
		{"taken back", false, time.Minute, "alert 1"},
		{"renamed and taken back", true, time.Minute, "alert 1, alert 1"}, // one under each name
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{answer: func(context.Context, notify.Alert) error { return errBusy }}
				s := silence(t, nil, r)
				s.start(p)
				p.talk("oven", 0)
				time.Sleep(20 * time.Minute)
				s.end()
				next := newSetup(t, r) // its only rule is about temperature
				next.config.Rules.Rules[0].Resolved = true
				if tt.renamed {
					next = silence(t, renamed, r)
				}
				next.store, next.ledgers = s.store, s.ledgers
				p = p.reopen()
				next.start(p)
				if tt.back > 0 {
					r.set(nil)
					time.Sleep(tt.back)
					next.end()
					next = silence(t, nil, r)
					next.store, next.ledgers = s.store, s.ledgers
					p = p.reopen()
					next.start(p)
					time.Sleep(5 * time.Minute)
					next.end()
				} else {
					time.Sleep(time.Minute)
					p.talk("oven", 0, time.Minute, 2*time.Minute) // it is heard
					r.set(nil)
					for range 20 {
						p.talk("oven", time.Minute)
					}
					next.end()
				}
				if got := r.notified("oven"); got != tt.want {
					t.Errorf("notified of %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// A milder level that a higher one has held back alerts when that ends, although another owner saw it held back.
func TestMilderLevelAfterATakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		levels := func(r *rules.Rule) {
			r.Levels = []rules.Level{{Name: "warning", Limit: 30, Clear: 25}, {Name: "critical", Limit: 80, Clear: 75}}
		}
		p, r := newPartition("0"), &receiver{}
		s := with(t, levels, r)
		s.start(p)
		p.feed("oven", 2*window, 90)
		s.end()
		next := with(t, levels, r)
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		next.start(p)
		p.feed("oven", 2*window, 27) // below both limits, and warning is not clear
		time.Sleep(5 * time.Minute)
		next.end()
		if got, want := r.notified("oven"), "critical alert 1, critical recovery 2, warning alert 2"; !sameSet(got, want) {
			t.Errorf("notified of %s; want %s", got, want)
		}
	})
}

// A new owner sends no recovery before it has read what the hub held when it began: the device may be hot again.
func TestRecoveryWhileTheOwnerIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		s.start(p)
		p.feed("oven", 2*window, hot)
		s.end()
		p.publish("oven", cool)
		p.publish("oven", hot)
		p = p.reopen()
		p.largest, p.slow = 1, 20*time.Second
		next := with(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p)
		time.Sleep(5 * time.Minute)
		next.end()
		if got, want := r.notified("oven"), "alert 1, alert 3"; got != want {
			t.Errorf("notified of %s; want %s", got, want)
		}
	})
}

// Within a window that only this replica knows, because the receiver refused its alert, another owner may have seen the alarm
// end: one that opens when the partition is back asks the gate.
func TestAlarmOpensAgainAfterAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(&notify.Error{Refused: true, Err: errors.New("400")})}
		s := with(t, nil, r)
		ctx, stop := context.WithCancel(t.Context())
		s.consume(ctx, p)
		p.publish("oven", hot)
		time.Sleep(10 * time.Second)
		stop()
		s.work.Wait()
		r.set(nil)
		if n := len(s.dead.all()); n != 1 {
			t.Fatalf("%d dead letters", n)
		}

		other := with(t, nil, r)
		other.store, other.ledgers = s.store, s.ledgers
		p = p.reopen()
		other.start(p)
		p.publish("oven", cool)
		time.Sleep(10 * time.Second)
		other.end()

		p = p.reopen()
		ctx, stop = context.WithCancel(t.Context())
		s.work.Go(func() { _ = s.run(ctx, p) })
		p.publish("oven", hot)
		time.Sleep(10 * time.Second)
		if got, want := r.notified("oven"), "alert 3"; got != want {
			t.Errorf("notified of %s, want %s", got, want)
		}
		stop()
		s.work.Wait()
	})
}
