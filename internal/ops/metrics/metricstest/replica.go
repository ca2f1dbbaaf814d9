package metricstest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"

	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/lease/observe"
	"alertworker/internal/notify"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// ScrapeInterval is how much time one Step simulates.
const ScrapeInterval = 30 * time.Second

// A Replica simulates an ordinary replica on a hub of two partitions, with one receiver and a
// rule with state of two levels.
// What a test changes in it goes wrong from the next Step on. It needs a synctest bubble.
type Replica struct {
	Worker
	Metrics  *metrics.Metrics
	Store    Stub // the throttle store
	Receiver Stub

	Steps        int64
	Stuck        bool      // nothing is read
	Unmarked     bool      // no checkpoint is written
	WaitingSince time.Time // an alert has been waiting since then; zero: none is
	Malformed    int64     // events in each step
	Missing      int64     // the same, without the field
	Unread       int       // devices of which nothing could be read for an hour
	Silent       bool      // no event arrives
	Idle         bool      // no alert is sent
	Skew         time.Duration
	Leaderless   bool
	Failing      int // runs of a duty in a row
	Standby      bool
	Blocked      bool      // by the hub
	NewSecret    bool      // does not work
	Ends         time.Time // when its credential does
	LedgerSince  time.Time // since then no ledger can be used; zero: they can

	lag      *metrics.LagTracker
	store    lease.Store
	notifier notify.Notifier
	hub      int64 // last sequence number of both partitions
}

func NewReplica() *Replica {
	r := &Replica{Metrics: metrics.New(""), Malformed: 1}
	r.lag = r.Metrics.Watch(r, r.Source, "blob")
	r.Metrics.Duties(
		func() (int64, bool) { return 7, !r.Leaderless },
		func() map[string]int { return map[string]int{"janitor": r.Failing, "heartbeat": 0, "incidents": 0} },
	)
	r.Metrics.Standby(func() bool { return r.Standby })
	r.Metrics.Blocked(func() (report status.Report) {
		if r.Blocked {
			report.Problems = []status.Problem{{By: status.ByHub}}
		}
		if r.NewSecret {
			report.Problems = append(report.Problems, status.Problem{By: status.BySecrets})
		}
		return report
	})
	r.Metrics.Clock("blob", func() (time.Duration, bool) { return -r.Skew, true })
	r.Ends = time.Now().Add(365 * 24 * time.Hour)
	r.Metrics.CredentialEnds(func() map[string]time.Time { return map[string]time.Time{"STORAGE_CONNECTION_STRING": r.Ends} })
	r.store = observe.Store(&r.Store, r.Metrics.Store("blob"))
	r.Receiver.Delay = 50 * time.Millisecond
	r.notifier = notify.Observe(&r.Receiver, r.Metrics.Receiver("hook"))
	r.ReceiverStates = []delivery.ReceiverState{{Name: "hook"}}
	r.SourceStats = telemetry.SourceStats{Owned: 2, Reading: 2}
	r.PartitionStates = []partition.State{{Partition: "0"}, {Partition: "1"}}
	r.Counts.Levels = make([]partition.LevelCounters, 2)
	r.Alarms = []partition.AlarmCounts{
		{Rule: "hot", Level: "warning", Pending: 1, Open: 2, Incidents: 1},
		{Rule: "hot", Level: "critical", Due: 1},
	}
	r.UnreadDevices.Devices[telemetry.ReasonMissing] = 3
	return r
}

// Step simulates what happens between two scrapes.
func (r *Replica) Step(t testing.TB) {
	began := time.Now()
	r.Steps++
	if !r.Silent {
		r.hub += 100
	}

	if !r.Stuck && !r.Silent {
		r.Counts.Events[telemetry.ReasonOK].Add(200 - r.Malformed - r.Missing)
		r.Counts.Events[telemetry.ReasonMalformed].Add(r.Malformed)
		r.Counts.Events[telemetry.ReasonMissing].Add(r.Missing)
		r.Counts.Events[telemetry.ReasonNotTelemetry].Add(10)
		r.Counts.Over.Add(5)
		r.Counts.Suppressed.Add(4)
		r.Counts.Levels[0].Over.Add(5)
		r.Counts.Levels[0].Opened.Add(1)
		r.Counts.Levels[0].Cleared.Add(1)
		r.Counts.Levels[0].Sent.Add(1)
		r.Counts.Levels[0].Recovered.Add(1)
		r.Counts.Override[rules.OverrideAbsent].Add(5)
	}

	waiting := 0
	if !r.WaitingSince.IsZero() {
		waiting = 1
	}

	r.UnreadDevices.Devices[telemetry.ReasonMalformed] = r.Unread
	for i := range r.PartitionStates {
		p := &r.PartitionStates[i]
		former := p.Settled

		if !r.Stuck {
			p.Read, p.ReadUntil = At(r.hub), time.Now()
			p.Settled = p.Read
		}

		if !r.Unmarked {
			p.Committed = former // as far as the last scrape saw
		}

		p.Ledger = partition.LedgerState{Writes: r.Steps, Since: r.LedgerSince}
		p.Oldest, p.Unsettled, p.Delivering = r.WaitingSince, waiting, waiting
	}

	// One alert a step, and an occasional failure that means nothing.
	err := r.Store.Err
	if r.Steps%100 == 0 {
		r.Store.Err = ErrBroken
	}

	_, _ = r.store.Acquire(t.Context(), "key", time.Minute, func(lease.Record) (string, error) { return "", nil })
	_, _ = r.store.Extend(t.Context(), lease.Lease{}, "", time.Minute)
	r.Store.Err = err
	err = r.Receiver.Err
	if r.Steps%20 == 0 {
		r.Receiver.Err = ErrBroken
	}

	if !r.Idle {
		_ = r.notifier.Notify(context.Background(), notify.Alert{Enqueued: time.Now().Add(-time.Second)})
		r.Counts.Outcomes[throttle.Sent].Add(1)
	}

	r.Receiver.Err = err

	last := map[string]int64{}
	for _, p := range r.Partitions() {
		last[p.Partition] = r.hub
	}
	r.lag.Record(2, last)

	time.Sleep(time.Until(began.Add(ScrapeInterval)))
}

// All returns every series of a replica after its first step.
func All(t *testing.T) (all model.Vector) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := NewReplica()
		r.Step(t)
		all = Samples(t, r.Metrics)
	})
	return all
}
