package status_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/lease/observe"
	"alertworker/internal/notify"
	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
	"alertworker/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A replica is what a Monitor watches, as a test says.
type replica struct {
	source     telemetry.SourceStats
	standby    string
	receivers  []delivery.ReceiverState
	partitions []partition.State
}

func (r *replica) Receivers() []delivery.ReceiverState { return r.receivers }
func (r *replica) Partitions() []partition.State       { return r.partitions }

// watch returns a Monitor of r, whose throttle store is store, nil for none that is probed.
func (r *replica) watch(log *zap.Logger, store lease.Store) *status.Monitor {
	m := status.New(log)
	if store != nil {
		store = observe.Store(store, m.Store.Store)
	}
	m.Watch(status.Replica{
		Worker: r, Source: func() telemetry.SourceStats { return r.source }, Standby: func() string { return r.standby }, Store: store, Key: "key",
	})
	return m
}

var errDown = errors.New("no answer from 10.0.0.1: connection refused")

// fail makes a service fail for so long that it counts.
func fail(d *status.Dependency) {
	d.Called(status.Write, errDown)
	time.Sleep(5 * time.Second)
	d.Called(status.Write, errDown)
}

func TestReport(t *testing.T) {
	up, down := delivery.ReceiverState{Name: "up"}, delivery.ReceiverState{Name: "pager", Down: true, Err: errors.New("post alert to https://pager: answered 401"), Waiting: 3}
	reading := telemetry.SourceStats{Running: true, Owned: 2, Reading: 2}
	long := time.Date(1999, 12, 31, 23, 59, 0, 0, time.UTC)
	for _, test := range []struct {
		name     string
		replica  replica
		change   func(*status.Monitor, *replica)
		state    status.State
		ready    bool
		headline string
		by       []status.By
		parts    []string // of the lines
	}{
		{name: "nothing has answered yet", state: status.Starting, headline: "Starting: waiting for the hub and the checkpoint store to answer."},
		{name: "well", replica: replica{source: reading, receivers: []delivery.ReceiverState{up}}, state: status.GoingOut, ready: true, headline: "Alerts are going out."},
		{name: "alerts wait for their turn", replica: replica{source: reading, receivers: []delivery.ReceiverState{{Waiting: 1}}}, state: status.GoingOut, ready: true, headline: "Alerts are going out; 1 alert waits to be sent."},
		{name: "a new secret", replica: replica{source: reading, receivers: []delivery.ReceiverState{up}},
			change: func(m *status.Monitor, _ *replica) { m.NewSecrets(errors.New("NOTIFY_URLS: 401")) },
			state:  status.Impaired, ready: true, headline: "Alerts are going out, but a new secret does not work.", by: []status.By{status.BySecrets},
			parts: []string{"a new secret does not work, for ", "NOTIFY_URLS: 401. The old one stays in use."}},
		{name: "a new secret that is taken back", replica: replica{source: reading, receivers: []delivery.ReceiverState{up}},
			change: func(m *status.Monitor, _ *replica) { m.NewSecrets(errors.New("NOTIFY_URLS: 401")); m.NewSecrets(nil) },
			state:  status.GoingOut, ready: true, headline: "Alerts are going out."},
		{name: "other rules, in a rollout", replica: replica{source: reading, receivers: []delivery.ReceiverState{up}},
			change: func(m *status.Monitor, _ *replica) {
				compare(m, hot60, map[string]string{"hot": "above: 300"})
				time.Sleep(9 * time.Minute)
				compare(m, hot60, hot60)
				compare(m, hot60, map[string]string{"hot": "above: 300"})
				time.Sleep(9 * time.Minute)
			},
			state: status.GoingOut, ready: true, headline: "Alerts are going out."},
		{name: "other rules", replica: replica{source: reading, receivers: []delivery.ReceiverState{up}},
			change: func(m *status.Monitor, _ *replica) {
				compare(m, map[string]string{"cold": "below: 5"}, map[string]string{})
				time.Sleep(5 * time.Minute)
				compare(m, hot60, map[string]string{"hot": "above: 300"})
				time.Sleep(5 * time.Minute)
			},
			state: status.Impaired, ready: true, headline: "Alerts are going out, but replica w2 has hot above 300, here 60.", by: []status.By{status.ByRules},
			parts: []string{"replica w2 has hot above 300, here 60, for 10 min", "give all of them the same"}},
		{name: "throttle store", replica: replica{source: reading, receivers: []delivery.ReceiverState{{Waiting: 12}}},
			change: func(m *status.Monitor, _ *replica) { fail(&m.Store) },
			state:  status.Blocked, headline: "No alerts are going out: the throttle store cannot be used.", by: []status.By{status.ByStore},
			parts: []string{"the throttle store cannot be used, for 5 s (since 2000-01-01T00:00:00Z): no answer from 10.0.0.1: connection refused. 12 alerts wait until the store accepts what is written to it.\n"}},
		{name: "one call fails", replica: replica{source: reading}, change: func(m *status.Monitor, _ *replica) { m.Store.Called(status.Write, errDown); time.Sleep(time.Minute) }, state: status.GoingOut, ready: true, headline: "Alerts are going out."},
		{name: "some calls fail for a moment", replica: replica{source: reading}, change: func(m *status.Monitor, _ *replica) {
			m.Store.Called(status.Write, errDown)
			m.Store.Called(status.Write, errDown)
		}, state: status.GoingOut, ready: true, headline: "Alerts are going out."},
		{name: "we cancelled", replica: replica{source: reading}, change: func(m *status.Monitor, _ *replica) {
			m.Store.Called(status.Write, context.Canceled)
			time.Sleep(time.Minute)
			m.Store.Called(status.Write, fmt.Errorf("acquire: %w", context.Canceled))
		}, state: status.GoingOut, ready: true, headline: "Alerts are going out."},
		{name: "it answers again", replica: replica{source: reading}, change: func(m *status.Monitor, _ *replica) { fail(&m.Store); m.Store.Called(status.Write, nil) },
			state: status.Impaired, headline: "Alerts are going out, but the throttle store failed a moment ago.", by: []status.By{status.ByStore}, parts: []string{"counts as usable once nothing has failed for 15 s"}},
		{name: "it has answered for long", replica: replica{source: reading}, change: func(m *status.Monitor, _ *replica) {
			fail(&m.Store)
			m.Store.Called(status.Write, nil)
			time.Sleep(15 * time.Second)
		}, state: status.GoingOut, ready: true, headline: "Alerts are going out."},
		{name: "checkpoint store", replica: replica{source: reading}, change: func(m *status.Monitor, _ *replica) { fail(&m.Checkpoints) },
			state: status.Impaired, headline: "Alerts are going out, but the checkpoint store cannot be used.", by: []status.By{status.ByCheckpoints}, parts: []string{"Progress cannot be recorded"}},
		{name: "checkpoint store before anything is read", change: func(m *status.Monitor, _ *replica) { fail(&m.Checkpoints) },
			state: status.Blocked, headline: "No alerts are going out: the checkpoint store cannot be used.", by: []status.By{status.ByCheckpoints}, parts: []string{"nothing is read"}},
		{name: "hub", replica: replica{source: telemetry.SourceStats{Hub: telemetry.Fault{Err: errDown, Refused: true}}},
			state: status.Blocked, headline: "No alerts are going out: the hub cannot be read.", by: []status.By{status.ByHub}, parts: []string{"Readings wait in the hub"}},
		{name: "hub, for a moment", replica: replica{source: reading}, change: func(_ *status.Monitor, r *replica) { r.source.Hub = telemetry.Fault{Since: time.Now(), Err: errDown} },
			state: status.GoingOut, ready: true, headline: "Alerts are going out."},
		{name: "partitions that cannot be opened", replica: replica{source: telemetry.SourceStats{Running: true, Owned: 4, Reading: 2, Faults: map[string]telemetry.Fault{"10": {Err: errDown}, "9": {Err: errors.New("stolen by somebody")}}}},
			state: status.Partly, headline: "Some alerts aren't going out: partitions 9 and 10 are not being read.", by: []status.By{status.ByPartitions}, parts: []string{": partition 9: stolen by somebody; partition 10: no answer from 10.0.0.1: connection refused. Their readings"}},
		{name: "hub, whose links have just broken", replica: replica{source: telemetry.SourceStats{Running: true, Owned: 2}}, change: func(_ *status.Monitor, r *replica) { r.source.Hub = telemetry.Fault{Since: time.Now(), Err: errDown} },
			state: status.Blocked, headline: "No alerts are going out: 2 of 2 partitions that this replica owns are not being read.", by: []status.By{status.ByPartitions}},
		{name: "hub, of which this replica owns nothing", replica: replica{source: telemetry.SourceStats{Running: true, Hub: telemetry.Fault{Err: errDown}}},
			state: status.Blocked, headline: "No alerts are going out: the hub cannot be read.", by: []status.By{status.ByHub}},
		{name: "no partition", replica: replica{source: telemetry.SourceStats{Running: true, Owned: 1}},
			state: status.Blocked, headline: "No alerts are going out: 1 of 1 partition that this replica owns is not being read.", by: []status.By{status.ByPartitions}},
		{name: "both stores and the hub", replica: replica{source: telemetry.SourceStats{Hub: telemetry.Fault{Err: errDown}}}, change: func(m *status.Monitor, _ *replica) {
			fail(&m.Store)
			fail(&m.Checkpoints)
		},
			state: status.Blocked, headline: "No alerts are going out: the throttle store cannot be used, the hub cannot be read and the checkpoint store cannot be used.", by: []status.By{status.ByStore, status.ByHub, status.ByCheckpoints}},
		{name: "partitions", replica: replica{source: telemetry.SourceStats{Running: true, Owned: 3, Reading: 2}},
			state: status.Partly, headline: "Some alerts aren't going out: 1 of 3 partitions that this replica owns is not being read.", by: []status.By{status.ByPartitions}},
		{name: "a partition whose claim cannot be renewed", replica: replica{source: telemetry.SourceStats{Running: true, Owned: 2, Reading: 2, AtRisk: map[string]telemetry.Fault{"7": {Since: long, Err: errDown}}}},
			state: status.Impaired, headline: "Alerts are going out, but partition 7 may soon stop being read.", by: []status.By{status.ByPartitions}, parts: []string{"for 60 s", "partition 7: no answer"}},
		{name: "a partition waits for its ledger", replica: replica{source: reading, partitions: []partition.State{{Partition: "3", Ledger: partition.LedgerState{Err: errDown, Since: long}}, {Partition: "4", Ledger: partition.LedgerState{Writes: 1, Err: errDown, Since: long}}}},
			state: status.Partly, headline: "Some alerts aren't going out: partition 3 cannot be read without the ledger.", by: []status.By{status.ByLedger},
			parts: []string{"partition 3 cannot be read without the ledger, for 60 s (since 1999-12-31T23:59:00Z): partition 3: no answer from 10.0.0.1: connection refused; partition 4: no answer from 10.0.0.1: connection refused. Readings wait in the hub"}},
		{name: "all partitions wait for their ledgers", replica: replica{source: reading, partitions: []partition.State{{Partition: "10", Ledger: partition.LedgerState{Err: errDown, Since: long}}, {Partition: "4", Ledger: partition.LedgerState{Err: errDown, Since: long}}}},
			state: status.Blocked, headline: "No alerts are going out: partitions 4 and 10 cannot be read without the ledger.", by: []status.By{status.ByLedger}},
		{name: "a ledger cannot be written", replica: replica{source: reading, partitions: []partition.State{{Partition: "3", Ledger: partition.LedgerState{Writes: 1, Err: errDown, Since: long}}, {Partition: "4"}}},
			state: status.Impaired, headline: "Alerts are going out, but partition 3 cannot record alarms in the ledger.", by: []status.By{status.ByLedger}, parts: []string{"no recoveries are sent"}},
		{name: "a ledger cannot be written, for a moment", replica: replica{source: reading, partitions: []partition.State{{Ledger: partition.LedgerState{Writes: 1, Err: errDown, Since: long.Add(56 * time.Second)}}}},
			state: status.GoingOut, ready: true, headline: "Alerts are going out."},
		{name: "one receiver of two", replica: replica{source: reading, receivers: []delivery.ReceiverState{up, down}},
			state: status.Partly, ready: true, headline: "Some alerts aren't going out: receiver pager is down.", by: []status.By{status.ByReceiver},
			parts: []string{"receiver pager is down", "post alert to https://pager: answered 401. 3 alerts wait until it accepts them, or until NOTIFY_GIVE_UP."}},
		{name: "the only receiver", replica: replica{source: reading, receivers: []delivery.ReceiverState{down}},
			state: status.Blocked, ready: true, headline: "No alerts are going out: receiver pager is down.", by: []status.By{status.ByReceiver}},
		{name: "standing by", replica: replica{standby: "others are active"}, state: status.Standby, ready: true, headline: "Standing by: others are active."},
		{name: "standing by, without the store", replica: replica{standby: "others are active"}, change: func(m *status.Monitor, _ *replica) { fail(&m.Checkpoints) },
			state: status.Standby, headline: "Standing by: others are active.", by: []status.By{status.ByCheckpoints}},
		{name: "draining", replica: replica{source: reading}, change: func(m *status.Monitor, _ *replica) { m.Drain() }, state: status.Draining, headline: "Draining: alerts in progress are being settled."},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := test.replica
				m := r.watch(zap.NewNop(), nil)
				if test.change != nil {
					test.change(m, &r)
				}
				got := m.Report()
				if got.State != test.state || got.Ready != test.ready || got.Headline != test.headline {
					t.Errorf("%q, ready %v, %q; want %q, %v, %q", got.State, got.Ready, got.Headline, test.state, test.ready, test.headline)
				}
				var by []status.By
				for _, p := range got.Problems {
					by = append(by, p.By)
				}
				if fmt.Sprint(by) != fmt.Sprint(test.by) {
					t.Errorf("in the way: %v, want %v", by, test.by)
				}
				lines := got.Lines(time.Now().UTC())
				for _, part := range append(test.parts, "ready: "+strings.ToLower(test.headline[:1])+test.headline[1:]) {
					if !strings.Contains(lines, part) {
						t.Errorf("no %q in %s", part, lines)
					}
				}
				if n := strings.Count(lines, "\n"); n != 1+len(test.by) {
					t.Errorf("%d lines:\n%s", n, lines)
				}
			})
		})
	}
}

