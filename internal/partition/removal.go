package partition

import (
	"maps"
	"slices"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// A forgetting is a device, or one of its sensors, that an operator has removed.
type forgetting struct {
	of    sensor.ID
	saved chan struct{} // closed once the ledger in the store says so
}

// forget ends the alarms of a sensor, or of a device with all of its sensors, and notes that it is forgotten, with the
// last event read, or with the number read if that is later. It does so if there is an alarm, or it is known otherwise.
// It returns what is closed once the ledger in the store says so, or nil if it is not known.
func (reg *register) forget(of sensor.ID, read int64, known bool) <-chan struct{} {
	defer reg.flush()
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.last.until.IsZero() { // without a ledger
		return nil
	}
	//planted:removed-stays-open if !known { return reg.beingForgotten(of) }; skip
	if !reg.endAlarms(of) && !known {
		return reg.beingForgotten(of)
	}

	for _, key := range reg.keptSilences(of) { // one may have ended since
		//planted:removed-silence-after-crash skip
		reg.alarms.history.replace(key, reg.alarms.byKey[key])
	}

	read = max(read, reg.mark.last.Sequence)
	reg.forgotten = slices.DeleteFunc(reg.forgotten, func(f ledger.Forgotten) bool { return f.Of() == of })
	reg.forgotten = append(reg.forgotten, ledger.Forgotten{
		Device:   ledger.Text(of.Device),
		Sensor:   ledger.Text(of.Name),
		Log:      reg.logName,
		Sequence: read,
	})
	reg.forgotten = reg.forgotten[max(0, len(reg.forgotten)-ledger.MaxForgotten):]
	reg.alarms.history.edited = true

	saved := make(chan struct{})
	reg.forgetting = append(reg.forgetting, forgetting{of, saved})
	return saved
}

// keptSilences returns the keys of the silences that the ledger may hold of a sensor, or of a device with all of its
// sensors. The caller holds reg.mu.
func (reg *register) keptSilences(of sensor.ID) (all []alarmKey) {
	for _, r := range reg.evaluator.silences {
		all = append(all, alarmKey{of, r.levels[0]})
	}

	for key := range reg.alarms.history.alarms {
		if key.about != of && of.Covers(key.about) && key.level.rule.Silence() {
			all = append(all, key)
		}
	}

	return all
}

// beingForgotten returns what is closed once the ledger says that a device or sensor is forgotten, for which somebody has
// asked before, or nil if it does already, or nobody has. The caller holds reg.mu.
func (reg *register) beingForgotten(of sensor.ID) (saved <-chan struct{}) {
	for _, f := range reg.forgetting {
		if f.of == of {
			saved = f.saved
		}
	}

	return saved
}

// endAlarms ends the alarms of a sensor, or of a device with all of its sensors, but for silences that are watched, and
// reports whether there were any. The caller holds reg.mu.
func (reg *register) endAlarms(of sensor.ID) (any bool) {
	now := micros(reg.storeTime())
	for _, key := range reg.keysOf(of) {
		k, l := reg.alarms.byKey[key], key.level
		switch {
		case k.Phase == rules.Normal, l.rule.Silence() && l.removed.IsZero():
			continue
		case l.rule.Silence():
			reg.end(key, now, true)
		default:
			reg.endRead(key, now)
		}

		any = true
	}

	return any
}

// keysOf returns the keys of the alarms of a sensor, or of a device with all of its sensors, in the order of the rules
// and levels, and then those that are not configured any more. The caller holds reg.mu.
func (reg *register) keysOf(of sensor.ID) (all []alarmKey) {
	sensors := reg.alarms.sensorsOf(of)
	for _, l := range slices.Concat(reg.evaluator.levels, reg.removed) {
		for _, about := range sensors {
			if key := (alarmKey{about, l}); reg.alarms.byKey[key] != (alarm{}) {
				all = append(all, key)
			}
		}
	}

	return all
}

// endRead ends the alarm about readings of a device that was removed, behind the last event read: while an alert about
// an earlier one is not settled, the ledger keeps the alarm as it was, and so does an owner that reads them again. The
// caller holds reg.mu.
func (reg *register) endRead(key alarmKey, now int64) {
	was := reg.alarms.byKey[key]
	next := alarm{due: was.due}
	if was.Phase == rules.Open {
		next = reg.ended(key, now, true)
	}

	last := reg.mark.last
	//planted:removed-due-lost if true
	if last.NotAfter(reg.alarms.history.position) {
		reg.change(key, next)
		return
	}

	before := reg.committed
	if before == (telemetry.Position{}) {
		before = reg.last.resumed
	}

	reg.alarms.history.change(key, next, before, last)
	reg.become(key, next)
}

// forgetAgain ends the alarms of a device that was removed when a former owner had read more events than this one, once
// all of these are read again: the next event has this number, and follows a position. The caller holds reg.mu.
func (reg *register) forgetAgain(device string, before telemetry.Position, next int64) {
	for of, read := range reg.last.hadRead {
		if of.Device != device || next <= read {
			continue
		}

		delete(reg.last.hadRead, of)
		//planted:removed-open-after-crash return
		reg.mark.read(before) // where an alarm ends
		reg.endAlarms(of)
	}
}

// endReread is forgetAgain for the devices that have sent nothing more.
func (reg *register) endReread() {
	defer reg.flush()
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for of := range reg.last.hadRead {
		reg.forgetAgain(of.Device, reg.mark.last, reg.mark.last.Sequence+1)
	}
}

// beyond returns the devices and sensors that were removed when a former owner had read more of the log than both positions, each
// with the number of the last event. The caller holds reg.mu.
func (reg *register) beyond(generation string, start, ledger telemetry.Position) map[sensor.ID]int64 {
	removed := reg.removedDevices()
	maps.DeleteFunc(removed, func(_ sensor.ID, read int64) bool {
		at := telemetry.Position{Generation: generation, Sequence: read}
		return at.NotAfter(start) || at.NotAfter(ledger)
	})
	return removed
}

// removedDevices returns the devices and sensors that operators have removed, each with the number of the last event that was read
// then. The caller holds reg.mu.
func (reg *register) removedDevices() map[sensor.ID]int64 {
	removed := make(map[sensor.ID]int64, len(reg.forgotten))
	for _, f := range reg.forgotten {
		if f.Log == reg.logName {
			removed[f.Of()] = f.Sequence
		}
	}

	return removed
}

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
