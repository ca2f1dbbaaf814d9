package delivery

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

// A delivery brings one notice to one receiver: an alert, or a recovery. It starts with one
// reading, its head. Later readings with the same key join it. When the head is settled, the latest
// reading that joined is settled too, or becomes the head. There is at most one delivery for each key
// and receiver.
//
// A delivery is in exactly one state. In all but attempting it waits in the queue's heap of that state.
//
//	state          what it waits for                         then
//	ready          its turn                                  attempting
//	pausing        the time of the next attempt              ready
//	awaitsWindow   the last alert's window to end            ready; recoveries only
//	failed         the same as pausing; the receiver has     attempting; pausing once the receiver answers
//	               not answered since the last one failed
//	givenUp        its dead letter to be composed, unless    attempting
//	               another replica has sent it, and kept
//	attempting     the attempt to end                        what the attempt says, or the end
//
// A delivery that waits too long, or in too long a queue, or fails for good, becomes givenUp. Dead letters have
// attempts of their own, so that a receiver that is down does not hold them up.
//
// Tens of thousands may wait, so a test holds the memory of one, with all that
// belongs to it, below 480 bytes.
type delivery struct {
	Key
	due  *Notice // the notice that it brings; nil for an alert about a reading
	held Hold    // the place before the head, unless it brings a due notice that no reading has joined
	head Reading // what the notice is about

	// The readings that have joined, guarded by Outbox.mu. Only the latest is kept:
	// what settles it settles those before it.
	latest       Reading
	latestBefore Place  // of the event before the latest
	joined       uint32 // how many
	suppressed   uint32 // readings before the head that no alert has counted

	another bool // devices share it, it was refused for one of them, and is tried for another; for a third it is not

	// What it waits for, guarded by receiver.mu.
	state state
	wait  Wait
	from  time.Duration // since when it waits for that, by the dispatcher's clock
	index int32         // its slot in the heap of the state
	key   int64         // in that heap: the time of the next attempt by the dispatcher's clock, or what order returns

	tries

	ticket *Ticket  // of those who wait for it; nil if nobody does. Guarded by Outbox.mu
	trace  *tracked // nil if deliveries are not traced
}

// tries is what is known of the attempts for one head.
type tries struct {
	// from when on it could be sent, in Unix µs: the time of the head, or the end of the window that a recovery waited
	// for
	since       int64
	answered    int64              // value of health.answered at the last failure; -1 if there was none
	attempts    uint16             // that failed
	odd         bool               // it failed again after the receiver has answered about others
	ownFailures uint8              // failures like that which may be the message's own fault
	unanswered  bool               // the store did not answer the last time
	limited     uint8              // times that the receiver refused it for rate, up to patience and one
	cause       cause              // why it was given up while it waited
	alone       bool               // it goes in a message of its own: one about several was refused, or failed again
	reminder    bool               // the device has been alerted before, in the same alarm
	refused     bool               // the receiver refused the alert for what it says
	written     bool               // the dead letter is
	letter      *notify.DeadLetter // its dead letter, once that is composed
}

// A state is what a delivery waits for.
type state uint8

const (
	attempting state = iota
	ready
	pausing
	awaitsWindow
	failed
	givenUp
	states
)

// A class says what matters more, that with the lower number.
type class uint8

const (
	recoveries class = 8  // after the first alerts of all levels, of which a rule has at most eight
	reminders  class = 16 // of the highest level; of others more
	limited    class = 31 // refused for rate again and again: others go first, because the fault may be this one's own
	classes    class = 32
)

// patience is how often a delivery is refused for rate before it becomes limited.
const patience = 3

// class returns d's, unless it is limited: first alerts come before recoveries and these before reminders, and higher
// levels before lower ones.
func (d *delivery) class() class {
	switch rank := class(min(d.Rank, 7)); {
	case d.limited > patience:
		return limited
	case d.recovers():
		return recoveries
	case d.reminder:
		return reminders + rank
	default:
		return rank
	}
}

