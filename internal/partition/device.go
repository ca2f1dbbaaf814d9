package partition

import (
	"math"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// A DeviceState is what a worker knows of one device: what it sent last, as far as it is
// one of the last 4,096 devices or so of its partition, and its alerts that are not
// settled.
type DeviceState struct {
	Partitions []string `json:"partitions"` // that are being read, in no particular order
	// the worker has read no event of the device since then but Last; zero: it reads nothing
	Since time.Time `json:"since,omitzero"`
	Last  *LastSeen `json:"lastSeen,omitempty"` // nil: no event that is remembered
	// in the order of the rules and levels, and then those that are not configured any more
	Alarms     []AlarmState     `json:"alarms,omitempty"`
	Heard      []HeardState     `json:"heard,omitempty"` // for each rule about silence that knows it
	Deliveries []delivery.State `json:"waiting,omitempty"`

	// one that has an alarm or sent something, and whose name differs only in case; empty: there is none, or the device
	// itself is known
	Similar string `json:"-"`
}

// WasHeard reports whether a rule about silence has heard the device.
func (d *DeviceState) WasHeard() bool {
	return len(d.Heard) > 0
}

// A HeardState says when a device was heard last in a partition, as a rule about silence counts it.
type HeardState struct {
	Partition string    `json:"partition"`
	Sensor    string    `json:"sensor,omitempty"` // of the device; empty: the device
	Rule      string    `json:"rule"`
	At        time.Time `json:"at"`                 // when the hub took the last event that counts
	Deadline  time.Time `json:"deadline,omitzero"`  // from when on the device is silent; zero: nothing is expected of it
	Excluded  bool      `json:"excluded,omitempty"` // nothing is expected of it because of the rule's Only
	AsOf      time.Time `json:"asOf,omitzero"`      // the partition is known up to then; zero: it is being read
}

// HeardIn returns what a partition's roster has of a sensor, or of a device with all of its sensors.
func HeardIn(r *roster.Roster, partition string, of sensor.ID, set *rules.Set) (all []HeardState) {
	sensors := r.Covered(of)
	for i := range set.Rules {
		rule := &set.Rules[i]
		if !rule.Silence() {
			continue
		}

		for _, about := range sensors {
			h := r.Last(about, rule.Name)
			if h == (roster.Heard{}) {
				continue
			}

			state := HeardState{Partition: partition, Sensor: about.Name, Rule: rule.Name, At: time.UnixMilli(h.Time).UTC()}
			state.Excluded = h.Quiet == roster.Excluded
			if _, deadline := r.Silence(r.Column(rule.Name), h); !state.Excluded && deadline < math.MaxInt64 {
				state.Deadline = time.UnixMilli(deadline).UTC()
			}

			all = append(all, state)
		}
	}

	return all
}

// LastSeen is what a worker read last of a device.
type LastSeen struct {
	Partition   string       `json:"partition"`
	At          time.Time    `json:"at"`                    // when the last event was read, by this machine's clock
	Reading     *Reading     `json:"reading,omitempty"`     // the last one; nil: none
	Undecodable *Undecodable `json:"undecodable,omitempty"` // the last event without a reading; nil: none
}

// A Reading is one of a device.
type Reading struct {
	Value    float64   `json:"temperature"`  // the first that reached a limit, else the first that was found
	Field    int       `json:"-"`            // its index in Rules.Fields
	Enqueued time.Time `json:"enqueuedTime"` // when the hub took it
	Sequence int64     `json:"sequence"`
	// which of the device's sensors it is of, if it reached a limit; empty: the device's own, or not known
	Sensor string `json:"sensor,omitempty"`

	// What was decided about it, at the level at which most was. Rule is empty if it reached no limit and none is
	// the device's own.
	Decision Decision `json:"-"`
	Rule     string   `json:"rule,omitempty"`
	Level    string   `json:"level,omitempty"`
	Limit    float64  `json:"limit,omitzero"`
	Own      bool     `json:"own,omitempty"` // Limit is the device's own
	// what the device shares the rule's alerts by: see rules.Rule.Per; empty if that is not known, or nothing
	Shared string `json:"shared,omitempty"`
	// where its message is not JSON, for people; empty if it is. The reading ends no alarm
	Damaged string `json:"damaged,omitempty"`
}

// An Undecodable is an event that gave no reading.
type Undecodable struct {
	Reason   telemetry.Reason `json:"reason"`
	Enqueued time.Time        `json:"enqueuedTime"` // when the hub took it
	Sequence int64            `json:"sequence"`
	Damage   string           `json:"damage,omitempty"` // where it is not JSON, for people; empty if nobody can say
	// nothing could be read of the device since then: when the hub took the first of these messages; zero: something was
	// read after it
	Since time.Time `json:"since,omitzero"`
}

// See adds what was seen last of a device in a partition, or whatever else has this name.
func (d *DeviceState) See(ev *Evaluator, seen *Seen, device, partition string) {
	d.see(seen, device, partition, ev.levels)
}

// see is See. It returns what was seen, nil if nothing was.
func (d *DeviceState) see(seen *Seen, device, partition string, levels []*level) *observation {
	found, since := seen.find(device)
	if since.After(d.Since) {
		d.Since = since
	}

	if found != nil && (d.Last == nil || fromMicros(found.at).After(d.Last.At)) {
		d.Last = found.show(device, partition, levels)
	}

	return found
}

func (o *observation) show(device, partition string, levels []*level) *LastSeen {
	seen := &LastSeen{Partition: partition, At: fromMicros(o.at)}
	damage := o.damage.Text(device)

	if o.read {
		seen.Reading = &Reading{
			Value:    o.value,
			Field:    int(o.field),
			Enqueued: fromMicros(o.enqueued),
			Sequence: o.sequence,
			Decision: o.decision,
		}

		if o.damagedRead {
			seen.Reading.Damaged = damage
		}

		if l := o.outcome.levelOf(levels); l != nil {
			seen.Reading.Rule = l.rule.Name
			seen.Reading.Level = l.Name
			seen.Reading.Limit = o.limit
			seen.Reading.Own = o.own
			seen.Reading.Sensor = o.sensor
			seen.Reading.Shared = o.shared
		}
	}

	if o.reason != telemetry.ReasonOK {
		seen.Undecodable = &Undecodable{Reason: o.reason, Enqueued: fromMicros(o.failedEnqueued), Sequence: o.failedSequence}
		if !o.damagedRead {
			seen.Undecodable.Damage = damage
		}
		if o.failure.reason != telemetry.ReasonOK {
			seen.Undecodable.Since = fromMicros(o.failure.since)
		}
	}

	return seen
}
