package worker

import (
	"fmt"
	"math"
	"slices"
	"time"

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
	Alarms     []AlarmState    `json:"alarms,omitempty"`
	Heard      []HeardState    `json:"heard,omitempty"` // for each rule about silence that knows it
	Deliveries []DeliveryState `json:"waiting,omitempty"`
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

// A Wait is what a delivery waits for.
type Wait uint8

const (
	WaitAttempt    Wait = iota // an attempt to end, which is under way
	WaitTurn                   // other alerts to be sent
	WaitReceiver               // the receiver, which is down
	WaitStore                  // the throttle store, which does not respond
	WaitClaim                  // the claim of another replica to end
	WaitPause                  // the next attempt: the last one failed
	WaitDeadLetter             // the dead letter to be written
	// the partition's ledger to say that this replica still owns it, before the recovery is sent
	WaitLedger
	WaitWindow // the window to end, before the recovery is sent
)

func (w Wait) String() string {
	return [...]string{"attempt", "turn", "receiver", "store", "claim", "pause", "dead_letter", "ledger", "window"}[w]
}

func (w Wait) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// A DeliveryState is a delivery that has not ended.
type DeliveryState struct {
	Receiver  string    `json:"receiver"`
	Rule      string    `json:"rule"`
	Level     string    `json:"level,omitempty"`
	Recovery  bool      `json:"resolved,omitempty"` // it says that the device is normal again
	Partition string    `json:"partition"`
	Since     time.Time `json:"since"`       // when the hub took the first reading that is not settled
	Value     float64   `json:"temperature"` // of the reading that the alert is about
	Joined    int64     `json:"suppressed"`  // readings since that one
	For       Wait      `json:"for"`
	// the earliest time of the next attempt, by this machine's clock; zero: not known
	Until   time.Time `json:"next,omitzero"`
	Failure error     `json:"-"` // the receiver's last failure, if it matters; no secrets
}

// String says what the delivery waits for, as part of a sentence.
func (d DeliveryState) String() string {
	switch d.For {
	case WaitTurn:
		return fmt.Sprintf("other alerts are being sent to receiver %s first", d.Receiver)
	case WaitReceiver:
		return fmt.Sprintf("receiver %s is down%s", d.Receiver, d.failure())
	case WaitStore:
		return "the throttle store is not responding, and without it nothing is sent"
	case WaitClaim:
		return fmt.Sprintf(
			"the device's key at receiver %s is not free: another replica is sending an alert or has died, or a window has "+
				"only just ended",
			d.Receiver,
		)
	case WaitPause:
		return fmt.Sprintf("the last attempt to alert receiver %s failed%s", d.Receiver, d.failure())
	case WaitWindow:
		return fmt.Sprintf("receiver %s gets the recovery when the window of the last alert is over", d.Receiver)
	case WaitLedger:
		if !d.Recovery {
			return fmt.Sprintf("receiver %s gets the alert once it is certain that the device is still silent", d.Receiver)
		}
		return fmt.Sprintf(
			"receiver %s gets the recovery once the checkpoint store says that this replica still owns the partition",
			d.Receiver,
		)
	case WaitDeadLetter:
		return fmt.Sprintf("the alert to receiver %s was given up, and its dead letter cannot be written", d.Receiver)
	}
	return fmt.Sprintf("an attempt to alert receiver %s is under way", d.Receiver)
}

func (d DeliveryState) failure() string {
	if d.Failure == nil {
		return ""
	}
	return fmt.Sprintf(" (%v)", d.Failure)
}

// Device returns what w knows of a device. Its cost does not depend on how many devices
// there are.
func (w *Worker) Device(device string) DeviceState {
	w.mu.Lock()
	defer w.mu.Unlock()
	var state DeviceState
	for s := range w.streams {
		if s.partition != nil {
			state.Partitions = append(state.Partitions, s.id)
		}
		found, since := s.seen.find(device)
		if since.After(state.Since) {
			state.Since = since
		}
		if found != nil && (state.Last == nil || fromMicros(found.at).After(state.Last.At)) {
			state.Last = found.show(s.id, w.levels)
		}
		state.Deliveries = append(state.Deliveries, s.deliveries(device, found)...)
		state.Alarms = append(state.Alarms, s.alarmsOf(device)...)
		if u := s.unheard; u != nil && s.partition != nil {
			u.View(func(r *roster.Roster) {
				state.Heard = append(state.Heard, HeardIn(r, s.id, device, &w.Rules)...)
			})
		}
	}
	return state
}

// alarmsOf returns device's alarms.
func (s *stream) alarmsOf(device string) (all []AlarmState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarms == nil {
		return nil
	}
	for _, l := range slices.Concat(s.levels, s.removed) {
		key := alarmKey{device, l}
		if k, ok := s.alarms.of[key]; ok {
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

// deliveries returns the state of the deliveries that are about device, in the order of the receivers: also of what it
// shares alerts by, as far as seen, what the device sent last, says.
func (s *stream) deliveries(device string, seen *observation) (all []DeliveryState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		for _, l := range slices.Concat(s.levels, s.removed) {
			if d := q.deliveries[deliveryKey{device, l.own}]; d != nil {
				all = append(all, q.state(d))
			}
			if seen == nil || seen.shared == "" || s.levels[seen.level-1].rule != l.rule {
				continue
			}
			if d := q.deliveries[deliveryKey{seen.shared, l.shared}]; d != nil {
				all = append(all, q.state(d))
			}
		}
	}
	return all
}

// waits is what deliveries wait for, by their state, unless they are pausing.
var waits = [states]Wait{
	attempting:   WaitAttempt,
	ready:        WaitTurn,
	awaitsWindow: WaitWindow,
	failed:       WaitPause,
	givenUp:      WaitDeadLetter,
}

// state returns the state of d. The caller holds stream.mu.
func (q *queue) state(d *delivery) DeliveryState {
	state := DeliveryState{
		Receiver: q.to.Name, Rule: d.level.rule.Name, Level: d.level.Name, Recovery: d.recovers(),
		Partition: q.stream.id, Since: fromMicros(d.head.enqueued), Value: d.head.value, Joined: int64(d.joined),
	}
	if d.entry.index > 0 {
		state.Since = fromMicros(d.entry.enqueued)
	}
	r := q.to
	r.mu.Lock()
	defer r.mu.Unlock()
	state.For = waits[d.state]
	if d.state == pausing {
		state.For = d.why
	}
	switch {
	case r.store.probed():
		state.For, state.Until = WaitStore, r.nextAttempt()
	case state.For == WaitDeadLetter:
		state.Until = r.worker.started.Add(time.Duration(d.key))
	case r.health.probed(), d.state == attempting && r.health.down:
		state.For = WaitReceiver
		state.Until = r.nextAttempt()
		state.Failure = r.health.failure
	case d.state == attempting && d.unanswered:
		state.For = WaitStore
	case d.state != attempting && d.state != ready:
		state.Until = r.worker.started.Add(time.Duration(d.key))
	}
	if state.For == WaitPause {
		state.Failure = r.health.failure
	}
	return state
}