// order is the key of d while it is ready: within a class the oldest comes first.
func (d *delivery) order() int64 { return int64(d.class())<<56 + max(d.since, 0) }

// A cause is why a delivery is given up while it waits.
type cause uint8

const (
	notGivenUp cause = iota
	tooOld
	tooMany
)

// tracked is a delivery's trace.
type tracked struct {
	Trace
	err error // why the last attempt failed
}

// recovers reports whether d says that a device is normal again.
func (d *delivery) recovers() bool { return d.due != nil && !d.due.Silent() }

// device returns the device of one of d's readings.
func (d *delivery) device(r *Reading) string {
	if d.Shared {
		return r.More.Device
	}
	return d.About
}

// id returns the id of the notice that d would send about a reading. It is the same in every
// replica. The time distinguishes hubs of the same name, whose sequence numbers
// start again when the hub is recreated.
func (q *queue) id(d *delivery, r *Reading) string {
	at := r.Enqueued
	if d.due != nil && d.due.Part != throttle.Event { // it is about an event, and not of its time
		at = r.Since
	}

	id := q.box.IDs

	if a := r.arrival(); a != nil && a.ID != "" {
		id += a.ID
	} else {
		id += strconv.FormatInt(r.Sequence, 10) + "/" + strconv.FormatInt(fromMicros(at).UnixMilli(), 10)
	}

	id += d.Suffix

	ended := d.recovers() && d.due.Opened > 0 // its rule was removed: it is about the last event read
	if d.Silence || ended {                   // several devices may be silent since one place, where events may be missing
		id += "/" + url.PathEscape(d.About)
	}

	if d.due != nil && d.due.Part == throttle.End {
		id += "/end"
	}

	if d.recovers() {
		id += "/resolved"
	}

	return id
}

// log names what numbered d's readings; empty if it is about more than one log.
func (q *queue) log(d *delivery) string {
	switch {
	case d.due != nil:
		return d.due.Log
	case d.Shared:
		return ""
	}

	return q.box.Log
}

// request returns the request to the gate for a notice about one of d's readings.
func (q *queue) request(d *delivery, about *Reading) throttle.Request {
	r := throttle.Request{
		Device:   d.About,
		ID:       q.id(d, about),
		Enqueued: fromMicros(about.Enqueued),
		Log:      q.log(d),
		Sequence: about.Sequence,
		Recovery: d.recovers(),
	}

	switch {
	case d.due != nil:
		r.Part = d.due.Part
	case d.Shared:
		r.Sequence = 0 // those of other devices and partitions say nothing about it
	}

	if a := about.arrival(); a != nil {
		r.Arrived = a.At
	}

	return r
}

