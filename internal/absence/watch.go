// Package absence finds the devices and sensors of one partition that have fallen silent, and sees which of them send
// again.
//
// A [Watch] is fed the events that are read and what the hub answers about the end of the partition. It keeps the
// partition's roster, knows what is proven and which silences have alarms, and reports to its [Alarms]. It makes no
// calls of its own but to its roster's file: Look returns what it still has to know as [Questions].
//
// In this code a device is silent, and people mute alerts, which is the business of package muting.
package absence

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/roster"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

const (
	askEvery  = 10 * time.Second // the hub
	maxReplay = 10 * time.Minute // of log between a roster and the start; beyond it the floor rises

	saveEvery   = time.Minute // the roster is written at most so often, and at a hand-over
	saveTimeout = 20 * time.Second

	eventMargin = 2 * time.Second // by which the hub's times may go back within a partition
	maxFresh    = 5 * time.Minute
	clockMargin = 5 * time.Second // by which the store's clock and ours may both be ahead of the hub's
)

// A Rule says when a device is silent: after Limit.
type Rule struct {
	roster.Column
	Field int // of what the decoder finds: what an event must have to count; -1: nothing
	// Says is what an event that counts says of whether the rule expects to hear from its device. It is fast and allocates
	// nothing.
	Says func(e *telemetry.Event, found []telemetry.Found) Says
	// Quiet returns until when an event that counts says that its device may be silent, in Unix ms: 0 if it does not say
	// so, math.MaxInt64 if it does not say until when. It is fast and allocates nothing.
	Quiet func(e *telemetry.Event) int64
	// Sensor appends to name that of the sensor that a measurement is of, if the rule tells sensors apart. It allocates
	// nothing.
	Sensor func(name []byte) []byte
	// Shared appends to value what the device of a measurement shares with others by Per; nil: the rule has none. It
	// allocates nothing.
	Shared func(value []byte) []byte
	Forget time.Duration // after how much silence nothing is expected of a device any more
}

// Says is what an event says of whether a rule expects to hear from its device.
type Says uint8

const (
	Expected Says = iota
	Excluded
	Nothing // the rule expects of the device what it did before; nothing, if the device was not known
)

// A Silence is that of one device or sensor, or of the whole hub. Times are in Unix ms.
type Silence struct {
	Of    sensor.ID
	Since roster.Place // what it is about
	// when the hub took the last event that counts; earlier than Since if events may be missing after it
	Heard    int64
	Deadline int64
	Proven   int64 // nothing came until then
	Outage   *Outage
	// what the device shares with others by the rule's Per, as of its last message; empty: nothing, or it is not known
	Shared string
}

// An Outage is what a silence of the whole hub is about.
type Outage struct {
	Devices int // from which rules about silence expect something
}

// Alarms get what a Watch finds, one call at a time, while its lock is held: their own lock is taken after it. Rules are
// named by their index.
type Alarms interface {
	// Muted reports whether the silence of a device or sensor is muted at a time, in Unix ms. shared is that of a Silence.
	Muted(rule int, of sensor.ID, shared string, at int64) bool
	// FellSilent says that a device or sensor has fallen silent. It is called again unless it returns true: then that has an
	// alarm. If it had one before, the rule's floor has risen since, and what is known now replaces what nobody was told of
	// yet; that may wait, as for the end of a mute.
	FellSilent(rule int, s Silence) bool
	// Heard says that a silence has ended by the event at a position, which follows the position before.
	Heard(rule int, of sensor.ID, before, at telemetry.Position)
	// Excluded says that a silence has ended by an event that follows the position before: it says that the rule expects
	// nothing more of the device, or of its sensor unless name is empty. found is what the decoder found in it.
	Excluded(rule int, e *telemetry.Event, name string, found []telemetry.Found, before telemetry.Position)
	// Ended says that a silence has ended by itself, at a time in Unix ms: forgotten, because nothing more is expected of
	// the device or the hub, or because events come to the hub again.
	Ended(rule int, of sensor.ID, at int64, forgotten bool)
	// Unwatched says that nothing is expected of a device or sensor by any rule any more: it was silent for too long, or an
	// operator has removed it.
	Unwatched(of sensor.ID)
}

