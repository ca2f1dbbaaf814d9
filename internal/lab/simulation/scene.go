package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"alertworker/internal/config"
)

// try gives most plans a scene: faults that seldom meet by chance. In some nothing else is wrong, so bounds are short.
func (p *Plan) try(rng *rand.Rand) {
	scenes := []func(rng *rand.Rand){
		func(*rand.Rand) {},
		func(*rand.Rand) {},
		func(*rand.Rand) {},
		func(rng *rand.Rand) { p.Faults = append(p.Faults, p.badStart(rng)...) },
		func(rng *rand.Rand) { // and nothing else, but some devices are never hot again
			p.Faults = p.badStart(rng)
			p.open(rng)
		},
		func(rng *rand.Rand) {
			p.Faults = p.overload(time.Minute, time.Duration(60+rng.IntN(120))*time.Second, 503)
		},
		func(rng *rand.Rand) { p.Faults = append(p.Faults, p.rejection(rng)...) },
		func(rng *rand.Rand) { p.Faults = p.rejection(rng) },
		p.startOver,
		p.crowd,
		p.overdue,
		p.relapse,
		p.relay,
		p.relay,
		p.unanswered,
		p.hush,
		p.reconsider,
		p.choke,
		p.orphan,
	}

	scenes[rng.IntN(len(scenes))](rng)
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

	p.happen(rng, 30*time.Second,
		Fault{Do: Slow, Services: atWindows},
		Fault{Do: Lossy, Services: []Service{Receivers}},
		Fault{Do: Lossy, Services: atWindows},
		Fault{Do: Lose, Step: Send, After: true},
		Fault{Do: Away, Services: atWindows},
	)
}

// atWindows are the services that keep windows.
var atWindows = []Service{Windows, Items}

// overdue has one replica after the other record a window only when it is about to be over: others have claimed it
// since.
func (p *Plan) overdue(rng *rand.Rand) {
	p.crowd(rng)
	p.Faults = nil
	for at := 20 * time.Second; at < p.Length; at += p.Window + exponential(rng, 10*time.Second) {
		p.Faults = append(p.Faults, Fault{
			At:       at,
			Step:     Send,
			After:    true,
			Replica:  Any,
			Do:       Away,
			For:      p.Window - 500*time.Millisecond - time.Duration(rng.Int64N(int64(2*time.Second))),
			Services: atWindows,
		})
	}
}

// relapse has devices be hot again at the end of the window, while windows are slow and partitions move.
func (p *Plan) relapse(rng *rand.Rand) {
	p.part(rng)
	p.Parts = false
	p.Window = one(rng, p.shortestWindow(), 20*time.Second, 30*time.Second)
	for i := range p.Devices {
		p.Devices[i].Period = one(rng, time.Second, 4*time.Second)
		if rng.IntN(4) > 0 {
			p.Devices[i].Kind = Relapses
		}
	}

	slow := []Fault{
		{Do: Slow, Services: atWindows},
		{Do: Slow, Services: atWindows},
		{Do: Late, Step: Ask},
		{Do: Late, Step: Claim},
	}

	if rng.IntN(2) == 0 { // else nobody is kept from seeing that the device is hot again
		slow = append(slow, Fault{Do: Stop})
	}

	p.happen(rng, 20*time.Second, slow...)
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

	p.happen(rng, 15*time.Second,
		Fault{Do: Stop},
		Fault{Do: Kill},
		Fault{Do: Rollout},
		Fault{Do: Slow, Services: []Service{Blobs}},
		Fault{Do: Freeze, Step: AskLedger},
		Fault{Do: Freeze, Step: one(rng, Ledger, Claim, Record, Checkpoint), After: rng.IntN(2) == 0},
		Fault{Do: Away, Services: []Service{Blobs}},
	)
}

// unanswered has owners that cannot ask whether they still are when a recovery is due, while another one takes over.
func (p *Plan) unanswered(rng *rand.Rand) {
	p.Resolved = true
	p.For = 0
	p.ClearFor = 0
	p.Window = p.shortestWindow()
	p.Balance = 6 * time.Second
	for i := range p.Devices {
		d := &p.Devices[i]
		d.Kind = one(rng, Spikes, Tells)
		d.Period = one(rng, time.Second, 2*time.Second, 4*time.Second)
	}

	p.happen(rng, 30*time.Second,
		Fault{Do: Away, Services: []Service{Blobs}},
		Fault{Do: Away, Services: []Service{Blobs}},
		Fault{Do: Refuse, Services: []Service{Blobs}, Status: 503},
		Fault{Do: Slow, Services: []Service{Blobs}},
	)
}

