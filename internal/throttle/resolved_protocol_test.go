package throttle_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/throttle/throttletest"
)

// Readings of a device whose rule has state.
const (
	hot       = iota
	cool      // ends the alarm
	inhibited // hot, but not told: a higher level of the rule is open
	kinds
)

// What more can happen to one message.
const (
	lost    = sends + iota // it does not reach the receiver, and no answer says so
	delayed                // it arrives after the sender has given up waiting, before its claim ends
	slowly                 // it takes a while to be taken
	messages
)

// A statefulPlan is everything that is left to chance in one run with resolved.
type statefulPlan struct {
	readings  []int           // their kinds
	gaps      []time.Duration // before each
	calls     []int           // what happens to the store's calls, in order; fine after that
	sends     []int           // what happens to messages, in order; takenWell after that
	delays    []time.Duration // of what is delayed
	giveUps   []bool          // whether a message that failed becomes a dead letter; false after that
	writes    []int           // by how many readings the ledger stays behind at each write; 0 after that
	batches   []int           // how many readings are read at most before the next attempt; all after that, and if 0
	pauses    []time.Duration // after a message that failed; a second after that
	blind     time.Duration   // until a replica finds that another has taken over, unless the ledger tells it
	cut       bool            // the hub disconnects it at once: it reads no more
	takeover  time.Duration   // until a successor of a dead replica starts
	takeovers []time.Duration // when another takes the partition over from a live one
	coarse    bool            // the store counts in seconds
}

func drawStatefulPlan(t *rapid.T) statefulPlan {
	after := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, window, window + claimTTL, 3 * window})
	n := rapid.IntRange(1, 8).Draw(t, "n")
	p := statefulPlan{
		readings:  rapid.SliceOfN(rapid.SampledFrom([]int{hot, hot, hot, cool, cool, inhibited}), n, n).Draw(t, "readings"),
		gaps:      rapid.SliceOfN(rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, 7 * time.Second, 30 * time.Second, window, 2 * window}), n, n).Draw(t, "gaps"),
		calls:     rapid.SliceOfN(rapid.IntRange(0, calls-1), 0, 12).Draw(t, "calls"),
		sends:     rapid.SliceOfN(rapid.IntRange(0, messages-1), 0, 8).Draw(t, "sends"),
		delays:    rapid.SliceOfN(rapid.SampledFrom([]time.Duration{time.Millisecond, 3 * time.Second, 15 * time.Second, claimTTL}), 3, 3).Draw(t, "delays"),
		giveUps:   rapid.SliceOfN(rapid.Bool(), 0, 4).Draw(t, "give up"),
		writes:    rapid.SliceOfN(rapid.IntRange(0, 3), 0, 8).Draw(t, "writes"),
		batches:   rapid.SliceOfN(rapid.IntRange(0, 2), 0, 12).Draw(t, "batches"),
		pauses:    rapid.SliceOfN(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 45 * time.Second}), 0, 4).Draw(t, "pauses"),
		blind:     rapid.SampledFrom([]time.Duration{0, 10 * time.Second, 2 * window}).Draw(t, "blind"),
		cut:       rapid.Bool().Draw(t, "cut"),
		takeover:  rapid.SampledFrom([]time.Duration{0, 5 * time.Second, 40 * time.Second, 3 * window}).Draw(t, "takeover"),
		takeovers: rapid.SliceOfN(after, 0, 2).Draw(t, "takeovers"),
		coarse:    rapid.Bool().Draw(t, "coarse"),
	}
	p.readings[0] = hot
	if rapid.Bool().Draw(t, "a good store") {
		p.calls = nil
	}
	return p
}

// An alarm follows from the readings alone, but for what is owed.
type alarm struct {
	open bool
	owed int // the cleared reading whose resolved is not settled, or -1
}

// next returns the alarm after reading i, and whether that asks for an alert.
func (a alarm) next(kind, i int) (alarm, bool) {
	switch {
	case kind == cool && a.open:
		a = alarm{owed: i}
	case kind != cool && !a.open:
		a = alarm{open: true, owed: -1}
	}
	return a, a.open && kind == hot
}

// A partition is one device's readings, the ledger of its alarm, and its receiver.
type partition struct {
	statefulPlan
	store lease.Store

	mu        sync.Mutex
	published []throttle.Request
	owner     int // the replica whose ledger it is
	since     time.Time
	position  int // readings before it are settled
	kept      alarm
	next      struct{ call, send, delay, giveUp, write, batch, pause int }
	dead      map[int]bool    // readings whose alert, or resolved, is a dead letter
	recorded  map[string]bool // ids of what was taken and recorded in time
	wrong     []string        // what must not be sent
	receiver  receiver
	log       []string
}

