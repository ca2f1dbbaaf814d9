package partition

import (
	"slices"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A Message takes one event after the other through the cuts of an Evaluator. It is for one goroutine.
type Message struct {
	evaluator *Evaluator
	event     *telemetry.Event
	parts     []part
	exam      examination // of the measurement that is being evaluated
	part      *part       // of the measurement that was looked at last, and its index
	index     int
}

// A part is what a cut makes of the event.
type part struct {
	cut          *cut
	measurements *telemetry.Measurements
	found        []telemetry.Found // in the measurement that was looked at last
	n            int               // how many measurements there are
}

func (ev *Evaluator) newMessage() *Message {
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

// Borrow returns a Message for ev, to be given back.
func (ev *Evaluator) Borrow() *Message { return ev.messages.Get().(*Message) }

// GiveBack gives back what Borrow returned.
func (ev *Evaluator) GiveBack(m *Message) {
	m.event = nil
	m.exam = examination{}
	ev.messages.Put(m)
}

// Read decodes e, and counts that. It reports whether e reaches a limit of a rule without state, as nearly no event does.
func (m *Message) Read(e *telemetry.Event) (reason telemetry.Reason, reaches bool) {
	reason, reaches = m.look(e, func(*part, telemetry.Reason) bool { return true })
	m.evaluator.book.Counters.Events[reason].Add(1)
	return reason, reaches
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
			if heard(p, why) && why.HasReading() {
				reaches = m.reaches(p) || reaches
			}
		}

		if p.n == 0 {
			all.Add(p.cut.Cut, why)
		}
	}

	return all.All(), reaches
}

// seen returns what the measurement that was looked at last has at a name: see rules.Decoder.Seen.
func (m *Message) seen(name string) string {
	return m.evaluator.book.Decoder.Seen(m.part.measurements, m.index, name)
}

// counts reports whether the event is a sign of life of its device.
func (m *Message) counts(reason telemetry.Reason) bool {
	return m.event.Device != "" && reason != telemetry.ReasonNotTelemetry && !notify.IsTest(m.event.Device)
}

// reaches reports whether the measurement that was read last reaches a limit of a rule without state.
func (m *Message) reaches(p *part) bool {
	reached := false
	for _, r := range p.cut.rules {
		if p.found[r.reads.Field].Reason != telemetry.ReasonOK {
			continue
		}

		look := r.look(p.found)
		switch {
		case look.Leaves, look.Excluded != nil:
		case r.override: // each of them, because it counts
			reached = m.overridden(p, r, &look) || reached
		case r.Breaching(look.Value, r.mildest):
			reached = true
		}
	}

	return reached
}

// overridden reports whether a reading in p reaches a limit of r, whose measurements say something of those. It counts
// what they do.
func (m *Message) overridden(p *part, r *rule, look *rules.Look) (reached bool) {
	isCounted := r.Base() != ""
	if isCounted { // once, for all levels
		m.evaluator.book.Counters.Override[look.HasLimits].Add(1)
	}

	if look.HasLimits != rules.OverrideUsed {
		return false
	}

	for _, l := range r.levels {
		c := l.compare(look, p.found)
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

// examinations calls evaluate with each measurement of the event, in the order in which they were taken.
func (m *Message) examinations(evaluate func(*part, *examination)) {
	for i := range m.parts {
		p := &m.parts[i]
		if p.n > 1 && m.evaluator.book.Clock != nil {
			//planted:elements-as-they-stand skip
			m.evaluator.book.Clock.Sort(p.measurements)
		}

		for j := range p.n {
			//planted:elements-reversed j = p.n - 1 - j
			if p.n > 1 { // else it was read last
				p.measurements.Read(p.cut.Cut.Decoder, j, p.found)
			}

			x := &m.exam // is not passed by value because it is large
			*x = examination{
				evaluator: m.evaluator,
				event:     m.event,
				element:   j,
				at:        rules.Moment{Hub: micros(m.event.Enqueued)},
				of:        p,
			}
			if m.evaluator.book.Clock != nil {
				x.at.Device, x.dated = m.evaluator.book.Clock.Read(p.measurements, j)
			}
			evaluate(p, x)
		}
	}
}

// Sensors returns the names of the sensors of whom rules look at a reading in the event, each with VerdictNormal; nil if
// there is none. It is called after Alerts, or instead.
func (m *Message) Sensors() map[string]telemetry.Verdict {
	var all map[string]telemetry.Verdict
	var name []byte
	for i := range m.parts {
		p := &m.parts[i]
		if !slices.ContainsFunc(p.cut.rules, func(r *rule) bool { return len(r.Sensor) > 0 }) {
			continue
		}

		for j := range p.n {
			p.measurements.Read(p.cut.Cut.Decoder, j, p.found)
			for _, r := range p.cut.rules {
				if p.found[r.reads.Field].Reason != telemetry.ReasonOK || r.look(p.found).Excluded != nil {
					continue
				}

				name = r.AppendSensor(name[:0], p.measurements, p.found, r.reads)
				if len(name) == 0 {
					continue
				}

				if all == nil {
					all = map[string]telemetry.Verdict{}
				}
				all[string(name)] = telemetry.VerdictNormal
			}
		}
	}

	return all
}

// Alerts takes the event, which has no place in a log, through every rule as if none had state. It returns the alerts
// that somebody wants, and whether it reaches a limit. The highest level of a rule that it reaches alerts.
func (m *Message) Alerts() (alerts []Alert, over bool) {
	nobody := &register{evaluator: m.evaluator} // which follows no alarm
	m.examinations(func(p *part, x *examination) {
		v := evaluation{register: nobody, exam: x, stateless: true}
		v.evaluate(p)
		over = over || v.over
	})

	for _, o := range nobody.pending {
		alerts = append(alerts, o.alert)
	}

	if over {
		m.evaluator.book.Counters.Over.Add(1)
	}

	return alerts, over
}