// Before there is a replica it says what is being opened, and since when it cannot be.
func TestOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := status.New(zap.NewNop())
		if r := m.Report(); r.State != status.Starting || r.Ready || len(r.Problems) != 0 {
			t.Errorf("%+v", r)
		}
		m.Opening(status.ByCheckpoints, errDown, false)
		began := time.Now()
		time.Sleep(time.Minute)
		m.Opening(status.ByCheckpoints, errDown, true)
		if r := m.Report(); r.State != status.Blocked || r.Ready || r.Headline != "No alerts are going out: the checkpoint store cannot be used." || len(r.Problems) != 1 || !r.Problems[0].Since.Equal(began) || !r.Problems[0].Refused {
			t.Errorf("%+v", r)
		}
		m.Opening(status.ByStore, errDown, false)
		if r := m.Report(); len(r.Problems) != 1 || r.Problems[0].By != status.ByStore || !r.Problems[0].Since.Equal(time.Now()) {
			t.Errorf("%+v", r)
		}
	})
}

// flaky is a store that accepts no write while it is down.
type flaky struct {
	lease.Store
	down   atomic.Bool
	writes atomic.Int32
}

func (f *flaky) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	f.writes.Add(1)
	if f.down.Load() {
		return lease.Lease{}, errDown
	}
	return f.Store.Acquire(ctx, key, ttl, next)
}

