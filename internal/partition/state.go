package partition

import (
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

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
	Alarms   int   // in memory: pending, open, or with a recovery that is due
	Position int64 // sequence number up to which the ledger in the store holds the alarms
	Writes   int64 // since the partition was taken over, that included
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

	if k.due != nil && !k.due.silence() {
		state.Due = fromMicros(k.due.Reading.Enqueued)
	}

	return state
}

// Count adds the alarms of s to all, which NoAlarms has made, and their groups to those that are counted already.
func (s *Stream) Count(all []AlarmCounts, groups map[delivery.Key]bool) {
	s.reader.register.count(all, groups)
}

// Open appends the open alarms of s to all.
func (s *Stream) Open(all []AlarmState) []AlarmState { return s.reader.register.open(all) }
