package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
	p.People = p.Levels == 1 && oneIn(3)
	if oneIn(4) {
		p.mute(rng)
	}

	p.Awaits = oneIn(2) && p.Ahead.Abs() < time.Minute // time begins by the later of two clocks: a silence is as late
	if oneIn(3) && p.keepsState() {
		p.Repeat = one(rng, 2*p.Window, 5*time.Minute, rules.Never)
	}
}

// keepsState reports whether alarms follow from more than one reading.
func (p *Plan) keepsState() bool {
	if p.Resolved || p.Clear != limit {
		return true
	}

	return max(p.For, p.Silent) > 0
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

// try gives most plans a scene: faults that seldom meet by chance. In some nothing else is wrong: then bounds are short.
func (p *Plan) try(rng *rand.Rand) {
	scenes := []func(rng *rand.Rand){
		func(*rand.Rand) {},
		func(*rand.Rand) {},
		func(*rand.Rand) {},
		func(rng *rand.Rand) { p.Faults = append(p.Faults, p.badStart(rng)...) },
		p.startBadly,
		func(rng *rand.Rand) {
			p.Faults = p.overload(time.Minute, time.Duration(60+rng.IntN(120))*time.Second, 503)
		},
		func(rng *rand.Rand) { p.Faults = append(p.Faults, p.rejection(rng)...) },
		func(rng *rand.Rand) { p.Faults = p.rejection(rng) },
		p.startOver,
		p.crowd,
		p.crowd,
		p.relapse,
		p.relay,
		p.relay,
		p.choke,
		p.orphan,
	}

	scenes[rng.IntN(len(scenes))](rng)
	p.delay(rng)
}

// startBadly has nothing wrong but a bad start, after which some devices are never hot again.
func (p *Plan) startBadly(rng *rand.Rand) {
	p.Faults = p.badStart(rng)
	p.open(rng)
}

// crowd has devices of few sites, in several partitions, be hot at once, while services are slow and answers are lost.
func (p *Plan) crowd(rng *rand.Rand) {
	p.PerSite = true
	p.Partitions = max(p.Partitions, 4)
	p.Window = 20 * time.Second
	p.Outages = nil
	for i := range p.Devices {
		d := &p.Devices[i]
		d.Kind = one(rng, Flaps, Spikes, d.Kind)
		d.Period = one(rng, time.Second, 2*time.Second)
		d.Site = fmt.Sprintf("site-%d", rng.IntN(2))
	}

	p.Faults = p.spells(rng, 30*time.Second,
		Fault{Do: Slow, Services: []Service{Windows, Items}},
		Fault{Do: Lossy, Services: []Service{Receivers}},
		Fault{Do: Lossy, Services: []Service{Windows, Items}},
		Fault{Do: Lose, Step: Send, After: true},
		Fault{Do: Away, Services: []Service{Windows, Items}},
	)
}

// relapse has devices be hot again at the end of the window, while windows are slow and partitions move.
func (p *Plan) relapse(rng *rand.Rand) {
	p.part(rng)
	p.Parts = false
	p.Window = one(rng, minWindow, 20*time.Second, 30*time.Second)
	for i := range p.Devices {
		p.Devices[i].Period = one(rng, time.Second, 4*time.Second)
		if rng.IntN(4) > 0 {
			p.Devices[i].Kind = Relapses
		}
	}

	p.Faults = p.spells(rng, 20*time.Second,
		Fault{Do: Slow, Services: []Service{Windows, Items}},
		Fault{Do: Slow, Services: []Service{Windows, Items}},
		Fault{Do: Late, Step: Ask},
		Fault{Do: Late, Step: Claim},
		Fault{Do: Stop},
	)
}

// relay has partitions go from one replica to another again and again, while recoveries wait for windows to end, and
// ledgers are slow, so that who gave a partition up may come late.
func (p *Plan) relay(rng *rand.Rand) {
	p.Resolved = true
	p.For = 0
	p.ClearFor = 0
	p.Window = one(rng, 20*time.Second, 30*time.Second, time.Minute)
	p.Balance = 3 * time.Second
	p.Replicas = 3
	for i := range p.Devices {
		d := &p.Devices[i]
		if !d.returns() {
			d.Kind = one(rng, Spikes, Tells, d.Kind)
			d.Period = min(d.Period, 4*time.Second)
		}
	}

	p.Faults = p.spells(rng, 15*time.Second,
		Fault{Do: Stop},
		Fault{Do: Kill},
		Fault{Do: Slow, Services: []Service{Blobs}},
		Fault{Do: Freeze, Step: AskLedger},
		Fault{Do: Freeze, Step: one(rng, Ledger, Claim, Record, Checkpoint), After: rng.IntN(2) == 0},
		Fault{Do: Away, Services: []Service{Blobs}},
	)
}

// choke has receivers take what they say that they have not taken, about one device after the other.
func (p *Plan) choke(rng *rand.Rand) {
	p.Resolved = true
	p.Length = max(p.Length, 5*time.Minute)
	p.Faults = p.spells(rng, time.Minute, Fault{Do: Choke}, Fault{Do: Choke}, Fault{Do: Kill})
}

// orphan has requests come when another replica has taken over from the one that sent them.
func (p *Plan) orphan(rng *rand.Rand) {
	p.Balance = 3 * time.Second
	p.Faults = p.spells(rng, 20*time.Second,
		Fault{Do: Orphan, Step: Ledger},
		Fault{Do: Orphan, Step: one(rng, steps...)},
		Fault{Do: Kill},
		Fault{Do: Stop},
	)
}

// spells have one of some faults begin again and again, of any replica, each for about so long.
func (p *Plan) spells(rng *rand.Rand, lasts time.Duration, of ...Fault) (all []Fault) {
	for at := 20 * time.Second; at < p.Length; at += 100*time.Millisecond + exponential(rng, lasts/2) {
		f := one(rng, of...)
		services := f.Services
		f.At = at
		f.Replica = rng.IntN(p.Replicas)
		f.For = exponential(rng, lasts)
		f = f.with(rng)
		f.Services = services
		all = append(all, f)
	}

	return all
}

// open has some devices begin with a reading that only their site is alerted of, and say nothing later that makes good
// for it: it changes no alarm, which would hold back the checkpoint.
func (p *Plan) open(rng *rand.Rand) {
	p.PerSite = true
	p.Resolved = true
	for i := range p.Devices {
		d := &p.Devices[i]
		if rng.IntN(3) == 0 {
			d.Kind = Opens
			d.Limit = limit + ownBy
			d.Site = "site-of-" + d.Name
		}
	}
}

// startOver has another hub in place of the hub, and owners die that have begun with it. Some devices change their kind
// and say nothing for longer than they may.
func (p *Plan) startOver(rng *rand.Rand) {
	p.Kinds = true
	p.Expects = true
	p.Silent = 45 * time.Second
	p.Outages = nil
	p.Parts = false
	for i := range p.Devices {
		if rng.IntN(2) == 0 {
			p.Devices[i].Period = p.Silent + 15*time.Second
		}
	}

	again := p.Silent + time.Duration(rng.IntN(30))*time.Second
	p.Faults = []Fault{{At: again, Replica: Any, Do: one(rng, Recreate, FailOver)}}
	for replica := range p.Replicas { // who hands over writes what it has, and then nothing of the hub is missing
		stop := Fault{At: again + 3*time.Second, Replica: replica, Do: Stop, For: 2 * time.Second}
		p.Faults = append(p.Faults, stop)
	}

	for at := again + 15*time.Second; at < p.Length; at += time.Duration(8+rng.IntN(20)) * time.Second {
		p.Faults = append(p.Faults, Fault{At: at, Replica: Any, Do: Kill, For: 2 * time.Second})
	}
}

// delay has some of the devices that a rule awaits be heard first when it has nearly given them up.
func (p *Plan) delay(rng *rand.Rand) {
	if !p.Awaits || p.Silent == 0 || len(p.Outages) > 0 { // after an outage they would be late
		return
	}

	for i := range p.Devices {
		d := &p.Devices[i]
		if d.soonReports() && rng.IntN(3) == 0 {
			d.Begins = p.Silent - time.Duration(8+rng.IntN(6))*time.Second
		}
	}
}

// overload is that all receivers answer with a status.
func (p *Plan) overload(at, lasts time.Duration, status int) (all []Fault) {
	at -= at % (time.Duration(p.Receivers) * time.Millisecond)
	for i := range p.Receivers {
		all = append(all, Fault{
			At:      at + time.Duration(i)*time.Millisecond, // which says which receiver
			Replica: Any,
			Do:      Down,
			For:     lasts,
			Status:  status,
		})
	}

	return all
}

// badStart has no receiver take anything at first, while owners, which have begun at the first event, die.
func (p *Plan) badStart(rng *rand.Rand) []Fault {
	lasts := time.Duration(20+rng.IntN(60)) * time.Second
	all := p.overload(0, lasts, 503)
	for range 1 + rng.IntN(3) {
		all = append(all, Fault{
			At:      time.Duration(5+rng.IntN(45)) * time.Second,
			Replica: Any,
			Do:      Kill,
			For:     one(rng, time.Second, 10*time.Second),
		})
	}

	return all
}

// rejection has all receivers refuse for good what they get, until the end, while dead letters cannot be kept for a
// time.
func (p *Plan) rejection(rng *rand.Rand) []Fault {
	lasts := time.Duration(20+rng.IntN(60)) * time.Second
	all := p.overload(p.Length-lasts, lasts+time.Second, 422)
	for replica := range p.Replicas {
		all = append(all, Fault{
			At:       p.Length - lasts - time.Second,
			Replica:  replica,
			Do:       one(rng, Away, Refuse),
			For:      lasts / 2,
			Services: []Service{Blobs},
			Status:   503,
		})
	}

	return all
}

// ghosts are devices of which nobody ever hears.
var ghosts = []string{"device-ghost", "device-phantom"}

// awaited returns the devices that the rule about silence names: ghosts, and those that soon report.
func (p Plan) awaited() []string {
	if !p.Awaits {
		return nil
	}

	all := slices.Clone(ghosts)
	for _, d := range p.Devices {
		if d.soonReports() {
			all = append(all, d.Name)
		}
	}

	return all
}

// soonReports reports whether the hub hears of the device soon, and again and again.
func (d Device) soonReports() bool {
	if d.Mute || d.Stores {
		return false
	}

	if d.returns() || d.Kind == Tells {
		return false
	}

	return d.Period <= 4*time.Second
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
