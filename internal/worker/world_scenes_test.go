package worker_test

import (
	"fmt"
	"slices"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
)

// Scenes make common in some plans what is rare in all others, because much has to come together for it. What a scene
// does not need stays as it was drawn.

// scene gives a plan one of them.
func (d draw) scene(p *plan) {
	pick(d, draw.removal, draw.refusedSite, draw.busySite, draw.blindSpot, draw.rollout, draw.absence, draw.lateOwner,
		draw.lostLevel, draw.lateEnd, draw.chokingStorm, draw.removalMeanwhile)(d, p)
}

// only has one rule in force, in one partition, and nobody change that.
func (p *plan) only(r rules.Rule) {
	p.versions, p.partitions = [][]rules.Rule{{r}}, p.partitions[:1]
	for i := range p.partitions[0] {
		p.partitions[0][i].version = 0
	}
	for i := range p.readings {
		p.readings[i].partition = 0
	}
	for i := range p.moves {
		p.moves[i].partition, p.moves[i].rule = 0, ""
	}
	for i := range p.receivers {
		p.receivers[i].filters = nil
	}
}

// calm has nothing fail, and nobody interfere.
func (p *plan) calm() {
	p.faults, p.moves = nil, nil
	for i := range p.readings {
		p.readings[i].lag, p.readings[i].quiet = 0, 0
		if p.readings[i].fate == byHTTP {
			p.readings[i].fate = readable
		}
	}
}

// removal has people remove a device about which nobody could be told, and its owner die then.
func (d draw) removal(p *plan) {
	switch pick(d, "of any", "of a hot one", "of one that was silent") {
	case "of a hot one":
		r := d.rule("readings", 60*second)
		r.Only, r.Valid, r.Levels[0].For = nil, nil, pick(d, 0, 20*second)
		p.only(r)
		for i := range p.readings {
			p.readings[i].value = pick(d, 35.0, 35, 35, 90)
		}
	case "of one that was silent":
		d.removalAfterSilence(p)
		return
	}
	m := move{
		at: time.Duration(10+d.IntN(200)) * second, what: forget, for_: second, device: pick(d, p.devices...),
		partition: d.IntN(len(p.partitions)), receiver: d.IntN(len(p.receivers)),
	}
	died, down := m, m
	died.what, died.at = kill, m.at+2*second
	down.what, down.at, down.for_ = receiverDown, 0, m.at+5*second
	p.moves = []move{down, m, died}
}

// removalAfterSilence has people remove a device that was silent, and heard again behind an alert that nobody could be
// told, and its owner die then.
func (d draw) removalAfterSilence(p *plan) {
	r, hot := d.rule("silence", 60*second), d.rule("readings", 60*second)
	r.Silent, r.Resolved, r.Valid = 60*second, true, nil
	hot.Only, hot.Valid, hot.Levels[0].For = nil, nil, 0
	p.only(r)
	p.versions[0] = append(p.versions[0], hot)
	p.calm()
	p.devices, p.dies, p.compacted, p.tail = []string{"oven", "kiln"}, "", false, "nothing"
	for i := range p.partitions[0] {
		p.partitions[0][i].back = 0
	}
	sends := func(device string, value float64, gap time.Duration) {
		p.readings = append(p.readings, reading{device: device, value: value, gap: gap, late: -1, mode: "run"})
	}
	p.readings = nil
	sends("oven", 20, second)
	told := 85 * second
	sends("kiln", 35, told+time.Duration(d.IntN(10))*second)
	sends("oven", 20, pick(d, 0, second, 7*second))
	at := 105*second + time.Duration(d.IntN(10))*second
	p.moves = []move{
		{at: told, what: receiverDown, for_: at + 10*second - told},
		{at: at, what: forget, device: "oven", for_: second},
		{at: at + time.Duration(1+d.IntN(4))*second, what: kill},
	}
}

// removalMeanwhile has people remove a device that is hot just when another one becomes hot, of which nobody can be told
// yet, and the owner of both die then.
func (d draw) removalMeanwhile(p *plan) {
	r := d.rule("readings", 60*second)
	r.Resolved, r.Only, r.Valid, r.Levels[0].For = true, nil, nil, 0
	p.only(r)
	p.calm()
	p.devices, p.dies, p.compacted = []string{"oven", "kiln"}, "", false
	p.readings = nil
	at := time.Duration(0)
	for range 1 + d.IntN(4) {
		gap := pick(d, second, 7*second, 20*second)
		at += gap
		p.readings = append(p.readings, reading{device: "oven", value: pick(d, 35.0, 90), gap: gap, late: -1, mode: "run"})
	}
	for range 1 + d.IntN(2) {
		gap := pick(d, 0, 7*second)
		at += gap
		p.readings = append(p.readings, reading{device: "kiln", value: pick(d, 35.0, 90), gap: gap, late: -1, mode: "run"})
	}
	down := at - time.Duration(d.IntN(20))*second
	p.moves = []move{
		{at: max(0, down), what: receiverDown, for_: 40 * second, receiver: d.IntN(len(p.receivers))},
		{at: at + time.Duration(d.IntN(1000))*time.Millisecond, what: forget, device: "oven", for_: second},
		{at: at + time.Duration(2+d.IntN(20))*second, what: kill},
	}
}

