package partition

import (
	"math"
	"slices"

	"alertworker/internal/delivery"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// A removal is that of a device, or of one of its sensors, by an operator.
type removal struct {
	of    sensor.ID
	at    telemetry.Position // the last event that was read then
	saved chan struct{}      // closed once the stores say so: see savedRemovals
}

// remove ends the alarms of a sensor, or of a device with all of its sensors. It does so if there is an alarm, or if it is
// known otherwise. It returns what is closed once the stores say so, or nil if it is not known.
func (reg *register) remove(of sensor.ID, known bool) <-chan struct{} {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.last.until.IsZero() { // without a ledger
		return nil
	}

	//planted:removed-stays-open known = known || len(reg.alarms.keysOf(of, reg.levels)) > 0; skip
	known = reg.endAlarms(of) || known
	if !known {
		i := slices.IndexFunc(reg.removals, func(r removal) bool { return r.of == of }) // somebody has asked before
		if i < 0 {
			return nil
		}
		return reg.removals[i].saved
	}

	//planted:removed-open-after-crash skip
	reg.changeBehind(alarmKey{}, alarm{}) // the ledger moves on to here, although nothing may have changed
	r := removal{of, reg.mark.last, make(chan struct{})}
	reg.removals = append(reg.removals, r)

	return r.saved
}

// savedRemovals notes that the roster in the store knows of the first n removals, and closes those that the ledger has
// passed: who begins with these two reads no event again that was read before.
func (reg *register) savedRemovals(n int) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	left := slices.Clone(reg.removals[n:])
	for _, r := range reg.removals[:n] {
		//planted:removed-open-after-crash if true
		if r.at.Offset == "" || r.at.NotAfter(reg.alarms.history.position) {
			close(r.saved)
		} else {
			left = append(left, r)
		}
	}

	reg.removals = left
}

// endAlarms ends the alarms of a sensor, or of a device with all of its sensors, but for silences that are watched, and
// reports whether there were any. The caller holds reg.mu.
func (reg *register) endAlarms(of sensor.ID) (any bool) {
	now := micros(reg.storeTime())
	for _, key := range reg.alarms.keysOf(of, reg.levels) {
		k, l := reg.alarms.byKey[key], key.level
		switch {
		case k.Phase == rules.Normal, l.rule.Silence() && l.removed.IsZero():
			continue
		case k.Phase == rules.Open:
			reg.become(key, reg.changeBehind(key, reg.ended(key, now, true)))
		default:
			reg.become(key, reg.changeBehind(key, alarm{due: k.due}))
		}

		any = true
	}

	return any
}

// changeBehind records that an alarm becomes k behind the last event read, and returns k: while an alert about an earlier
// event is not settled, the ledger keeps the alarm as it was, and so does an owner that reads them again. The caller
// holds reg.mu.
func (reg *register) changeBehind(key alarmKey, k alarm) alarm {
	h, last := &reg.alarms.history, reg.mark.last
	//planted:removed-due-lost if true
	if last.Offset == "" || last.NotAfter(h.position) {
		h.replace(key, k)
		return k
	}

	h.change(key, k, reg.committed, last)
	return k
}

// endRemoved ends the alarms of levels that are removed, once no replica has them any more: nothing else ever would.
// During a rollout the partition may go on to a replica that has them. One about the hub goes on for as long as another rule
// has one: whoever heard of the hub by the removed rule hears of it by no other.
func (reg *register) endRemoved() {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	hasRemoved := len(reg.levels) > len(reg.evaluator.levels)
	//planted:removed-at-once if !hasRemoved
	if !hasRemoved || !reg.evaluator.book.Alike(reg.last.until) {
		return
	}

	hub := sensor.Of(notify.Hub)
	isCutOff := slices.ContainsFunc(reg.evaluator.silences, func(r *rule) bool {
		return reg.alarms.byKey[alarmKey{hub, r.levels[0]}].Phase == rules.Open
	})
	now := micros(reg.storeTime())
	for key, k := range reg.alarms.byKey {
		//planted:cut-off-ends-with-rule if !key.level.removed.IsZero() && k.Phase == rules.Open
		if !key.level.removed.IsZero() && k.Phase == rules.Open && !(isCutOff && key.about == hub) {
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

// ended returns what end leaves of the open alarm of key: a recovery about the end of a silence, or about the last event
// read, so that no alert was about a later one. The caller holds reg.mu.
func (reg *register) ended(key alarmKey, now int64, forgotten bool) alarm {
	l, was := key.level, reg.alarms.byKey[key]
	r := delivery.Reading{Value: was.value, Limit: was.limit, Since: was.Since.Hub}
	log, part, raised := was.log, throttle.End, now
	if l.rule.Silence() {
		r.Enqueued, r.Sequence = now, was.sequence
		raised = reg.noticedAt(now)
	} else {
		last := reg.mark.last
		if last == (telemetry.Position{}) {
			last = reg.alarms.history.position
		}

		log, part = logName(last.Generation, reg.id), throttle.Event
		r.Enqueued, r.Sequence = micros(last.Time), last.Sequence
		if l.id.measured != "" { // behind all elements of the message
			r.Element = math.MaxInt32
		}
	}

	return alarm{due: reg.recovery(key, was, &dueNotice{Notice: delivery.Notice{
		Reading:   r,
		Log:       log,
		Part:      part,
		RaisedAt:  raised,
		Forgotten: forgotten,
	}})}
}

// noticedAt returns when something is noticed of a silence, in Unix µs, that is known of a time: never earlier than what was
// noticed before, by this owner or another one.
func (reg *register) noticedAt(known int64) int64 {
	if reg.last.until.IsZero() { // there is no ledger, and no other owner
		return known
	}
	return max(known, micros(reg.storeTime()))
}
