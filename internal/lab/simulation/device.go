package simulation

import (
	"math"
	"math/rand/v2"
	"time"
)

// Properties of messages.
const (
	ownLimit = "limit"
	quiet    = "quiet"
	site     = "site"
)

// A source is a device at work.
type source struct {
	Device
	rng        *rand.Rand
	at         float64   // its temperature
	next       time.Time // of its next reading
	quietUntil time.Time
	cool       bool // it is not hot any more
}

func newSource(d Device, began time.Time) *source {
	s := &source{Device: d, rng: rand.New(rand.NewPCG(d.Seed, 2))}
	s.at = limit - 6 + 10*s.rng.Float64()
	s.next = began.Add(time.Duration(s.rng.Int64N(int64(d.Period))))
	return s
}

// report returns what the device says now, and says when it speaks next.
func (s *source) report(now time.Time) (temperature float64, properties map[string]string) {
	s.next = now.Add(time.Duration((0.5 + s.rng.Float64()) * float64(s.Period)))
	if s.Mute && s.rng.IntN(30) == 0 {
		s.next = s.next.Add(time.Duration(30+s.rng.IntN(200)) * time.Second)
	}

	own := max(limit, s.Limit)

	switch s.Kind {
	case Walks:
		s.at = min(limit+12, max(limit-12, s.at+(2*s.rng.Float64()-1)*s.Step))

	case Flaps:
		s.at = own + (2*s.rng.Float64()-1)*6

	case Spikes:
		s.at = limit - 10
		if s.rng.IntN(12) == 0 {
			s.at = own + 8*s.rng.Float64()
		}

	case Tells:
		s.at = limit - 10
		if s.rng.IntN(3) == 0 {
			s.at = own + 8*s.rng.Float64()
			s.next = s.next.Add(time.Duration(10+s.rng.IntN(150)) * time.Second)
		}
	}

	if s.cool {
		s.at = limit - 10
	}

	properties = map[string]string{}
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

	return math.Round(s.at*100) / 100, properties
}