// refusedSite has devices share alerts, and a receiver refuse those about one of them.
func (d draw) refusedSite(p *plan) {
	p.only(d.rule("sites", 60*second))
	p.receivers, p.moves = []planned{{refuses: p.devices[0], limits: p.receivers[0].limits}}, oneReceiver(p.moves)
	d.gather(p.readings)
}

func oneReceiver(moves []move) []move {
	for i := range moves {
		moves[i].receiver = 0
	}
	return moves
}

// gather has most of the readings come from one site, where it is hot.
func (d draw) gather(all []reading) {
	for i := range all {
		all[i].gap = min(all[i].gap, 20*second)
		if d.chance(0.8) {
			all[i].site, all[i].value = "berlin", 35
		}
	}
}

// busySite has several devices share alerts, while a receiver takes its time for each.
func (d draw) busySite(p *plan) {
	p.only(d.rule("sites", pick(d, 30*second, 60*second)))
	p.calm()
	p.devices = []string{"oven", "kiln", "berlin"}
	d.gather(p.readings)
	for i := range p.readings {
		p.readings[i].device = pick(d, p.devices...)
		p.readings[i].gap = pick(d, 0, second, second, 20*second, 40*second, 61*second)
	}
	p.receivers = []planned{{slow: pick(d, second, 5*second)}}
}

// blindSpot has a partition end with events that expire unread, and then with messages that cannot be decoded.
func (d draw) blindSpot(p *plan) {
	p.only(d.rule(pick(d, "silence", "silence", "probe"), 60*second))
	p.compacted, p.tail = false, "nothing"
	for i := range p.readings {
		r := &p.readings[i]
		r.gap = min(r.gap, 40*second)
		r.fate = pick(d, readable, readable, expired, undecodable)
	}
	last := p.readings[len(p.readings)-1]
	for _, fate := range []string{readable, expired, undecodable} {
		r := last
		r.device, r.fate, r.value = pick(d, p.devices...), fate, pick(d, 20.0, 35)
		r.gap, r.lag, r.quiet = pick(d, second, 7*second, 20*second), 0, 0
		p.readings = append(p.readings, r)
	}
}

// rollout has a device move to a partition whose owner has the rule about silence by another name.
func (d draw) rollout(p *plan) {
	r := d.rule("silence", 60*second)
	r.Silent, r.Valid = pick(d, 2*time.Minute, 3*time.Minute, 5*time.Minute), nil
	renamed := r
	renamed.Name += "-2"
	p.only(r)
	p.versions = append(p.versions, []rules.Rule{renamed})
	p.partitions = [][]takeover{d.takeovers(2), d.takeovers(2)}
	ahead := d.IntN(2) // the partition whose owner has been replaced
	p.partitions[ahead][0].version, p.partitions[1-ahead][0].version = 1, 0
	p.calm()
	p.compacted, p.dies = false, ""
	half := len(p.readings) / 2
	for i := range p.readings {
		p.readings[i].partition, p.readings[i].gap = ahead, min(p.readings[i].gap, 20*second)
		if i > half {
			p.readings[i].partition = 1 - ahead
		}
	}
	if d.chance(0.3) {
		p.moves = []move{{at: time.Duration(d.IntN(300)) * second, what: handOver, partition: d.IntN(2)}}
	}
}

// absence has a partition go to an owner without a rule about silence, but with another one, and back.
func (d draw) absence(p *plan) {
	r, other := d.rule("silence", 60*second), d.rule("probe", 60*second)
	r.Field, r.Valid = "", nil
	r.Silent, other.Field = pick(d, 60*second, 2*time.Minute), "temperature"
	p.only(r)
	p.versions = [][]rules.Rule{{other}, {r, other}}
	at := time.Duration(0)
	for i := range p.readings {
		p.readings[i].gap = min(p.readings[i].gap, 20*second)
		at += p.readings[i].gap
	}
	for i := range p.partitions[0] {
		p.partitions[0][i].version = 1
	}
	p.partitions[0][1].version = 0
	p.partitions[0][1].after, p.partitions[0][2].after = 0, 0
	p.compacted, p.tail = false, pick(d, "nothing", "hello")
	if d.chance(0.5) {
		p.calm()
	}
	back := at + pick(d, 15*second, 70*second, 3*time.Minute)
	p.moves = []move{{at: at, what: handOver}, {at: back, what: handOver}}
}