// While no device is hot nobody else writes to the throttle store: one write every twenty seconds shows
// that it has died, and more of them when it is back. The log has a line when it begins, some
// while it lasts, and one when it is over.
func TestIdleStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		store := &flaky{Store: memlease.New()}
		r := replica{source: telemetry.SourceStats{Running: true}}
		m := r.watch(zap.New(core), store)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.Run(ctx)
		}()
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		pass(10 * time.Minute)
		if n := store.writes.Load(); n < 27 || n > 31 {
			t.Errorf("%d writes in ten minutes, want one every twenty seconds", n)
		}
		if m.Report().State != status.GoingOut || logs.Len() != 0 {
			t.Errorf("%+v, %v", m.Report(), logs.All())
		}

		store.down.Store(true)
		pass(30 * time.Second)
		if got := m.Report(); got.State != status.Blocked {
			t.Errorf("%+v", got)
		}
		begun := logs.TakeAll()
		if len(begun) != 1 || begun[0].Message != "the throttle store cannot be used" || begun[0].ContextMap()["error"] != errDown.Error() {
			t.Errorf("the log says %v", begun)
		}
		pass(24 * time.Hour)
		if n := len(logs.TakeAll()); n < 20 || n > 40 {
			t.Errorf("%d reminders in a day", n)
		}

		store.down.Store(false)
		pass(20 * time.Second)
		if got := m.Report(); got.State != status.GoingOut {
			t.Errorf("%+v", got)
		}
		if over := logs.TakeAll(); len(over) != 1 || over[0].Message != "the throttle store can be used again" || over[0].ContextMap()["after"] != "24 h" {
			t.Errorf("the log says %v", over)
		}
		stop()
		<-ended
	})
}

