package worker_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

const second = time.Second

// A plan is everything that is left to chance in one world. It follows from its number alone.
type plan struct {
	number     uint64
	versions   [][]rules.Rule // of the rules; each take-over says which is in force
	receivers  []planned
	devices    []string
	readings   []reading
	tail       string            // what devices send until the end
	dies       string            // the device that sends nothing then
	sites      map[string]string // of devices: who falls silent is an incident of its site, unless that is empty; nil: a device is one by itself
	deadSite   string            // then: the site of which nobody sends anything then; empty: none
	elsewhere  bool              // events come to a partition of the hub that nobody here reads
	rosterDown time.Duration     // after the start no roster is written any more that is there; 0: all are
	gathered   bool              // the devices are the sensors of one gateway: see gather
	watches    bool              // then: a rule is about the silence of sensors
	each       bool              // then: its messages have arrays
	compacted  bool              // the hub keeps the last message of each device, and perhaps others
	partitions [][]takeover
	faults     []fault
	moves      []move
	muteTimes  []muteTime
	giveUp     time.Duration
	patience   time.Duration // how long a reading may be unsettled; 0: that is not watched
	largest    int           // batch
	changes    int           // of alarms behind the watermark that are kept apart
}

// planned is how a receiver is.
type planned struct {
	filters notify.Filters
	changes bool           // the filters do, with the version of the rules
	then    notify.Filters // from the second version on
	limits  notify.Limits
	refuses string        // the device whose alerts it never takes
	chokes  string        // the device because of which it fails, whatever else a message is about
	slow    time.Duration // until it answers
	says    *notify.Error // while it is down; nil: that it is busy
}

// A reading is a message of a device: enqueued a time after the one before, and can be read a time after that.
type reading struct {
	device    string
	partition int
	value     float64 // 0: the message has none
	gap, lag  time.Duration
	late      time.Duration // of the message after the time that its device gives it; -1: it gives none
	site      string        // an application property; empty: none
	limit     float64       // of the device's own; 0: none
	base      float64       // that limits are counted from; 0: none
	mode      string        // what the rules' conditions look at
	quiet     time.Duration // for how long the device is quiet
	fate      string        // of the event
	damage    string        // of its body; empty: it is JSON

	gathered, each bool    // see plan
	noise          float64 // of another sensor in the same message; 0: none
	noiseFirst     bool    // that stands before this one

	before      float64       // what the sensor has measured before, in the same message; 0: nothing
	earlier     time.Duration // by so much, if the message has times
	newestFirst bool          // what was measured last stands first, if the message has times
}

// How bodies are damaged.
const (
	loose     = "loose"      // as people write JSON by hand
	brokenOff = "broken off" // behind everything that matters
	lost      = "lost"       // before that: the message has no value
)

// What becomes of an event.
const (
	readable    = ""
	undecodable = "undecodable"
	expired     = "expired"    // before anybody reads it
	superseded  = "superseded" // not there any more once its device has sent another one
	byHTTP      = "http"       // it does not come from the hub
)

// A takeover is how a partition's next owner begins.
type takeover struct {
	after   time.Duration // the last owner has gone
	slot    int           // which of two replicas it is
	back    int           // events by which the checkpoint is moved back
	version int           // of the rules
	opens   time.Duration // how long the hub takes to deliver its first events
}

// What happens to one call that a replica makes.
const (
	requestLost  = "REQUEST LOST"  // it is not executed, and fails
	answerLost   = "ANSWER LOST"   // it is executed, and fails
	slow         = "SLOW"          // it takes long
	delayed      = "DELAYED"       // it fails at once, and is executed later
	killedBefore = "KILLED BEFORE" // the replica dies before it
	killedAfter  = "KILLED AFTER"
	frozenBefore = "FROZEN BEFORE" // the replica stands still for so long that another one takes over, and then goes on
	frozenAfter  = "FROZEN AFTER"
	notTaken     = "NOT TAKEN" // of a receiver: it is busy
	refused      = "REFUSED"   // of a receiver: it will never take it
	tooFast      = "TOO FAST"  // of a receiver: it takes fewer messages
)