// A Watch is safe for concurrent use, but for Save and Load.
type Watch struct {
	rules  []Rule
	order  []int // of the rules, by their limits
	alarms Alarms
	hub    string // what alarms about the whole hub have for a device; empty if they are another partition's
	log    *zap.Logger
	file   *roster.File // used by one goroutine at a time

	mu       sync.Mutex
	roster   *roster.Roster
	open     map[key]roster.Place // the silences that have alarms, and what they are about
	found    bool                 // the next owner can go on from the roster in the store: it has read something of this hub
	taken    int64                // when it was read from there, by the later of two clocks, in Unix ms
	written  time.Time            // when it was last written, or read
	kept     telemetry.Position   // the last event that the one in the store holds
	failed   bool                 // the last time that it was written
	changed  bool                 // there is more in it than was read
	read     telemetry.Position   // the last event that was read
	before   telemetry.Position   // the one before that
	expected int64                // the number of the next one if none is missing; 0: not known
	until    int64                // the latest time of an event that was read, in Unix ms
	newest   int64                // when the hub took the newest event that w knows, in any partition, likewise; 0: none is known
	unheard  span                 // the last span without any event of the hub that w knows of, as long as the shortest limit
	asked    Proof
	asking   bool
	next     time.Time       // when the hub may be asked again
	here     roster.Expected // what the rules expect, as of the last look at which nothing had come to the hub for a while
	begun    bool            // Begin was called
	waits    bool            // at the last look somebody's time was over, and nothing was said of that yet
	owed     map[string]bool // devices of which nothing had come, at the last look, since the time of a sensor of theirs was over

	back map[key]int64 // devices that were silent and are heard again, and when, in Unix ms: see Hear
	name []byte        // of the sensor that is heard, reused
	text []byte        // what its device shares, reused
}

type key struct {
	rule int
	of   sensor.ID
}

// A Proof is what the hub said about the end of the partition.
type Proof struct {
	At       time.Time // when we began to ask
	Until    int64     // the earlier of the store's clock and ours then, in Unix ms
	Sequence int64     // of the last event; read once that was
	Enqueued time.Time // likewise

	// Newest is when the hub took the newest event of all partitions, or a later one than Questions.Enough, in Unix ms; 0
	// if it has never taken one. That was so at the time NewestUntil, by the same clock as Until; 0: it is not known.
	Newest, NewestUntil int64
	// what rules about silence expect in the other partitions, as their rosters say; nil: not known
	Others *roster.Expected
}

// New returns a Watch. Without rules it hears nobody and has no roster, and file is not used. hub is what alarms about
// the whole hub have for a device, empty if those are another partition's.
func New(rules []Rule, alarms Alarms, hub string, file *roster.File, log *zap.Logger) *Watch {
	order := make([]int, len(rules))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rules[a].Limit, rules[b].Limit) })

	return &Watch{
		rules:  rules,
		order:  order,
		alarms: alarms,
		hub:    hub,
		file:   file,
		log:    log,
		roster: roster.New(columns(rules)),
		open:   map[key]roster.Place{},
		back:   map[key]int64{},
		owed:   map[string]bool{},
	}
}

func columns(rules []Rule) []roster.Column {
	all := make([]roster.Column, len(rules))
	for i := range rules {
		all[i] = rules[i].Column
	}

	return all
}

// millis is t in ms, rounded up: rounding makes no event older.
func millis(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// View calls f with the roster, which is f's until it returns.
func (w *Watch) View(f func(*roster.Roster)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.roster)
}