// lateOwner has an owner that hears late that it is replaced, while a recovery waits for the window to end.
func (d draw) lateOwner(p *plan) {
	r := d.rule("readings", pick(d, 60*second, 3*time.Minute))
	r.Resolved, r.Only, r.Valid, r.Levels = true, nil, nil, r.Levels[:1]
	r.Levels[0].For = 0
	p.only(r)
	p.tail, p.dies = pick(d, "nothing", "warm"), ""
	at := time.Duration(0)
	for i := range p.readings {
		m := &p.readings[i]
		m.gap, m.lag, m.fate = pick(d, second, 7*second, 20*second), 0, readable
		m.value = pick(d, 35.0, 35, 20, 20, 27)
		at += m.gap
	}
	p.moves = []move{{
		at: time.Duration(d.Int64N(int64(at + second))), what: steal, for_: pick(d, 50*second, 100*second, 5*time.Minute),
		deaf: true,
	}}
	if d.chance(0.7) {
		p.faults = nil
	}
}

// lostLevel has the higher level of a rule go, while it is open, as the milder one is.
func (d draw) lostLevel(p *plan) {
	r := d.rule("readings", 60*second)
	r.Resolved, r.Only, r.Valid = true, nil, nil
	r.Levels = []rules.Level{
		{Name: "warning", Limit: 30, Clear: 25, For: pick(d, 0, 20*second)},
		{Name: "critical", Limit: 80, Clear: 75, For: pick(d, 0, 20*second)},
	}
	p.only(r)
	milder := r
	milder.Levels = r.Levels[:1]
	p.versions = append(p.versions, []rules.Rule{milder})
	p.tail, p.dies = pick(d, "warm", "warm", "cool"), ""
	length := time.Duration(0)
	for i := range p.readings {
		p.readings[i].value = pick(d, 35.0, 90, 90, 90)
		length += p.readings[i].gap
	}
	if d.chance(0.5) {
		p.calm()
	}
	for i := range p.partitions[0] {
		p.partitions[0][i].version = min(i, 1)
	}
	at := time.Duration(d.Int64N(int64(length + second)))
	if d.chance(0.5) { // the milder one is never told before, and no reading reaches its limit any more
		p.calm()
		for i := range p.readings {
			p.readings[i].value = 90
		}
		p.tail, at = "warm", length+2*second
		for _, device := range p.devices {
			p.readings = append(p.readings, reading{device: device, value: 27, gap: 20 * second, late: -1, mode: "run"})
		}
	}
	p.moves = append(p.moves, move{at: at, what: handOver})
	slices.SortStableFunc(p.moves, func(a, b move) int { return int(a.at - b.at) })
}

// lateEnd has a rule go while its alarm is open in a partition where nothing comes, and a receiver be down when that
// counts as its end.
func (d draw) lateEnd(p *plan) {
	r := d.rule("readings", 60*second)
	r.Resolved, r.Only, r.Valid, r.Levels = true, nil, nil, r.Levels[:1]
	last := r
	last.Name, last.Levels = "last", []rules.Level{{Limit: 1000, Clear: 1000}}
	p.only(r)
	p.versions = append(p.versions, []rules.Rule{last})
	p.calm()
	at := time.Duration(0)
	for i := range p.readings {
		p.readings[i].gap = min(p.readings[i].gap, 40*second)
		at += p.readings[i].gap
	}
	p.readings[len(p.readings)-1].value = 35
	for i := range p.partitions[0] {
		p.partitions[0][i].version, p.partitions[0][i].after = min(i, 1), 0
	}
	p.tail, p.giveUp = "nothing", pick(d, 90*second, 5*time.Minute)
	at += time.Duration(d.IntN(60)) * second
	p.moves = []move{
		{at: at, what: handOver},
		{at: at + removedAfter - 10*second, what: receiverDown, for_: pick(d, 15*second, 50*second)},
	}
}

// chokingStorm has a receiver of messages for many always have something to do, and fail because of one device.
func (d draw) chokingStorm(p *plan) {
	r := d.rule("readings", 30*second)
	r.Only, r.Valid, r.Levels = nil, nil, r.Levels[:1]
	r.Levels[0].For, r.Levels[0].Name = 0, ""
	p.only(r)
	p.calm()
	p.tail, p.dies, p.compacted = "nothing", "", false
	p.giveUp = 10 * time.Minute
	p.changes = 1000 // reading goes on, whatever holds the watermark
	p.devices = slices.Clone(p.devices[:1])
	for i := range 50 {
		p.devices = append(p.devices, fmt.Sprint("crowd-", i))
	}
	p.readings = nil
	for range 4 {
		for _, device := range p.devices {
			p.readings = append(p.readings, reading{device: device, value: 35, gap: second, late: -1, mode: "run"})
		}
	}
	p.receivers = []planned{{chokes: p.devices[0], limits: notify.Limits{Batch: 3}, slow: 5 * second}}
}
