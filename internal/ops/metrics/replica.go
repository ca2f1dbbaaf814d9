package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"alertworker/internal/ops/status"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// A Worker is a [worker.Worker], as far as metrics read it.
type Worker interface {
	Stats() *worker.Stats
	Partitions() []worker.PartitionState
	Receivers() []worker.ReceiverState
	AlarmCounts() []worker.AlarmCounts
}

// A collector is a prometheus.Collector that is asked at each scrape. It describes nothing before, so that no metric has to
// be listed twice.
type collector func(to chan<- prometheus.Metric)

func (collector) Describe(chan<- *prometheus.Desc)      {}
func (c collector) Collect(to chan<- prometheus.Metric) { c(to) }

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, v float64, label ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label...)
}

// Watch exports the state of w and its source, which are read at each scrape. store
// is the name that Store was given for the gates' store. Lag is exported while
// somebody reports to the returned LagTracker. Watch may be called once.
func (m *Metrics) Watch(w Worker, source func() telemetry.SourceStats, store string) *LagTracker {
	lag := newLagTracker(w.Partitions)
	r := &replica{worker: w, source: source, store: store, lag: lag, checkpoints: map[string]checkpoint{}}
	m.registry.MustRegister(collector(r.collect))
	return lag
}

// Duties exports whether this replica is the leader, and how often each duty has failed.
// leading and failures, a leader.Roster's, are called at each scrape. Duties may be called once.
func (m *Metrics) Duties(leading func() (term int64, ok bool), failures func() map[string]int) {
	m.registry.MustRegister(collector(func(to chan<- prometheus.Metric) {
		_, ok := leading()
		gauge(to, leaderDesc, number(ok))
		for duty, n := range failures() {
			gauge(to, dutyFailuresDesc, float64(n), duty)
		}
	}))
}

// Standby exports whether this replica waits for replicas with other settings to
// stop. standby is called at each scrape. Standby may be called once.
func (m *Metrics) Standby(standby func() bool) {
	m.registry.MustRegister(collector(func(to chan<- prometheus.Metric) { gauge(to, standbyDesc, number(standby())) }))
}