// Load reads the roster of the partition. An error says that it is not known.
func (w *Watch) Load(ctx context.Context) error {
	if len(w.rules) == 0 {
		return nil
	}

	now := time.Now()
	r, store, why, err := w.file.Read(ctx)
	if err != nil {
		return err
	}

	if store.After(now) {
		now = store
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	w.taken = millis(now)
	w.written = time.Now()

	switch {
	case r != nil:
		w.roster = r.With(columns(w.rules), w.taken)
		w.kept = r.Position
		w.found = !r.Position.Time.IsZero() // else it is the start of an empty partition
		w.changed = true                    // version 1.0 has not written what others look at: see roster.Expected

	case why != nil:
		w.log.Error(
			"the roster of devices cannot be used: devices that are silent now are unknown until they are heard again",
			zap.Error(why),
		)
	}

	return nil
}

// A Saved is what became of a Save.
type Saved struct {
	Err    error // why the roster was not written, nil if it was, or did not have to be
	Needed bool  // the next owner cannot go on from what is in the store: nothing else may be written before it
	Wrote  bool
}

// Save writes the roster, if it is time for that, or if this is the last time.
func (w *Watch) Save(ctx context.Context, last bool) Saved {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	isChanged := len(w.rules) > 0 && (w.changed || w.read != w.kept)
	// At once if the one in the store will not do, and while more of the log is read than of time goes by: it would not do soon.
	isBehind := w.read.Time.Sub(w.kept.Time) > maxReplay/2 && !w.failed
	isTime := last || !w.found || isBehind || now.Sub(w.written) >= saveEvery
	if !isChanged || !isTime {
		return Saved{}
	}

	//planted:excuse-not-saved skip
	w.excuse()
	w.changed = false
	written := w.written
	w.written = now
	wasFound := w.found
	w.found = w.found || !w.read.Time.IsZero() // unless a device is forgotten while it is written
	if w.read.Offset != "" && !w.read.NotAfter(w.roster.Position) {
		w.roster.Position = w.read
	}

	content, read, expected := w.roster.Encode(), w.read, w.roster.Expects()
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	w.mu.Unlock()
	err := w.file.Write(ctx, content, expected)
	w.mu.Lock()

	w.failed = err != nil
	if err != nil {
		w.changed = true
		//planted:removal-is-not-tried-again if false
		if written.IsZero() { // somebody waits until it is written
			w.written = written
		}
		w.found = w.found && wasFound
		//planted:roster-holds-all return Saved{Err: err, Needed: !w.found || read.Time.Sub(w.kept.Time) > maxReplay, Wrote: true}
		return Saved{Err: err, Needed: !w.found, Wrote: true}
	}

	w.kept = read

	return Saved{Needed: !w.found, Wrote: true}
}

// An Open is a silence that has an alarm at a take-over.
type Open struct {
	Rule  int
	Of    sensor.ID
	Since roster.Place // the number is -1 if another log has numbered it
}

// An Ended is an Open whose device was heard after it.
type Ended struct {
	Open
	At       roster.Place
	Excluded bool // the rule expects nothing more of the device
}

// Begin goes on from the roster that was loaded, with events after start, which says of what hub they are also if there is
// none before the first, and the alarms of the ledger. It returns where reading has to begin, which is start or before it,
// and the silences that have ended: a former owner that did not know of the alarm has read that.
func (w *Watch) Begin(start telemetry.Position, open []Open) (from telemetry.Position, ended []Ended) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.readAfter(start)
	w.begun = true

	isHub := func(o Open) bool { return w.hub != "" && o.Of == sensor.Of(w.hub) }
	for _, o := range open {
		if isHub(o) {
			w.open[key{o.Rule, o.Of}] = o.Since
		}
	}
	open = slices.DeleteFunc(open, isHub)

	// The roster is to know the devices of all silences: first by their own rules, then by those that hear the same, because
	// each rule goes by its own silence if it has one.
	for _, o := range open {
		w.learn(o, o.Rule)
	}

	for _, o := range open {
		for rule := range w.rules {
			if w.rules[rule].Same(w.rules[o.Rule].Column) {
				w.learn(o, rule)
			}
		}
	}

	for _, o := range open {
		if h := w.roster.Last(o.Of, w.rules[o.Rule].Rule); h.Sequence > o.Since.Sequence {
			at := roster.Place{Sequence: h.Sequence, Time: h.Time}
			ended = append(ended, Ended{o, at, h.Quiet == roster.Excluded})
		} else {
			w.open[key{o.Rule, o.Of}] = o.Since
		}
	}

	return w.read, ended
}

