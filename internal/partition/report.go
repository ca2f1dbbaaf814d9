package partition

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// State returns the progress of s.
func (s *Stream) State() State {
	known := 0
	s.register.unheard.View(func(r *roster.Roster) { known = r.Len() })

	p := State{
		Partition:  s.register.id,
		Settled:    s.settled(),
		Delivering: s.box.Len(),
		Known:      known,
	}

	var oldest int64
	p.Unsettled, _, oldest = s.box.Unsettled()
	s.register.mu.Lock()
	defer s.register.mu.Unlock()

	if n := s.register.mark.held.Len(); n > 0 {
		_, enqueued := s.register.mark.held.First()
		if p.Unsettled == 0 || enqueued < oldest {
			oldest = enqueued
		}
		p.Unsettled += n
	}

	p.Oldest = fromMicros0(oldest)
	p.First = s.register.first
	p.ReadUntil = s.register.readUntil
	p.Committed = s.register.committed
	if !s.register.readUntil.IsZero() { // else mark.last is where reading begins
		p.Read = s.register.mark.last
	}

	p.Ledger = s.ledgers

	return p
}

// Describe adds what s knows of a sensor, or of a device with all of its sensors, to d.
func (s *Stream) Describe(of sensor.ID, d *DeviceState) {
	d.Partitions = append(d.Partitions, s.register.id)
	s.register.batch.Lock()
	if u := s.register.unreadable[roster.Hash(of.Device)]; u != nil {
		found := *u
		found.Damage = u.damage.Text(of.Device)
		d.Unreadable = &found
	}
	s.register.batch.Unlock()

	var alarms []AlarmState
	var notices []delivery.Key // about it, or about an incident that one of its alarms is part of
	s.register.mu.Lock()
	levels := s.register.levels
	for _, key := range s.register.alarms.keysOf(of, levels) {
		k := s.register.alarms.byKey[key]
		alarms = append(alarms, k.state(s.register.id, key))
		group := key.level.groupKey(k.member())
		if group.About != (sensor.ID{}) && !slices.Contains(notices, group) {
			notices = append(notices, group)
		}
	}
	s.register.mu.Unlock()

	sensors := s.box.About(of)
	for _, l := range levels {
		for _, about := range sensors {
			notices = append(notices, delivery.Key{About: about, Topic: l.own})
		}
	}

	d.Deliveries = append(d.Deliveries, s.box.States(notices)...)
	for _, a := range alarms {
		a.Waits = s.box.NextReminders(a.sending, a.repeat)
		d.Alarms = append(d.Alarms, a)
	}

	s.register.unheard.View(func(r *roster.Roster) {
		d.Heard = append(d.Heard, HeardIn(r, s.register.id, of, &s.config.Evaluator.book.Rules)...)
	})
	if d.Unreadable == nil && len(d.Alarms)+len(d.Heard)+len(d.Deliveries) == 0 {
		d.Similar = cmp.Or(s.similar(of.Device), d.Similar)
	}
}

// similar returns a device whose name differs from that of another one in nothing but case; empty if none is known.
func (s *Stream) similar(device string) (name string) {
	note := func(other string) {
		if other != device && strings.EqualFold(other, device) {
			name = other
		}
	}

	s.register.mu.Lock()
	for key := range s.register.alarms.byKey {
		note(key.about.Device)
	}
	s.register.mu.Unlock()

	s.register.unheard.View(func(r *roster.Roster) {
		for i := range r.Len() {
			note(r.Name(i).Device)
		}
	})

	return name
}

// Forget ends the alarms of a sensor, or of a device with all of its sensors, and expects nothing more of it until it is
// heard again. It returns what is closed once the stores say so, or nil if it is not known.
func (s *Stream) Forget(of sensor.ID) <-chan struct{} {
	s.register.batch.Lock() // between two batches of events
	defer s.register.batch.Unlock()
	if of.Name == "" {
		delete(s.register.unreadable, roster.Hash(of.Device))
	}

	saved := s.register.remove(of, s.register.unheard.Forget(of))
	signal(s.hurry)

	return saved
}

// A State is the progress of one partition.
type State struct {
	Partition  string
	First      int64              // sequence number of the first event read
	Read       telemetry.Position // the last event read
	ReadUntil  time.Time          // when the hub took it
	Settled    telemetry.Position // every event up to here is settled
	Committed  telemetry.Position // the last checkpoint this replica wrote
	Unsettled  int                // events that hold the checkpoint back
	Oldest     time.Time          // when the hub took the first of them; zero if there is none
	Delivering int                // deliveries, at most one for each device, level and receiver; also of recoveries
	Ledger     LedgerState        // zero if no rule has state
	Known      int                // devices that rules about silence expect to hear from
}

