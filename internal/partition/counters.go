package partition

import (
	"sync/atomic"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// Counters count what became of the events of a replica's partitions since it started. They may be read at any time.
type Counters struct {
	Events   [telemetry.ReasonCount]atomic.Int64 // by the result of decoding
	Over     atomic.Int64                        // readings that reached a limit
	Filtered atomic.Int64                        // of these, the ones that a receiver does not want, for each receiver

	Levels   []LevelCounters                        // in the order of the rules
	Override [rules.OverrideBeyond + 1]atomic.Int64 // readings whose rule has a limit that messages say, by what the message has
	// readings that reached a limit or were of a device with an alarm, by the time of their device
	Times [rules.TimeLate + 1]atomic.Int64
	// readings over a limit of a rule with per whose message has no such property
	Unshared atomic.Int64
	// readings that reached a limit or were of a device with an alarm, of a rule with sensor, without a name there
	Nameless atomic.Int64
	// readings over a limit that are muted
	Quieted   atomic.Int64
	Forgotten atomic.Int64 // devices that were silent for too long
	// messages of devices for which there was no room in their partition's roster
	Unwatched atomic.Int64
	// readings for which there was no room for one more alarm in their partition
	Untracked atomic.Int64
	// alerts of devices whose alert before came from another partition of the same hub
	Scattered     atomic.Int64
	LastScattered atomic.Pointer[Scattered] // the last of these devices; nil if there was none
}

// LevelCounters counts what became of one level.
type LevelCounters struct {
	Over      atomic.Int64 // readings that reached its limit
	Opened    atomic.Int64 // alarms
	Cleared   atomic.Int64 // alarms
	Sent      atomic.Int64 // alerts that a receiver took
	Recovered atomic.Int64 // recoveries that a receiver took
}

// countAlarm counts an alarm that has opened or ended.
func countAlarm(key alarmKey, was, is rules.State) {
	switch open := is.Phase == rules.Open; {
	case open == (was.Phase == rules.Open):
	case open:
		key.level.stats.Opened.Add(1)
	default:
		key.level.stats.Cleared.Add(1)
	}
}

// read adds one batch, in few atomic operations.
func (s *Counters) read(n *[telemetry.ReasonCount]int64, over int64) {
	for reason, count := range n {
		if count > 0 {
			s.Events[reason].Add(count)
		}
	}

	if over > 0 {
		s.Over.Add(over)
	}
}
