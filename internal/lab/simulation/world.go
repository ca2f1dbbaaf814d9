package simulation

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/config"
	"alertworker/internal/lab/cloud"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/inbox"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/sensor"
)

// A Dialer connects to an address of a network, as a net.Dialer does.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// A Network is how a replica reaches everything.
type Network struct {
	Dial Dialer            // to hubs
	HTTP http.RoundTripper // to all else

	Storage func() string // what is in the file of STORAGE_CONNECTION_STRING
}

// A Runner runs a replica, which reaches everything by n, until ctx ends and it has handed everything over.
type Runner func(ctx context.Context, c config.Config, n Network, log *zap.Logger) error

// Parts are what of the worker runs in a world.
type Parts struct {
	Replica Runner
	Replay  Runner // sends all dead letters again, once
}

// A World is a hub, stores and receivers, the replicas that use them, and what goes wrong.
type World struct {
	plan  Plan
	parts Parts
	tls   *tls.Config // of hubs
	story *Story
	began time.Time

	blobs    *cloud.Blobs
	items    *cloud.Items
	inboxes  []*inbox.Inbox
	forgets  *alertmanager        // nil: there is none
	places   map[string]*listener // of hubs, by address
	doors    map[string]*door     // by host
	verified *verify.Log
	sites    sites
	spaced   *verify.Log    // of the rule that rollouts add: only how close its messages are is judged
	work     sync.WaitGroup // what comes later, and what services are asked

	mu          sync.Mutex
	hub         *devhub.Hub
	iot         *devhub.Hub // says where hub is; nil: nobody does
	namespace   int
	generations []generation    // of the hub
	gone        map[string]bool // what checkpoints call hubs that are gone
	held        []Fault         // that wait until nothing of the hub has to be read any more
	holdUntil   time.Time
	rng         *rand.Rand // of what happens on the way
	bodies      map[string]*body
	slots       []*body
	born        int
	rollouts    int
	ended       bool               // no replica starts any more
	pending     []Fault            // that wait for their step
	downs       map[string]refusal // of receivers, by name
	chokes      map[string]choking // likewise
	secrets     secrets
	spans       []span
	faults      int
	delivered   int
	checkpoints map[string][]checkpoint // of each partition
	steps       map[Step]int            // how often each was seen
	last        map[stream]inbox.Delivery
	windows     map[string]window // by their keys
	grants      map[grant]claim
}

// A stream is what one receiver gets about one alarm.
type stream struct {
	receiver    string
	about       sensor.ID
	rule, level string
}

// A span is a time in which something is wrong.
type span struct {
	from, to     time.Time
	delaysClaims bool // no more
}

// Domain is what the names of all hubs that speak TLS end with.
const Domain = ".simulated.example"

// Addresses. They are this machine's, which no proxy is asked for.
const (
	hubAddress   = "127.0.0.10:5672"
	blobsAddress = "127.0.0.11"
	itemsAddress = "127.0.0.12"
	inboxes      = "127.0.0.2"
)

func inboxAddress(i int) string { return fmt.Sprintf("%s%d", inboxes, i) }
func inboxName(i int) string    { return fmt.Sprintf("inbox-%d", i) }

// A Result is what came of a plan.
type Result struct {
	Report    verify.Report
	Missing   verify.Report // what was due at the end and had not come, however long ago
	Wrong     []string      // what else is
	Faults    int           // that befell anybody
	Delivered int
	Simulated time.Duration
	Steps     map[Step]int
}

// OK reports whether the promise held.
func (r Result) OK() bool { return r.Report.OK() && r.Missing.Settled() && len(r.Wrong) == 0 }

// String says how much happened, and what was wrong with it.
func (r Result) String() string {
	s := fmt.Sprintf("%d faults, %d delivered", r.Faults, r.Delivered)
	for _, wrong := range []struct {
		name string
		all  []verify.Violation
	}{
		{"lost", r.Report.Lost},
		{"too close", r.Report.TooClose},
		{"stale", r.Report.Stale},
		{"wrong", r.Report.Wrong},
		{"missing", slices.Concat(r.Missing.Lost, r.Missing.Stale)},
	} {
		if n := len(wrong.all); n > 0 {
			s += fmt.Sprintf("; %d %s, first %v", n, wrong.name, wrong.all[0])
		}
	}

	if n := len(r.Wrong); n > 0 {
		s += fmt.Sprintf("; %d wrong besides, first %s", n, r.Wrong[0])
	}

	return s
}