// message returns the notice about d's head under g.
func (q *queue) message(d *delivery, g throttle.Grant) notify.Alert {
	head := &d.head
	a := d.Message
	a.ID = g.ID
	a.Device = d.device(head)
	a.Resolved = d.recovers()
	a.Temperature = head.Value
	a.Threshold = head.Limit
	a.Enqueued = fromMicros(head.Enqueued)
	a.DeviceTime = fromMicros0(head.Device)
	a.Since = fromMicros0(head.Since)
	a.Partition = q.box.Name
	a.Sequence = head.Sequence
	a.Log = q.log(d)
	a.WillResolve = a.WillResolve && !a.Resolved && head.Since != 0 // else it has no alarm
	a.Remember = q.gate(d).Remember()
	a.Token = g.Token
	a.Expires = g.Expires
	a.Suppressed = g.Suppressed + int64(d.suppressed)
	a.Test = notify.IsTest(a.Device)
	a.Ambiguous = g.Ambiguous

	if d.due != nil {
		a.Forgotten = d.due.Forgotten
		a.Excluded = d.due.Excluded
	}

	if a.Resolved { // one of unknown fate is sent again for as long
		a.Remember += q.to.GiveUp
	}

	if head.More != nil {
		a.Shown = head.More.Shown
	}

	if d.Shared {
		a.PerValue = d.About
		a.Suppressed = g.Suppressed // these are devices
	}

	if d.Silence {
		a.Silent = time.Duration(head.Limit * float64(time.Second))
		a.Threshold = 0
		a.LastHeard = fromMicros0(d.due.Heard)
	}

	switch {
	case len(d.Words) == 0:
	case a.Resolved:
		a.Word = strings.Join(d.Words, " or ")
	default:
		a.Word = d.Words[int(head.Value)-1]
	}

	return a
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// fromMicros0 is fromMicros, but the zero time for 0.
func fromMicros0(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return fromMicros(us)
}

// A delivery is in the heap of its state, by its key, and by its event among those of the same key.

func (d *delivery) slot() *int32 { return &d.index }

func (d *delivery) less(than *delivery) bool {
	if d.key != than.key {
		return d.key < than.key
	}
	return d.head.Sequence < than.head.Sequence
}

// waits says what d waits for from now on, unless it does already. The caller holds receiver.mu.
func (d *delivery) waits(s state, why Wait, now time.Duration) {
	d.state = s
	if d.wait != why || d.from == 0 {
		d.from = now
	}
	d.wait = why
}

// start makes r the head, of which nothing has been tried.
func (d *delivery) start(r *Reading) {
	d.head = *r
	d.tries = tries{since: r.Enqueued, answered: -1}
}

// join adds a reading with the same key, the next after the place before. The caller holds Outbox.mu.
func (d *delivery) join(r *Reading, before Place) {
	if d.joined == 0 || r.Sequence >= d.latest.Sequence {
		d.latest, d.latestBefore = *r, before
	}
	d.joined++
}

// awaited returns a ticket for somebody who waits for d, nil if that is nil. The caller holds Outbox.mu.
func (d *delivery) awaited() *Ticket {
	if d == nil {
		return nil
	}

	if d.ticket == nil {
		d.ticket = &Ticket{Ended: make(chan struct{})}
	}

	return d.ticket
}

// begin returns a new delivery about the reading r: of the due notice n, or of an alert if
// that is nil. It must be made to wait. The caller holds box.mu.
func (q *queue) begin(key Key, r *Reading, n *Notice) *delivery {
	d := &delivery{Key: key, due: n}
	d.start(r)
	if n != nil && n.Opened > 0 {
		d.tries.since = n.Opened
	}

	q.deliveries[key] = d
	if q.box.Trace == nil {
		return d
	}

	d.trace = &tracked{Trace: q.box.Trace(Start{
		AlertID:   q.id(d, r),
		Device:    d.device(r),
		Rule:      d.Message.Rule,
		Level:     d.Message.Level,
		Recovery:  d.recovers(),
		Receiver:  q.to.Name,
		Partition: q.box.Name,
		FromHub:   q.box.FromHub,
		Sequence:  r.Sequence,
		Enqueued:  fromMicros(r.Enqueued),
	})}
	return d
}

// hold has d hold the place before a reading, the next after the place before. The caller holds box.mu.
func (q *queue) hold(d *delivery, r *Reading, before Place) {
	q.box.held.Add(&d.held, before, r.Enqueued)
	q.alerts++
}

// release ends what d holds, if it does. The caller holds box.mu.
func (q *queue) release(d *delivery) {
	if d.held.index > 0 {
		q.box.held.Release(&d.held)
		q.alerts--
	}
}

// settle settles d's head, and ends d unless the latest reading that joined is not
// covered. That one then becomes the head and is held instead.
func (q *queue) settle(d *delivery, covers func(*Reading) bool, outcome string) {
	q.box.mu.Lock()
	var done *Notice
	switch {
	case d.due != nil:
		if d.due.Settle(q.to.index) {
			done = d.due
		}
		q.replace(d, outcome)

	case d.joined > 0 && !covers(&d.latest):
		q.release(d)
		q.hold(d, &d.latest, d.latestBefore)
		d.start(&d.latest)
		d.suppressed += d.joined - 1
		d.joined = 0
		q.enqueue(d)

	default:
		q.suppressed(d)
		q.replace(d, outcome)
	}

	q.box.mu.Unlock()
	q.box.Owner.Settled(d.Key, done)
}

// replace ends d, and starts what follows: of a notice that was due, an alert about the readings that have joined; else
// a notice that has become due since. The caller holds box.mu.
func (q *queue) replace(d *delivery, outcome string) {
	delete(q.deliveries, d.Key)
	q.release(d)
	if d.due != nil && d.joined > 0 {
		next := q.begin(d.Key, &d.latest, nil)
		next.suppressed = d.joined - 1
		next.ticket, d.ticket = d.ticket, nil
		q.hold(next, &d.latest, d.latestBefore)
		q.enqueue(next)
	} else if n := q.later[d.Key]; n != nil {
		delete(q.later, d.Key)
		q.enqueue(q.begin(d.Key, &n.Reading, n))
	}

	d.end(outcome)
}

// suppressed counts for the next alert the readings that d has suppressed besides its head, or the devices if they
// share it. The caller holds box.mu.
func (q *queue) suppressed(d *delivery) {
	if !d.Shared {
		q.gate(d).Suppressed(d.About, int64(d.suppressed)+int64(d.joined))
		return
	}

	for device := range q.sharing[d] {
		q.gate(d).SuppressedShared(d.About, device)
	}

	q.sharers -= len(q.sharing[d])
	delete(q.sharing, d)
}

// maxSharers bounds the devices that alerts are to count while others of what they share are under way.
const maxSharers = 65_536

// join has a reading join d, the next after the place before. The caller holds box.mu.
func (q *queue) join(d *delivery, r *Reading, before Place) {
	if d.held.index == 0 {
		q.hold(d, r, before)
	}

	d.join(r, before)
	if !d.Shared {
		return
	}

	devices := q.sharing[d]
	if devices == nil {
		devices = map[string]struct{}{}
		q.sharing[d] = devices
	}

	if _, known := devices[r.More.Device]; !known && q.sharers < maxSharers {
		devices[r.More.Device] = struct{}{}
		q.sharers++
	}
}

// follow has d, which is attempting, go on as v says.
func (q *queue) follow(d *delivery, v verdict) {
	switch {
	case v.outcome != "":
		q.settle(d, v.covers, v.outcome)
		return
	case v.state == ready:
		q.enqueue(d)
		return
	case v.grows:
		v.pause = retryDelay(int(d.attempts))
	}

	if v.err != nil {
		q.box.warn(q.waitText(d, v.why), v.err)
	}

	q.box.mu.Lock()
	defer q.box.mu.Unlock()

	if d.due != nil && d.due.withdrawn {
		q.replace(d, throttle.Unneeded.String())
		return
	}

	q.wait(d, v.state, v.why, int64(q.to.now()+v.pause))
}

// enqueue has d wait for its turn.
func (q *queue) enqueue(d *delivery) { q.wait(d, ready, WaitTurn, 0) }

// wait puts d, which is attempting, into another state, under key, which does not matter to ready. It drops d if q is
// closed.
func (q *queue) wait(d *delivery, s state, why Wait, key int64) {
	r := q.to
	r.mu.Lock()
	defer r.mu.Unlock()

	if q.closed {
		d.end(OutcomeUnsettled)
		return
	}

	q.push(d, s, why, key)
	r.dispatch()
}

// under returns the context for one step of d.
func (d *delivery) under(ctx context.Context) context.Context {
	if d.trace == nil {
		return ctx
	}
	return d.trace.Under(ctx)
}

// note keeps for d's trace why the last attempt failed, nil if it did not.
func (d *delivery) note(err error) {
	if d.trace != nil {
		d.trace.err = err
	}
}

// end tells the trace, and those who wait for d's end. Nothing may join d any more.
func (d *delivery) end(outcome string) {
	if d.ticket != nil {
		if outcome == OutcomeDeadLetter {
			d.ticket.Letter = d.letter
		}
		close(d.ticket.Ended)
	}

	if d.trace != nil {
		d.trace.End(End{Outcome: outcome, Suppressed: int64(d.suppressed) + int64(d.joined), Err: d.trace.err})
	}
}