// hush has devices fall silent, and be heard again by a hub that sends nothing for a while, as receivers take nothing.
func (p *Plan) hush(rng *rand.Rand) {
	p.Silent = 45 * time.Second
	p.Length = max(p.Length, 5*time.Minute)
	p.Outages = nil
	for i := range p.Devices {
		d := &p.Devices[i]
		d.Mute = true
		d.Period = one(rng, time.Second, 2*time.Second)
	}

	p.Faults = nil
	for at := time.Minute; at < p.Length; at += 4 * time.Minute {
		lasts := time.Duration(65+rng.IntN(60)) * time.Second
		p.Faults = append(p.Faults, p.overload(at, lasts, 503)...)

		muted := at + time.Duration(25+rng.IntN(25))*time.Second
		muted -= muted % (time.Duration(p.Partitions) * time.Millisecond)
		for i := range p.Partitions {
			mute := Fault{At: muted + time.Duration(i)*time.Millisecond, Replica: Any, Do: Mute} // which says which one
			p.Faults = append(p.Faults, mute)
		}
	}
}

// reconsider has receivers refuse for good what they get, for a time, and an operator send it again later, when other
// alerts may have come since.
func (p *Plan) reconsider(rng *rand.Rand) {
	p.Resolved = true
	p.Length = max(p.Length, 5*time.Minute)
	p.Faults = nil
	for at := 40 * time.Second; at < p.Length; at += 2 * time.Minute {
		p.Faults = append(p.Faults, p.overload(at, time.Duration(15+rng.IntN(30))*time.Second, 422)...)
		for later := at + time.Minute; later < at+2*time.Minute; later += time.Duration(5+rng.IntN(30)) * time.Second {
			p.Faults = append(p.Faults, Fault{At: later, Replica: Any, Do: Replay})
		}
	}
}

// choke has receivers take what they say that they have not taken, about one device after the other.
func (p *Plan) choke(rng *rand.Rand) {
	p.Resolved = true
	p.Length = max(p.Length, 5*time.Minute)
	p.happen(rng, time.Minute, Fault{Do: Choke}, Fault{Do: Choke}, Fault{Do: Kill}, Fault{Do: Replay})
}

// orphan has requests come when another replica has taken over from the one that sent them.
func (p *Plan) orphan(rng *rand.Rand) {
	p.Balance = 3 * time.Second
	p.happen(rng, 20*time.Second,
		Fault{Do: Orphan, Step: Ledger},
		Fault{Do: Orphan, Step: one(rng, steps...)},
		Fault{Do: Kill},
		Fault{Do: Stop},
	)
}

// happen has one of some faults begin again and again, of any replica, for about so long each, mostly instead of all
// others.
func (p *Plan) happen(rng *rand.Rand, lasts time.Duration, of ...Fault) {
	if rng.IntN(3) > 0 {
		p.Faults = nil
	}

	for at := 20 * time.Second; at < p.Length; at += 100*time.Millisecond + exponential(rng, lasts/2) {
		f := one(rng, of...)
		services := f.Services
		f.At = at
		f.Replica = rng.IntN(p.Replicas)
		f.For = exponential(rng, lasts)
		f = f.with(rng)
		f.Services = services
		p.Faults = append(p.Faults, f)
	}
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

// crawl has stores be slow all the time, and nothing else go wrong.
func (p *Plan) crawl(rng *rand.Rand) {
	windows := Windows
	if p.Store == config.StoreCosmos {
		windows = Items
	}

	p.Crawls = one(rng, []Service{windows}, []Service{Blobs}, []Service{Blobs, windows})
	p.CrawlsBy = one(rng, 2*time.Second, 5*time.Second)
	p.Faults, p.Outages = nil, nil
	p.Silent, p.Expects = 0, false // which is proven within a bound
}