// Run makes the world of a plan in a bubble of testing/synctest, and has it happen. story may be nil.
// Hubs that speak TLS do so by tls, whose certificates replicas must trust.
func Run(p Plan, parts Parts, tls *tls.Config, story *Story) (Result, error) {
	w := &World{
		plan:        p,
		parts:       parts,
		tls:         tls,
		story:       story,
		began:       time.Now(),
		verified:    verify.NewLog(p.judged()...),
		spaced:      verify.NewLog(),
		sites:       sites{hot: map[string]map[string]bool{}, since: map[string]time.Time{}},
		rng:         rand.New(rand.NewPCG(p.Seed, 3)),
		bodies:      map[string]*body{},
		slots:       make([]*body, p.Replicas),
		places:      map[string]*listener{},
		doors:       map[string]*door{},
		downs:       map[string]refusal{},
		chokes:      map[string]choking{},
		secrets:     newSecrets(),
		steps:       map[Step]int{},
		checkpoints: map[string][]checkpoint{},
		last:        map[stream]inbox.Delivery{},
		gone:        map[string]bool{},
		windows:     map[string]window{},
		grants:      map[grant]claim{},
	}

	if story != nil {
		story.began = w.began
	}

	p.mutes(w.verified)
	if err := w.open(); err != nil {
		return Result{}, err
	}

	for slot := range w.slots {
		w.start(slot)
	}

	w.live()
	until := w.now()
	missing, unposted := w.missing(), w.unposted()
	w.mu.Lock()
	w.ended = true
	alive := slices.Clone(w.slots)
	w.mu.Unlock()

	for _, b := range alive {
		if b != nil {
			b.end()
			<-b.done
		}
	}

	result := Result{
		Report:    w.verified.Check(w.rules(until)),
		Missing:   missing,
		Faults:    w.faults,
		Delivered: w.delivered,
		Simulated: time.Since(w.began),
		Steps:     w.steps,
		Wrong:     slices.Concat(unposted, w.wrongIncidents(), w.unkept(), w.localTimes()),
	}

	result.Report.TooClose = append(result.Report.TooClose, w.spaced.Check(w.rules(until)).TooClose...)
	w.close()

	return result, nil
}

// open starts the services.
func (w *World) open() error {
	if err := w.openHub(); err != nil {
		return err
	}

	if w.plan.IoT {
		if err := w.openIoTHub(); err != nil {
			return err
		}
	}

	clock := cloud.Clock{Ahead: w.plan.Ahead, Skew: w.plan.Skew}
	w.blobs = &cloud.Blobs{Clock: clock}
	w.items = cloud.NewItems("http://" + itemsAddress + "/")
	w.items.Clock = clock
	w.serve(door{at: blobsAddress, service: Blobs, name: "blobs", next: w.blobs})
	w.serve(door{at: itemsAddress, service: Items, name: "items", next: w.items})

	for i := range w.plan.Receivers {
		in := inbox.New(webhook.Secret{}, w.take(inboxName(i)))
		w.inboxes = append(w.inboxes, in)
		w.serve(door{at: inboxAddress(i), service: Receivers, name: inboxName(i), next: in})
	}

	if w.plan.Forgets {
		w.forgets = &alertmanager{
			world: w, restarted: time.Now(), known: map[string]time.Time{}, alarms: map[string]told{}, over: map[string]bool{},
		}
		w.serve(door{at: inboxAddress(forgetterPlace), service: Receivers, name: forgetter, next: w.forgets})
	}

	return nil
}

// serve has a service answer.
func (w *World) serve(d door) {
	d.world = w
	w.doors[d.at] = &d
}

// close ends everything and waits for it. What a library leaves behind sleeps for an hour or two.
func (w *World) close() {
	for _, b := range w.bodies {
		b.kill()
		<-b.done
	}

	_ = w.hub.Close()
	if w.iot != nil {
		_ = w.iot.Close()
	}

	w.work.Wait()
	time.Sleep(2 * time.Hour)
}

// now is the services' clock.
func (w *World) now() time.Time { return time.Now().Add(w.plan.Ahead) }

func (w *World) say(who, format string, a ...any) { w.story.say(who, format, a...) }

// start has a replica begin in a place, unless everything has ended.
func (w *World) start(slot int) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.ended {
		return
	}

	w.slots[slot] = w.animate(fmt.Sprintf("r%d", slot), slot, w.parts.Replica, func(b *body) {
		w.replace(b, restarts, func() {}) // if it has ended by itself
	})
}

// nowhere is the place of whoever is no replica.
const nowhere = -1

// replayLetters has an operator send all dead letters again.
func (w *World) replayLetters() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.animate("operator", nowhere, w.parts.Replay, func(*body) {})
}