// readAfter decides where reading begins so that it ends at start or after it: where the roster is, if that is not too
// long before start, else at start. Then what the roster lacks raises its floors.
func (w *Watch) readAfter(start telemetry.Position) {
	r := w.roster
	if start.Offset != "" {
		w.read = start
	}
	floor := roster.Place{Sequence: start.Sequence, Time: w.taken}
	wasFound := w.found

	switch {
	//planted:no-checkpoint-is-another-hub case !w.found || start.Offset == "" || start.Generation != r.Position.Generation
	case !w.found || start.Generation != r.Position.Generation:
		r.Rebase(w.read)
		//planted:other-hub-without-roster if w.found { skip }
		w.found = false
		if start.Offset == "" {
			floor.Sequence = -1
		}
		if wasFound || start.Offset != "" {
			r.Unheard(floor)
		} else { // reading begins with the earliest event there is, as it did for who left the roster
			r.Raise(floor)
		}

	case start.Offset == "": // reading begins with the earliest event that there is, and nothing after the roster may be missing
		w.expected = r.Position.Sequence + 1

	case start.NotAfter(r.Position):

	case !start.Time.IsZero() && start.Time.Sub(r.Position.Time) <= maxReplay:
		w.read = r.Position

	default: // nobody will hear what lies between
		r.Position = start
		//planted:unheard-is-forgotten r.Raise(floor); skip
		r.Unheard(floor)
	}

	if w.read.Offset != "" {
		w.expected = w.read.Sequence + 1
	}

	if !w.read.Time.IsZero() {
		w.sign(millis(w.read.Time))
	}
}

// learn has the roster know of the device of a silence by a rule, if it does not. Of a device that it knows a silence
// says nothing: what it is about may be a gap, which another rule had already.
func (w *Watch) learn(o Open, rule int) {
	device := w.roster.Add(o.Of)
	if device >= 0 && w.roster.Heard(device, rule).Time == 0 {
		w.roster.Hear(device, rule, roster.Heard{Sequence: o.Since.Sequence, Time: o.Since.Time})
	}
}

// Lock begins a batch of events, which Take and Hear get. Unlock ends it.
func (w *Watch) Lock()   { w.mu.Lock() }
func (w *Watch) Unlock() { w.mu.Unlock() }

// Take takes e, the next event. It is called between Lock and Unlock, takes no lock and allocates nothing.
func (w *Watch) Take(e *telemetry.Event) {
	if len(w.rules) == 0 {
		return
	}

	w.before = w.read
	w.follow(e)
	w.read = e.Position
}

// Hear records a measurement of e, the event that Take has taken, as a sign of life for some rules. e's device has this
// hash, and the decoder found found. Hear reports whether there is room for the device. It is called between Lock and
// Unlock, takes no lock and allocates nothing, unless the device was not known or has an alarm.
func (w *Watch) Hear(e *telemetry.Event, hash uint64, rules []int, found []telemetry.Found) (room bool) {
	room = true
	h := roster.Heard{Sequence: e.Sequence, Time: millis(e.Enqueued)}
	device := -1
	for _, i := range rules {
		if field := w.rules[i].Field; field >= 0 && found[field].Reason != telemetry.ReasonOK {
			continue
		}

		if device < 0 {
			device = w.number(e.Device, hash, nil)
		}

		if device < 0 {
			return false
		}

		says := w.rules[i].Says(e, found)
		heard := hearing{rule: i, e: e, found: found, before: w.before, says: says}
		w.name = w.rules[i].Sensor(w.name[:0])
		if len(w.name) == 0 {
			w.hear(device, h, heard)
			continue
		}

		// Its sensors have as long again after it was silent for as long as it may be, because not all send at once.
		last := w.roster.Heard(device, i)
		if last.Time != 0 && h.Time-last.Time >= w.rules[i].Limit.Milliseconds() {
			w.back[key{i, w.roster.Name(device)}] = h.Time
		}

		if says == Excluded { // that sensor: see expectsAny
			heard.says = Nothing
		}
		w.hear(device, h, heard)

		number := w.number(e.Device, hash, w.name)
		if number < 0 {
			room = false
			continue
		}

		heard.name, heard.says = w.name, says
		w.hear(number, h, heard)
	}

	return room
}

