package partition

import (
	"cmp"

	"alertworker/internal/delivery"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// A Message takes one event after the other through the cuts of an Evaluator. It is for one goroutine.
type Message struct {
	evaluator  *Evaluator
	event      *telemetry.Event
	parts      []part
	evaluation evaluation // of the measurement that is being evaluated
	part       *part      // of the measurement that was looked at last, and its index
	index      int
}

// A part is what a cut makes of the event.
type part struct {
	cut          *cut
	measurements *telemetry.Measurements
	found        []telemetry.Found // in the measurement that was looked at last
	n            int               // how many measurements there are
}

// NewMessage returns a Message that has no event yet.
func (ev *Evaluator) NewMessage() *Message {
	m := &Message{evaluator: ev}
	for _, c := range ev.cuts {
		m.parts = append(m.parts, part{
			cut:          c,
			measurements: telemetry.NewMeasurements(c.Cut.Each),
			found:        make([]telemetry.Found, len(c.Cut.Fields)),
		})
	}

	return m
}

// look decodes e. It calls heard with each measurement that can be decoded, and if that returns true, looks whether it
// reaches a limit. This is the hot path: it takes no lock and allocates nothing.
func (m *Message) look(
	e *telemetry.Event,
	heard func(*part, telemetry.Reason) bool,
) (reason telemetry.Reason, reaches bool) {
	m.event = e
	var all rules.Reasons
	for i := range m.parts {
		p := &m.parts[i]
		var why telemetry.Reason
		p.n, why = p.measurements.Split(e)
		for j := range p.n {
			m.part, m.index = p, j
			why = p.measurements.Read(p.cut.Cut.Decoder, j, p.found)
			all.Add(p.cut.Cut, why)
			if !heard(p, why) || !why.HasReading() {
				continue
			}

			for _, r := range p.cut.rules { // each of them, because it counts
				reaches = m.reaches(p, r) || reaches
			}
		}

		if p.n == 0 {
			all.Add(p.cut.Cut, why)
		}
	}

	return all.All, reaches
}

// reaches reports whether the measurement in p that was read last reaches a limit of r, as one without state. If measurements
// say something of r's limits, it counts what they do.
func (m *Message) reaches(p *part, r *rule) (reached bool) {
	if p.found[r.reads.Field].Reason != telemetry.ReasonOK {
		return false
	}

	look := r.Look(p.found, r.reads)
	switch {
	case look.Leaves, look.Excluded != nil:
		return false
	case !r.override:
		return r.Breaching(look.Value, r.mildest)
	}

	isCounted := r.Base() != ""
	if isCounted { // once, for all levels
		m.evaluator.book.Counters.Override[look.HasLimits].Add(1)
	}

	if look.HasLimits != rules.OverrideUsed {
		return false
	}

	for _, l := range r.levels {
		c := look.Compare(l.place, p.found, r.reads)
		if !isCounted && l.LimitAt.Name != "" {
			m.evaluator.book.Counters.Override[c.HasLimit].Add(1)
		}

		if l.ClearAt.Name != "" {
			m.evaluator.book.Counters.Override[c.HasClear].Add(1)
		}

		reached = reached || c.Reached
	}

	return reached
}

// evaluate takes the measurements of the event through every rule, in the order in which they were taken: it changes reg's
// alarms, and takes readings to the receivers where a level notifies them. The caller holds reg.mu. before is the position of
// the event before. It reports whether the event reaches a limit.
func (m *Message) evaluate(reg *register, before telemetry.Position) (over bool) {
	clock := m.evaluator.book.Clock
	for i := range m.parts {
		p := &m.parts[i]
		if p.n > 1 && clock != nil {
			//planted:elements-as-they-stand skip
			clock.Sort(p.measurements)
		}

		for j := range p.n {
			//planted:elements-reversed j = p.n - 1 - j
			if p.n > 1 { // else it was read last
				p.measurements.Read(p.cut.Cut.Decoder, j, p.found)
			}

			v := &m.evaluation
			*v = evaluation{
				register:  reg,
				evaluator: m.evaluator,
				event:     m.event,
				before:    before,
				part:      p,
				element:   j,
				at:        rules.Moment{Hub: micros(m.event.Enqueued)},
			}
			if clock != nil {
				v.at.Device, v.dated = clock.Read(p.measurements, j)
			}

			for _, r := range p.cut.rules {
				v.apply(r)
			}

			over = over || v.over
			if clock != nil {
				m.evaluator.book.Counters.Times[v.dated].Add(1)
			}
		}
	}

	return over
}

// An evaluation takes one measurement of an event through the rules of its part. The register's lock is held.
type evaluation struct {
	register  *register
	evaluator *Evaluator
	event     *telemetry.Event
	before    telemetry.Position // of the event before
	part      *part
	element   int // which of the event's measurements it is
	at        rules.Moment
	dated     rules.DeviceTime // of at, or that an alarm of the device has seen a reading that was taken later

	// As the rule sees it that is being evaluated.
	about    sensor.ID        // of what the measurement is: of the event's device, or of one of its sensors
	damaged  bool             // the event's body is: see telemetry.Found
	excluded *rules.Condition // for which the rule does not look at it; nil if there is none

	shown notify.Shown // see show
	over  bool         // it reaches a limit
}

// follows reports whether alarms of r are followed.
func (v *evaluation) follows(r *rule) bool { return r.stateful && v.register.alarms != nil }

// text returns the text that the measurement has at a name, "" if it has none.
func (v *evaluation) text(name string) string {
	return v.evaluator.book.Decoder.Text(v.part.measurements, v.element, name)
}

// apply takes the measurement through one rule: through its levels, the highest first. A condition that excludes it ends their
// alarms: nobody would end them otherwise, because no reading is compared any more.
func (v *evaluation) apply(r *rule) {
	look := r.Look(v.part.found, r.reads)
	if look.Reason != telemetry.ReasonOK {
		return
	}

	v.damaged = look.Damaged
	v.excluded = look.Excluded
	v.about = sensor.Of(v.event.Device)
	if len(r.Sensor) > 0 {
		v.about.Name = string(r.AppendSensor(nil, v.part.measurements, v.part.found, r.reads))
		if v.about.Name == "" {
			v.evaluator.book.Counters.Nameless.Add(1)
		}
	}

	//planted:exclusion-ends-nothing if look.Leaves || !look.Counts()
	if look.Leaves || v.excluded == nil && !look.Counts() {
		return
	}

	above := false // a higher level is open
	ended := false // or was, before this reading
	for _, l := range r.levels {
		c := look.Compare(l.place, v.part.found, r.reads)
		c.Reached = c.Reached && v.excluded == nil
		rd := delivery.Reading{
			Value:    look.Value,
			Limit:    c.Limit,
			Enqueued: v.at.Hub,
			Sequence: v.event.Sequence,
			Element:  v.element,
			Taken:    v.at.Device,
		}

		// How it goes through the level.
		var p passage
		v.pass(&p, l, &rd, &c)

		// Who is alerted.
		//planted:milder-below-removed-unsent if above && !ended { skip }
		p.is.alertNext = p.followed && p.open && (p.is.alertNext || above || ended)
		//planted:late-tells-held-back p.moot = p.moot && !p.is.alertNext
		mayAlert := p.open && !above && !p.moot
		hasCause := p.breaching || p.is.alertNext || p.repeats
		var alert *delivery.Alert
		if mayAlert && hasCause {
			alert = v.alertOf(l, &p, &rd)
		}

		if p.followed && p.open && v.at.Hub < v.register.last.mayHaveRead {
			p.is.alerted = everybody
		}

		// The alarm changes, and then its alert goes.
		if p.followed && p.is != p.was {
			key := alarmKey{v.about, l}
			v.register.alarms.history.change(key, p.is, v.before, v.event.Position)
			v.register.become(key, p.is)
		}

		switch {
		case alert == nil:
		case alert.Key.Topic.Incidents:
			v.register.alertGroup(alert)
		case v.register.out == nil:
			v.register.alerts = append(v.register.alerts, *alert)
		default:
			v.register.out.Alert(alert)
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
	moot      bool  // it says nothing: the alarm has seen one that was taken later, or its message is damaged
	repeats   bool  // the rule says how often an open alarm is sent again
	open      bool  // the level is, after it
	opens     bool  // it has opened an alarm
}

// pass sets p, which is zero, to how the reading rd goes through l, which compares it as c, and sets when rd and the first one
// of its alarm were taken. It does not look at higher levels, and changes nothing else.
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

	key := alarmKey{v.about, l}
	p.was = v.register.alarms.byKey[key]
	p.is = p.was
	p.followed = true
	//planted:between-not-repeated skip
	p.repeats = l.rule.Repeat > 0

	//planted:damaged-calms if false
	//planted:damaged-condition-ends if v.damaged && !p.breaching && v.excluded == nil
	if v.damaged && !p.breaching { // it may alert, and never calms
		p.moot = true
		p.open = p.was.Phase == rules.Open
		return
	}

	p.moot = p.was.Outdates(v.at)
	if p.moot {
		v.dated = rules.TimeLate
	}

	state := l.rule.Next(l.Level, p.was.State, rd.Value, rd.Limit, c.Clear, v.at)
	if v.excluded != nil && !p.moot {
		state = rules.State{}
	}

	crowded := v.register.alarms.crowded(key)
	if state.Phase != rules.Normal && p.was == (alarm{}) && (crowded || !v.register.alarms.room()) {
		v.evaluator.book.Counters.Untracked.Add(1)
		p.crowded = crowded
		p.followed = false
		p.open = true // better too early than never
		return
	}

	p.open = state.Phase == rules.Open
	if since := cmp.Or(state.Since, p.was.Since); since != (rules.Moment{}) {
		var at int64
		if at, rd.Since = v.at.By(since); at != v.at.Device { // both by one clock
			rd.Taken = 0
		}
	}

	switch {
	case state.Phase == p.was.Phase:
		p.is.State = state
	case state.Phase == rules.Normal:
		p.is = alarm{due: p.was.due}
		if p.was.Phase == rules.Open {
			p.is.due = v.recovery(key, p.was, rd, c.Clear)
		}
	default:
		p.is.State = state
		p.is.value = rd.Value
		p.is.limit = rd.Limit
		if p.open {
			p.opens = true
			p.is.alerted = p.is.due.receivers() // whoever has not heard of the recovery that was due gets the next one
			if l.id.per != "" {
				p.is.group = v.group(l)
			}
			//planted:member-drops-own-recovery if true
			if p.is.group == "" { // else people are told of its incident, and of the recovery all the same
				p.is.due = nil
			}
			if l.rule.Repeat > 0 {
				p.is = p.is.sends(v.register.logName, rd.Sequence, rd.Element)
			}
		}
	}
}

// recovery returns the notice that the reading rd, which is beyond clear or excluded, has ended an alarm; nil if nobody was
// alerted.
func (v *evaluation) recovery(key alarmKey, was alarm, rd *delivery.Reading, clear float64) *dueNotice {
	due := &dueNotice{Notice: delivery.Notice{Reading: *rd, Log: v.register.logName}}
	due.Reading.Limit = clear
	if shown := v.show(); shown != "" {
		due.Reading.More = &delivery.More{Shown: shown}
	}

	if v.excluded != nil {
		due.Reading.Limit = was.limit
		due.Excluded = v.excluded.Excluded(v.evaluator.book.Decoder.Seen(v.part.measurements, v.element, v.excluded.Name))
	}

	return v.register.recovery(key, was, due)
}

// group returns the value that an alarm of l, which has incidents, shares with other members of one, if it opens now; empty if
// it alerts by itself.
func (v *evaluation) group(l *level) string {
	value := rules.Shared(v.text(l.rule.Per))
	switch {
	case value == "":
		v.evaluator.book.Counters.Unshared.Add(1)
	case !v.register.mayJoin(l, value):
		v.evaluator.book.Counters.Untracked.Add(1)
		return ""
	}

	return value
}

// alertOf returns the alert of l about the reading rd to every receiver that wants it, nil if there is none: while it is muted
// nobody is told, but later, if the alarm is still open. The alarm p.is remembers which of these it is, and who was alerted. The
// next alert is in the same place.
func (v *evaluation) alertOf(l *level, p *passage, rd *delivery.Reading) *delivery.Alert {
	book, counters := &v.evaluator.book, v.evaluator.book.Counters
	isReminder := v.follows(l.rule) && !p.opens && !p.is.alertNext
	lingers := p.repeats && !p.breaching && !p.is.alertNext

	// Nobody, while it is muted.
	if len(book.Rules.Mutes) > 0 || len(book.Mutes()) > 0 { // it costs less to ask this first
		about := rules.Subject{
			Device:   v.event.Device,
			Sensor:   v.about.Name,
			Rule:     l.rule.Name,
			Enqueued: v.event.Enqueued,
			Text:     v.text,
		}
		//planted:message-mutes-nothing about.Text = func(string) string { return "" }
		if v.evaluator.muted(&about) {
			counters.Quieted.Add(1)
			//planted:muted-unsent skip
			p.is.alertNext = p.followed
			return nil
		}
	}

	p.is.alertNext = false

	// What it is about: a value that devices share, the device with all of its sensors, or what the reading is of.
	shared := p.is.group
	if l.rule.Per != "" && l.id.per == "" {
		if shared = rules.Shared(v.text(l.rule.Per)); shared == "" {
			counters.Unshared.Add(1)
		}
	}

	a := &v.register.alert
	switch {
	case shared != "":
		a.Key = delivery.Key{About: sensor.Of(shared), Topic: l.shared}
	case p.crowded:
		a.Key = delivery.Key{About: sensor.Of(v.event.Device), Topic: l.own}
		v.register.crowded(v.event.Device, l.rule.Name)
	default:
		a.Key = delivery.Key{About: v.about, Topic: l.own}
	}

	// Who wants it.
	a.Receivers = 0
	for i := range book.Receivers {
		if book.Receivers[i].Filters.Want(l.rule.Name, l.Name, v.text) {
			a.Receivers |= 1 << i
		} else {
			counters.Filtered.Add(1)
		}
	}

	if p.followed {
		//planted:told-nobody skip
		p.is.alerted |= a.Receivers
	}

	if a.Receivers == 0 {
		return nil
	}

	// One field after the other, because a literal would be copied, which costs a suppressed reading time.
	a.Shown = v.show()
	a.Damaged = v.damaged
	a.Reading = *rd
	a.Device = v.event.Device
	a.Sensor = v.about.Name
	a.Before = placeOf(v.before)
	a.Alarm = p.is.sending
	a.Opens = p.opens
	a.WindowSince = v.register.last.until
	a.Reminder = isReminder
	a.Lingers = lingers

	return a
}

// show returns what messages show of the measurement, which is not there any more when they are sent.
func (v *evaluation) show() notify.Shown {
	if v.shown != "" {
		return v.shown
	}

	for _, name := range v.evaluator.book.Rules.Show {
		if text := v.text(name); text != "" {
			v.shown = v.shown.With(name, text)
		}
	}

	return v.shown
}

// Read decodes e, and counts that. It reports whether e reaches a limit of a rule without state, as nearly no event does.
func (m *Message) Read(e *telemetry.Event) (reason telemetry.Reason, reaches bool) {
	reason, reaches = m.look(e, func(*part, telemetry.Reason) bool { return true })
	m.evaluator.book.Counters.Events[reason].Add(1)
	return reason, reaches
}

// Alerts takes the event, which has no place in a log, through every rule as if none had state. It returns the alerts
// that somebody wants, and whether it reaches a limit. The highest level of a rule that it reaches alerts.
func (m *Message) Alerts() (alerts []delivery.Alert, over bool) {
	nobody := &register{evaluator: m.evaluator} // which follows no alarm
	over = m.evaluate(nobody, telemetry.Position{})
	if over {
		m.evaluator.book.Counters.Over.Add(1)
	}

	return nobody.alerts, over
}

// Sensors returns the names of the sensors of whom rules look at a reading in the event, each with VerdictNormal. It is called
// after Alerts, or instead.
func (m *Message) Sensors() map[string]telemetry.Verdict {
	all := map[string]telemetry.Verdict{}
	for i := range m.parts {
		p := &m.parts[i]
		for j := range p.n {
			p.measurements.Read(p.cut.Cut.Decoder, j, p.found)
			for _, r := range p.cut.rules {
				look := r.Look(p.found, r.reads)
				name := r.AppendSensor(nil, p.measurements, p.found, r.reads)
				if look.Reason == telemetry.ReasonOK && look.Excluded == nil && len(name) > 0 {
					all[string(name)] = telemetry.VerdictNormal
				}
			}
		}
	}

	return all
}