// A store that fails every other time is said to fail for as long as it does, also while it answers: an alert rule has
// to hold for minutes. It began when it first failed.
func TestStoreThatFailsEveryOtherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := replica{source: telemetry.SourceStats{Running: true, Owned: 1, Reading: 1}}
		m := r.watch(zap.NewNop(), nil)
		began := time.Now()
		fail(&m.Store)
		for n := range 100 {
			time.Sleep(time.Second)
			m.Store.Called(status.Write, []error{nil, errDown}[n%2])
			got := m.Report()
			if got.Ready || len(got.Problems) != 1 || got.Problems[0].By != status.ByStore || !got.Problems[0].Since.Equal(began) {
				t.Fatalf("after call %d: %q", n, got.Lines(time.Now().UTC()))
			}
		}
		m.Store.Called(status.Write, nil)
		time.Sleep(14 * time.Second)
		if m.Report().Ready {
			t.Error("14 s after the last failure it is said to work")
		}
		time.Sleep(time.Second)
		if got := m.Report(); !got.Ready || got.State != status.GoingOut {
			t.Errorf("15 s after the last failure: %q", got.Lines(time.Now().UTC()))
		}

		m.Store.Called(status.Write, errDown)
		if got := m.Report(); !got.Ready {
			t.Errorf("after one failure: %q", got.Lines(time.Now().UTC()))
		}
	})
}