// A hearing is a sign of life for one rule.
type hearing struct {
	rule   int
	name   []byte // of the sensor that it is of, w.name; empty: the device
	e      *telemetry.Event
	found  []telemetry.Found
	before telemetry.Position // of the event before e
	says   Says
}

// hear records that a device or sensor was heard, and ends its silence by that rule if it has one about an earlier event.
func (w *Watch) hear(number int, h roster.Heard, heard hearing) {
	rule, e := &w.rules[heard.rule], heard.e
	excluded := heard.says == Excluded
	//planted:unexpected-is-silent excluded = false
	if heard.says == Nothing {
		//planted:nothing-said-excludes excluded = true; skip
		excluded = !w.roster.Heard(number, heard.rule).Expected()
	}

	h.Quiet = roster.Excluded
	if !excluded {
		//planted:quiet-is-expected h.Quiet = 0; skip
		h.Quiet = rule.Quiet(e)
	}

	w.roster.Hear(number, heard.rule, h)
	if rule.Shared != nil && w.roster.Heard(number, heard.rule).Sequence == h.Sequence {
		w.text = rule.Shared(w.text[:0])
		w.roster.Share(number, heard.rule, w.text)
	}

	since, open := w.open[key{heard.rule, sensor.ID{Device: e.Device, Name: string(heard.name)}}]
	if !open || e.Sequence <= since.Sequence {
		return
	}

	of := sensor.ID{Device: e.Device, Name: string(heard.name)}
	delete(w.open, key{heard.rule, of})
	if heard.says == Excluded {
		w.alarms.Excluded(heard.rule, e, of.Name, heard.found, heard.before)
	} else {
		w.alarms.Heard(heard.rule, of, heard.before, e.Position)
	}
}

// number returns that of a device with this hash in the roster, or of its sensor unless name is empty, -1 if there is no
// room for it.
func (w *Watch) number(device string, hash uint64, name []byte) int {
	if number := w.roster.Find(device, hash, name); number >= 0 {
		return number
	}

	return w.roster.Add(sensor.ID{Device: device, Name: string(name)})
}

// follow notices that events are missing before e.
func (w *Watch) follow(e *telemetry.Event) {
	at := roster.Place{Sequence: e.Sequence, Time: millis(e.Enqueued)}

	switch {
	case e.MessageSource == telemetry.SourceExpired: // it stands for what has expired unread, which may be one event
		//planted:expired-is-no-gap skip
		w.roster.Unheard(at)
		w.reach(at)

	case e.Undecodable == "":
		from := millis(w.read.Time)
		//planted:gap-of-all-is-silence if false
		if !w.read.Time.IsZero() {
			w.dawn(from, at)
		}

		if w.expected > 0 && at.Sequence > w.expected {
			w.miss(from, at)
		}
		w.reach(at)

	default: // it came to the hub; the number that it claims proves nothing, but that some may be missing
		//planted:undecodable-hides-gap if false
		if w.expected > 0 && at.Sequence > w.expected && !e.Enqueued.IsZero() {
			w.miss(millis(w.read.Time), roster.Place{Sequence: w.expected, Time: at.Time})
		}
		if at.Sequence >= w.expected { // else it comes again
			w.expected = cmp.Or(w.expected, at.Sequence) + 1
		}
		w.sign(at.Time)
	}
}

// miss notes that events are missing between two that the hub took at these times, in Unix ms, the second of them at to. Who was
// not silent before them, and would be forgotten before it is silent after them, has its time. A compacted hub has shorter gaps
// all the time.
func (w *Watch) miss(from int64, to roster.Place) {
	w.roster.Miss(from, to)
	for i := range w.rules {
		limit, forget := w.rules[i].Limit.Milliseconds(), w.rules[i].Forget.Milliseconds()
		switch gap := to.Time - from; {
		case gap < limit:
		case gap > forget-2*limit:
			w.roster.ExcuseAll(i, to.Time)
		default: // those that were told as silent are forgotten as if there were no gap
			for device := range w.roster.Len() {
				if !w.isOpen(key{i, w.roster.Name(device)}) {
					w.roster.Excuse(device, i, to.Time)
				}
			}
		}
	}
}

