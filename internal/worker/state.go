package worker

import (
	"cmp"
	"slices"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A PartitionState is the progress of one partition.
type PartitionState struct {
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
}

// AlarmCounts are those of one level.
type AlarmCounts struct {
	Rule, Level        string
	Pending, Open, Due int
}

// AlarmCounts returns the number of alarms of each level, in the order of Config.Rules.
func (w *Worker) AlarmCounts() []AlarmCounts {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]AlarmCounts, len(w.levels))
	for i, l := range w.levels {
		all[i].Rule, all[i].Level = l.rule.Name, l.Name
	}

	for s := range w.streams {
		s.mu.Lock()
		for i, l := range w.levels {
			if s.alarms == nil || s.alarms.counts[l] == nil {
				continue
			}

			n := s.alarms.counts[l]
			all[i].Pending += n[pendingAlarms]
			all[i].Open += n[openAlarms]
			all[i].Due += n[dueRecoveries]
		}

		s.mu.Unlock()
	}

	return all
}

// Alarms returns open alarms, those that have been open for the longest first, at most limit.
func (w *Worker) Alarms(limit int) []AlarmState {
	w.mu.Lock()
	defer w.mu.Unlock()
	var open []AlarmState
	for s := range w.streams {
		open = s.open(open)
		slices.SortFunc(open, func(a, b AlarmState) int {
			return cmp.Or(
				a.Since.Compare(b.Since),
				cmp.Compare(a.Device, b.Device),
				cmp.Compare(a.Rule, b.Rule),
				cmp.Compare(a.Level, b.Level),
			)
		})
		open = open[:min(len(open), limit)]
	}

	return open
}

// open appends s's open alarms.
func (s *stream) open(all []AlarmState) []AlarmState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarms == nil {
		return all
	}

	for key, k := range s.alarms.byKey {
		if k.Phase == rules.Open {
			all = append(all, k.state(s.id, key))
		}
	}

	return all
}

// state returns the alarm k of key as people see it.
func (k alarm) state(partition string, key alarmKey) AlarmState {
	l := key.level
	state := AlarmState{
		Partition: partition,
		Device:    key.device,
		Rule:      l.rule.Name,
		Level:     l.Name,
		Phase:     k.Phase,
		Silence:   l.rule.Silence(),
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
		state.Due = fromMicros(k.due.Enqueued)
	}

	return state
}

// Partitions returns the state of each partition being consumed, in no particular
// order. It includes Intakes.
func (w *Worker) Partitions() []PartitionState {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []PartitionState
	for s := range w.streams {
		all = append(all, s.state())
	}

	for in := range w.intakes {
		all = append(all, in.state())
	}

	return all
}

// Receivers returns the state of each receiver, in the order of Config.
func (w *Worker) Receivers() []delivery.ReceiverState { return w.dispatcher.Receivers() }
