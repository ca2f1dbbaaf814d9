package partition

import (
	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

// recall notes what the ledger has of a level: of one that is not configured any more,
// how it was, and since when it is missing.
func (reg *register) recall(from ledger.Level) {
	if reg.level(from.Rule, from.Name, from.Silent > 0, from.Measured, from.Per) != nil {
		reg.alarms.history.edited = reg.alarms.history.edited || !from.Removed.IsZero() // it is back
		return
	}

	if from.Removed.IsZero() {
		from.Removed, reg.alarms.history.edited = reg.last.untilStore, true
	}

	r := &rules.Rule{
		Name:     from.Rule,
		Field:    from.Field,
		Below:    from.Below,
		Is:       from.Is,
		Window:   from.Window,
		Resolved: from.Resolved,
		Per:      from.Per,
		Title:    from.Title,
		Unit:     from.Unit,
		Runbook:  from.Runbook,
		Silent:   from.Silent,
		Levels:   []rules.Level{{Name: from.Name}},
	}
	l := &level{Level: &r.Levels[0], rule: &rule{Rule: r}, removed: from.Removed, was: from.Measured, stats: &LevelCounters{}}
	l.target(&reg.evaluator.book)
	reg.removed = append(reg.removed, l)
}

// restore makes an alarm of what the ledger holds. passed says that the checkpoint has passed
// events after it that no rule with state has seen. The caller holds reg.mu.
func (reg *register) restore(from ledger.Alarm, passed bool) {
	l := reg.level(from.Rule, from.Level, from.Silence, from.Measured, from.Per)
	if l == nil { // a ledger names the levels of all of its alarms
		return
	}

	// Who was alerted, by whatever filters there were, the gate knows.
	k := remembered(from)
	k.alerted = everybody
	if from.Due != nil {
		k.due = rememberedNotice(from.Due)
		//planted:recovery-by-filter k.due.becomeDue(reg.evaluator.wanting(l)); skip
		k.due.becomeDue(reg.evaluator.everybody())
	}

	if k.due.silence() { // an alert
		k.due.becomeDue(reg.evaluator.wanting(l))
	}

	//planted:takeover-forgets-clear if k.Cleared != (rules.Moment{}) { k.Cleared = rules.Moment{} }
	was := k

	unsure := passed || !l.removed.IsZero() // nobody can know whether what had begun lasted

	switch {
	case k.Phase == rules.Open && unsure:
		k.Cleared = rules.Moment{}
	case k.Phase == rules.Pending && unsure:
		k.State = rules.State{}
	case l.removed.IsZero() && !l.rule.stateful:
		k.State = rules.State{}
	}

	if k.due != nil && (k.due.Settled() || !k.due.silence() && !l.rule.Resolved) {
		k.due = nil
	}

	if k.Phase == rules.Normal {
		k = alarm{due: k.due}
	}

	if k.Phase == rules.Open && l.rule.Repeat > 0 {
		k = reg.reopened(k)
		was.sending = k.sending
	}

	key := alarmKey{from.Of(), l}
	reg.alarms.set(key, k)
	reg.alarms.history.keep(key, k)
	reg.regroup(key, alarm{}, k)
	reg.restoreSilence(key, k)
	if k != was {
		reg.alarms.history.edited = true
	}
}

// reopened returns k, an alarm of the ledger that is open, as the reading that it names has opened it. Numbers are not
// compared with those of another log: nothing that will be read has told of it yet.
func (reg *register) reopened(k alarm) alarm {
	//planted:takeover-forgets-opening if true
	if k.log != reg.logName {
		k.log = reg.logName
		k.sequence, k.element = 0, 0
		if reg.last.resumed.Offset != "" {
			k.sequence = reg.last.resumed.Sequence + 1
		}
	}

	return k.sends(k.log, k.sequence, k.element)
}

// remembered returns an alarm as the ledger has it, without the notice that is due.
func remembered(from ledger.Alarm) alarm {
	phase := rules.Pending
	switch {
	case from.Since.IsZero():
		phase = rules.Normal
	case from.Open:
		phase = rules.Open
	}

	return alarm{
		State: rules.State{
			Since:   rules.Moment{Hub: micros0(from.Since), Device: micros0(from.DeviceSince)},
			Newest:  micros0(from.DeviceNewest),
			Cleared: rules.Moment{Hub: micros0(from.Cleared), Device: micros0(from.DeviceCleared)},
			Phase:   phase,
		},
		value:     float64(from.Value),
		limit:     float64(from.Limit),
		alertNext: from.Exposed,
		group:     string(from.Group),
		log:       from.Log,
		sequence:  from.Sequence,
		element:   from.Element,
	}
}

// rememberedNotice returns a notice that is due as the ledger has it.
func rememberedNotice(r *ledger.Reading) *dueNotice {
	return &dueNotice{
		saved: true,
		Notice: delivery.Notice{
			Log:       r.Log,
			Part:      throttle.Part(r.Part),
			RaisedAt:  micros0(r.RaisedAt),
			Heard:     micros0(r.Heard),
			Forgotten: r.Forgotten,
			Outage:    outageOf(r.Outage),
			Excluded:  string(r.Excluded),
			Reading: delivery.Reading{
				Value:    float64(r.Value),
				Limit:    float64(r.Limit),
				Enqueued: micros(r.Enqueued),
				Sequence: r.Sequence,
				Element:  r.Element,
				Taken:    micros0(r.DeviceTime),
				Since:    micros0(r.Since),
			},
		},
	}
}

// outageOf returns an outage as the ledger has it.
func outageOf(o *ledger.Outage) *notify.Outage {
	if o == nil {
		return nil
	}

	return &notify.Outage{Devices: o.Devices}
}