var (
	faultsOfAny  = []string{requestLost, answerLost, slow, delayed, killedBefore, killedAfter, frozenBefore, frozenAfter}
	faultsOfSend = append([]string{notTaken, refused, tooFast}, faultsOfAny...)
)

// The calls of a replica are the steps at which faults begin.
const (
	callAcquire     = "acquire"
	callExtend      = "extend"
	callRelease     = "release"
	callLedgerRead  = "ledger read"
	callLedgerWrite = "ledger write"
	callLedgerOwner = "ledger owner"
	callSend        = "send"
	callKeep        = "keep"
	callCheckpoint  = "checkpoint"
	callReceive     = "receive"

	callIncidentRead  = "incident read"
	callIncidentWrite = "incident write"
)

var calls = []string{
	callAcquire, callExtend, callRelease, callLedgerRead, callLedgerWrite, callLedgerOwner, callSend, callKeep,
	callCheckpoint, callReceive,
}

// A fault happens to the nth call of a kind.
type fault struct {
	call string
	nth  int
	what string
	for_ time.Duration
}

func (f fault) String() string { return fmt.Sprintf("%s %d: %s %v", f.call, f.nth, f.what, f.for_) }

// What happens besides, and when.
const (
	handOver     = "HAND OVER"     // the partition goes to another replica in good order
	kill         = "KILL"          // its owner dies
	steal        = "STEAL"         // another replica takes over, and the owner hears of it later
	storeDown    = "STORE DOWN"    // for a while
	ledgerDown   = "LEDGER DOWN"   // for a while
	receiverDown = "RECEIVER DOWN" // for a while
	mute         = "MUTE"          // people mute alerts for a while
	forget       = "FORGET"        // an operator removes a device
	missed       = "MISSED"        // no move: a rule about silence may have forgotten the device
	replay       = "REPLAY"        // people send dead letters again
)

type move struct {
	at        time.Duration // after the start
	what      string
	for_      time.Duration
	deaf      bool // the old owner reads nothing more
	partition int
	device    string
	rule      string // of a mute; empty: all
	receiver  int
}

func (m move) String() string {
	return strings.TrimRight(fmt.Sprintf("%s at %v for %v (partition %d, deaf %v, receiver %d) %s %s",
		m.what, m.at, m.for_, m.partition, m.deaf, m.receiver, m.device, m.rule), " ")
}

// A draw is chance in one plan.
type draw struct{ *rand.Rand }

func pick[T any](d draw, of ...T) T { return of[d.IntN(len(of))] }

// some returns those of a list that are common in this plan; others do not happen in it.
func some[T any](d draw, of ...T) (few []T) {
	for _, one := range of {
		if d.chance(0.4) {
			few = append(few, one)
		}
	}
	if len(few) == 0 {
		return of[:1]
	}
	return few
}

func (d draw) chance(p float64) bool { return d.Float64() < p }

// newPlan draws the plan of a number. What is common in one plan is rare in the next.
func newPlan(number uint64) plan {
	d := draw{rand.New(rand.NewPCG(number, 0))}
	p := plan{
		number:  number,
		devices: []string{"oven", "kiln", "berlin"}[:1+d.IntN(3)], // one is called like a site
		tail:    pick(d, "nothing", "nothing", "hello", "cool", "warm"),
		giveUp:  pick(d, 12*time.Hour, 12*time.Hour, 90*second, 5*time.Minute),
		largest: 1 + d.IntN(4), changes: 1 + d.IntN(5),
	}
	if d.chance(0.02) { // a fleet
		for i := range 24 {
			p.devices = append(p.devices, fmt.Sprint("crowd-", i))
		}
	}
	p.versions = d.versions()
	for range 1 + d.IntN(2) {
		p.receivers = append(p.receivers, d.receiver(&p))
	}
	if d.chance(0.3) {
		p.dies = pick(d, p.devices...)
	}
	p.compacted = d.chance(0.08)
	p.partitions = make([][]takeover, pick(d, 1, 1, 2))
	if len(p.devices) > 20 && len(p.partitions) > 1 {
		for i := range 24 {
			p.devices = append(p.devices, fmt.Sprint("crowd-", 24+i))
		}
	}
	for i := range p.partitions {
		p.partitions[i] = d.takeovers(len(p.versions))
	}
	p.readings = d.readings(&p)
	p.disturb(d)
	if d.chance(0.4) {
		d.scene(&p)
	} else {
		p.refilter()
		p.wander()
	}
	p.settle()
	p.hush()
	p.repeat()
	p.withhold()
	p.damage()
	p.gather()
	p.elsewhere = draw{rand.New(rand.NewPCG(p.number, 8))}.chance(0.6) || p.watches
	p.share()
	p.loseRosters()
	return p
}

