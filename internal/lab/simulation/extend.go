package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"alertworker/internal/rules"
)

// extend gives a plan what only some have besides.
func (p *Plan) extend(rng *rand.Rand) {
	oneIn := func(n int) bool { return rng.IntN(n) == 0 }
	if p.keepsState() {
		p.ClearFor = one(rng, 0, 0, 5*time.Second, 20*time.Second)
	}

	p.InBody = oneIn(2)
	p.Counts = oneIn(4)
	p.Kinds = oneIn(4)
	if oneIn(4) {
		p.store(rng)
	}

	if oneIn(6) && p.keepsState() {
		p.gather(rng)
	}

	if oneIn(8) {
		p.part(rng)
	}

	p.Expects = p.Kinds && oneIn(2)
	if p.Levels == 1 {
		rng.IntN(3) // nothing follows from it, but what is drawn next stays the same
	}

	if oneIn(4) {
		p.mute(rng)
	}

	if oneIn(3) && p.keepsState() {
		p.Repeat = one(rng, 2*p.Window, 5*time.Minute, rules.Never)
	}
}

// keepsState reports whether alarms follow from more than one reading.
func (p *Plan) keepsState() bool {
	return p.Resolved || p.Clear != limit || max(p.For, p.Silent) > 0
}

// mute has nobody want to know of some devices for some minutes.
func (p *Plan) mute(rng *rand.Rand) {
	for range 1 + rng.IntN(2) {
		from := 1 + rng.IntN(4)
		p.Mutes = append(p.Mutes, MuteTime{
			From:   from,
			To:     from + 1 + rng.IntN(2),
			Device: one(rng, "", "device-0*", "*1"),
			Rule:   one(rng, "", rules.DefaultName, silence),
		})
	}
}

// store has messages have the time of their device, and some devices store what they measure while they are offline.
func (p *Plan) store(rng *rand.Rand) {
	p.Clocks = true
	for i := range p.Devices {
		d := &p.Devices[i]
		d.Stores = rng.IntN(3) == 0
		d.Drifts = one(rng, 0, 0, -3*time.Second, 2*time.Second, -time.Hour, 10*time.Minute)
	}
}

// gather makes a fleet of the devices, more than a partition needs to be dark, which report often. The way to the hub
// is away for all of them, or for most.
func (p *Plan) gather(rng *rand.Rand) {
	p.Partitions = one(rng, 1, 2)
	p.Silent = one(rng, 45*time.Second, 90*time.Second)
	p.Length = max(p.Length, 3*p.Silent+time.Minute)
	kinds := p.Devices
	p.Devices = nil

	for i := range p.Partitions * (24 + rng.IntN(17)) {
		d := one(rng, kinds...)
		d.Name = fmt.Sprintf("device-%02d", i)
		d.Period = one(rng, time.Second, 2*time.Second, 4*time.Second)
		d.Mute = rng.IntN(8) == 0
		d.Calls = false
		d.Kind = one(rng, Walks, Flaps, Spikes)
		d.Seed = rng.Uint64()
		p.Devices = append(p.Devices, d)
	}

	for at := 30 * time.Second; at < p.Length; at += p.Silent + time.Duration(rng.Int64N(int64(2*time.Minute))) {
		o := Outage{
			At:     at,
			For:    one(rng, p.Silent/2, p.Silent, p.Silent+10*time.Second, 3*p.Silent/2, 3*p.Silent),
			Of:     one(rng, 0, 0, 8),
			Spread: one(rng, 0, 5*time.Second, p.Silent/2, p.Silent),
		}

		p.Outages = append(p.Outages, o)
		at += o.For + o.Spread
	}
}

// part has devices be hot again while their recovery waits for the window, and say nothing more, and owners who do not
// hear that they are replaced.
func (p *Plan) part(rng *rand.Rand) {
	p.Parts = true
	p.Replicas = max(p.Replicas, 2)
	p.Window = one(rng, 30*time.Second, time.Minute)
	p.Balance = 3 * time.Second
	p.Resolved = true
	p.For = 0
	p.ClearFor = 0
	p.Counts = false
	p.Kinds = false
	p.Cools = rng.IntN(2) == 0

	for i := range p.Devices {
		if rng.IntN(3) > 0 {
			p.Devices[i].Kind = Returns
			p.Devices[i].Stores = false
		}
	}
}

// partings are faults after which a replica cannot see who owns what, while it reaches windows and receivers.
func partings(rng *rand.Rand, p Plan) (all []Fault) {
	for at := 30 * time.Second; at < p.Length; at += time.Minute + exponential(rng, 30*time.Second) {
		all = append(all, Fault{
			At:       at,
			Replica:  rng.IntN(p.Replicas),
			Do:       Away,
			For:      3*p.Balance + exponential(rng, 40*time.Second),
			Services: []Service{Blobs},
		})
	}
	return all
}

// away returns until when the way to the hub is away for a device, zero if it is there.
func (p Plan) away(device int, now time.Duration) (until time.Duration) {
	for _, o := range p.Outages {
		if o.Of > 0 && device%o.Of == 0 {
			continue // it goes on
		}

		late := o.Spread * time.Duration(device) / time.Duration(len(p.Devices))
		back := o.At + o.For + late
		if o.At <= now && now < back {
			until = back
		}
	}

	return until
}

// ends returns when the last outage is over.
func (p Plan) ends() (at time.Duration) {
	for _, o := range p.Outages {
		at = max(at, o.At+o.For+o.Spread)
	}
	return at
}