func (p *partition) logf(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf("%8.3f ", time.Since(epoch).Seconds())+fmt.Sprintf(format, args...))
}

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of synctest

// pop returns the next of what is planned, and the zero value when there is no more.
func pop[T any](p *partition, of []T, next *int) (what T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *next < len(of) {
		what = of[*next]
		*next++
	}
	return what
}

// A receiver drops what docs/receivers.md says, and tells the rest.
type receiver struct {
	ids        map[string]time.Time // until when each is remembered
	token      int64
	tokenUntil time.Time

	arrived []message // of alerts also what was dropped
	heard   []message
}

type message struct {
	at       time.Time
	id       string
	about    int // the reading that the sender settles with it
	resolved bool
}

// take is one delivery. The partition's mu is held.
func (r *receiver) take(m message, g throttle.Grant) {
	r.arrived = append(r.arrived, m)
	if !m.at.Before(r.tokenUntil) {
		r.token = 0
	}
	drop := m.at.Before(r.ids[m.id]) || r.token > g.Token
	until := m.at.Add(window)
	if !drop {
		r.ids[m.id] = until
		r.heard = append(r.heard, m)
	}
	if !drop || r.token < g.Token {
		r.token = g.Token
		for _, end := range []time.Time{until, g.Expires} {
			if end.After(r.tokenUntil) {
				r.tokenUntil = end
			}
		}
	}
}

// A delivery is what a replica has under way: an alert about its head, or a resolved.
type delivery struct {
	resolved            bool
	first, head, latest int
	since               int // the head is decided for readings from this one on
}

// An owner reads the partition, as the worker does, until it dies, finds that the partition
// is another's, or has settled everything.
type owner struct {
	*partition
	me      int
	gate    *recent.Gate
	history []alarm // after each reading from the one on that it began with, of which start is the number
	start   int
	kept    int // position of its last ledger
	settled int // the latest cleared reading that it settled, or -1
	flight  *delivery
	dead    bool
	lost    bool
}

func (o *owner) read() int { return o.start + len(o.history) - 1 }

func (p *partition) own() *owner {
	o := &owner{partition: p, settled: -1}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owner, p.since = p.owner+1, time.Now()
	o.me, o.start, o.kept, o.history = p.owner, p.position, p.position, []alarm{p.kept}
	p.logf("%d owns, from %d, %+v", o.me, p.position, p.kept)
	o.gate = recent.New(throttle.Config{
		Store: &faulty{Store: p.store, before: o.fault}, Scope: "s", Receiver: "r", Window: window, SendTimeout: sendTimeout,
	}, recent.NewWindows())
	return o
}

func (o *owner) fault(string) error {
	if o.dead {
		return errCrash
	}
	switch pop(o.partition, o.calls, &o.next.call) {
	case lostBefore:
		return errors.New("connection refused")
	case lostAfter:
		return errLater
	case slow:
		time.Sleep(2 * time.Second)
	case stuck:
		time.Sleep(25 * time.Second)
	case frozen:
		time.Sleep(85 * time.Second)
	}
	return nil
}

// absorb reads what there is.
func (o *owner) absorb() {
	batch := pop(o.partition, o.batches, &o.next.batch)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cut && o.partition.owner != o.me {
		batch = -1
	}
	for n := 1; o.read() < len(o.published) && (batch == 0 || n <= batch); n++ {
		i := o.read()
		before := o.history[len(o.history)-1]
		now, tell := before.next(o.readings[i], i)
		o.history = append(o.history, now)
		if o.flight != nil && o.flight.resolved && now.owed != o.flight.head {
			o.flight = nil // it is hot again
		}
		switch {
		case !tell:
		case o.flight != nil:
			o.flight.latest = i
		case before.open && o.gate.Recent(sensor.Of("oven")): // the one that opens asks the store
		default:
			o.flight = &delivery{first: i, head: i, latest: i, since: i}
		}
	}
	if o.flight == nil && o.history[len(o.history)-1].owed >= 0 {
		owed := o.history[len(o.history)-1].owed
		o.flight = &delivery{resolved: true, head: owed, since: owed}
	}
}

// write writes the ledger, up to some readings before the watermark.
func (o *owner) write() {
	behind := pop(o.partition, o.writes, &o.next.write)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.partition.owner != o.me {
		o.lost = time.Since(o.since) >= o.blind
		return
	}
	at := o.read()
	if o.flight != nil && !o.flight.resolved {
		at = o.flight.first
	}
	at = max(o.kept, at-behind)
	a := o.history[at-o.start]
	if a.owed <= o.settled {
		a.owed = -1
	}
	if at == o.position && a == o.partition.kept {
		return
	}
	o.kept, o.position, o.partition.kept = at, at, a
	o.logf("%d keeps %d, %+v", o.me, at, a)
}