// damage has some devices send what is not quite JSON, in some plans. It draws from a stream of its own, which moves
// nothing else.
func (p *plan) damage() {
	d := draw{rand.New(rand.NewPCG(p.number, 4))}
	if !d.chance(0.2) {
		return
	}
	often := pick(d, 0.1, 0.4, 0.8)
	for i := range p.readings {
		r := &p.readings[i]
		if r.value == 0 || !d.chance(often) {
			continue
		}
		if r.damage = pick(d, loose, loose, brokenOff, lost); r.damage == lost {
			r.value = 0
		}
	}
	if d.chance(0.3) {
		p.misspell()
	}
}

// misspell has devices say last that they do not run, in a message that is damaged, and so does not count.
func (p *plan) misspell() {
	for _, device := range p.devices {
		last := -1
		for i := range p.readings {
			if r := &p.readings[i]; r.device == device && r.value != 0 {
				r.mode, last = "run", i
			}
		}
		if last >= 0 {
			p.readings[last].mode, p.readings[last].damage = "clean", loose
		}
	}
}

// loseRosters has rosters be refused from a time on, and nothing else that replicas keep, in some plans. It draws from a
// stream of its own.
func (p *plan) loseRosters() {
	d := draw{rand.New(rand.NewPCG(p.number, 11))}
	if !d.chance(0.05) || p.watches || p.compacted || p.patience > 0 {
		return
	}
	p.rosterDown = second + d.minutes(6)
	for i, set := range p.versions {
		p.versions[i] = slices.Clone(set)
		for j := range p.versions[i] {
			if r := &p.versions[i][j]; r.Silence() {
				r.Forget = rules.DefaultForget // what is forgotten has to be written
			}
		}
	}
	p.moves = slices.DeleteFunc(p.moves, func(m move) bool { return m.what == forget }) // waits until it is written
}

// filtersIn returns what a receiver asks for in a version of the rules.
func (to planned) filtersIn(version int) notify.Filters {
	if to.changes && version > 0 {
		return to.then
	}
	return to.filters
}

// refilter has a receiver ask for something else from a rollout on, in some plans. It draws from a stream of its own,
// which moves nothing else.
func (p *plan) refilter() {
	d := draw{rand.New(rand.NewPCG(p.number, 7))}
	if !d.chance(0.2) {
		return
	}
	if len(p.versions) == 1 {
		p.versions = append(p.versions, slices.Clone(p.versions[0]))
		for _, owners := range p.partitions {
			for i := range owners[1:] {
				owners[i+1].version = d.IntN(2)
			}
		}
	}
	to := &p.receivers[d.IntN(len(p.receivers))]
	name := p.versions[0][d.IntN(len(p.versions[0]))].Name
	to.changes = true
	to.then = pick(d, nil, notify.Filters{{Levels: []string{"critical"}}}, notify.Filters{{Rules: []string{name}}},
		notify.Filters{{Rules: []string{"nothing"}}}, notify.Filters{{Property: "site", Values: []string{"berlin"}}})
}

