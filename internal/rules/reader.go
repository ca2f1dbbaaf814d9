package rules

import (
	"cmp"
	"fmt"
	"strings"

	"alertworker/internal/humanize"
	"alertworker/internal/telemetry"
)

// A Reader takes single events through the rules of a Set, for people who ask what rules find in them. It decides by
// what workers decide by, and keeps no state. It is for one goroutine.
type Reader struct {
	set     *Set
	decoder *Decoder
	clock   *Clock // nil if the set has no Time
	cuts    []reading
}

// reading is what a Reader reads by a Cut.
type reading struct {
	*Cut
	measurements *telemetry.Measurements
	found        []telemetry.Found
}

// A View is what a rule finds in an event, or in one of its measurements.
type View struct {
	Look // Excluded is nil, too, if the event has no body in which a condition could be met
	// Sensor is the sensor that the measurement is of; empty: the device's own.
	Sensor string
	// Has is what the measurement has instead of what Excluded asks for, with quotes if it is text of it; empty if it has
	// nothing.
	Has string
	// Mutes are the indexes of the set's mutes that are about it.
	Mutes []int
	// Taken is when it was taken by its device's clock, in Unix µs; 0 if that is not known, or not trusted.
	Taken int64
	// Levels are what each level of the rule says, if it HasLimits.
	Levels []Comparison
	// Shared is what the device shares the rule's alerts by; empty if nothing.
	Shared string
	// Body is the measurement as JSON, or the body.
	Body []byte
}

// Reader returns a Reader for s. Its error is that of Decoder.
func (s *Set) Reader() (*Reader, error) {
	decoder, err := s.Decoder()
	if err != nil {
		return nil, err
	}

	r := &Reader{set: s, decoder: decoder}
	for i := range decoder.Cuts {
		c := &decoder.Cuts[i]
		r.cuts = append(r.cuts, reading{c, telemetry.NewMeasurements(c.Each), make([]telemetry.Found, len(c.Fields))})
	}

	r.clock, err = s.Clock()

	return r, err
}

// Read returns what each rule finds in e, in the order of the rules, once for each measurement that it has for them and
// at least once, and what decoding e gave for all of them: ReasonOK if a field of one has a reading.
func (r *Reader) Read(e *telemetry.Event) (views []View, reason telemetry.Reason) {
	byRule := make([][]View, len(r.set.Rules))
	reasons := Reasons{}
	for i := range r.cuts {
		c := &r.cuts[i]
		n, why := c.measurements.Split(e)
		if c.Each != nil && n > 1 && r.clock != nil {
			r.clock.Sort(c.measurements)
		}

		for j := range n {
			why = c.measurements.Read(c.Decoder, j, c.found)
			reasons.Add(c.Cut, why)
			r.view(c, j, why, byRule)
		}

		if n == 0 {
			reasons.Add(c.Cut, why)
			for _, i := range c.Rules {
				byRule[i] = append(byRule[i], View{Look: Look{Rule: &r.set.Rules[i], Found: telemetry.Found{Reason: why}}})
			}
		}
	}

	for _, v := range byRule {
		views = append(views, v...)
	}

	return views, reasons.All
}

// view adds to views what the rules of c find in its measurement i.
func (r *Reader) view(c *reading, measurement int, why telemetry.Reason, views [][]View) {
	m := c.measurements
	for j, i := range c.Rules {
		rule := &r.set.Rules[i]
		reads := &c.Reads[j]
		view := View{Look: rule.Look(c.found, reads), Body: m.Value(measurement)}
		if reads.Field < 0 && (why == telemetry.ReasonNotTelemetry || why == telemetry.ReasonNoDevice) {
			view.Reason = why
		}

		if !view.Reason.Decoded() {
			view.Look = Look{Rule: rule, Found: view.Found}
		} else {
			for level := range rule.Levels {
				view.Levels = append(view.Levels, view.Compare(level, c.found, reads))
			}

			view.Sensor = string(rule.AppendSensor(nil, m, c.found, reads))
		}

		views[i] = append(views[i], view)
	}

	taken := int64(0)
	if r.clock != nil {
		taken, _ = r.clock.Read(m, measurement)
	}

	for _, i := range c.Rules { // which reads m again
		v := &views[i][len(views[i])-1]
		v.Taken = taken
		v.Mutes = r.mutes(m, measurement, v)
		if v.Excluded != nil {
			v.Has = r.decoder.Seen(m, measurement, v.Excluded.Name)
		}
		if v.Reason == telemetry.ReasonOK && v.Rule.Per != "" {
			v.Shared = Shared(r.decoder.Text(m, measurement, v.Rule.Per))
		}
	}
}

// mutes returns the indexes of the mutes that are about what a rule sees in the i-th of m.
func (r *Reader) mutes(m *telemetry.Measurements, i int, v *View) (all []int) {
	about := Subject{
		Device:   m.Event.Device,
		Sensor:   v.Sensor,
		Rule:     v.Rule.Name,
		Enqueued: m.Event.Enqueued,
		Text:     func(name string) string { return r.decoder.Text(m, i, name) },
	}
	for j := range r.set.Mutes {
		if r.set.Mutes[j].Matches(&about) {
			all = append(all, j)
		}
	}

	return all
}

// Excluded says for people why c, which does not hold for a measurement, excludes it, such as `kind is "chilled", not
// frozen`. has is what it has there, as Seen returns it.
func (c *Condition) Excluded(has string) string {
	return fmt.Sprintf("%s is %s, not %s", c.Name, cmp.Or(has, "missing"), strings.Join(c.Values, " or "))
}

// maxSeen is how much of what a device sends Seen returns, in characters.
const maxSeen = 32

// Seen returns what the i-th of m has at a name, for people: of a long text the beginning and the end, and in quotes if it
// is text of the measurement itself; empty if it has nothing.
func (d *Decoder) Seen(m *telemetry.Measurements, i int, name string) string {
	text, around := d.text(m, i, name)
	if !around && text != "" {
		text = cmp.Or(telemetry.TextAt(m.Value(i), name), text)
	}

	return humanize.Middle(text, maxSeen)
}
