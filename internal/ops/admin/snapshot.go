package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"alertworker/internal/delivery"
	"alertworker/internal/humanize"
	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// maxShared is how many alerts, and how many open alarms, a replica shows to the others.
const maxShared = 20

// A Snapshot is what one replica contributes to the page of all.
type Snapshot struct {
	status.Statement
	Version string
	Started time.Time
	Minutes map[int64]totals // counts in each of the last minutes, by minutes since 1970
	Counts  map[string]int64 // of figures, since it started

	Undecoded       map[string]int64   // telemetry without a usable reading, by the reason
	UnreadableNamed []unreadableDevice // some of those that countUnreadable counts
	Partitions      []readPartition
	Receivers       []delivery.ReceiverState
	Alarms          []partition.AlarmCounts // by level
	Open            []openAlarm             // longest first
	Alerts          []pastDelivery          // that receivers took, the latest first
}

// A readPartition is one that the replica reads, or has read.
type readPartition struct {
	ID      string
	Read    int64  // sequence number; -1 if nothing has been read
	Waiting string // what holds back its checkpoint; empty if nothing does
}

// An unreadableDevice is one of which nothing could be read since then.
type unreadableDevice struct {
	Device, Reason string
	Since          time.Time
}

type openAlarm struct {
	Device, Sensor, Rule, Level string
	Since                       time.Time
	Silence                     bool // the device or sensor has not been heard since
}

// snapshot returns what there is to show of this replica.
func (a *Admin) snapshot(now time.Time) Snapshot {
	stats := a.options.Worker.Stats()
	s := Snapshot{
		Statement: a.options.Self(),
		Version:   a.options.Version,
		Started:   a.options.Started,
		Minutes:   a.sample(),
		Counts: map[string]int64{
			countReadings:    readings(stats),
			countOver:        stats.Over.Load(),
			countUnavailable: stats.Outcomes[throttle.Unavailable].Load(),
			countAmbiguous:   stats.Ambiguous.Load(),
			countDead:        stats.DeadLetters.Load(),
			countQuieted:     stats.Quieted.Load(),
		},
		Undecoded: map[string]int64{},
		Receivers: a.options.Worker.Receivers(),
		Alarms:    a.options.Worker.AlarmCounts(),
		Alerts:    a.options.Recorder.last(func(d *pastDelivery) bool { return d.Reason == "" }),
	}

	unreadable := a.options.Worker.Unreadable()
	for reason := telemetry.ReasonNotTelemetry + 1; reason < telemetry.ReasonCount; reason++ {
		s.Undecoded[reason.String()] = stats.Events[reason].Load()
		s.Counts[countUndecoded] += stats.Events[reason].Load()
		s.Counts[countUnreadable] += int64(unreadable.Devices[reason])
	}

	// One whose messages lack only the field is no news: it is another kind of device.
	s.Counts[countUnreadable] -= int64(unreadable.Devices[telemetry.ReasonMissing])
	for _, d := range unreadable.Named {
		if d.Reason != telemetry.ReasonMissing {
			s.UnreadableNamed = append(s.UnreadableNamed, unreadableDevice{d.Device, d.Reason.String(), d.Since})
		}
	}

	for _, o := range a.options.Worker.Alarms(maxAlarms) {
		s.Open = append(s.Open, openAlarm{o.Device, o.Sensor, o.Rule, o.Level, o.Since, o.Silence})
	}

	for _, p := range a.options.Worker.Partitions() {
		row := readPartition{ID: p.Partition, Read: -1, Waiting: waiting(p, now)}
		if p.ReadUntil.IsZero() && row.Waiting == "" { // there is nothing to show
			continue
		}

		if !p.ReadUntil.IsZero() {
			row.Read = p.Read.Sequence
		}

		s.Partitions = append(s.Partitions, row)
	}

	return s
}