// One that fails twice in three times is said to fail soon, although it answers again and again. One that fails once in
// three times is not.
func TestStoreThatFailsInPart(t *testing.T) {
	for failures, want := range map[int]bool{1: false, 2: true} {
		synctest.Test(t, func(t *testing.T) {
			r := replica{source: telemetry.SourceStats{Running: true, Owned: 1, Reading: 1}}
			m := r.watch(zap.NewNop(), nil)
			for n := range 300 {
				time.Sleep(100 * time.Millisecond)
				var err error
				if n%3 < failures {
					err = errDown
				}
				m.Store.Called(status.Write, err)
				if got := m.Report(); n > 60 && got.Ready == want {
					t.Fatalf("%d of 3 fail, and after call %d: %q", failures, n, got.Lines(time.Now().UTC()))
				}
			}
		})
	}
}

var hot60 = map[string]string{"hot": "above: 60"}

// compare has m, whose replica decides by the first rules, compare them with those of another replica.
func compare(m *status.Monitor, here, there map[string]string) {
	m.Compare(status.Statement{Replica: "w1", Rules: here}, []status.Statement{{Replica: "w2", Rules: there}}, 1)
}

// That replicas have other rules is logged once it has lasted for longer than a rollout, and so is the end.
func TestOtherRulesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		r := replica{source: telemetry.SourceStats{Running: true, Owned: 1, Reading: 1}, partitions: []partition.State{{Partition: "0", ReadUntil: time.Now()}}}
		m := r.watch(zap.New(core), memlease.New())
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { m.Run(ctx) })
		compare(m, hot60, map[string]string{"hot": "above: 300"})
		time.Sleep(10*time.Minute - 2*time.Second)
		early := logs.Len()
		time.Sleep(4 * time.Second)
		compare(m, hot60, hot60)
		time.Sleep(2 * time.Second)
		stop()
		running.Wait()
		var lines []string
		for _, l := range logs.FilterMessageSnippet("rules").All() {
			lines = append(lines, l.Level.String()+" "+l.Message)
		}
		want := []string{"warn replicas have different rules: replica w2 has hot above 300, here 60", "info replicas have the same rules again"}
		if early > 0 || !slices.Equal(lines, want) {
			t.Errorf("%d early lines, then %q", early, lines)
		}
	})
}

