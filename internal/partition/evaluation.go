package partition

import (
	"cmp"

	"alertworker/internal/delivery"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// evaluate takes e through every rule: it changes the device's alarms, and takes the reading to
// the receivers where a level notifies them, and marks e as read. before is the position of the event before e. It
// reports whether e reaches a limit, and completes o.
func (reg *register) evaluate(
	before telemetry.Position,
	e *telemetry.Event,
	found []telemetry.Found,
	o *observation,
) (over bool) {
	v := evaluation{register: reg, examination: reg.examine(e), before: before, seen: o}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.forgetAgain(e.Device, before, e.Sequence)
	for _, r := range reg.rules {
		f := &found[r.reads.Field]
		if f.Reason != telemetry.ReasonOK {
			continue
		}

		base, has := r.base(e, found)
		excluded := r.Excludes(found, r.reads.Only, e.Properties)

		v.damaged = f.Damaged
		switch {
		case excluded != nil && f.Damaged: // it ends nothing
		case excluded != nil:
			v.exclude(r, excluded, f.Value)
		case has == rules.OverrideUsed:
			v.apply(r, f.Value, base)
		}
	}

	if v.late {
		v.dated = rules.TimeLate
	}

	v.count()
	reg.mark.read(e.Position) // whatever else is decided comes after it: see endRead

	return v.over
}

// An evaluation takes one event through the rules. The register's lock is held.
type evaluation struct {
	*register
	examination
	before telemetry.Position
	seen   *observation

	over   bool
	shared string // what the device shares the alerts by that were decided about last; empty if nothing
	late   bool   // an alarm of the device has seen a reading that was taken later
}

// exclude ends the device's alarms of a rule that does not look at it any more, because a condition does not hold.
// Nobody would end them otherwise: its readings are not evaluated.
func (v *evaluation) exclude(r *rule, because *rules.Condition, value float64) {
	if !r.stateful {
		return
	}

	for _, l := range r.levels {
		key := alarmKey{v.event.Device, l}
		was := v.alarms.byKey[key]
		outdated := was.Outdates(v.at)
		v.late = v.late || outdated
		if was.Phase == rules.Normal || outdated {
			continue
		}

		next := alarm{due: was.due}
		if was.Phase == rules.Open {
			rd := v.reading(value, was.limit)
			v.date(&rd, was.Since)
			rd.More = v.more(l.own)
			if next.due = v.recovery(l, v.logName, throttle.Event, rd); next.due != nil {
				next.due.Excluded = because.Excluded(v.event)
			}
		}

		v.alarms.history.change(key, next, v.before, v.event.Position)
		v.become(key, next)
	}
}

// apply takes the event's value through one rule, whose limits are counted from base, the highest level first.
func (v *evaluation) apply(r *rule, value, base float64) {
	inhibited := false // by a higher level that is open
	exposed := false   // because a higher level has just ended
	for _, l := range r.levels {
		limit, kind := l.LimitFor(base, v.event.Properties)
		rd := v.reading(value, limit)
		p := v.pass(l, &rd)
		p.inhibited = inhibited
		p.exposed = p.exposed || exposed

		v.shared = ""
		decision := p.decision()
		if decision == Notified {
			decision = v.notify(l, rd, p.turned)
		}

		if decision != NoLimit {
			v.seen.decided(decision, l, value, limit, l.Override != "" && kind == rules.OverrideUsed, v.shared)
		}

		inhibited = inhibited || p.open
		exposed = exposed || p.turned && !p.open
	}
}

// A passage is how a reading went through one level.
type passage struct {
	breaching bool // it reaches the limit
	outdated  bool // the alarm has seen one that was taken later
	inhibited bool // a higher level is open
	exposed   bool // a higher level has ended, with this reading or without one
	open      bool // the level is, after it
	turned    bool // the level has opened or ended with it
}

// decision returns Notified if receivers are to be notified, or why they are not.
func (p passage) decision() Decision {
	says := p.breaching && !p.outdated || p.exposed
	switch {
	case p.open && says && !p.inhibited:
		return Notified
	case p.outdated:
		return Outdated
	case p.breaching && p.open:
		return Inhibited
	case p.breaching:
		return StaysPending
	case p.open:
		return StaysOpen
	}

	return NoLimit
}

// pass takes the reading rd through l. It does not look at higher levels.
func (v *evaluation) pass(l *level, rd *delivery.Reading) passage {
	p := passage{breaching: l.rule.Breaching(rd.Value, rd.Limit)}
	if p.breaching {
		v.over = true
		l.stats.Over.Add(1)
	}

	if !l.rule.stateful {
		p.open = p.breaching
		return p
	}

	was := v.alarms.byKey[alarmKey{v.event.Device, l}]
	if v.damaged && !p.breaching { // it may alert, and never calms
		p.open = was.Phase == rules.Open
		return p
	}

	p.outdated = was.Outdates(v.at)
	p.exposed = was.exposed
	p.open, p.turned = v.step(l, rd)
	v.late = v.late || p.outdated

	return p
}

// step takes l's alarm of the device through the reading, and sets when they began. It reports
// whether l is open after it, and whether it has opened or ended.
func (v *evaluation) step(l *level, rd *delivery.Reading) (open, turned bool) {
	key, a := alarmKey{v.event.Device, l}, v.alarms
	was := a.byKey[key]
	clear, _ := l.clearFor(v.event, rd.Limit)
	next := alarm{State: l.rule.Next(l.Level, was.State, rd.Value, rd.Limit, clear, v.at), due: was.due}
	switch {
	case next.Phase == rules.Normal:
	case was == (alarm{}) && !a.room(key.device):
		v.Counters.Untracked.Add(1)
		return true, false // there is no room for its state: better too early than never
	case was.Phase == next.Phase:
		next.value = was.value
		next.limit = was.limit
		next.log = was.log
		next.sequence = was.sequence
		next.sending = was.sending
		next.told = was.told
	default:
		next.value = rd.Value
		next.limit = rd.Limit
		if next.Phase == rules.Open && l.rule.Repeat > 0 {
			next = next.opened(v.logName, rd.Sequence)
		}
	}

	open = next.Phase == rules.Open
	turned = open != (was.Phase == rules.Open)
	v.date(rd, cmp.Or(next.Since, was.Since))
	switch {
	case next == was:
		return open, false
	case turned && open:
		next.due = nil
	case turned:
		r := *rd
		r.Limit, r.More = clear, v.more(l.own)
		next.due = v.recovery(l, v.logName, throttle.Event, r)
	}

	a.history.change(key, next, v.before, v.event.Position)
	v.become(key, next)

	return open, turned
}

// date sets when rd and the first reading of its alarm, at since, were taken, both by one clock.
func (v *evaluation) date(rd *delivery.Reading, since rules.Moment) {
	if since == (rules.Moment{}) {
		return
	}

	var at int64
	if at, rd.Since = v.at.By(since); at != v.at.Device {
		rd.Device = 0
	}
}

// notify takes a reading to every receiver that wants alerts of l. opened says that it has opened an alarm. It returns
// Notified, or why nobody is.
func (v *evaluation) notify(l *level, rd delivery.Reading, opened bool) Decision {
	if v.Rules.Quiet != "" && rules.Quiet(v.event.Properties.Get(v.Rules.Quiet), v.event.Enqueued) {
		v.Counters.Quieted.Add(1)
		return Muted
	}

	if v.silenced(l) {
		return Silenced
	}

	key, receivers := v.key(l), v.receivers(l)
	if key.Shared {
		v.shared = key.About
	}

	if receivers == 0 {
		return Unwanted
	}

	alert := delivery.Alert{
		Key:       key,
		Reading:   rd,
		Sender:    v.event.Device,
		Before:    placeOf(v.before),
		Receivers: receivers,
		Alarm:     v.alarms.byKey[alarmKey{v.event.Device, l}].sending,
		Opened:    opened,
		Since:     v.since,
		Reminder:  v.reminds(l),
	}
	v.told = append(v.told, order{alert: Alert{alert, v.examination}})

	return Notified
}

// reminds notes that receivers are told of the device's alarm of l, and reports whether they were before. Of an alarm
// for which there is no room nobody knows.
func (v *evaluation) reminds(l *level) bool {
	key := alarmKey{v.event.Device, l}
	a, tracked := v.alarms.byKey[key]
	if !l.rule.stateful || !tracked || a.told {
		return l.rule.stateful
	}

	a.told = true
	v.alarms.set(key, a)
	v.alarms.history.change(key, a, v.before, v.event.Position)

	return false
}
