package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// A Worker is a [worker.Worker], as far as metrics read it.
type Worker interface {
	Stats() *worker.Stats
	Partitions() []worker.PartitionState
	Receivers() []worker.ReceiverState
}

// Watch exports the state of w and its source, which are read at each scrape. store
// is the name that Store was given for the gates' store. Lag is exported while
// somebody reports to the returned LagTracker. Watch may be called once.
func (m *Metrics) Watch(w Worker, source func() telemetry.SourceStats, store string) *LagTracker {
	lag := newLagTracker(w.Partitions)
	m.registry.MustRegister(&replica{worker: w, source: source, store: store, lag: lag, checkpoints: map[string]checkpoint{}})
	return lag
}

// Duties exports whether this replica is the leader. leading, a leader.Roster's, is
// called at each scrape. Duties may be called once.
func (m *Metrics) Duties(leading func() (term int64, ok bool)) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "duty_leader",
		Help: "1 if this replica is the leader, which performs the duties of all replicas; otherwise 0.",
	}, func() float64 {
		_, ok := leading()
		return number(ok)
	}))
}

// Standby exports whether this replica waits for replicas with other settings to
// stop. standby is called at each scrape. Standby may be called once.
func (m *Metrics) Standby(standby func() bool) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "standby",
		Help: "1 while this replica stands by because replicas with other settings are active; otherwise 0.",
	}, func() float64 { return number(standby()) }))
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Results of decoding.
const (
	resultReading     = "reading"
	resultIgnored     = "ignored"     // not telemetry: twin changes and the like
	resultUndecodable = "undecodable" // telemetry without a usable reading
)

func decoded(r telemetry.Reason) (result string) {
	switch r {
	case telemetry.ReasonOK:
		return resultReading
	case telemetry.ReasonNotTelemetry:
		return resultIgnored
	}
	return resultUndecodable
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
}

var (
	eventsDesc     = desc("events_total", "Events read, by the result of decoding.", "result", "reason")
	overDesc       = desc("readings_over_threshold_total", "Readings at or above the threshold.")
	filteredDesc   = desc("readings_filtered_total", "Readings over the threshold that a receiver does not get because of its level in NOTIFY_URLS, counted for each receiver.")
	suppressedDesc = desc("readings_suppressed_total", "Readings over the threshold that were settled without an alert of their own, counted for each receiver.")
	gateDesc       = desc("gate_decisions_total", "Decisions of the gate on this store; after busy and unavailable it is asked again.", "store", "result")
	ambiguousDesc  = desc("ambiguous_sends_total", "Sends that may have delivered an alert for a second time; they have the same id as the first.")
	deadDesc       = desc("dead_letters_total", "Alerts that will not be delivered to a receiver, stored as dead letters.")

	receiverDownDesc = desc("receiver_down", "1 while the receiver is down: several attempts in a row have failed, and none has succeeded since.", "receiver")

	hubPartitionsDesc = desc("hub_partitions", "Number of partitions of the hub.")
	ownedDesc         = desc("partitions_owned", "Partitions that this replica owns.")
	unreadDesc        = desc("partitions_unread", "Partitions that this replica owns but does not read.")
	lostDesc          = desc("partitions_lost_total", "Partitions lost to another replica, or because the Event Hubs Processor was replaced.")
	restartsDesc      = desc("processor_restarts_total", "Event Hubs Processors replaced, for any reason.")
	movesDesc         = desc("hub_moves_total", "Times the IoT Hub's events were found at another endpoint, for example after a failover.")
	startedOverDesc   = desc("partitions_started_over_total", "Partitions not resumed from their checkpoint, because it belongs to a hub that no longer exists or is unreadable.")
	eventsLostDesc    = desc("events_lost_total", "Events that will never be read: expired, dropped by the hub before they were read, or skipped, missing between two that were read.", "reason")
	unreadTotalDesc   = desc("processor_unread_restarts_total", "Event Hubs Processors replaced because a partition was owned but not read; included in processor_restarts_total.")

	lagEventsDesc  = desc("partition_lag_events", "Events in the hub that have not been read; updated every 15 s.", "partition")
	lagSecondsDesc = desc("partition_lag_seconds", "Upper bound of how long the oldest unread event has waited, comparing the hub's clock with this machine's.", "partition")
	unsettledDesc  = desc("partition_unsettled_events", "Events that hold back the checkpoint because their alerts are not settled.", "partition")
	oldestDesc     = desc("partition_oldest_unsettled_age_seconds", "Age of the oldest event that holds back the checkpoint, by this machine's clock; 0 if there is none.", "partition")
	deliveringDesc = desc("partition_flights", "Alerts being delivered or waiting, at most one per device and receiver.", "partition")
	checkpointDesc = desc("partition_checkpoint_age_seconds", "How long the checkpoint has not advanced although events after it are settled; 0 if there is nothing to record.", "partition")

	descs = []*prometheus.Desc{
		eventsDesc, overDesc, suppressedDesc, filteredDesc, gateDesc, ambiguousDesc, deadDesc, receiverDownDesc,
		hubPartitionsDesc, ownedDesc, unreadDesc, lostDesc, restartsDesc, unreadTotalDesc,
		movesDesc, startedOverDesc, eventsLostDesc,
		lagEventsDesc, lagSecondsDesc, unsettledDesc, oldestDesc, deliveringDesc, checkpointDesc,
	}
)