// If nothing comes from the hub for ten minutes, that is said, and the replica stays ready: nothing is in the way of alerts.
func TestNothingArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		r := replica{source: telemetry.SourceStats{Running: true, Owned: 2, Reading: 2}, partitions: []partition.State{{Partition: "0"}, {Partition: "1"}}}
		m := r.watch(zap.New(core), memlease.New())
		run := func(d time.Duration) {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				m.Run(ctx)
			}()
			time.Sleep(d)
			stop()
			<-ended
		}
		for range 20 { // minutes
			r.partitions[1].ReadUntil = time.Now()
			if got := m.Report(); got.State != status.GoingOut || len(got.Problems) > 0 {
				t.Fatalf("events come, and it says %q", got.Lines(time.Now().UTC()))
			}
			time.Sleep(time.Minute)
		}
		run(9*time.Minute - time.Second)
		if got := m.Report(); got.State != status.GoingOut {
			t.Errorf("after less than ten minutes it says %q", got.Lines(time.Now().UTC()))
		}
		run(3 * time.Second)
		got := m.Report()
		if want := "ready: alerts would go out, but no events have arrived on any partition that this replica reads.\n" +
			"no events have arrived on any partition that this replica reads, for 10 min (since 2000-01-01T00:19:00Z). Check whether devices are connected to the IoT Hub, and whether its route to this hub is enabled and healthy.\n"; got.Lines(time.Now().UTC()) != want || got.State != status.Idle || !got.Ready {
			t.Errorf("%s, ready %v\n%swant\n%s", got.State, got.Ready, got.Lines(time.Now().UTC()), want)
		}
		if why := status.WouldArrive(time.Now(), status.Statement{Status: got}, nil, nil, nil); why != "" {
			t.Errorf("the heartbeat says %q", why)
		}
		if n := logs.FilterMessage("the devices send nothing").FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
			t.Errorf("the log says %v", logs.All())
		}
		r.source.Reading = 1 // a partition changes hands
		if got := m.Report(); got.State != status.Partly || len(got.Problems) != 1 {
			t.Errorf("while a partition is not read it says %q", got.Lines(time.Now().UTC()))
		}
		r.source.Reading = 2
		time.Sleep(10*time.Minute + time.Second)
		if got := m.Report(); got.State != status.Idle {
			t.Errorf("ten minutes later it says %q", got.Lines(time.Now().UTC()))
		}
		r.partitions[0].ReadUntil = time.Now()
		run(2 * time.Second)
		if got := m.Report(); got.State != status.GoingOut {
			t.Errorf("an event came, and it says %q", got.Lines(time.Now().UTC()))
		}
		if n := logs.FilterMessage("the devices send again").Len(); n != 1 {
			t.Errorf("the log says %v", logs.All())
		}
	})
}