// wander has a device send to two partitions in some plans: it is hot in one while its recovery in the other cannot be
// sent. It draws from a stream of its own.
func (p *plan) wander() {
	d := draw{rand.New(rand.NewPCG(p.number, 6))}
	if !d.chance(0.03) {
		return
	}
	r := d.rule("readings", 60*second)
	r.Resolved, r.Only, r.Valid, r.Levels = true, nil, nil, []rules.Level{{Limit: 30, Clear: 25}}
	p.only(r)
	p.partitions = append(p.partitions, slices.Clone(p.partitions[0]))
	p.calm()
	p.devices, p.dies, p.compacted = []string{"oven"}, "", false
	p.readings = nil
	sends := func(partition int, value float64, gap time.Duration) {
		p.readings = append(p.readings, reading{device: "oven", partition: partition, value: value, gap: gap, late: -1, mode: "run"})
	}
	sends(0, 35, second)
	sends(0, 20, pick(d, second, 10*second))
	sends(1, 35, pick(d, second, 30*second, 70*second, 90*second))
	if d.chance(0.5) {
		sends(d.IntN(2), 20, pick(d, second, 30*second))
	}
	for i := range p.receivers {
		p.receivers[i].refuses, p.receivers[i].chokes = "", ""
		p.moves = append(p.moves, move{at: pick(d, 30*second, 55*second), what: receiverDown, for_: pick(d, 50*second, 2*time.Minute), receiver: i})
	}
	slices.SortStableFunc(p.moves, func(a, b move) int { return int(a.at - b.at) })
}

// repeat has open alarms be sent again seldom, or not at all, in some plans. It draws from a stream of its own, which
// moves nothing else.
func (p *plan) repeat() {
	d := draw{rand.New(rand.NewPCG(p.number, 3))}
	repeat := pick(d, 0, 0, 100*second, 5*time.Minute, rules.Never)
	for _, set := range p.versions {
		for i := range set {
			if r := &set[i]; !r.Silence() && r.Per == "" && repeat > r.Window {
				r.Repeat = repeat
			}
		}
	}
	chokes := slices.ContainsFunc(p.receivers, func(to planned) bool { return to.chokes != "" })
	slow := slices.ContainsFunc(p.receivers, func(to planned) bool { return to.limits.Rate.Every > 0 })
	tooMany := slow && len(p.devices) > 20                     // for a receiver that takes one in 5 s
	if repeat > 0 && (chokes || tooMany) && p.tail == "warm" { // its alarms would be sent again to the end
		p.tail = "nothing"
	}
}

// hush has times in which nobody wants to know, and people mute devices for long, in some plans. It draws from a
// stream of its own.
func (p *plan) hush() {
	d := draw{rand.New(rand.NewPCG(p.number, 2))}
	if len(p.moves) < 3 && d.chance(0.15) {
		p.moves = append(p.moves, move{at: 10 * second, what: mute, for_: 20 * time.Minute, device: pick(d, p.devices...)})
		slices.SortStableFunc(p.moves, func(a, b move) int { return int(a.at - b.at) })
	}
	for range pick(d, 0, 0, 0, 0, 1, 2) {
		set := p.versions[0]
		p.muteTimes = append(p.muteTimes, muteTime{
			at: d.minutes(8), for_: time.Minute + d.minutes(8), device: pick(d, "", p.devices[d.IntN(len(p.devices))]),
			rule: pick(d, "", set[d.IntN(len(set))].Name), midnight: d.minutes(10),
		})
	}
}

// minutes draws up to so many.
func (d draw) minutes(n int) time.Duration { return time.Duration(d.IntN(n)) * time.Minute }

// A muteTime is a time in which nobody wants to know of some alerts.
type muteTime struct {
	at, for_     time.Duration // after the start, in minutes
	device, rule string        // empty: any
	midnight     time.Duration // after the start, by the clock that it goes by
}