// reach notes that the next event has a higher number than that at a place.
func (w *Watch) reach(at roster.Place) {
	w.expected = max(w.expected, at.Sequence+1)
	w.until = max(w.until, at.Time)
	w.sign(at.Time)
}

// dawn has deadlines start anew at an event before which nothing at all has come for as long as a device may be silent,
// if several that are watched have no alarm: nobody could ask the hub meanwhile, and it was not each of its devices that
// was down.
func (w *Watch) dawn(from int64, at roster.Place) {
	for rule := range w.rules {
		if at.Time-from < w.rules[rule].Limit.Milliseconds() {
			continue
		}

		withoutAlarm := 0
		for device := range w.roster.Len() {
			of := w.roster.Name(device)
			if of.Name == "" && !w.isOpen(key{rule, of}) && w.roster.Heard(device, rule).Expected() {
				withoutAlarm++
			}
		}

		if withoutAlarm > 1 {
			w.roster.Restart(rule, at)
		}
	}
}

// isOpen reports whether a silence has an alarm.
func (w *Watch) isOpen(k key) bool {
	_, open := w.open[k]
	return open
}

// Freshness is how old the proof of a silence may be.
func Freshness(limit time.Duration) time.Duration {
	return min(max(limit/4, 30*time.Second), maxFresh)
}

// Proven reports whether it is certain that nothing came until the deadline of a silence by a rule, in Unix ms, and nothing of
// the device since. It is not if the rule's floor is behind the deadline: see FellSilent.
func (w *Watch) Proven(rule string, limit time.Duration, deadline int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.roster.FloorOf(rule) <= deadline && w.provenUntil(time.Now(), Freshness(limit)) >= deadline
}

// provenUntil returns the time, in Unix ms, up to which every event that the hub has taken, or will take, was
// read: of proofs that are younger than fresh the later one. It is 0 if there is none.
func (w *Watch) provenUntil(now time.Time, fresh time.Duration) int64 {
	until := int64(0)
	if now.UnixMilli()-w.until < fresh.Milliseconds() { // by the times of the events that were read
		until = max(until, w.until-eventMargin.Milliseconds())
	}

	// By what the hub said, if the last event of the partition was read; there may never have been one.
	hasReadAll := w.asked.Sequence == w.read.Sequence && w.asked.Enqueued.UnixMilli() == w.read.Time.UnixMilli()
	if w.read.Offset == "" {
		hasReadAll = w.asked.Sequence < 0
	}

	if hasReadAll && w.asked.isYoung(now, fresh) {
		until = max(until, w.asked.Until-clockMargin.Milliseconds())
	}

	return until
}

// isYoung reports whether p is younger than fresh by both of our clocks: the monotonic one stands still while the
// machine is suspended.
func (p *Proof) isYoung(now time.Time, fresh time.Duration) bool {
	return now.Sub(p.At) < fresh && now.Round(0).Sub(p.At.Round(0)) < fresh
}

// Floor returns the time of a rule's floor, in Unix ms: something may be missing of what was before it.
func (w *Watch) Floor(rule string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.roster.FloorOf(rule)
}

// Prove records what the hub said, nil if it did not answer.
func (w *Watch) Prove(p *Proof) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.asking = false
	if p == nil {
		return
	}

	was := w.asked
	w.asked = *p
	w.sign(p.Newest)
	if p.Others == nil { // it was not asked for
		w.asked.Others = was.Others
	}
}

// ProveAll is Prove, as if the hub had just said that nothing more has come than was read, in any partition. newest is
// the latest Newest of the partitions, and others what is expected in those but this one.
func (w *Watch) ProveAll(now time.Time, newest int64, others roster.Expected) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.asking = false
	w.asked = Proof{
		At:          now,
		Until:       now.UnixMilli(),
		Sequence:    w.read.Sequence,
		Enqueued:    w.read.Time,
		Newest:      newest,
		NewestUntil: now.UnixMilli(),
		Others:      &others,
	}
	w.sign(newest)
}

// Known returns when the hub took the last event that was read, in Unix ms, and what is expected of devices.
func (w *Watch) Known() (newest int64, expected roster.Expected) {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.until, w.roster.Expects()
}
