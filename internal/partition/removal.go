package partition

import (
	"maps"
	"slices"

	"alertworker/internal/ledger"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// A forgetting is a device that an operator has removed.
type forgetting struct {
	device string
	saved  chan struct{} // closed once the ledger in the store says so
}

// forget ends the alarms of a device, and notes that it is forgotten, with the last event read, or with the number read
// if that is later. It does so if the device has an alarm, or is known otherwise. It returns what is closed once the
// ledger in the store says so, or nil if the device is not known.
func (reg *register) forget(name string, read int64, known bool) <-chan struct{} {
	defer reg.flush()
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.since.IsZero() { // without a ledger
		return nil
	}
	//planted:removed-stays-open if !known { return reg.beingForgotten(name) }; skip
	if !reg.endAlarms(name) && !known {
		return reg.beingForgotten(name)
	}

	for _, r := range reg.silences { // the ledger may hold one that has ended since
		key := alarmKey{sensor.Of(name), r.levels[0]}
		//planted:removed-silence-after-crash skip
		reg.alarms.history.replace(key, reg.alarms.byKey[key])
	}

	read = max(read, reg.mark.last.Sequence)
	reg.forgotten = slices.DeleteFunc(reg.forgotten, func(f ledger.Forgotten) bool { return string(f.Device) == name })
	reg.forgotten = append(reg.forgotten, ledger.Forgotten{Device: ledger.Text(name), Log: reg.logName, Sequence: read})
	reg.forgotten = reg.forgotten[max(0, len(reg.forgotten)-ledger.MaxForgotten):]
	reg.alarms.history.edited = true

	saved := make(chan struct{})
	reg.forgetting = append(reg.forgetting, forgetting{name, saved})
	return saved
}

// beingForgotten returns what is closed once the ledger says that a device is forgotten, for which somebody has asked
// before, or nil if it does already, or nobody has. The caller holds reg.mu.
func (reg *register) beingForgotten(name string) (saved <-chan struct{}) {
	for _, f := range reg.forgetting {
		if f.device == name {
			saved = f.saved
		}
	}

	return saved
}

// endAlarms ends the alarms of a device, but for silences that are watched, and reports whether there were any. The
// caller holds reg.mu.
func (reg *register) endAlarms(device string) (any bool) {
	now := micros(reg.storeTime())
	for _, l := range slices.Concat(reg.levels, reg.removed) {
		key := alarmKey{sensor.Of(device), l}
		k := reg.alarms.byKey[key]
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
		before = reg.begun
	}

	reg.alarms.history.change(key, next, before, last)
	reg.become(key, next)
}

// forgetAgain ends the alarms of a device that was removed when a former owner had read more events than this one, once
// all of these are read again: the next event has this number, and follows a position. The caller holds reg.mu.
func (reg *register) forgetAgain(device string, before telemetry.Position, next int64) {
	if read, removed := reg.rereading[device]; removed && next > read {
		delete(reg.rereading, device)
		//planted:removed-open-after-crash return
		reg.mark.read(before) // where an alarm ends
		reg.endAlarms(device)
	}
}

// endReread is forgetAgain for the devices of which nothing more has come.
func (reg *register) endReread() {
	defer reg.flush()
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for device := range reg.rereading {
		reg.forgetAgain(device, reg.mark.last, reg.mark.last.Sequence+1)
	}
}

// beyond returns the devices that were removed when a former owner had read more of the log than both positions, each
// with the number of the last event. The caller holds reg.mu.
func (reg *register) beyond(generation string, start, ledger telemetry.Position) map[string]int64 {
	removed := reg.removedDevices()
	maps.DeleteFunc(removed, func(_ string, read int64) bool {
		at := telemetry.Position{Generation: generation, Sequence: read}
		return at.NotAfter(start) || at.NotAfter(ledger)
	})
	return removed
}

// removedDevices returns the devices that operators have removed, each with the number of the last event that was read
// then. The caller holds reg.mu.
func (reg *register) removedDevices() map[string]int64 {
	removed := make(map[string]int64, len(reg.forgotten))
	for _, f := range reg.forgotten {
		if f.Log == reg.logName {
			removed[string(f.Device)] = f.Sequence
		}
	}

	return removed
}
