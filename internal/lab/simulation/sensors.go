package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"alertworker/internal/lab/verify"
	"alertworker/internal/rules"
)

// A SensorKind is how messages tell the two sensors of a device apart. Rules that know none go by what the device says
// besides.
type SensorKind string

const (
	Together SensorKind = "together" // a message has measurements of both in an array, or of one, at times several
	Turns    SensorKind = "turns"    // a message is of one of them, whose name it has
)

// Names in messages, and of the sensors.
const (
	measurements = "readings"
	sensorName   = "sensor"
	probe        = "probe" // its temperature is the device's
	inlet        = "inlet" // its temperature moves by itself
)

// A measurement is one of several in a message.
type measurement struct {
	sensor      string
	temperature float64
	kind        string    // of its own; empty: that of the message
	taken       time.Time // likewise, by the device's clock
}

// sense has devices have two sensors, in some worlds. No other world is another one for that.
func (p *Plan) sense() {
	switch p.Seed % 40 {
	case 14, 16, 34:
		p.Sensors = Together
	case 36:
		p.Sensors = Turns
	default:
		return
	}

	rng := rand.New(rand.NewPCG(p.Seed, 10))
	if !p.Clocks && rng.IntN(2) == 0 {
		p.store(rng)
	}

	if !p.Parts {
		p.Kinds = p.Kinds || rng.IntN(2) == 0
	}
}

// secondOf returns the second sensor of a device, as if it were one.
func secondOf(number int, d Device, began time.Time) *source {
	if !slices.Contains([]DeviceKind{Walks, Flaps, Spikes, Tells}, d.Kind) {
		d.Kind = Flaps
	}

	d.Seed++
	d.Calls = false

	return newSource(number, d, began)
}

// sense has a message of the device be about its sensors.
func (s *source) sense(m *sample, now time.Time, p Plan) {
	s.second.cool, s.second.next = s.cool, s.next
	other := s.second.measure(now).temperature
	if !s.returns() && s.second.next.After(s.next) {
		s.next = s.second.next // it says nothing for a while
	}

	if p.Sensors == Turns {
		name := probe
		if !s.returns() && s.rng.IntN(2) == 0 {
			name = inlet
			m.temperature = other
		}

		m.measured = []measurement{{sensor: name, temperature: m.temperature}}
		m.say(p.InBody, sensorName, name)
		return
	}

	at := m.taken.Add(p.Ahead)
	all := []measurement{{sensor: probe, temperature: m.temperature}, {sensor: inlet, temperature: other}}
	if s.rng.IntN(5) == 0 && !s.returns() {
		i := s.rng.IntN(2)
		all = all[i : i+1]
	}

	if s.rng.IntN(4) == 0 && !s.returns() && !s.cool { // it has measured before, too
		last := all[s.rng.IntN(len(all))]
		last.temperature = max(limit, s.Limit) + one(s.rng, -10.0, -1, 2, higherBy+2)
		last.taken = s.clock(at.Add(-s.Period / 8))
		all = append(all, last)
	}

	s.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i := range all {
		one := &all[i]
		if p.Kinds && s.rng.IntN(3) == 0 {
			one.kind = []string{frozen, chilled}[s.rng.IntN(2)]
		}

		if s.rng.IntN(2) == 0 && one.taken.IsZero() {
			one.taken = s.clock(at)
		}

		if !p.Clocks {
			one.taken = time.Time{}
		}
	}

	m.measured = all
}

// own returns what a measurement has for itself, besides what it is.
func (m measurement) own() map[string]any {
	fields := map[string]any{}
	if m.kind != "" {
		fields[kind] = m.kind
	}

	if !m.taken.IsZero() {
		fields[takenAt] = m.taken.Format(time.RFC3339Nano)
	}

	return fields
}

// elements returns the array that a message has of its measurements.
func (m *sample) elements() (all []map[string]any) {
	for _, one := range m.measured {
		element := one.own()
		element[sensorName] = one.sensor
		element["temperature"] = one.temperature
		all = append(all, element)
	}

	return all
}

// readings returns what the judge has to know of the measurements of a message r.
func (m *sample) readings(r verify.Reading, kind SensorKind) (all []verify.Reading) {
	for _, one := range m.measured {
		of := r
		of.Sensor = one.sensor
		of.Temperature = one.temperature
		if kind == Together {
			of.Own = texts(one.own())
		}

		if !one.taken.IsZero() {
			of.Taken = one.taken
		}

		all = append(all, of)
	}

	return all
}

// texts returns fields as texts.
func texts(fields map[string]any) map[string]string {
	all := map[string]string{}
	for name, value := range fields {
		all[name] = fmt.Sprint(value)
	}

	return all
}

// tellApart has a rule know the sensors of devices, if they have any.
func (p Plan) tellApart(r *rules.Rule) {
	if p.Sensors == "" {
		return
	}

	r.Sensor = []string{sensorName}
	if p.Sensors == Together {
		r.Each = measurements
	}
}
