package partition

import (
	"cmp"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// mayMatter reports whether e, whose device has this hash and in which the decoder found found, may matter to a rule:
// a value reaches a limit, or the device has an alarm. It notes limits of the device's own in o, unless that is nil.
// This is the hot path: it takes no lock and allocates nothing.
func (s *Stream) mayMatter(e *telemetry.Event, hash uint64, found []telemetry.Found, o *observation) bool {
	return s.reaches(e, found, o) || s.alarms != nil && s.alarms.mayHave(hash)
}

// reaches is mayMatter for a device without an alarm.
func (ev *Evaluator) reaches(e *telemetry.Event, found []telemetry.Found, o *observation) bool {
	reached := false
	for _, r := range ev.rules {
		f := &found[r.reads.Field]
		switch {
		case f.Reason != telemetry.ReasonOK:
		case len(r.reads.Only) > 0 && !r.applies(e, found):
			if r.Breaching(f.Value, r.mildest) {
				o.decided(Excluded, r.levels[len(r.levels)-1], f.Value, r.mildest, false, "")
			}
		case r.override: // each of them, because it counts
			reached = ev.overridden(e, r, f.Value, o) || reached
		case r.Breaching(f.Value, r.mildest):
			reached = true
		}
	}

	return reached
}

// applies reports whether r's conditions hold for e.
func (r *rule) applies(e *telemetry.Event, found []telemetry.Found) bool {
	return r.Applies(found, r.reads.Only, e.Properties)
}

// overridden reports whether value reaches a limit of r, which has overrides, for e's device. It counts
// what e has for them.
func (ev *Evaluator) overridden(e *telemetry.Event, r *rule, value float64, o *observation) (reached bool) {
	for _, l := range r.levels {
		limit, kind := l.LimitFor(e.Properties)
		if l.Override != "" {
			ev.Counters.Override[kind].Add(1)
		}

		if l.Override != "" && kind == rules.OverrideUsed {
			o.decided(NoLimit, l, value, limit, true, "")
		}

		if l.ClearOverride != "" {
			_, kind := l.clearFor(e, limit)
			ev.Counters.Override[kind].Add(1)
		}

		reached = reached || r.Breaching(value, limit)
	}

	return reached
}

// clearFor returns what ends an alarm of l for e's device, whose limit is limit, and what e has for its override.
func (l *level) clearFor(e *telemetry.Event, limit float64) (float64, rules.Override) {
	if l.ClearOverride == "" {
		return l.rule.ClearOf(l.Level, limit), rules.OverrideAbsent
	}
	return l.rule.ClearFor(l.Level, e.Properties.Get(l.ClearOverride), limit)
}

// An examination is an event and what every rule needs of it.
type examination struct {
	evaluator *Evaluator
	event     *telemetry.Event
	at        rules.Moment
	dated     rules.DeviceTime // of at
}

func (ev *Evaluator) examine(e *telemetry.Event) examination {
	x := examination{evaluator: ev, event: e, at: rules.Moment{Hub: micros(e.Enqueued)}}
	if ev.Clock != nil {
		x.at.Device, x.dated = ev.Clock.Read(e)
	}
	return x
}

// count counts how far the device's time can be used.
func (x *examination) count() {
	if x.evaluator.Clock != nil {
		x.evaluator.Counters.Times[x.dated].Add(1)
	}
}

// evaluate takes e through every rule: it changes the device's alarms, and takes the reading to
// the receivers where a level notifies them. before is the position of the event before e. It
// reports whether e reaches a limit, and completes o.
func (s *Stream) evaluate(
	before telemetry.Position,
	e *telemetry.Event,
	found []telemetry.Found,
	o *observation,
) (over bool) {
	v := evaluation{Stream: s, examination: s.examine(e), before: before, seen: o}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetAgain(e.Device, before, e.Sequence)
	for _, r := range s.rules {
		f := &found[r.reads.Field]
		if f.Reason != telemetry.ReasonOK {
			continue
		}

		if excluded := r.Excludes(found, r.reads.Only, e.Properties); excluded != nil {
			v.exclude(r, excluded, f.Value)
		} else {
			v.apply(r, f.Value)
		}
	}

	if v.late {
		v.dated = rules.TimeLate
	}

	v.count()

	return v.over
}

// An evaluation takes one event through the rules. The stream's lock is held.
type evaluation struct {
	*Stream
	examination
	before telemetry.Position
	seen   *observation

	over   bool
	shared string // what the device shares the alerts by that were decided about last; empty if nothing
	late   bool   // an alarm of the device has seen a reading that was taken later
}

// exclude ends the device's alarms of a rule that does not look at it any more, because a condition does not hold. Nobody
// would end them otherwise: its readings are not evaluated.
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
			limit, _ := l.LimitFor(v.event.Properties)
			rd := v.reading(value, limit)
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

// apply takes the event's value through one rule.
func (v *evaluation) apply(r *rule, value float64) {
	inhibited := false // by a higher level that is open
	exposed := false   // because a higher level has just ended
	for _, l := range r.levels {
		limit, kind := l.LimitFor(v.event.Properties)
		rd := v.reading(value, limit)
		breaching := r.Breaching(value, limit)
		if breaching {
			v.over = true
			l.stats.Over.Add(1)
		}

		open := breaching
		turned := false
		outdated := false
		wasExposed := false

		if r.stateful {
			was := v.alarms.byKey[alarmKey{v.event.Device, l}]
			outdated = was.Outdates(v.at)
			wasExposed = was.exposed
			open, turned = v.step(l, &rd)
			v.late = v.late || outdated
		}

		decision := NoLimit
		v.shared = ""

		switch {
		case open && (breaching && !outdated || exposed || wasExposed) && !inhibited:
			decision = v.notify(l, rd, turned)
		case outdated:
			decision = Outdated
		case breaching && open:
			decision = Inhibited
		case breaching:
			decision = StaysPending
		case open:
			decision = StaysOpen
		}

		if decision != NoLimit {
			v.seen.decided(decision, l, value, limit, l.Override != "" && kind == rules.OverrideUsed, v.shared)
		}

		inhibited = inhibited || open
		exposed = exposed || turned && !open
	}
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
		next.value, next.limit = was.value, was.limit
	default:
		next.value, next.limit = rd.Value, rd.Limit
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

// recovery returns the notice that an alarm of l has ended, with the reading r or a part of its place in a log; nil
// if nobody wants it, or there is no room for it.
func (s *Stream) recovery(l *level, log string, part throttle.Part, r delivery.Reading) *dueNotice {
	receivers := s.wanting(l)
	switch {
	case !l.rule.Resolved || receivers == 0:
		return nil
	case s.alarms.total[dueRecoveries] >= maxAlarms:
		s.Counters.Untracked.Add(1)
		return nil
	}

	n := &dueNotice{Notice: delivery.Notice{Reading: r, Log: log, Part: part}}
	n.Due(receivers)

	return n
}

// wanting returns the receivers that want alerts of l, a bit for each.
func (ev *Evaluator) wanting(l *level) (receivers uint32) {
	for i := range ev.Receivers {
		if ev.Receivers[i].Filters.Cover(l.rule.Name, l.Name) { // the gate knows which of them were alerted
			receivers |= 1 << i
		}
	}

	return receivers
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
		Opened:    opened,
		Since:     v.since,
		Reminder:  l.rule.stateful && !opened,
	}
	v.told = append(v.told, order{alert: Alert{alert, v.examination}})

	return Notified
}

// muted reports whether people have silenced a rule's alerts about a device at a time: see rules.Mute. It
// allocates nothing.
func (ev *Evaluator) muted(device, rule string, at time.Time, property func(name string) string) bool {
	if ev.Mutes == nil {
		return false
	}

	mutes := ev.Mutes()
	for i := range mutes {
		if mutes[i].Matches(device, rule, at, property) {
			return true
		}
	}

	return false
}

// silenced reports whether people have silenced alerts of l about the event, and counts that they have.
func (x *examination) silenced(l *level) bool {
	if !x.evaluator.muted(x.event.Device, l.rule.Name, x.event.Enqueued, x.property) {
		return false
	}
	x.evaluator.Counters.Quieted.Add(1)
	return true
}

// reading returns the event's reading at a level with a limit.
func (x *examination) reading(value, limit float64) delivery.Reading {
	return delivery.Reading{
		Value:    value,
		Limit:    limit,
		Enqueued: x.at.Hub,
		Sequence: x.event.Sequence,
		Device:   x.at.Device,
	}
}

// receivers returns the receivers that want an alert of l about the event, a bit for each. It counts the others.
func (x *examination) receivers(l *level) (receivers uint32) {
	for i := range x.evaluator.Receivers {
		if x.evaluator.Receivers[i].Filters.Want(l.rule.Name, l.Name, x.property) {
			receivers |= 1 << i
		} else {
			x.evaluator.Counters.Filtered.Add(1)
		}
	}

	return receivers
}

// key returns what an alert of l is about: the event's device, or what that shares its alerts by.
func (x *examination) key(l *level) delivery.Key {
	if l.rule.Per == "" {
		return delivery.Key{About: x.event.Device, Topic: l.own}
	}

	shared := rules.Shared(x.event.Properties.Get(l.rule.Per))
	if shared == "" {
		x.evaluator.Counters.Unshared.Add(1)
		return delivery.Key{About: x.event.Device, Topic: l.own}
	}

	return delivery.Key{About: shared, Topic: l.shared}
}

// more returns the event's properties that messages show, and the device if devices share these; nil if that is
// nothing.
func (x *examination) more(t *delivery.Topic) *delivery.More {
	var m delivery.More
	for _, name := range x.evaluator.Rules.Show {
		if text := x.property(name); text != "" {
			m.Shown = m.Shown.With(name, text)
		}
	}

	if t.Shared {
		m.Device = x.event.Device
	}

	if m == (delivery.More{}) {
		return nil
	}

	return &m
}

// property returns the text of one of the event's properties, "" if it has none.
func (x *examination) property(name string) string {
	p := x.event.Properties.Get(name)
	if p.IsNull() {
		return ""
	}
	return p.String()
}
