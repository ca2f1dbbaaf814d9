package partition

import (
	"slices"

	"alertworker/internal/delivery"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// endRemoved ends the alarms of levels that are removed, once no replica has them any more: nothing else ever would.
// During a rollout the partition may go on to a replica that has them.
func (reg *register) endRemoved() {
	defer reg.flush()
	reg.mu.Lock()
	defer reg.mu.Unlock()
	open := func(l *level) bool {
		n := reg.alarms.counts[l]
		return n != nil && n[openAlarms] > 0
	}
	//planted:removed-at-once if !slices.ContainsFunc(reg.removed, open)
	if !slices.ContainsFunc(reg.removed, open) || !reg.evaluator.book.Alike(reg.last.until) {
		return
	}

	now := micros(reg.storeTime())
	for key, k := range reg.alarms.byKey {
		if !key.level.removed.IsZero() && k.Phase == rules.Open {
			reg.end(key, now, false)
		}
	}
}

// end ends an open alarm otherwise than by an event of its device: its rule or level was removed or renamed, or nothing
// is expected of the device any more, which is then forgotten. Whoever was alerted gets a recovery, which is due from
// now on, in Unix µs. Milder levels that it has held back, and that are still open, alert about the device's next reading:
// see alarm.alertNext. The caller holds reg.mu.
func (reg *register) end(key alarmKey, now int64, forgotten bool) {
	reg.change(key, reg.ended(key, now, forgotten))
}

// ended returns what end leaves of the open alarm of key. The caller holds reg.mu.
func (reg *register) ended(key alarmKey, now int64, forgotten bool) alarm {
	due := reg.endOf(key.level, reg.alarms.byKey[key], now)
	if due != nil {
		due.Forgotten = forgotten
	}

	return alarm{due: due}
}

// endOf returns the recovery of an alarm that end ends, nil if there is none: about the end of a silence, or about the
// last event read, so that no alert was about a later one.
func (reg *register) endOf(l *level, was alarm, now int64) *dueNotice {
	if l.rule.Silence() {
		due := reg.recovery(l, was, was.log, throttle.End, delivery.Reading{
			Limit:    was.limit,
			Enqueued: now,
			Sequence: was.sequence,
			Since:    was.Since.Hub,
		})
		if due != nil {
			due.RaisedAt = reg.noticedAt(now)
		}
		return due
	}

	last := reg.mark.last
	if last == (telemetry.Position{}) {
		last = reg.alarms.history.position
	}

	due := reg.recovery(l, was, logName(last.Generation, reg.id), throttle.Event, delivery.Reading{
		Value:    was.value,
		Limit:    was.limit,
		Enqueued: micros(last.Time),
		Sequence: last.Sequence,
		Element:  l.lastElement(),
		Since:    was.Since.Hub,
	})
	if due != nil {
		due.RaisedAt = now
	}

	return due
}

// noticedAt returns when something is noticed of a silence, in Unix µs, that is known of a time: never earlier than what was
// noticed before, by this owner or another one.
func (reg *register) noticedAt(known int64) int64 {
	if reg.last.until.IsZero() { // there is no ledger, and no other owner
		return known
	}
	return max(known, micros(reg.storeTime()))
}