// Other replicas learn which receivers have just accepted something, unless it is long ago or they are down now.
func TestAcceptingReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		now := time.Now()
		r := replica{source: telemetry.SourceStats{Running: true}, receivers: []delivery.ReceiverState{
			{Name: "now", TakenAt: now.Add(-time.Second)}, {Name: "once", TakenAt: now.Add(-time.Minute)}, {Name: "never"},
			{Name: "down", TakenAt: now.Add(-time.Second), Down: true},
		}}
		report := r.watch(zap.NewNop(), memlease.New()).Report()
		said := status.Statement{Replica: "a", Status: report}.JSON(4096)
		if got := status.Accepting(status.Statements([][]byte{said, said, []byte("{}")})); !slices.Equal(got, []string{"now"}) {
			t.Errorf("%q accept: %s", got, said)
		}
	})
}

// Partitions that change hands are not worth a line.
func TestPartitionsThatChangeHandsAreNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		r := replica{source: telemetry.SourceStats{Running: true, Owned: 1}}
		m := r.watch(zap.New(core), &flaky{Store: memlease.New()})
		ctx, stop := context.WithCancel(t.Context())
		go m.Run(ctx)
		defer stop()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if logs.Len() != 0 {
			t.Errorf("the log says %v", logs.All())
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := logs.FilterMessage("partitions that this replica owns are not being read").Len(); got != 1 {
			t.Errorf("the log says %v", logs.All())
		}
	})
}

// A receiver that refuses the credentials is a matter of credentials.
func TestReceiverRefusesCredentials(t *testing.T) {
	for code, want := range map[int]bool{0: false, 401: true, 403: true, 404: false, 503: false} {
		r := replica{receivers: []delivery.ReceiverState{{Name: "pager", Down: true, Err: &notify.Error{Status: code, Err: errors.New("answered")}}}}
		if got := r.watch(zap.NewNop(), nil).Report().Problems; len(got) != 1 || got[0].Refused != want {
			t.Errorf("%d: %+v, want refused %v", code, got, want)
		}
	}
}

// Partitions that a replica gives back while it drains are no news. What has no reason is logged without one.
func TestDrainIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		var r replica
		var source atomic.Pointer[telemetry.SourceStats]
		source.Store(&telemetry.SourceStats{Running: true, Owned: 2, Reading: 1})
		m := status.New(zap.New(core))
		m.Watch(status.Replica{
			Worker: &r, Source: func() telemetry.SourceStats { return *source.Load() }, Standby: func() string { return "" },
			Store: observe.Store(memlease.New(), m.Store.Store), Key: "key",
		})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go m.Run(ctx)
		time.Sleep(30 * time.Second)
		lines := logs.TakeAll()
		if len(lines) != 1 || strings.Contains(fmt.Sprint(lines[0].ContextMap()), "error") {
			t.Errorf("a partition that is not read is logged as %+v", lines)
		}
		m.Drain()
		source.Store(&telemetry.SourceStats{Running: true, Owned: 2})
		time.Sleep(5 * time.Minute)
		if lines := logs.TakeAll(); len(lines) > 0 {
			t.Errorf("while it drains it logs %+v", lines)
		}
		stop()
		synctest.Wait()
	})
}
