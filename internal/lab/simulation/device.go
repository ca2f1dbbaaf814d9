package simulation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// Properties of messages, and fields of their bodies.
const (
	ownLimit = "limit"
	quiet    = "quiet"
	site     = "site"
	takenAt  = "takenAt"
	kind     = "kind"
	setpoint = "setpoint"
)

// What messages have for kind and setpoint.
const (
	frozen  = "frozen"
	chilled = "chilled"
	usual   = 20.0 // that limits are counted from
	higher  = 24.0
)

// A source is a device at work.
type source struct {
	Device
	number     int // of the device
	rng        *rand.Rand
	at         float64   // its temperature
	next       time.Time // of its next reading
	quietUntil time.Time
	offline    time.Time // until then
	stored     []sample
	turns      int  // of a device that returns: since it was hot first; of one that opens, readings
	chilled    bool // it is of another kind than the rule looks at
	cool       bool // it is not hot any more
	damages    *rand.Rand
	second     *source // its other sensor; nil: it has none
}

// A sample is what a device says.
type sample struct {
	taken       time.Time
	temperature float64
	fields      map[string]any
	properties  map[string]string
	damaged     func(body []byte) []byte // nil: the body is JSON
	measured    []measurement            // of sensors, as they stand in it
}

// damages are how devices write what is not quite JSON. The reading counts.
var damages = []func(body []byte) []byte{
	func(body []byte) []byte { // by hand
		return []byte(strings.NewReplacer(`"`, "'", "}", ",}").Replace(string(body)))
	},
	func(body []byte) []byte { return append(body[:len(body)-1], `,"x`...) }, // it breaks off
}

// newSource returns a device at work, which first reports within its period.
func newSource(number int, d Device, began time.Time) *source {
	s := &source{
		Device:  d,
		number:  number,
		rng:     rand.New(rand.NewPCG(d.Seed, 2)),
		damages: rand.New(rand.NewPCG(d.Seed, 3)),
	}

	s.rng.IntN(60) // nothing follows from it, but what is drawn next stays the same
	s.at = limit - 6 + 10*s.rng.Float64()
	s.next = began.Add(time.Duration(s.rng.Int64N(int64(d.Period))))
	return s
}

// report returns what the device says now, and says when it speaks next.
func (s *source) report(now time.Time, p Plan) (all []sample) {
	s.next = now.Add(time.Duration((0.5 + s.rng.Float64()) * float64(s.Period)))
	if s.Mute && s.rng.IntN(30) == 0 {
		s.next = s.next.Add(time.Duration(30+s.rng.IntN(200)) * time.Second)
	}

	measured := s.measure(now)
	if s.returns() && !s.cool {
		s.turn(now, &measured, p.Window)
	}

	s.tell(&measured, p)
	if s.second != nil {
		s.sense(&measured, now, p)
	}

	if s.cool {
		s.stored = nil
		return []sample{measured}
	}

	if p.Damages && s.damages.IntN(3) == 0 {
		measured.damaged = damages[s.damages.IntN(len(damages))]
	}

	if s.Stores && s.rng.IntN(40) == 0 {
		s.offline = now.Add(time.Duration(10+s.rng.IntN(80)) * time.Second)
	}

	if now.Before(s.offline) {
		s.stored = append(s.stored, measured)
		return nil
	}

	return append(s.upload(), measured)
}

// upload returns what is sent now of what is stored: the oldest, in their order or not.
func (s *source) upload() (all []sample) {
	for range min(len(s.stored), 1+s.rng.IntN(3)) {
		i := s.rng.IntN(min(len(s.stored), 2))
		all = append(all, s.stored[i])
		s.stored = append(s.stored[:i], s.stored[i+1:]...)
	}

	return all
}

