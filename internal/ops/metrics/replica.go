package metrics

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"alertworker/internal/delivery"
	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// A Worker is a [worker.Worker], as far as metrics read it.
type Worker interface {
	Stats() *worker.Stats
	Partitions() []partition.State
	Receivers() []delivery.ReceiverState
	AlarmCounts() []partition.AlarmCounts
	Unreadable() partition.Unreadables
}

// A collector is a prometheus.Collector that is asked at each scrape. It describes nothing before, so that no metric
// has to be listed twice.
type collector func(to scrape)

func (collector) Describe(chan<- *prometheus.Desc)      {}
func (c collector) Collect(to chan<- prometheus.Metric) { c(to) }

// A scrape takes metrics. Their labels are names and values in turn.
type scrape chan<- prometheus.Metric

func (to scrape) counter(name, help string, n int64, labels ...string) {
	to.send(prometheus.CounterValue, name, help, float64(n), labels)
}

func (to scrape) gauge(name, help string, v float64, labels ...string) {
	to.send(prometheus.GaugeValue, name, help, v, labels)
}

func (to scrape) send(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	to <- prometheus.MustNewConstMetric(prometheus.NewDesc(namespace+"_"+name, help, names, nil), kind, v, values...)
}

// Watch exports the state of w and its source, which are read at each scrape. store
// is the name that Store was given for the gates' store. Lag is exported while
// somebody reports to the returned LagTracker. Watch may be called once.
func (m *Metrics) Watch(w Worker, source func() telemetry.SourceStats, store string) *LagTracker {
	lag := &LagTracker{states: w.Partitions, lags: map[string]lag{}}
	r := &replica{worker: w, source: source, store: store, lag: lag}
	m.registry.MustRegister(collector(r.collect))
	return lag
}

// Duties exports whether this replica is the leader, and how often each duty has failed.
// leading and failures, a leader.Scheduler's, are called at each scrape. Duties may be called once.
func (m *Metrics) Duties(leading func() (term int64, ok bool), failures func() map[string]int) {
	m.registry.MustRegister(collector(func(to scrape) {
		_, ok := leading()
		to.gauge("duty_leader", "1 if this replica is the leader; otherwise 0.", number(ok))
		for duty, n := range failures() {
			to.gauge("duty_consecutive_failures", "Runs of the duty that have failed in a row, on the leader.",
				float64(n), "duty", duty)
		}
	}))
}

// Standby exports whether this replica waits for replicas with other settings to
// stop. standby is called at each scrape. Standby may be called once.
func (m *Metrics) Standby(standby func() bool) {
	m.registry.MustRegister(collector(func(to scrape) {
		to.gauge("standby", "1 while this replica stands by, because replicas with other settings are active.",
			number(standby()))
	}))
}

// Blocked exports what is in the way of alerts. report, a status.Monitor's, is called at
// each scrape. Blocked may be called once.
func (m *Metrics) Blocked(report func() status.Report) {
	m.registry.MustRegister(collector(func(to scrape) {
		present := map[status.By]bool{}
		for _, p := range report().Problems {
			present[p.By] = true
			present[status.ByCredentials] = present[status.ByCredentials] || p.Refused
		}

		for _, by := range status.Bys {
			to.gauge("blocked", "1 while this is in the way of alerts; otherwise 0. "+
				"credentials: set in addition to the service that rejected them.", number(present[by]), "by", string(by))
		}
		to.gauge("new_secret_failing",
			"1 while a secret whose file has changed is invalid or does not work, so that the old one stays in use; otherwise 0.",
			number(present[status.BySecrets]))
	}))
}