// Blocked exports what is in the way of alerts. report, a status.Monitor's, is called at
// each scrape. Blocked may be called once.
func (m *Metrics) Blocked(report func() status.Report) {
	m.registry.MustRegister(collector(func(to chan<- prometheus.Metric) {
		present := map[status.By]bool{}
		for _, p := range report().Problems {
			present[p.By] = true
			present[status.ByCredentials] = present[status.ByCredentials] || p.Refused
		}
		for _, by := range status.Bys {
			gauge(to, blockedDesc, number(present[by]), string(by))
		}
	}))
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
	overDesc       = desc("readings_over_threshold_total", "Readings that reach a limit of any rule.")
	filteredDesc   = desc("readings_filtered_total", "Readings over the threshold that filters in NOTIFY_URLS keep from a receiver, counted per receiver.")
	suppressedDesc = desc("readings_suppressed_total", "Readings over the threshold settled without an alert of their own, counted per receiver.")
	quietedDesc    = desc("readings_quieted_total", "Readings over the threshold without an alert, because of QUIET_PROPERTY or a silence.")
	untrackedDesc  = desc("readings_untracked_total", "Readings that began or ended an alarm for which there was no room.")
	scatteredDesc  = desc("devices_in_several_partitions_total", "Alerts of devices whose previous alert came from another partition. Rules with state need all readings of a device in one.")
	unsharedDesc   = desc("readings_without_per_total", "Readings over a limit of a rule with per, without that property: they alert by device.")
	timesDesc      = desc("device_times_total", "With TIME_PROPERTY, readings over the threshold or of a device with an alarm, by whether the device's time is used.", "result")
	overridesDesc  = desc("overrides_total", "Readings with a limit or clear that a property may replace, by what that property was.", "result")
	gateDesc       = desc("gate_decisions_total", "Decisions of the gate on this store; after busy and unavailable it is asked again.", "store", "result")
	ambiguousDesc  = desc("ambiguous_sends_total", "Sends that may have delivered an alert for the second time, with the id of the first.")
	deadDesc       = desc("dead_letters_total", "Alerts that were given up and stored as dead letters.")

	alarmsDesc    = desc("alarms", "Alarms of this replica's partitions. pending: over the limit, but not for long enough; due: cleared, but not every receiver has the recovery.", "rule", "level", "state")
	levelOverDesc = desc("readings_over_limit_total", "Readings that reach this limit.", "rule", "level")
	openedDesc    = desc("alarms_opened_total", "Alarms that opened, of rules with state.", "rule", "level")
	clearedDesc   = desc("alarms_cleared_total", "Alarms that cleared, of rules with state.", "rule", "level")
	sentDesc      = desc("alerts_delivered_total", "Alerts accepted, counted per receiver.", "rule", "level")
	resolvedDesc  = desc("recoveries_delivered_total", "Recoveries accepted, counted per receiver.", "rule", "level")

	receiverDownDesc = desc("receiver_down", "1 while the receiver is down: several attempts in a row have failed, and none has succeeded since.", "receiver")

	hubPartitionsDesc = desc("hub_partitions", "Number of partitions of the hub.")
	ownedDesc         = desc("partitions_owned", "Partitions that this replica owns.")
	unreadDesc        = desc("partitions_unread", "Partitions that this replica owns but does not read.")
	lostDesc          = desc("partitions_lost_total", "Partitions lost to another replica, or because the hub was recreated or moved.")
	linksFailedDesc   = desc("partition_link_failures_total", "Links to partitions that failed or could not be opened; each is opened again.")
	movesDesc         = desc("hub_moves_total", "Times the IoT Hub's events were found at another endpoint, as after a failover.")
	startedOverDesc   = desc("partitions_started_over_total", "Partitions not resumed from their checkpoint, because it is unreadable or belongs to a hub that no longer exists.")
	eventsLostDesc    = desc("events_lost_total", "Events that will never be read. expired: dropped by the hub before they were read; skipped: missing between two that were read.", "reason")
	linksStalledDesc  = desc("partition_links_stalled_total", "Links on which nothing came although the hub was ahead; included in partition_link_failures_total.")

	lagEventsDesc  = desc("partition_lag_events", "Events in the hub that have not been read; updated every 15 s.", "partition")
	lagBehindDesc  = desc("partition_checkpoint_lag_events", "Events in the hub after the checkpoint, which KEDA counts as unprocessed; updated every 15 s.", "partition")
	lagSecondsDesc = desc("partition_lag_seconds", "Upper bound on how long the oldest unread event has waited, by the hub's clock and this machine's.", "partition")
	unsettledDesc  = desc("partition_unsettled_events", "Events that hold back the checkpoint because their alerts are not settled.", "partition")
	oldestDesc     = desc("partition_oldest_unsettled_age_seconds", "Age of the oldest event that holds back the checkpoint, by this machine's clock.", "partition")
	deliveringDesc = desc("partition_deliveries", "Alerts being delivered or waiting, at most one per device and receiver.", "partition")
	checkpointDesc = desc("partition_checkpoint_age_seconds", "How long the checkpoint has not advanced although events after it are settled.", "partition")

	knownDesc     = desc("partition_known_devices", "Devices that rules about silence expect to report.", "partition")
	forgottenDesc = desc("devices_forgotten_total", "Devices no longer expected to report: silent for longer than forget, or removed by an operator.")
	unwatchedDesc = desc("messages_unwatched_total", "Messages of devices that rules about silence do not watch, because their partition has 100,000 others.")

	leaderDesc       = desc("duty_leader", "1 if this replica is the leader; otherwise 0.")
	dutyFailuresDesc = desc("duty_consecutive_failures", "Runs of the duty that have failed in a row, on the leader.", "duty")
	standbyDesc      = desc("standby", "1 while this replica stands by, because replicas with other settings are active.")
	blockedDesc      = desc("blocked", "1 while this prevents alerts from leaving; otherwise 0. credentials: set in addition to the service that rejected them.", "by")

	ledgerAlarmsDesc  = desc("partition_ledger_alarms", "Alarms of the partition, in memory and in its ledger; absent if no rule has state.", "partition")
	ledgerWritesDesc  = desc("partition_ledger_writes_total", "Writes of the partition's ledger; absent if no rule has state.", "partition")
	ledgerFailingDesc = desc("partition_ledger_failing_seconds", "How long the partition's ledger could not be read or written; absent if no rule has state.", "partition")
)