// mute returns the same as rules have it, in a world that began at a time: midnight in UTC.
func (m muteTime) mute(start time.Time) rules.Mute {
	zone := time.FixedZone("", -int(m.midnight/second))
	from, to := start.Add(m.at).In(zone), start.Add(m.at+m.for_).In(zone)
	times := rules.Times{From: 60*from.Hour() + from.Minute(), To: 60*to.Hour() + to.Minute(), Zone: zone}
	times.Days[from.Weekday()] = true
	return rules.Mute{Device: m.device, Rule: m.rule, Times: &times}
}

// covers reports whether m is about a rule and a device, from one time to another, in a world that began at a time.
func (m muteTime) covers(rule, device string, start, from, to time.Time) bool {
	begin, end := start.Add(m.at), start.Add(m.at+m.for_)
	return m.isAbout(rule, device) && !from.Before(begin) && to.Before(end)
}

// isAbout reports whether m is about a rule and a device.
func (m muteTime) isAbout(rule, device string) bool {
	return (m.rule == "" || m.rule == rule) && (m.device == "" || m.device == device)
}

// settle has alarms end only after a while, and limits be counted from messages, in some plans. It draws from a stream
// of its own, which moves nothing else.
func (p *plan) settle() {
	d := draw{rand.New(rand.NewPCG(p.number, 1))}
	lasts := pick(d, 0, 0, 0, 20*second, 70*second)
	for _, set := range p.versions {
		for i := range set {
			if !set[i].Silence() {
				set[i].ClearedFor = lasts
			}
		}
	}
	if d.chance(0.15) {
		d.rebase(p)
	}
	if d.chance(0.15) {
		p.choose()
	}
}

// choose has rules about silence expect to hear only from devices that run.
func (p *plan) choose() {
	for _, set := range p.versions {
		for i := range set {
			if set[i].Silence() {
				set[i].Only = []rules.Condition{{Name: "mode", Values: []string{"run"}}}
			}
		}
	}
}

// usualBase is what messages mostly have for limits to be counted from.
const usualBase = 20

// rebase has limits be counted from a number in the messages, in most of which it is such that nothing else changes.
func (d draw) rebase(p *plan) {
	for _, set := range p.versions {
		for i := range set {
			r := &set[i]
			own := slices.ContainsFunc(r.Levels, func(l rules.Level) bool { return l.LimitAt.Name != "" })
			if r.Silence() || own {
				continue
			}
			r.Levels = slices.Clone(r.Levels)
			for j := range r.Levels {
				r.Levels[j].LimitAt = rules.Reference{Name: "base", Plus: true}
				r.Levels[j].Limit -= usualBase
				r.Levels[j].Clear -= usualBase
			}
		}
	}
	for i := range p.readings {
		p.readings[i].base = pick(d, usualBase, usualBase, usualBase, 0, 50.0)
	}
}

// versions draws the rules, and how they change.
func (d draw) versions() [][]rules.Rule {
	set := d.rules()
	versions := [][]rules.Rule{set}
	if d.chance(0.65) {
		return versions
	}
	other := slices.Clone(set)
	at := d.IntN(len(set))
	switch r := &other[at]; pick(d, "removed", "removed", "renamed", "level", "limit") {
	case "renamed":
		r.Name += "-2"
	case "level":
		if len(r.Levels) == 2 {
			r.Levels = r.Levels[:1]
			break
		}
		fallthrough
	case "removed":
		other = slices.Delete(other, at, at+1)
	case "limit":
		if r.Silent > 0 {
			r.Silent *= 2
			break
		}
		r.Levels = slices.Clone(r.Levels)
		for i := range r.Levels {
			r.Levels[i].Limit, r.Levels[i].Clear = r.Levels[i].Limit+1, r.Levels[i].Clear+1
		}
	}
	if len(other) == 0 {
		other = []rules.Rule{{Name: "last", Field: "temperature", Window: 60 * second, Resolved: true,
			Levels: []rules.Level{{Limit: 1000, Clear: 1000}}}}
	}
	versions = append(versions, other)
	if d.chance(0.3) {
		slices.Reverse(versions) // a rule is added
	}
	return versions
}