func (o *owner) request(i int, resolved bool) throttle.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.published[i]
	if r.Recovery = resolved; resolved {
		r.ID += "/resolved"
	}
	return r
}

// run returns whether the replica died.
func (o *owner) run() (died bool) {
	for end := time.Now().Add(100 * time.Hour); ; {
		o.absorb()
		o.write()
		switch {
		case o.lost:
			return false
		case time.Now().After(end):
			panic("nothing settles it: " + strings.Join(o.log, "\n"))
		case o.flight != nil:
			if o.attempt(); o.dead {
				o.mu.Lock()
				o.logf("%d dies", o.me)
				o.mu.Unlock()
				return true
			}
		case o.read() == len(o.readings):
			return false
		default:
			time.Sleep(time.Second)
		}
	}
}

// attempt asks the gate once, and lands what is settled.
func (o *owner) attempt() {
	f := o.flight
	r := o.request(f.head, f.resolved)
	var id string
	result, _ := throttletest.Do(context.Background(), o.gate, r, func(_ context.Context, g throttle.Grant) throttle.Answer {
		id = g.ID
		return o.send(r, g)
	})
	if o.dead {
		return
	}
	o.mu.Lock()
	o.recorded[id] = o.recorded[id] || result.Outcome == throttle.Sent
	o.logf("%d asked for %s of %d: %v", o.me, r.ID, f.head, result.Outcome)
	o.mu.Unlock()
	switch result.Outcome {
	case throttle.Failed:
		if pop(o.partition, o.giveUps, &o.next.giveUp) {
			o.deadLetter(r)
		} else {
			time.Sleep(cmp.Or(pop(o.partition, o.pauses, &o.next.pause), time.Second))
		}
		return
	case throttle.Unavailable:
		time.Sleep(time.Second)
		return
	case throttle.Busy:
		time.Sleep(min(time.Until(result.Retry), 2*time.Second))
		return
	case throttle.Unconfirmed:
		_ = o.gate.Confirm(context.Background(), result)
	}
	if f.resolved {
		o.settleResolved()
		return
	}
	o.absorb() // readings that came meanwhile have joined
	switch result.Outcome {
	case throttle.Sent:
		o.flight = nil
	case throttle.Throttled:
		o.land(result.Covers(o.request(f.latest, false)))
	default:
		o.land(false)
	}
}

// land settles the head, and begins again with the latest reading unless that is covered.
func (o *owner) land(covered bool) {
	f := o.flight
	if f.latest == f.head || covered {
		o.flight = nil
		return
	}
	o.flight = &delivery{first: f.first, head: f.latest, latest: f.latest, since: f.head + 1}
}

func (o *owner) settleResolved() {
	o.settled = max(o.settled, o.flight.head)
	for i := range o.history {
		if o.history[i].owed <= o.settled {
			o.history[i].owed = -1
		}
	}
	o.flight = nil
}

func (o *owner) deadLetter(r throttle.Request) {
	o.mu.Lock()
	for i := o.flight.since; i <= o.flight.head; i++ {
		if (o.readings[i] == cool) == r.Recovery {
			o.partition.dead[i] = true
		}
	}
	o.logf("%d keeps a dead letter of %s", o.me, r.ID)
	o.mu.Unlock()
	for o.gate.GiveUp(context.Background(), r) != nil {
		if o.dead {
			return
		}
		time.Sleep(time.Second)
	}
	if o.flight.resolved {
		o.settleResolved()
		return
	}
	o.absorb()
	o.land(false)
}