// moves are how temperatures do. own is the limit of the device.
var moves = map[DeviceKind]func(s *source, own float64) float64{
	Walks: func(s *source, _ float64) float64 {
		return min(limit+12, max(limit-12, s.at+(2*s.rng.Float64()-1)*s.Step))
	},
	Flaps:  func(s *source, own float64) float64 { return own + (2*s.rng.Float64()-1)*6 },
	Spikes: func(s *source, own float64) float64 { return s.peak(12, own) },
	Tells: func(s *source, own float64) float64 {
		at := s.peak(3, own)
		if at > limit {
			s.next = s.next.Add(time.Duration(10+s.rng.IntN(150)) * time.Second)
		}

		return at
	},
	Returns:  func(*source, float64) float64 { return limit - 10 },
	Relapses: func(*source, float64) float64 { return limit - 10 },
	Opens: func(s *source, _ float64) float64 {
		if s.turns > 0 {
			return limit - 10
		}

		s.turns++
		return limit + 3
	},
}

// peak is hot once in n times.
func (s *source) peak(n int, own float64) float64 {
	if s.rng.IntN(n) > 0 {
		return limit - 10
	}
	return own + 8*s.rng.Float64()
}

// measure returns what the device measures.
func (s *source) measure(now time.Time) sample {
	s.at = moves[s.Kind](s, max(limit, s.Limit))
	if s.cool {
		s.at = limit - 10
	}

	properties := map[string]string{}
	if s.Limit > 0 {
		properties[ownLimit] = "34"
	}

	if s.Site != "" {
		properties[site] = s.Site
	}

	if s.Calls && s.rng.IntN(20) == 0 {
		s.quietUntil = now.Add(time.Duration(5+s.rng.IntN(60)) * time.Second)
	}

	if now.Before(s.quietUntil) {
		properties[quiet] = "true"
	}

	return sample{
		taken:       now,
		temperature: math.Round(s.at*100) / 100,
		fields:      map[string]any{},
		properties:  properties,
	}
}

// returns reports whether the device is hot again within the window.
func (d Device) returns() bool { return d.Kind == Returns || d.Kind == Relapses }

// turn has a device that returns be hot, cool, and hot again within the window, and then say nothing for minutes.
func (s *source) turn(now time.Time, m *sample, window time.Duration) {
	hot := max(limit, s.Limit) + 1
	cool := limit - 10.0
	within := func(low, high float64) time.Duration {
		return time.Duration((low + (high-low)*s.rng.Float64()) * float64(window))
	}

	hotFor, coolFor := within(0.02, 0.1), within(0.1, 0.8)
	if s.Kind == Relapses {
		hotFor = window - 500*time.Millisecond - time.Duration(s.rng.Int64N(int64(4*time.Second)))
		coolFor = 300*time.Millisecond + time.Duration(s.rng.Int64N(int64(8*time.Second)))
	}

	m.temperature = cool
	switch s.turns {
	case 0:
		if s.rng.IntN(4) > 0 {
			return
		}

		m.temperature = hot
		s.next = now.Add(hotFor)

	case 1:
		s.next = now.Add(coolFor)

	case 2:
		m.temperature = hot
		s.next = now.Add(within(1, 4))
	}

	s.turns = (s.turns + 1) % 3
}

// tell adds what rules look at besides the reading, in a body or in properties.
func (s *source) tell(m *sample, p Plan) {
	if p.Kinds {
		if s.rng.IntN(12) == 0 { // it changes at times
			s.chilled = !s.chilled
		}

		is := frozen
		if s.chilled {
			is = chilled
		}

		m.say(p.InBody, kind, is)
	}

	if p.Counts && s.rng.IntN(15) > 0 {
		from := usual
		if s.Limit > 0 {
			from = higher
		}

		m.say(p.InBody, setpoint, from)
	}

	if p.Clocks {
		m.say(p.Sensors != "", takenAt, s.clock(m.taken.Add(p.Ahead)).Format(time.RFC3339Nano))
	}
}

// clock returns a time by the device's clock.
func (s *source) clock(at time.Time) time.Time {
	return at.Add(s.Drifts).UTC().Truncate(time.Millisecond)
}

// say adds a value to a message.
func (m *sample) say(inBody bool, name string, value any) {
	if inBody {
		m.fields[name] = value
		return
	}

	m.properties[name] = fmt.Sprint(value)
}