// rules draws a set of rules.
func (d draw) rules() []rules.Rule {
	var set []rules.Rule
	window := func() time.Duration { return pick(d, 30*second, 60*second, 60*second, 3*time.Minute) }
	for _, what := range some(d, "readings", "sites", "silence", "probe") {
		set = append(set, d.rule(what, window()))
	}
	return set
}

// rule draws a rule about something.
func (d draw) rule(what string, window time.Duration) rules.Rule {
	r := rules.Rule{Window: window, Resolved: d.chance(0.8)}
	switch what {
	case "readings", "sites":
		r.Name, r.Field = pick(d, rules.DefaultName, "hot"), "temperature"
		r.Levels = []rules.Level{{Limit: 30, Clear: pick(d, 25.0, 25, 30), For: pick(d, 0, 0, 20*second)}}
		if d.chance(0.3) {
			r.Levels[0].Name = "warning"
			r.Levels = append(r.Levels, rules.Level{Name: "critical", Limit: 80, Clear: 75, For: pick(d, 0, 0, 20*second)})
		}
		if d.chance(0.1) {
			r.Levels[0].LimitAt.Name = "maxTemp"
		}
		if d.chance(0.1) {
			r.Only = []rules.Condition{{Name: "mode", Values: []string{"run"}}}
		}
		if what == "sites" {
			r.Name, r.Per, r.Resolved = "warm", "site", false
		}
	case "silence", "probe":
		r.Name, r.Forget = "offline", pick(d, rules.DefaultForget, rules.DefaultForget, 10*time.Minute)
		r.Silent, r.Levels = pick(d, 60*second, 60*second, 2*time.Minute, 5*time.Minute), []rules.Level{{}}
		if what == "probe" {
			r.Name, r.Field = "probe-dead", pick(d, "", "temperature", "temperature")
		}
	}
	if r.Field != "" && d.chance(0.1) {
		r.Valid = &telemetry.Range{From: pick(d, -50.0, 22), To: 85} // 90 and perhaps 20 are none
	}
	return r
}

// receiver draws how a receiver is.
func (d draw) receiver(p *plan) planned {
	devices, set := p.devices, p.versions[0]
	var to planned
	switch pick(d, "all", "all", "all", "level", "rule", "site") {
	case "level":
		to.filters = notify.Filters{{Levels: []string{"critical"}}}
	case "rule":
		to.filters = notify.Filters{{Rules: []string{set[d.IntN(len(set))].Name}}}
	case "site":
		to.filters = notify.Filters{{Property: "site", Values: []string{"berlin"}}}
	}
	if d.chance(0.2) {
		to.limits.Batch = 3
	}
	if d.chance(0.1) {
		to.limits.Rate = notify.Rate{Burst: 1, Every: 5 * second}
	}
	if d.chance(0.15) {
		to.refuses = devices[d.IntN(len(devices))]
	}
	if d.chance(0.05) { // what it chokes on has to be given up, so that there is an end
		to.chokes, to.limits.Batch, p.giveUp = devices[d.IntN(len(devices))], 3, 5*time.Minute
	}
	to.slow = pick(d, 0, 0, second, 5*second)
	return to
}

// takeovers draws how the owners of a partition follow each other.
func (d draw) takeovers(versions int) []takeover {
	all := make([]takeover, 6)
	afters := some(d, 0, second, 15*second, 40*second, 3*time.Minute)
	careless := d.chance(0.3)
	for i := range all {
		t := &all[i]
		t.after, t.slot, t.opens = pick(d, afters...), d.IntN(2), pick(d, 0, 700*time.Millisecond)
		if careless && i > 0 {
			t.back = pick(d, 0, 0, 1, 3, 9)
		}
		if i > 0 {
			t.version = d.IntN(versions)
		}
	}
	return all
}

