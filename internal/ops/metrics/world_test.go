package metrics_test

import (
	"context"
	"testing"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

const scrapeEvery = 30 * time.Second

// A world is an ordinary replica on a hub of two partitions, with one receiver.
// Each step is what happens between two scrapes. What a test changes in it goes wrong.
type world struct {
	state
	m        *metrics.Metrics
	ends     *metrics.Ends
	backend  answers
	store    lease.Store
	receiver slowly
	notifier notify.Notifier

	rounds    int64
	hub       int64     // last sequence, of both partitions
	stuck     bool      // nothing is read
	unmarked  bool      // no checkpoint is written
	waiting   time.Time // since when an alert is under way; zero: none is
	malformed int64     // events of each round
	skew      time.Duration

	leaderless bool
}

func newWorld() *world {
	w := &world{m: metrics.New(""), malformed: 1}
	w.ends = w.m.Watch(w, w.Source, "blob")
	w.m.Duties(func() (int64, bool) { return 7, !w.leaderless })
	w.m.Standby(func() bool { return false })
	w.store = lease.Observe(&w.backend, w.m.Store("blob"))
	w.receiver.by = 50 * time.Millisecond
	w.notifier = w.m.Notifier(&w.receiver, "hook")
	w.receivers = []worker.ReceiverState{{Name: "hook"}}
	w.source = metrics.SourceStats{Owned: 2, Reading: 2}
	w.partitions = []worker.PartitionState{{Partition: "0"}, {Partition: "1"}}
	return w
}

func (w *world) step(t testing.TB) {
	w.rounds++
	w.hub += 100
	if !w.stuck {
		w.stats.Events[telemetry.ReasonOK].Add(200 - w.malformed)
		w.stats.Events[telemetry.ReasonMalformed].Add(w.malformed)
		w.stats.Events[telemetry.ReasonNotTelemetry].Add(10)
		w.stats.Over.Add(5)
		w.stats.Suppressed.Add(4)
	}
	for i := range w.partitions {
		p := &w.partitions[i]
		former := p.Settled
		if !w.stuck {
			p.Read, p.ReadUntil = at(w.hub), time.Now()
			p.Settled = p.Read
		}
		if !w.unmarked {
			p.Committed = former // as far as the last scrape saw
		}
		p.Unsettled, p.Oldest, p.Delivering = 0, w.waiting, 0
		if !w.waiting.IsZero() {
			p.Unsettled, p.Delivering = 1, 1
		}
	}

	// One alert a round, and now and then a failure that means nothing.
	err := w.backend.err
	if w.rounds%100 == 0 {
		w.backend.err = errBroken
	}
	w.backend.record.Now = time.Now().Add(-w.skew).Round(0)
	_, _ = w.store.Acquire(t.Context(), "key", time.Minute, func(lease.Record) (string, error) { return "", nil })
	_, _ = w.store.Extend(t.Context(), lease.Lease{}, "", time.Minute)
	w.backend.err = err
	err = w.receiver.err
	if w.rounds%20 == 0 {
		w.receiver.err = errBroken
	}
	_ = w.notifier.Notify(context.Background(), notify.Alert{Enqueued: time.Now().Add(-time.Second)})
	w.receiver.err = err
	w.stats.Outcomes[throttle.Sent].Add(1)

	w.ends.Partitions(2)
	for _, id := range w.ends.Wanted() {
		w.ends.End(id, w.hub)
	}
	time.Sleep(scrapeEvery - w.receiver.by)
}