// CredentialEnds exports when credentials end that say so. ends is called at each scrape. CredentialEnds may be called
// once.
func (m *Metrics) CredentialEnds(ends func() map[string]time.Time) {
	m.registry.MustRegister(collector(func(to scrape) {
		for credential, at := range ends() {
			to.gauge("credential_expiry_timestamp_seconds",
				"When a credential ends that says so itself, such as a shared access signature: seconds since 1970. credential is its "+
					"variable.",
				float64(at.Unix()), "credential", credential)
		}
	}))
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// decoded are the results of decoding that are not "undecodable": telemetry without a usable reading.
var decoded = map[telemetry.Reason]string{
	telemetry.ReasonOK:           "reading",
	telemetry.ReasonDamaged:      "reading",
	telemetry.ReasonNotTelemetry: "ignored", // twin changes and the like
}

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

func (r *replica) collect(to scrape) {
	stats := r.worker.Stats()
	r.collectReadings(to, stats)
	r.collectAlarms(to, stats)
	r.collectReceivers(to)
	r.collectSource(to)
	r.collectPartitions(to)
}

func (r *replica) collectReadings(to scrape, stats *worker.Stats) {
	for i := range stats.Events {
		reason := telemetry.Reason(i)
		to.counter("events_total", "Events read, by the result of decoding.",
			stats.Events[i].Load(), "result", cmp.Or(decoded[reason], "undecodable"), "reason", reason.String())
	}

	devices := r.worker.Unreadable().Devices
	for reason := telemetry.ReasonEmpty; reason < telemetry.ReasonCount; reason++ { // those before have no device, or a reading
		to.gauge("devices_unreadable",
			"Devices of which nothing could be read for an hour or longer although they send, by the reason of the last "+
				"message; at most 1,024 of each partition.",
			float64(devices[reason]), "reason", reason.String())
	}

	to.counter("readings_over_threshold_total", "Readings that reach a limit of any rule.", stats.Over.Load())
	to.counter("readings_filtered_total",
		"Readings over the threshold that filters in NOTIFY_URLS keep from a receiver, counted per receiver.",
		stats.Filtered.Load())
	to.counter("readings_suppressed_total",
		"Readings over the threshold settled without an alert of their own, counted per receiver.",
		stats.Suppressed.Load())
	to.counter("readings_quieted_total",
		"Readings over the threshold without an alert, because of a mute or a silence.",
		stats.Quieted.Load())
	to.counter("readings_untracked_total", "Readings that began or ended an alarm for which there was no room.",
		stats.Untracked.Load())
	to.counter("devices_forgotten_total",
		"Devices no longer expected to report: silent for longer than forget, or removed by an operator.",
		stats.Forgotten.Load())
	to.counter("messages_unwatched_total",
		"Messages of devices that rules about silence do not watch, because their partition has 100,000 others.",
		stats.Unwatched.Load())
	to.counter("devices_in_several_partitions_total",
		"Alerts of devices whose previous alert came from another partition. Rules with state need all readings of a "+
			"device in one.",
		stats.Scattered.Load())
	to.counter("readings_without_per_total",
		"Readings over a limit of a rule with per, without that property: they alert by device.",
		stats.Unshared.Load())
	to.counter("readings_without_sensor_total",
		"Readings of a rule with sensor, over a limit or of a device with an alarm, without a name there: they are the "+
			"device's own.",
		stats.Nameless.Load())
	for result := range stats.Override {
		to.counter("overrides_total",
			"Readings with a limit or clear that a property may replace, or that is counted from a number in the message, by "+
				"what the message has there.",
			stats.Override[result].Load(), "result", rules.Override(result).String())
	}

	for result := range stats.Times {
		to.counter("device_times_total",
			"With TIME_PROPERTY, readings over the threshold or of a device with an alarm, by whether the device's time is "+
				"used.",
			stats.Times[result].Load(), "result", rules.DeviceTime(result).String())
	}
}

func (r *replica) collectAlarms(to scrape, stats *worker.Stats) {
	for i, n := range r.worker.AlarmCounts() {
		for state, devices := range map[string]int{"pending": n.Pending, "open": n.Open, "due": n.Due} {
			to.gauge("alarms",
				"Alarms of this replica's partitions. pending: over the limit, but not for long enough; due: cleared, but not "+
					"every receiver has the recovery.",
				float64(devices), "rule", n.Rule, "level", n.Level, "state", state)
		}

		to.gauge("incidents",
			"Incidents with members among the open alarms of this replica's partitions. One with members elsewhere, too, counts on each "+
				"of these replicas.",
			float64(n.Incidents), "rule", n.Rule, "level", n.Level)

		of := &stats.Levels[i]
		to.counter("readings_over_limit_total", "Readings that reach this limit.",
			of.Over.Load(), "rule", n.Rule, "level", n.Level)
		to.counter("alarms_opened_total", "Alarms that opened, of rules with state.",
			of.Opened.Load(), "rule", n.Rule, "level", n.Level)
		to.counter("alarms_cleared_total", "Alarms that cleared, of rules with state.",
			of.Cleared.Load(), "rule", n.Rule, "level", n.Level)
		to.counter("alerts_delivered_total", "Alerts accepted, counted per receiver.",
			of.Sent.Load(), "rule", n.Rule, "level", n.Level)
		to.counter("recoveries_delivered_total", "Recoveries accepted, counted per receiver.",
			of.Recovered.Load(), "rule", n.Rule, "level", n.Level)
	}

	for outcome := range stats.Outcomes {
		to.counter("gate_decisions_total",
			"Decisions of the gate on this store; after busy and unavailable it is asked again.",
			stats.Outcomes[outcome].Load(), "store", r.store, "result", throttle.Outcome(outcome).String())
	}

	to.counter("ambiguous_sends_total",
		"Sends that may have delivered an alert for the second time, with the id of the first.",
		stats.Ambiguous.Load())
	to.counter("dead_letters_total", "Alerts that were given up and stored as dead letters.", stats.DeadLetters.Load())
}

func (r *replica) collectReceivers(to scrape) {
	for _, s := range r.worker.Receivers() {
		for _, fault := range []delivery.ReceiverFault{
			delivery.ReceiverFails, delivery.ReceiverRejects, delivery.ReceiverLimited,
		} {
			to.gauge("receiver_down",
				"1 while the receiver is down: it has accepted nothing since several attempts failed, or for 30 s in which "+
					"something was due (failing), it refused several alerts for good (rejecting), or it said that it is sent "+
					"too much (rate_limited).",
				number(s.Down && s.Fault == fault), "receiver", s.Name, "reason", fault.String())
		}
	}
}

func (r *replica) collectSource(to scrape) {
	source := r.source()
	to.gauge("partitions_owned", "Partitions that this replica owns.", float64(source.Owned))
	to.gauge("partitions_unread", "Partitions that this replica owns but does not read.",
		float64(max(0, source.Owned-source.Reading)))
	to.counter("partitions_lost_total",
		"Partitions lost to another replica, or because the hub was recreated or moved.",
		source.Lost)
	to.counter("partition_link_failures_total",
		"Links to partitions that failed or could not be opened; each is opened again.",
		source.Reopened)
	to.counter("partition_links_stalled_total",
		"Links on which nothing came although the hub was ahead; included in partition_link_failures_total.",
		source.Stalled)
	to.counter("hub_moves_total", "Times the IoT Hub's events were found at another endpoint, as after a failover.",
		source.Moves)
	to.counter("partitions_started_over_total",
		"Partitions not resumed from their checkpoint, because it is unreadable or belongs to a hub that no longer exists.",
		source.StartedOver)
	for reason, n := range map[string]int64{"expired": source.Expired, "skipped": source.Skipped} {
		to.counter("events_lost_total",
			"Events that will never be read. expired: dropped by the hub before they were read; skipped: missing between two "+
				"that were read.",
			n, "reason", reason)
	}

	if n := r.lag.hubPartitions.Load(); n > 0 {
		to.gauge("hub_partitions", "Number of partitions of the hub.", float64(n))
	}
}

func (r *replica) collectPartitions(to scrape) {
	now := time.Now()
	states := byPartition(r.worker.Partitions())
	r.mu.Lock()
	defer r.mu.Unlock()
	former := r.checkpoints
	r.checkpoints = map[string]checkpoint{}
	for id, p := range states {
		to.gauge("partition_unsettled_events",
			"Events that hold back the checkpoint because their alerts are not settled.",
			float64(p.Unsettled), "partition", id)
		to.gauge("partition_known_devices", "Devices that rules about silence expect to report.",
			float64(p.Known), "partition", id)

		to.gauge("partition_oldest_unsettled_age_seconds",
			"Age of the oldest event that holds back the checkpoint, by this machine's clock.",
			age(now, p.Oldest), "partition", id)
		to.gauge("partition_deliveries", "Alerts being delivered or waiting, at most one per device and receiver.",
			float64(p.Delivering), "partition", id)
		c, seen := former[id]
		if !seen || c.at != p.Committed || p.Committed == p.Settled {
			c = checkpoint{at: p.Committed, since: now}
		}

		r.checkpoints[id] = c
		to.gauge("partition_checkpoint_age_seconds",
			"How long the checkpoint has not advanced although events after it are settled.",
			now.Sub(c.since).Seconds(), "partition", id)

		to.gauge("partition_ledger_failing_seconds",
			"How long the partition's ledger could not be read or written; 0 if it can, or if no rule has state.",
			age(now, p.Ledger.Since), "partition", id)

		if l, ok := r.lag.lag(id, now); ok {
			to.gauge("partition_lag_events", "Events in the hub that have not been read; updated every 15 s.",
				float64(l.events), "partition", id)
			to.gauge("partition_checkpoint_lag_events",
				"Events in the hub after the checkpoint, which KEDA counts as unprocessed; updated every 15 s.",
				float64(l.behind), "partition", id)
			to.gauge("partition_lag_seconds",
				"Upper bound on how long the oldest unread event has waited, by the hub's clock and this machine's.",
				l.waited.Seconds(), "partition", id)
		}
	}
}

// age returns the seconds since t; 0 if that is zero, or ahead.
func age(now, t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(0, now.Sub(t).Seconds())
}

// byPartition merges the states of a partition that this replica lost
// and owns again while its former consumer is still settling events. The positions are those of
// the consumer that has read furthest.
func byPartition(states []partition.State) map[string]partition.State {
	slices.SortFunc(states, func(a, b partition.State) int { return cmp.Compare(a.Read.Sequence, b.Read.Sequence) })
	one := make(map[string]partition.State, len(states))
	for _, s := range states {
		if former, ok := one[s.Partition]; ok {
			s.Unsettled += former.Unsettled
			s.Delivering += former.Delivering
			if s.Oldest.IsZero() || !former.Oldest.IsZero() && former.Oldest.Before(s.Oldest) {
				s.Oldest = former.Oldest
			}

			if s.Ledger.Err == nil { // the former one may wait for its ledger, and so has read nothing yet
				s.Ledger.Err, s.Ledger.Since = former.Ledger.Err, former.Ledger.Since
			}
		}

		one[s.Partition] = s
	}

	return one
}
