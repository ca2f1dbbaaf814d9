package partition

import (
	"cmp"

	"alertworker/internal/delivery"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// evaluate takes the event of m through every rule: it changes the device's alarms, and takes readings to
// the receivers where a level notifies them, and marks the event as read. before is the position of the event before. It
// reports whether the event reaches a limit.
func (reg *register) evaluate(before telemetry.Position, m *Message) (over bool) {
	e := m.event
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.forgetAgain(e.Device, before, e.Sequence)
	m.examinations(func(p *part, x *examination) {
		v := evaluation{register: reg, exam: x, before: before}
		v.evaluate(p)
		over = over || v.over
	})
	//planted:late-mark skip
	reg.mark.read(e.Position) // whatever else is decided comes after it: see endRead

	return over
}

// evaluate takes one measurement through the rules of its part.
func (v *evaluation) evaluate(p *part) {
	for _, r := range p.cut.rules {
		look := r.look(p.found)
		if look.Reason != telemetry.ReasonOK {
			continue
		}

		v.exam.damaged = look.Damaged
		v.exam.look(r)
		switch {
		//planted:damaged-condition-ends case false
		case look.Excluded != nil && look.Damaged: // it ends nothing
		case look.Leaves:
		case look.Excluded != nil:
			//planted:exclusion-ends-nothing skip
			v.exclude(r, look.Excluded, look.Value)
		case look.Counts():
			v.apply(r, &look, p.found)
		}
	}

	if v.late {
		v.exam.dated = rules.TimeLate
	}

	v.exam.count()
}

// An evaluation takes one measurement of an event through the rules. The register's lock is held.
type evaluation struct {
	register *register
	exam     *examination
	before   telemetry.Position

	stateless bool // rules are taken as if none had state

	over bool
	late bool // an alarm of the device has seen a reading that was taken later
}

// follows reports whether alarms of r are followed.
func (v *evaluation) follows(r *rule) bool { return r.stateful && !v.stateless }

// exclude ends the device's alarms of a rule that does not look at it any more, because a condition does not hold.
// Nobody would end them otherwise: its readings are not evaluated.
func (v *evaluation) exclude(r *rule, because *rules.Condition, value float64) {
	if !v.follows(r) {
		return
	}

	for _, l := range r.levels {
		key := alarmKey{v.exam.about(), l}
		was := v.register.alarms.byKey[key]
		outdated := was.Outdates(v.exam.at)
		v.late = v.late || outdated
		if was.Phase == rules.Normal || outdated {
			continue
		}

		next := alarm{due: was.due}
		if was.Phase == rules.Open {
			rd := v.exam.reading(value, was.limit)
			v.date(&rd, was.Since)
			v.exam.show()
			rd.More = v.exam.more(l.own)
			if next.due = v.register.recovery(l, was, v.register.logName, throttle.Event, rd); next.due != nil {
				next.due.Excluded = because.Excluded(v.exam.evaluator.book.Decoder.Seen(v.exam.of.measurements, v.exam.element, because.Name))
			}
		}

		v.register.alarms.history.change(key, next, v.before, v.exam.event.Position)
		v.register.become(key, next)
	}
}

// apply takes a reading through one rule, the highest level first. found is what the decoder found in its measurement.
func (v *evaluation) apply(r *rule, look *rules.Look, found []telemetry.Found) {
	above := false // a higher level is open
	ended := false // or was, before this reading
	for _, l := range r.levels {
		c := l.compare(look, found)
		rd := v.exam.reading(look.Value, c.Limit)
		var p passage
		v.pass(&p, l, &rd, &c)
		p.inhibited = above
		//planted:milder-below-removed-unsent if above && !ended { skip }
		p.is.alertNext = p.followed && p.open && (p.is.alertNext || above || ended)

		isNotified := p.isWorthAlert() && v.notify(l, &p)
		v.keep(l, &p)
		if isNotified {
			v.alert(&p, &rd)
		}

		//planted:lower-beside-higher skip
		above = above || p.open
		ended = ended || p.was.Phase == rules.Open
	}
}

// A passage is how a reading goes through one level.
type passage struct {
	followed  bool  // the level has state, and there is room for it
	crowded   bool  // there is none because too many sensors of the device are not normal
	was, is   alarm // before and after it; zero unless it is followed
	breaching bool  // it reaches the limit
	outdated  bool  // the alarm has seen one that was taken later
	damaged   bool  // it says nothing, because it is short of the limit, and its message is damaged
	inhibited bool  // a higher level is open
	repeats   bool  // the rule says how often an open alarm is sent again
	open      bool  // the level is, after it

	// Of its alert: see delivery.Alert.
	key       delivery.Key
	receivers uint32
	reminder  bool
	lingers   bool
}

// isWorthAlert reports whether receivers are to be notified, if nothing is muted.
func (p *passage) isWorthAlert() bool {
	//planted:late-tells-held-back if p.outdated && !p.is.alertNext
	if p.outdated {
		return false
	}
	if !p.open || p.inhibited {
		return false
	}
	return p.breaching || !p.damaged && (p.is.alertNext || p.repeats)
}

// opened reports whether the level has opened with the reading.
func (p *passage) opened() bool {
	return p.followed && p.is.Phase == rules.Open && p.was.Phase != rules.Open
}

// pass sets p, which is zero, to how the reading rd goes through l, which compares it as c, and sets when rd and the first one of its alarm were taken.
// It does not look at higher levels, and changes nothing else.
func (v *evaluation) pass(p *passage, l *level, rd *delivery.Reading, c *rules.Comparison) {
	p.breaching = c.Reached
	if p.breaching {
		v.over = true
		l.stats.Over.Add(1)
	}

	if !v.follows(l.rule) {
		p.open = p.breaching
		return
	}

	key := alarmKey{v.exam.about(), l}
	p.was = v.register.alarms.byKey[key]
	p.is = p.was
	p.followed = true
	//planted:between-not-repeated skip
	p.repeats = l.rule.Repeat > 0

	//planted:damaged-calms if false
	if v.exam.damaged && !p.breaching { // it may alert, and never calms
		p.damaged = true
		p.open = p.was.Phase == rules.Open
		return
	}

	p.outdated = p.was.Outdates(v.exam.at)
	v.late = v.late || p.outdated
	state := l.rule.Next(l.Level, p.was.State, rd.Value, rd.Limit, c.Clear, v.exam.at)
	crowded := v.register.alarms.crowded(key)
	if state.Phase != rules.Normal && p.was == (alarm{}) && (crowded || !v.register.alarms.room()) {
		v.register.evaluator.book.Counters.Untracked.Add(1)
		p.crowded = crowded
		p.followed = false
		p.open = true // better too early than never
		return
	}

	p.open = state.Phase == rules.Open
	v.date(rd, cmp.Or(state.Since, p.was.Since))

	switch {
	case state.Phase == p.was.Phase:
		p.is.State = state
	case state.Phase == rules.Normal:
		p.is = alarm{due: p.was.due}
		if p.was.Phase == rules.Open {
			r := *rd
			v.exam.show()
			r.Limit, r.More = c.Clear, v.exam.more(l.own)
			p.is.due = v.register.recovery(l, p.was, v.register.logName, throttle.Event, r)
		}
	default:
		p.is.State = state
		p.is.value = rd.Value
		p.is.limit = rd.Limit
		if p.open {
			p.is = p.is.opened(l, v.register.logName, rd.Sequence, rd.Element)
			p.is.group = v.group(l)
		}
	}
}

// keep has the register follow the alarm of l through the reading.
func (v *evaluation) keep(l *level, p *passage) {
	if !p.followed {
		return
	}

	if p.open && v.exam.at.Hub < v.register.last.mayHaveRead {
		p.is.alerted = everybody
	}

	if p.is != p.was {
		key := alarmKey{v.exam.about(), l}
		v.register.alarms.history.change(key, p.is, v.before, v.exam.event.Position)
		v.register.become(key, p.is)
	}
}

// date sets when rd and the first reading of its alarm, at since, were taken, both by one clock.
func (v *evaluation) date(rd *delivery.Reading, since rules.Moment) {
	if since == (rules.Moment{}) {
		return
	}

	var at int64
	if at, rd.Since = v.exam.at.By(since); at != v.exam.at.Device {
		rd.Taken = 0
	}
}

// group returns the value that an alarm of l shares with other members of an incident, if it opens now; empty if it
// alerts by itself.
func (v *evaluation) group(l *level) string {
	if !l.grouped() {
		return ""
	}

	value := rules.Shared(v.exam.text(l.rule.Per))
	switch {
	case value == "":
		v.exam.evaluator.book.Counters.Unshared.Add(1)
	case !v.register.mayJoin(l, value):
		v.register.evaluator.book.Counters.Untracked.Add(1)
		return ""
	}

	return value
}

// key returns what an alert of l is about: what p says, or what the measurement does; and its topic.
func (v *evaluation) key(l *level, p *passage) (sensor.ID, *delivery.Topic) {
	switch {
	case !l.grouped():
		return v.exam.key(l)
	case p.is.group != "":
		return sensor.Of(p.is.group), l.shared
	}

	return v.exam.about(), l.own
}

// notify decides who gets an alert of l about a reading: every receiver that wants it. It reports whether there is one.
// What is muted is told later, if the alarm is still open then.
func (v *evaluation) notify(l *level, p *passage) bool {
	p.reminder = v.follows(l.rule) && !p.opened() && !p.is.alertNext
	p.lingers = p.repeats && !p.breaching && !p.is.alertNext
	//planted:muted-unsent skip
	p.is.alertNext = p.followed // unless it is told now

	if v.exam.isMuted(l) {
		return false
	}

	p.is.alertNext = false
	p.key.About, p.key.Topic = v.key(l, p)
	p.receivers = v.exam.receivers(l)
	if p.crowded && !p.key.Topic.Shared {
		p.key.About = sensor.Of(v.exam.event.Device)
		v.register.crowded(v.exam.event.Device, l.rule.Name)
	}

	if p.followed {
		//planted:told-nobody skip
		p.is.alerted |= p.receivers
	}

	return p.receivers != 0
}

// alert orders the alert of p about the reading rd.
func (v *evaluation) alert(p *passage, rd *delivery.Reading) {
	v.exam.show()
	if p.key.Topic.Incidents {
		var a delivery.Alert
		v.fill(&a, p, rd)
		v.register.alertGroup(&a, v.exam.more(p.key.Topic))

		return
	}

	o := v.register.order()
	v.fill(&o.alert.Alert, p, rd)
	o.alert.shown = v.exam.shown
	o.alert.damaged = v.exam.damaged
}

// fill sets a, which is zero, to the alert of p about the reading rd. It sets one field after the other because a literal would be
// copied, which costs a suppressed reading time.
func (v *evaluation) fill(a *delivery.Alert, p *passage, rd *delivery.Reading) {
	a.Key = p.key
	a.Reading = *rd
	a.Device = v.exam.event.Device
	a.Sensor = v.exam.sensor
	a.Before = placeOf(v.before)
	a.Receivers = p.receivers
	a.Alarm = p.is.sending
	a.Opens = p.opened()
	a.WindowSince = v.register.last.until
	a.Reminder = p.reminder
	a.Lingers = p.lingers
}