// readings draws what devices send.
func (d draw) readings(p *plan) (all []reading) {
	crowd := len(p.devices) > 20
	gaps := some(d, second, 0, 7*second, 20*second, 40*second, 61*second, 90*second, 4*time.Minute)
	values := some(d, 35.0, 20, 27, 90, 77)
	lags := some(d, 0, 0, 0, second, 30*second, 100*second)
	lates := some(d, -1, -1, 0, second, 21*second, 10*time.Minute)
	sites := some(d, "", "berlin", "paris", "rome")
	quiets := some(d, 0, 0, 0, 70*second, 5*time.Minute)
	fates := some(d, readable, readable, readable, readable, undecodable, expired, byHTTP)
	often := d.chance(0.5) // readings without anything else are most
	home := make([]int, len(p.devices))
	for i := range home {
		home[i] = d.IntN(len(p.partitions))
	}
	moves := len(p.partitions) > 1 && d.chance(0.4)
	n := 1 + d.IntN(9)
	for i := range n {
		at := d.IntN(len(p.devices))
		if moves && i == n/2 {
			home[at] = 1 - home[at]
		}
		r := reading{
			device: p.devices[at], partition: home[at], value: pick(d, values...), gap: pick(d, gaps...), lag: pick(d, lags...),
			late: pick(d, lates...), site: pick(d, sites...), mode: pick(d, "run", "run", "clean"), fate: pick(d, fates...),
		}
		if often && d.chance(0.7) {
			r.fate = readable
		}
		if d.chance(0.15) {
			r.value = 0
		}
		if d.chance(0.1) {
			r.limit = 60
		}
		if d.chance(0.2) {
			r.quiet = pick(d, quiets...)
		}
		if p.compacted && r.fate == readable && d.chance(0.5) {
			r.fate = superseded
		}
		all = append(all, r)
	}
	if crowd {
		all = append(d.chatter(p, home), all...)
	}
	return all
}

// chatter is a crowd that talks for some minutes, and of which nothing is heard then.
func (d draw) chatter(p *plan, home []int) (all []reading) {
	for range 2 + d.IntN(3) {
		for i, device := range p.devices {
			all = append(all, reading{device: device, partition: home[i], value: 20, gap: second / 2, late: -1, mode: "run",
				site: "berlin"})
		}
	}
	return all
}

// disturb draws what fails and what happens besides.
func (p *plan) disturb(d draw) {
	length := 2 * time.Minute
	for _, r := range p.readings {
		length += r.gap
	}
	if len(p.versions) > 1 && d.chance(0.5) {
		length += 12 * time.Minute // until a rule counts as removed
	}
	kinds := some(d, handOver, handOver, kill, steal, storeDown, ledgerDown, receiverDown, handOver, mute, forget, replay)
	lasts := some(d, second, 15*second, 50*second, 100*second, 5*time.Minute, 20*time.Minute)
	for range d.IntN(5) {
		r := p.versions[0][d.IntN(len(p.versions[0]))]
		m := move{
			at: time.Duration(d.Int64N(int64(length))).Round(100 * time.Millisecond), what: pick(d, kinds...), for_: pick(d,
				lasts...), deaf: d.chance(0.3),
			partition: d.IntN(len(p.partitions)), device: p.devices[d.IntN(len(p.devices))], receiver: d.IntN(len(p.receivers)),
		}
		if m.what == mute && d.chance(0.5) {
			m.rule = r.Name
		}
		p.moves = append(p.moves, m)
	}
	slices.SortStableFunc(p.moves, func(a, b move) int { return int(a.at - b.at) })
	if d.chance(0.5) {
		return
	}
	at := some(d, calls...)
	if d.chance(0.3) {
		at = []string{callSend}
	}
	for range 1 + d.IntN(3) {
		f := fault{call: pick(d, at...), nth: d.IntN(5), for_: pick(d, second, 6*second, 15*second, 30*second, 55*second,
			100*second)}
		f.what = pick(d, faultsOfAny...)
		if f.call == callSend {
			f.what = pick(d, faultsOfSend...)
		}
		if f.what == delayed {
			f.for_ = min(f.for_, 55*second)
		}
		p.faults = append(p.faults, f)
	}
}
