package partition

import (
	"math"
	"slices"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
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
}

// A HeardState says when a device was heard last in a partition, as a rule about silence counts it.
type HeardState struct {
	Partition string    `json:"partition"`
	Rule      string    `json:"rule"`
	At        time.Time `json:"at"`                // when the hub took the last event that counts
	Deadline  time.Time `json:"deadline,omitzero"` // from when on the device is silent; zero: nothing is expected of it
	AsOf      time.Time `json:"asOf,omitzero"`     // the partition is known up to then; zero: it is being read
}

// HeardIn returns what a partition's roster has of a device.
func HeardIn(r *roster.Roster, partition, device string, set *rules.Set) (all []HeardState) {
	for i := range set.Rules {
		rule := &set.Rules[i]
		h := r.Last(device, rule.Name)
		if !rule.Silence() || h == (roster.Heard{}) {
			continue
		}

		state := HeardState{Partition: partition, Rule: rule.Name, At: time.UnixMilli(h.Time).UTC()}
		if _, deadline := r.Silence(r.Column(rule.Name), h); deadline < math.MaxInt64 {
			state.Deadline = time.UnixMilli(deadline).UTC()
		}

		all = append(all, state)
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

	// What was decided about it, at the level at which most was. Rule is empty if it reached no limit and none is
	// the device's own.
	Decision Decision `json:"-"`
	Rule     string   `json:"rule,omitempty"`
	Level    string   `json:"level,omitempty"`
	Limit    float64  `json:"limit,omitzero"`
	Own      bool     `json:"own,omitempty"` // Limit is the device's own
	// what the device shares the rule's alerts by: see rules.Rule.Per; empty if that is not known, or nothing
	Shared string `json:"shared,omitempty"`
}

// A Decision is what became of a reading at one level.
type Decision uint8

const (
	NoLimit      Decision = iota // it reaches no limit
	Excluded                     // it reaches the limit of a rule that does not look at it, because of rules.Rule.Only
	StaysOpen                    // it is between clear and limit of an open alarm
	StaysPending                 // it reaches the limit, but not for long enough yet
	Outdated                     // the alarm has seen a reading that was taken later
	Inhibited                    // a higher level of the rule is open
	Muted                        // its message says that nobody is to be notified
	Silenced                     // people say so: see Config.Mutes
	Unwanted                     // no receiver gets alerts like this one
	Notified                     // to receivers, unless a window covers it
)

// An Undecodable is an event that gave no reading.
type Undecodable struct {
	Reason   telemetry.Reason `json:"reason"`
	Enqueued time.Time        `json:"enqueuedTime"` // when the hub took it
	Sequence int64            `json:"sequence"`
}

// Describe adds what s knows of a device to d.
func (s *Stream) Describe(device string, d *DeviceState) {
	d.Partitions = append(d.Partitions, s.id)
	found := d.see(s.seen, device, s.id, s.levels)
	d.Deliveries = append(d.Deliveries, s.deliveries(device, found)...)
	d.Alarms = append(d.Alarms, s.alarmsOf(device)...)

	if u := s.unheard; u != nil {
		u.View(func(r *roster.Roster) {
			d.Heard = append(d.Heard, HeardIn(r, s.id, device, &s.Rules)...)
		})
	}
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
		d.Last = found.show(partition, levels)
	}

	return found
}

// alarmsOf returns device's alarms.
func (s *Stream) alarmsOf(device string) (all []AlarmState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarms == nil {
		return nil
	}

	for _, l := range slices.Concat(s.levels, s.removed) {
		key := alarmKey{device, l}
		if k, ok := s.alarms.byKey[key]; ok {
			all = append(all, k.state(s.id, key))
		}
	}

	return all
}

func (o *observation) show(partition string, levels []*level) *LastSeen {
	seen := &LastSeen{Partition: partition, At: fromMicros(o.at)}

	if o.read {
		seen.Reading = &Reading{
			Value:    o.value,
			Field:    int(o.field),
			Enqueued: fromMicros(o.enqueued),
			Sequence: o.sequence,
			Decision: o.decision,
		}

		if o.level > 0 {
			l := levels[o.level-1]
			seen.Reading.Rule = l.rule.Name
			seen.Reading.Level = l.Name
			seen.Reading.Limit = o.limit
			seen.Reading.Own = o.own
			seen.Reading.Shared = o.shared
		}
	}

	if o.reason != telemetry.ReasonOK {
		seen.Undecodable = &Undecodable{Reason: o.reason, Enqueued: fromMicros(o.failedEnqueued), Sequence: o.failedSequence}
	}

	return seen
}

// deliveries returns the state of the deliveries that are about device: also of what it
// shares alerts by, as far as seen, what the device sent last, says.
func (s *Stream) deliveries(device string, seen *observation) []delivery.State {
	s.mu.Lock()
	levels := slices.Concat(s.levels, s.removed)
	s.mu.Unlock()
	var keys []delivery.Key
	for _, l := range levels {
		keys = append(keys, delivery.Key{About: device, Topic: l.own})
		if seen != nil && seen.shared != "" && s.levels[seen.level-1].rule == l.rule {
			keys = append(keys, delivery.Key{About: seen.shared, Topic: l.shared})
		}
	}

	return s.box.States(keys)
}