// animate runs a part of the worker, in a place, until somebody or itself ends it, and then does something. w.mu is held.
func (w *World) animate(kind string, slot int, run Runner, then func(*body)) *body {
	w.born++
	ctx, end := context.WithCancel(context.Background())
	b := &body{
		world:    w,
		name:     fmt.Sprintf("%s-%d", kind, w.born),
		slot:     slot,
		end:      end,
		done:     make(chan struct{}),
		troubles: map[trouble]refusal{},
	}

	w.bodies[b.name] = b
	c := w.plan.config(b.name, w.hub.ConnectionString(), w.rollouts)
	dial := func(ctx context.Context, _, to string) (net.Conn, error) { return w.dial(ctx, b, to) }
	c.StorageConnectionString = config.NewSecret(w.storage())
	n := Network{Dial: dial, HTTP: b, Storage: func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.storage()
	}}
	w.say("world", "start %s", b.name)
	go func() {
		defer close(b.done)
		defer b.end()
		if err := run(ctx, c, n, w.story.logger(b)); err != nil && b.alive() {
			w.say(b.name, "ended: %v", err)
		}

		then(b)
	}()

	return b
}

// dial connects a replica to the hub at an address.
func (w *World) dial(ctx context.Context, b *body, to string) (net.Conn, error) {
	w.mu.Lock()
	at := w.places[to]
	w.mu.Unlock()

	if at == nil {
		return nil, errAway
	}

	switch f := w.befalls(b, Connect, false); f.Do {
	case Lose:
		return nil, errAway

	case Late:
		if !backoff.Sleep(ctx, f.For) {
			return nil, ctx.Err()
		}
	}

	c, err := b.dial(ctx, at)
	if err == nil {
		w.befalls(b, Connect, true)
	}

	return c, err
}

// A life is what is still to come in a world.
type life struct {
	*World
	sources []*source
	faults  []Fault   // in their order
	end     time.Time // of what happens; then it is looked for whether everything has settled
	over    time.Time // when it must have
	look    time.Time // next
}

// live has devices speak and faults begin until everything has settled.
func (w *World) live() {
	l := &life{World: w, faults: slices.Clone(w.plan.Faults)}
	for i, d := range w.plan.Devices {
		s := newSource(i, d, w.began)
		if w.plan.Sensors != "" {
			s.second = secondOf(i, d, w.began)
		}

		l.sources = append(l.sources, s)
	}

	slices.SortStableFunc(l.faults, func(a, b Fault) int { return int(a.At - b.At) })
	l.end = w.began.Add(max(w.plan.Length, w.plan.ends()))
	l.over = l.end.Add(w.plan.settles())
	l.look = l.end.Add(prompt)

	for {
		holding := w.hold()
		time.Sleep(time.Until(l.next(holding)))
		now := time.Now()
		l.fail(now)
		if l.settles(now) {
			return
		}

		if !holding {
			l.speak(now)
		}
	}
}

// next returns when something happens next. Devices say nothing while the hub holds them.
func (l *life) next(holding bool) time.Time {
	next := earlier(l.over, l.look)
	if len(l.faults) > 0 {
		next = earlier(next, l.began.Add(l.faults[0].At))
	}

	if holding {
		return earlier(next, time.Now().Add(time.Second))
	}

	for _, s := range l.sources {
		next = earlier(next, s.next)
	}

	return next
}

// fail has begin what goes wrong now. After the end nothing waits for a step any more.
func (l *life) fail(now time.Time) {
	for len(l.faults) > 0 {
		f := l.faults[0]
		if now.Before(l.began.Add(f.At)) {
			break
		}

		l.faults = l.faults[1:]
		if f.Step == "" {
			l.begin(f, l.victim(f))
			continue
		}

		l.mu.Lock()
		l.pending = append(l.pending, f)
		l.mu.Unlock()
	}

	if !now.Before(l.end) {
		l.mu.Lock()
		l.pending = nil
		l.mu.Unlock()
	}

	l.restartAlertmanager(now)
}

// settles reports whether everything has settled, or must have. It looks only from time to time.
func (l *life) settles(now time.Time) bool {
	must := !now.Before(l.over)
	if now.Before(l.look) {
		return must
	}

	l.look = now.Add(looks)

	return must || l.settled() && l.remembers()
}

// speak has devices report that are to.
func (l *life) speak(now time.Time) {
	cool := l.plan.Cools && !now.Before(l.end)
	for _, s := range l.sources {
		if now.Before(s.next) {
			continue
		}

		s.cool = cool
		l.publish(s, now)
	}
}

// settled reports whether all that is due has come, though it had little time. The judge decides, but need not wait.
func (w *World) settled() bool {
	w.mu.Lock()
	vacant := slices.Contains(w.slots, nil)
	w.mu.Unlock()
	return !vacant && w.missing().Settled() && len(w.wrongIncidents()) == 0
}