// Report returns what other replicas show of this one, as JSON in at most limit bytes. What does not fit is left out,
// and what the heartbeat needs last.
func (a *Admin) Report(limit int) []byte {
	s := a.snapshot(time.Now())
	s.Alerts, s.Open = s.Alerts[:min(len(s.Alerts), maxShared)], s.Open[:min(len(s.Open), maxShared)]
	cuts := []func(){
		func() {},
		func() { s.Alerts, s.Open = s.Alerts[:len(s.Alerts)/4], s.Open[:len(s.Open)/4] },
		func() {
			s.Alerts = nil
			s.Open = nil
			s.Alarms = nil
			s.UnreadableNamed = nil
		},
		func() { s.Partitions = nil },
	}
	for _, cut := range cuts {
		cut()
		b, _ := json.Marshal(s) // strings, numbers and times: cannot fail
		if len(b) <= limit {
			return b
		}
	}

	return s.Statement.JSON(limit)
}

// The keys of Snapshot.Counts, by which other versions know them, too.
const (
	countReadings    = "readings"
	countOver        = "over"
	countUndecoded   = "undecoded"
	countUnavailable = "unavailable"
	countAmbiguous   = "ambiguous"
	countDead        = "dead letters"
	countUnreadable  = "unreadable"
	countQuieted     = "quieted"
)

// readReports reads what other replicas show.
func readReports(ask func(context.Context) ([][]byte, error)) func(context.Context) ([]Snapshot, error) {
	if ask == nil {
		return nil
	}

	return func(ctx context.Context) (all []Snapshot, err error) {
		reports, err := ask(ctx)
		for _, r := range reports {
			var s Snapshot
			if json.Unmarshal(r, &s) == nil && s.Replica != "" { // another version's may be neither
				all = append(all, s)
			}
		}

		slices.SortFunc(all, func(x, y Snapshot) int { return cmp.Compare(x.Replica, y.Replica) })
		return all, err
	}
}

// merged returns what all replicas have done, and what is in the way of any. self comes first in all.
func merged(all []Snapshot) Snapshot {
	m := all[0]
	m.Minutes = maps.Clone(m.Minutes)
	m.Counts = maps.Clone(m.Counts)
	m.Undecoded = maps.Clone(m.Undecoded)
	for _, s := range all[1:] {
		m.UnreadableNamed = slices.Concat(m.UnreadableNamed, s.UnreadableNamed)
		m.Open = slices.Concat(m.Open, s.Open)
		m.Alerts = slices.Concat(m.Alerts, s.Alerts)
		m.Alarms = slices.Concat(m.Alarms, s.Alarms)
		for what, n := range s.Counts {
			m.Counts[what] += n
		}

		for reason, n := range s.Undecoded {
			m.Undecoded[reason] += n
		}

		for minute, t := range s.Minutes {
			m.Minutes[minute] = m.Minutes[minute].plus(t)
		}
	}

	slices.SortStableFunc(m.Open, func(x, y openAlarm) int { return x.Since.Compare(y.Since) })
	slices.SortStableFunc(m.Alerts, func(x, y pastDelivery) int { return y.At.Compare(x.At) })
	return m
}

// only leaves in m what is about the device that a link names, in whole or by the beginning and the end of a long name, or
// about one of its sensors, and returns the device's whole name if it is known. A link of an alert leads there.
func (m *Snapshot) only(link, name string) (device string) {
	length := max(3, utf8.RuneCountInString(link))
	isOther := func(of sensor.ID) bool {
		return humanize.Middle(of.Device, length) != link || name != "" && of.Name != name
	}
	m.Open = slices.DeleteFunc(m.Open, func(o openAlarm) bool { return isOther(sensor.ID{Device: o.Device, Name: o.Sensor}) })
	m.Alerts = slices.DeleteFunc(m.Alerts, func(d pastDelivery) bool { return isOther(d.of()) })

	switch {
	case len(m.Alerts) > 0:
		return m.Alerts[0].Device
	case len(m.Open) > 0:
		return m.Open[0].Device
	}

	return link
}