// A replica reads a worker and its source at each scrape.
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

func (r *replica) collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n int64, label ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), label...)
	}
	gauge := func(d *prometheus.Desc, v float64, label ...string) { gauge(to, d, v, label...) }

	stats := r.worker.Stats()
	for i := range stats.Events {
		reason := telemetry.Reason(i)
		counter(eventsDesc, stats.Events[i].Load(), decoded(reason), reason.String())
	}
	counter(overDesc, stats.Over.Load())
	counter(filteredDesc, stats.Filtered.Load())
	counter(suppressedDesc, stats.Suppressed.Load())
	counter(quietedDesc, stats.Quieted.Load())
	counter(untrackedDesc, stats.Untracked.Load())
	counter(forgottenDesc, stats.Forgotten.Load())
	counter(unwatchedDesc, stats.Unwatched.Load())
	counter(scatteredDesc, stats.Scattered.Load())
	counter(unsharedDesc, stats.Unshared.Load())
	for result := range stats.Override {
		counter(overridesDesc, stats.Override[result].Load(), rules.Override(result).String())
	}
	for result := range stats.Times {
		counter(timesDesc, stats.Times[result].Load(), rules.DeviceTime(result).String())
	}
	for i, n := range r.worker.AlarmCounts() {
		gauge(alarmsDesc, float64(n.Pending), n.Rule, n.Level, "pending")
		gauge(alarmsDesc, float64(n.Open), n.Rule, n.Level, "open")
		gauge(alarmsDesc, float64(n.Due), n.Rule, n.Level, "due")
		of := &stats.Levels[i]
		counter(levelOverDesc, of.Over.Load(), n.Rule, n.Level)
		counter(openedDesc, of.Opened.Load(), n.Rule, n.Level)
		counter(clearedDesc, of.Cleared.Load(), n.Rule, n.Level)
		counter(sentDesc, of.Sent.Load(), n.Rule, n.Level)
		counter(resolvedDesc, of.Recovered.Load(), n.Rule, n.Level)
	}
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
	counter(linksFailedDesc, source.Reopened)
	counter(linksStalledDesc, source.Stalled)
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
		gauge(knownDesc, float64(p.Known), id)
		oldest := 0.0
		if !p.Oldest.IsZero() {
			oldest = max(0, now.Sub(p.Oldest).Seconds())
		}
		gauge(oldestDesc, oldest, id)
		gauge(deliveringDesc, float64(p.Delivering), id)
		gauge(checkpointDesc, ages[id].Seconds(), id)
		if l := p.Ledger; l.Writes > 0 || l.Err != nil { // else no rule has state, or it is being read for the first time
			gauge(ledgerAlarmsDesc, float64(l.Alarms), id)
			counter(ledgerWritesDesc, l.Writes, id)
			failing := 0.0
			if l.Err != nil {
				failing = max(0, now.Sub(l.Since).Seconds())
			}
			gauge(ledgerFailingDesc, failing, id)
		}
		if l, ok := r.lag.lag(id, now); ok {
			gauge(lagEventsDesc, float64(l.events), id)
			gauge(lagBehindDesc, float64(l.behind), id)
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
			if s.Ledger.Err == nil && former.Ledger.Err != nil { // it waits for its ledger, and so has read nothing yet
				s.Ledger.Err, s.Ledger.Since = former.Ledger.Err, former.Ledger.Since
			}
		}
		one[s.Partition] = s
	}
	return one
}