// missing looks for what should have come by now, however late.
func (w *World) missing() verify.Report {
	r := w.rules(w.now())
	r.Bound = never
	r.Early = prompt
	return w.verified.Check(r)
}

// earlier returns the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// publish has a device say what it has to say, unless it does not get through.
func (w *World) publish(s *source, now time.Time) {
	all := s.report(now, w.plan)
	if back := w.plan.away(s.number, now.Sub(w.began)); back > 0 {
		s.next = earlier(w.began.Add(back), s.next.Add(time.Minute))
		return
	}

	for _, m := range all {
		w.send(s.Name, m)
	}
}

// send sends a message to the hub.
func (w *World) send(device string, m sample) {
	body := maps.Clone(m.fields)
	body["temperature"] = m.temperature
	if w.plan.Sensors == Together {
		body[measurements] = m.elements()
	}

	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err) // it is finite numbers and text
	}

	if m.damaged != nil {
		encoded = m.damaged(encoded)
	}

	properties := map[string]any{}
	for name, value := range m.properties {
		properties[name] = value
	}

	enqueued := w.now()
	pub, err := w.hub.Publish(devhub.Message{Device: device, Body: encoded, Properties: properties, Enqueued: enqueued})
	if err != nil {
		panic(err) // a message of this kind can be encoded, and its partition is the hub's own choice
	}

	sequence := w.took(pub, device)
	w.say(device, "%s %v in %s at %d", encoded, m.properties, pub.Partition, sequence)
	w.sites.publish(m.properties[site], device, m.temperature, m.properties[quiet] == "true")
	reading := verify.Reading{
		Device:      device,
		Temperature: m.temperature,
		Damaged:     m.damaged != nil,
		At:          pub.Enqueued,
		Partition:   pub.Partition,
		Sequence:    sequence,
		Fields:      texts(m.fields),
		Properties:  m.properties,
	}

	reading.Taken, _ = time.Parse(time.RFC3339Nano, cmp.Or(reading.Fields[takenAt], m.properties[takenAt]))
	w.verified.Published(reading)
	w.verified.PublishedTogether(m.readings(reading, w.plan.Sensors)...)
}

// take returns what an inbox does with what it gets.
func (w *World) take(name string) func(inbox.Delivery) {
	return func(d inbox.Delivery) {
		a := d.Alert
		w.say(name, "%s %v level=%q resolved=%t id=%s token=%d by %s dropped=%t refused=%t",
			a.Rule, a.Of(), a.Level, a.Resolved, a.ID, a.Token, a.Replica, d.Dropped, d.Refused)
		if w.plan.Incidents && a.Rule == bySite {
			w.sites.heard(name, d)
			return
		}

		at := d.At.Add(w.plan.Ahead)
		claim := w.claimOf(name, a)
		partition := a.Partition
		if claim.isOperator && !a.Resolved { // it is none about the present, and no recovery follows it
			partition = verify.HTTP
		}

		log := w.verified
		if a.Rule == added {
			log = w.spaced
		}

		log.Delivered(verify.Delivery{
			Deadline:  a.Enqueued,
			Device:    a.About(),
			Sensor:    a.Sensor,
			Shared:    a.PerValue != "",
			ID:        a.ID,
			Token:     a.Token,
			At:        at,
			Until:     at.Add(a.Remember),
			Expires:   a.Expires,
			Receiver:  name,
			Rule:      a.Rule,
			Level:     a.Level,
			Recovery:  a.Resolved,
			Repeated:  a.Ambiguous,
			Excluded:  a.Excluded != "",
			Refused:   d.Refused,
			Partition: partition,
			Sequence:  w.number(a),
			Settled:   w.settledLongAgo(a.Partition),
			Covered:   w.covered(claim, a),
		})

		w.mu.Lock()
		defer w.mu.Unlock()

		w.delivered++
		w.last[stream{name, a.Of(), a.Rule, a.Level}] = d
	}
}

// unkept returns which alerts were refused for good and are not kept as dead letters. It looks only for the last
// one of each stream, and only if it is about a reading and its replica is still there: else another one may have
// sent it again.
func (w *World) unkept() (all []string) {
	for s, d := range w.last {
		isGone := !slices.Contains(w.slots, w.bodies[d.Alert.Replica])
		if !d.Refused || d.Alert.Resolved || s.rule == silence || isGone {
			continue
		}

		id := d.Alert.ID
		isKept := slices.ContainsFunc(w.blobs.Names(letterContainer), func(name string) bool {
			return strings.Contains(string(w.blobs.Content(letterContainer, name)), strconv.Quote(id))
		})
		if !isKept {
			all = append(all, "no dead letter of "+id)
		}
	}

	slices.Sort(all)

	return all
}