// send is one message to the receiver.
func (o *owner) send(r throttle.Request, g throttle.Grant) throttle.Answer {
	what := pop(o.partition, o.sends, &o.next.send)
	after := pop(o.partition, o.delays, &o.next.delay)
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Recovery && o.partition.owner != o.me { // the ledger says so
		o.lost = true
		return throttle.NotTaken
	}
	if what == slowly {
		o.mu.Unlock()
		time.Sleep(sendTimeout / 2)
		o.mu.Lock()
	}
	if o.recorded[g.ID] {
		o.wrong = append(o.wrong, fmt.Sprintf("%s is sent again after it was recorded", g.ID))
	}
	if strings.HasSuffix(g.ID, "/resolved") != r.Recovery {
		o.wrong = append(o.wrong, fmt.Sprintf("%s is sent under the id %s", r.ID, g.ID))
	}
	o.logf("%d sends %s, token %d, ambiguous %t: %d", o.me, g.ID, g.Token, g.Ambiguous, what)
	m := message{at: time.Now(), id: g.ID, about: int(r.Sequence), resolved: r.Recovery}
	switch what {
	case crashBefore:
		o.dead = true
		return throttle.Unknown
	case refusedForNow:
		return throttle.NotTaken
	case lost:
		return throttle.Unknown
	case delayed:
		after = min(after, time.Until(g.Expires)-time.Millisecond)
		time.AfterFunc(after, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			m.at = time.Now()
			o.logf("%s arrives", m.id)
			o.receiver.take(m, g)
		})
		return throttle.Unknown
	}
	o.receiver.take(m, g)
	switch what {
	case takenThenCrash:
		o.dead = true
		return throttle.Unknown
	case takenUnheard:
		return throttle.Unknown
	}
	return throttle.Taken
}

// live lets it all happen.
func (p *partition) live() {
	var all sync.WaitGroup
	own := func() {
		for {
			o := p.own()
			if !o.run() {
				return
			}
			p.mu.Lock()
			current := p.owner == o.me
			p.mu.Unlock()
			if !current {
				return
			}
			time.Sleep(p.takeover)
		}
	}
	all.Go(own)
	for _, after := range p.takeovers {
		all.Go(func() { time.Sleep(after); own() })
	}
	for i, gap := range p.gaps {
		time.Sleep(gap)
		p.mu.Lock()
		p.published = append(p.published, throttle.Request{Device: "oven", ID: fmt.Sprint(i), Enqueued: time.Now().Truncate(time.Millisecond), Log: "0", Sequence: int64(i)})
		p.logf("reading %d is %s", i, [...]string{"hot", "cool", "inhibited"}[p.readings[i]])
		p.mu.Unlock()
	}
	all.Wait()
	time.Sleep(claimTTL) // what is delayed arrives
}

// violations returns what did not hold.
func (p *partition) violations() (all []string) {
	all = p.wrong
	bad := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }

	// P1 and P3, of what the receiver tells.
	var alert, last message
	for _, m := range p.receiver.heard {
		early := window - m.at.Sub(alert.at)
		if early > 0 && !alert.at.IsZero() {
			bad("%s is heard %v before the window of %s is over", m.id, early, alert.id)
		}
		letter := false // an alert that became a dead letter is one between
		for i := last.about; i < m.about; i++ {
			letter = letter || p.dead[i] && p.readings[i] == hot
		}
		if last.resolved && m.resolved && last.id != m.id && !letter {
			bad("%s and %s without an alert between", last.id, m.id)
		}
		if last = m; !m.resolved {
			alert = m
		}
	}

	// P2: what it heard last is what is. An alarm that was only reached by dead letters is not
	// due, and a dead letter tells nobody that it is over.
	a, due := alarm{owed: -1}, false
	for i, kind := range p.readings {
		var tell bool
		a, tell = a.next(kind, i)
		due = a.open && (due || tell && !p.dead[i])
	}
	switch {
	case due && (last.id == "" || last.resolved):
		bad("the alarm is open, heard last is %q", last.id)
	case !a.open && last.id != "" && !last.resolved && !p.dead[a.owed]:
		bad("the alarm is over, heard last is %q", last.id)
	}

	// G2: every reading is settled by something that the receiver got.
	a = alarm{owed: -1}
	for i, kind := range p.readings {
		var tell bool
		a, tell = a.next(kind, i)
		if tell && !p.dead[i] && !slices.ContainsFunc(p.receiver.arrived, func(m message) bool {
			return m.resolved && m.about >= i || !m.resolved && p.published[i].Enqueued.Before(m.at.Add(window+claimTTL))
		}) {
			bad("reading %d is lost", i)
		}
	}
	return all
}

// Whatever fails, and wherever a replica dies or goes on as a zombie: a receiver that drops what
// it should gets no two alerts within the window, and no resolved within it; what it
// heard last is what is; and no reading is lost.
func TestResolvedHoldsWhateverFails(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := &partition{statefulPlan: drawStatefulPlan(rt), dead: map[int]bool{}, recorded: map[string]bool{}}
		p.kept.owed, p.receiver.ids = -1, map[string]time.Time{}
		synctest.Test(t, func(*testing.T) {
			p.store = memlease.New()
			if p.coarse {
				p.store = (&seconds{}).store()
			}
			p.live()
		})
		if bad := p.violations(); len(bad) > 0 {
			rt.Fatalf("%s\n%s", strings.Join(bad, "\n"), strings.Join(p.log, "\n"))
		}
	})
}