// A LedgerState is how the alarms of one partition are kept.
type LedgerState struct {
	Writes int64 // since the partition was taken over, that included
	// why the ledger cannot be read or written at present, nil if it can; until it is read the partition waits
	Err   error
	Since time.Time // of Err
}

// An AlarmState is one level of one device that is not normal, as of the last event read.
type AlarmState struct {
	Partition string      `json:"partition"`
	Device    string      `json:"device"`
	Sensor    string      `json:"sensor,omitempty"` // of the device; empty: the alarm is the device's own
	Rule      string      `json:"rule"`
	Level     string      `json:"level,omitempty"`
	Phase     rules.Phase `json:"state"`
	// when the first of the readings that reached the limit was taken, by the device's clock if that is known, else by
	// the hub's; zero unless pending or open
	Since   time.Time `json:"since,omitzero"`
	Arrived time.Time `json:"arrived,omitzero"` // when the hub took that reading; zero if Since is by the hub's clock
	// of the reading that opened it, or made it pending; 0 unless pending or open
	Value float64 `json:"value"`
	Limit float64 `json:"limit"` // that it reached; likewise
	// when the hub took the reading that cleared the last alarm, while its recovery is due; else zero
	Due time.Time `json:"due,omitzero"`
	// the device has not been heard since Since; Limit is in seconds, and there is no Value
	Silence bool `json:"silence,omitempty"`
	// of an open one that is part of an incident: the value that the rule's devices share
	Group string `json:"group,omitempty"`
	// of an open alarm that is not sent again when the window is over: what it waits for, as far as this replica knows
	Waits []delivery.Condition `json:"waits,omitempty"`

	sending *delivery.Alarm
	repeat  time.Duration
}

// AlarmCounts are those of one level.
type AlarmCounts struct {
	Rule, Level        string
	Pending, Open, Due int
	Incidents          int // that open ones are members of
}

// state returns the alarm k of key as people see it.
func (k alarm) state(partition string, key alarmKey) AlarmState {
	l := key.level
	state := AlarmState{
		Partition: partition,
		Device:    key.about.Device,
		Sensor:    key.about.Name,
		Rule:      l.rule.Name,
		Level:     l.Name,
		Phase:     k.Phase,
		Silence:   l.rule.Silence(),
		Group:     k.member(),
		sending:   k.sending,
		repeat:    l.rule.Repeat,
	}

	if k.Phase != rules.Normal {
		state.Since = fromMicros(k.Since.Time())
		state.Value = k.value
		state.Limit = k.limit
		if k.Since.Device != 0 {
			state.Arrived = fromMicros(k.Since.Hub)
		}
	}

	if k.due != nil && !k.due.silence() && !k.joins() {
		state.Due = fromMicros(k.due.Reading.Enqueued)
	}

	return state
}

// Count adds the alarms of s to all, which NoAlarms has made, and their groups to those that are counted already.
func (s *Stream) Count(all []AlarmCounts, groups map[delivery.Key]bool) {
	s.register.mu.Lock()
	defer s.register.mu.Unlock()
	for key, k := range s.register.alarms.byKey {
		if !key.level.removed.IsZero() {
			continue
		}

		switch of := &all[key.level.index]; {
		case k.Phase == rules.Pending:
			of.Pending++
		case k.Phase == rules.Open:
			of.Open++
		default:
			of.Due++
		}
	}

	for key, g := range s.register.groups {
		if g.members > 0 && g.level.removed.IsZero() && !groups[key] {
			groups[key] = true
			all[g.level.index].Incidents++
		}
	}
}

// Open appends the open alarms of s to all.
func (s *Stream) Open(all []AlarmState) []AlarmState {
	s.register.mu.Lock()
	defer s.register.mu.Unlock()
	for key, k := range s.register.alarms.byKey {
		if k.Phase == rules.Open {
			all = append(all, k.state(s.register.id, key))
		}
	}

	return all
}

// A DeviceState is what a worker knows of one device: its alarms, when it was heard, and its alerts that are not settled.
type DeviceState struct {
	Partitions []string `json:"partitions"` // that are being read, in no particular order
	// its last messages cannot be read; nil: they can, or nothing is known of them
	Unreadable *Unreadable `json:"unreadable,omitempty"`
	// in the order of the rules and levels, and then those that are not configured any more
	Alarms     []AlarmState     `json:"alarms,omitempty"`
	Heard      []HeardState     `json:"heard,omitempty"` // for each rule about silence that knows it
	Deliveries []delivery.State `json:"waiting,omitempty"`

	// one that has an alarm or sent something, and whose name differs only in case; empty: there is none, or the device
	// itself is known
	Similar string `json:"-"`
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