// A replica is a prometheus.Collector that reads a worker and its source at each scrape.
type replica struct {
	worker Worker
	source func() telemetry.SourceStats
	store  string
	lag    *LagTracker

	mu          sync.Mutex
	checkpoints map[string]checkpoint // of partitions at the last scrape
}

// A checkpoint as seen at a scrape.
type checkpoint struct {
	at    telemetry.Position
	since time.Time // the last scrape at which it was up to date, or the first that saw it
}

func (*replica) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
}

func (r *replica) Collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n int64, label ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), label...)
	}
	gauge := func(d *prometheus.Desc, v float64, label ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label...)
	}

	stats := r.worker.Stats()
	for i := range stats.Events {
		reason := telemetry.Reason(i)
		counter(eventsDesc, stats.Events[i].Load(), decoded(reason), reason.String())
	}
	counter(overDesc, stats.Over.Load())
	counter(filteredDesc, stats.Filtered.Load())
	counter(suppressedDesc, stats.Suppressed.Load())
	for outcome := range stats.Outcomes {
		counter(gateDesc, stats.Outcomes[outcome].Load(), r.store, throttle.Outcome(outcome).String())
	}
	counter(ambiguousDesc, stats.Ambiguous.Load())
	counter(deadDesc, stats.DeadLetters.Load())

	for _, s := range r.worker.Receivers() {
		gauge(receiverDownDesc, number(s.Down), s.Name)
	}

	source := r.source()
	gauge(ownedDesc, float64(source.Owned))
	gauge(unreadDesc, float64(max(0, source.Owned-source.Reading)))
	counter(lostDesc, source.Lost)
	counter(restartsDesc, source.Restarts)
	counter(unreadTotalDesc, source.Unread)
	counter(movesDesc, source.Moves)
	counter(startedOverDesc, source.StartedOver)
	counter(eventsLostDesc, source.Expired, "expired")
	counter(eventsLostDesc, source.Skipped, "skipped")
	if n := r.lag.partitions(); n > 0 {
		gauge(hubPartitionsDesc, float64(n))
	}

	now := time.Now()
	states := byPartition(r.worker.Partitions())
	ages := r.checkpointAges(states, now)
	for id, p := range states {
		gauge(unsettledDesc, float64(p.Unsettled), id)
		oldest := 0.0
		if !p.Oldest.IsZero() {
			oldest = max(0, now.Sub(p.Oldest).Seconds())
		}
		gauge(oldestDesc, oldest, id)
		gauge(deliveringDesc, float64(p.Delivering), id)
		gauge(checkpointDesc, ages[id].Seconds(), id)
		if l, ok := r.lag.lag(id, now); ok {
			gauge(lagEventsDesc, float64(l.events), id)
			gauge(lagSecondsDesc, l.waited.Seconds(), id)
		}
	}
}

// checkpointAges returns how long each partition's checkpoint has not advanced although there
// was something to record, as seen at scrapes.
func (r *replica) checkpointAges(states map[string]worker.PartitionState, now time.Time) map[string]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.checkpoints, func(id string, _ checkpoint) bool {
		_, ok := states[id]
		return !ok
	})
	ages := make(map[string]time.Duration, len(states))
	for id, p := range states {
		c, seen := r.checkpoints[id]
		if !seen || c.at != p.Committed || p.Committed == p.Settled {
			c = checkpoint{at: p.Committed, since: now}
			r.checkpoints[id] = c
		}
		ages[id] = now.Sub(c.since)
	}
	return ages
}

// byPartition merges the states of a partition that this replica lost
// and owns again while its former consumer is still settling events. The positions are those of
// the consumer that has read furthest.
func byPartition(states []worker.PartitionState) map[string]worker.PartitionState {
	slices.SortFunc(states, func(a, b worker.PartitionState) int { return cmp.Compare(a.Read.Sequence, b.Read.Sequence) })
	one := make(map[string]worker.PartitionState, len(states))
	for _, s := range states {
		if former, ok := one[s.Partition]; ok {
			s.Unsettled += former.Unsettled
			s.Delivering += former.Delivering
			if s.Oldest.IsZero() || !former.Oldest.IsZero() && former.Oldest.Before(s.Oldest) {
				s.Oldest = former.Oldest
			}
		}
		one[s.Partition] = s
	}
	return one
}
