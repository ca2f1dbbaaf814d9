package delivery

import (
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/sensor"
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
//	awaitsReceiver the same: the last attempt failed         attempting
//	givenUp        its dead letter to be composed, unless    attempting
//	               another replica has sent it, and kept
//	attempting     the attempt to end                        what the attempt says, or the end
//
// A delivery that waits too long, or in too long a queue, or fails for good, becomes givenUp. Dead letters have
// attempts of their own, so that a receiver that is down does not hold them up.
//
// Tens of thousands may wait, so a test holds the memory of one, with all that
// belongs to it, below 544 bytes.
type delivery struct {
	subject Key
	notice  *Notice // the notice that it brings; nil for an alert about a reading
	held    Hold    // the place before the head, unless it brings a due notice that no reading has joined
	head    Reading // what the notice is about

	// The readings that have joined, guarded by Outbox.mu. Only the latest is kept:
	// what settles it settles those before it.
	latest       Reading
	latestBefore Place  // of the event before the latest
	joined       uint32 // how many
	suppressed   uint32 // readings before the head that no alert has counted

	triedSecondDevice bool // devices share it, it was refused for one of them, and is tried for another; for a third it is not
	reminder          bool // the devices of its readings have been alerted before, in the same alarms. Changed under both locks

	// What it waits for, guarded by receiver.mu.
	state state
	wait  Wait
	from  time.Duration // since when it waits for that, by the dispatcher's clock
	index int32         // its slot in the heap of the state
	key   int64         // in that heap: the time of the next attempt by the dispatcher's clock, or its turn

	tries
}

// tries is what is known of the attempts for one head.
type tries struct {
	// from when on it could be sent, in Unix µs: the time of the head, or the end of the window that a recovery waited
	// for
	since       int64
	number      int64       // given once it waits for its turn: see receiver.next; 0: none
	failedAt    uint32      // value of receiver.answers at the last failure, and 1; 0 if there was none
	attempts    uint16      // that failed
	ownFailures uint8       // failures after the receiver had answered about others, which may be the message's own fault
	unanswered  bool        // the store did not answer the last time
	limited     uint8       // times that the receiver refused it for rate, up to patience
	sendAlone   bool        // it goes in a message of its own: one about several was refused, or failed again
	dead        *deadLetter // nil unless it was given up
}

// A state is what a delivery waits for.
type state uint8

const (
	attempting state = iota
	ready
	pausing
	awaitsWindow
	awaitsReceiver
	givenUp
	states
)

// A class says what matters more, that with the lower number: see receiver.next.
type class int64

const (
	recoveries class = 8  // after the first alerts of all levels: a rule has at most eight
	reminders  class = 16 // of the highest level; of others more
	patience         = 7  // how many refusals for rate count
	worth            = 64 // turns, by which one class is ahead of the next
)

// class returns that of d, by what it is about now: first alerts come before recoveries and these before reminders, and
// higher levels before lower ones. Each time that it was refused for rate puts it one further back, because the fault
// may be its own; a first alert stays before reminders.
func (d *delivery) class() class {
	rank, refusals := class(min(d.subject.Topic.Rank, 7)), class(d.limited)
	//planted:refused-goes-last refusals <<= 40
	switch {
	case d.notice.recovers():
		return recoveries + refusals
	case d.reminder:
		return reminders + rank + refusals
	default:
		return rank + refusals
	}
}

// turn says when it is d's, which has a number.
//
//planted:classes-do-not-age return d.number + int64(d.class())<<40
func (d *delivery) turn() int64 { return d.number + int64(d.class())*worth }

// A deadLetter is what a delivery that was given up becomes.
type deadLetter struct {
	cause  cause
	letter *notify.DeadLetter // nil until it is composed
	kept   bool
}

// A cause is why a delivery was given up.
type cause uint8

const (
	failedForGood cause = iota
	refusedAlert        // by the receiver, for what it says about a reading
	tooOld              // while it waited
	tooMany             // while it waited
)

// of returns what one of d's readings is of.
func (d *delivery) of(r *Reading) sensor.ID {
	if more := r.more(); d.subject.Topic.Shared || more.Of != (sensor.ID{}) {
		return more.Of
	}
	return d.subject.About
}

// A delivery is in the heap of its state, by its key, and by its event among those of the same key.

func (d *delivery) slot() *int32 { return &d.index }

func (d *delivery) less(than *delivery) bool {
	if d.key != than.key {
		return d.key < than.key
	}
	return d.head.before(&than.head)
}

// start makes r the head. Nothing has been tried for it.
func (d *delivery) start(r *Reading) {
	d.head = *r
	d.tries = tries{since: r.Enqueued}
}

// failedBecause keeps for who replays d why its last attempt failed, nil if it did not.
func (d *delivery) failedBecause(err error) {
	if d.notice != nil && d.notice.Letter != nil {
		d.notice.Letter.err = err
	}
}

// end tells who replays d how it has ended. Nothing may join d any more.
func (d *delivery) end(outcome string) {
	if d.notice != nil && d.notice.Letter != nil {
		d.notice.Letter.Ended(outcome, d.notice.Letter.err)
	}
}

// begin returns a new delivery about the reading r: of the due notice n, or of an alert if
// that is nil. It must be made to wait. The caller holds box.mu.
func (q *queue) begin(key Key, r *Reading, n *Notice) *delivery {
	d := &delivery{subject: key, notice: n}
	d.start(r)
	//planted:removed-recovery-old if n.Silent()
	if n != nil && n.RaisedAt > 0 {
		d.tries.since = n.RaisedAt
	}

	q.deliveries[key] = d

	return d
}

// settle settles d's head, and ends d unless the latest reading that joined is not
// covered. That one then becomes the head and is held instead. Without covers nothing is covered.
func (q *queue) settle(d *delivery, covers func(*Reading) bool, outcome string) {
	q.box.mu.Lock()
	var done *Notice
	switch {
	case d.notice != nil:
		if d.notice.Settle(q.to.index) {
			done = d.notice
		}
		q.replace(d, outcome)

	//planted:latest-always-alerts case d.joined > 0
	case d.joined > 0 && (covers == nil || !covers(&d.latest)):
		q.box.held.Release(&d.held)
		//planted:promoted-holds-nothing skip
		q.box.held.Add(&d.held, d.latestBefore, d.latest.Enqueued)
		d.start(&d.latest)
		//planted:promoted-counts-itself d.suppressed += d.joined; skip
		d.suppressed += d.joined - 1
		d.joined = 0
		if head := d.of(&d.head).Device; d.subject.Topic.Shared { // its reading is not suppressed any more
			if _, joined := q.sharing[d][head]; joined {
				delete(q.sharing[d], head)
				q.sharers--
			}
		}
		q.enqueue(d)

	default:
		q.suppressed(d)
		q.replace(d, outcome)
	}

	q.box.mu.Unlock()
	q.box.account.Owner.Settled(d.subject, done)
}

// replace ends d, and starts what follows: of a notice that was due, an alert about the readings that have joined; else
// a notice that has become due since. The caller holds box.mu.
func (q *queue) replace(d *delivery, outcome string) {
	delete(q.deliveries, d.subject)
	q.box.held.Release(&d.held)

	switch later := q.later[d.subject]; {
	case d.notice != nil && d.joined > 0:
		next := q.begin(d.subject, &d.latest, nil) // the alert about the readings that have joined
		next.reminder = d.reminder
		next.suppressed = d.joined - 1
		q.box.held.Add(&next.held, d.latestBefore, d.latest.Enqueued)
		q.enqueue(next)

	//planted:due-later-lost case false
	case later != nil:
		delete(q.later, d.subject)
		q.enqueue(q.begin(d.subject, &later.Reading, later))
	}

	d.end(outcome)
}

// suppressed counts for the next alert the readings that d has suppressed besides its head, or the devices if they
// share it. The caller holds box.mu.
func (q *queue) suppressed(d *delivery) {
	if !d.subject.Topic.Shared {
		q.gate(d).Suppressed(d.subject.About, int64(d.suppressed)+int64(d.joined))
		return
	}

	//planted:sharing-uncounted skip
	for device := range q.sharing[d] {
		q.gate(d).SuppressedShared(d.subject.About.Device, device)
	}

	q.sharers -= len(q.sharing[d])
	delete(q.sharing, d)
}

// maxSharers bounds the devices that alerts are to count while others of what they share are under way.
const maxSharers = 65_536

// join has a's reading join d. The caller holds box.mu.
func (q *queue) join(d *delivery, a *Alert) {
	r := &a.Reading
	first := d.held.index == 0 // that joins a notice
	if first {
		q.box.held.Add(&d.held, a.Before, r.Enqueued)
	}

	if d.joined == 0 || !r.before(&d.latest) {
		d.latest, d.latestBefore = *r, a.Before
	}
	//planted:joined-counted-twice d.joined++
	d.joined++

	//planted:news-wait-as-reminders if first
	if first || d.reminder && !a.Reminder {
		q.to.mu.Lock()
		d.reminder = a.Reminder
		if d.state == ready { // its turn is another one now
			q.move(d, ready, d.wait, 0)
		}
		q.to.mu.Unlock()
	}

	if !d.subject.Topic.Shared {
		return
	}

	devices := q.sharing[d]
	if devices == nil {
		devices = map[string]struct{}{}
		q.sharing[d] = devices
	}

	if _, known := devices[r.More.Of.Device]; !known && q.sharers < maxSharers {
		devices[r.More.Of.Device] = struct{}{}
		q.sharers++
	}
}

// follow has d, which is attempting, go on as v says.
func (q *queue) follow(d *delivery, v verdict) {
	if v.outcome != "" {
		q.settle(d, v.covers, v.outcome)
		return
	}

	if v.state == attempting {
		v.state = pausing
		if d.dead != nil {
			v.state, v.why = givenUp, WaitDeadLetter
		}
	}

	if v.err != nil {
		q.to.dispatcher.Warn(q.box.account.Logger, q.waitText(v.why), v.err)
	}

	q.box.mu.Lock()
	defer q.box.mu.Unlock()

	//planted:withdrawn-tried-again if false
	if d.notice != nil && d.notice.withdrawn {
		q.replace(d, throttle.Unneeded.String())
		return
	}

	q.wait(d, v.state, v.why, int64(q.to.dispatcher.now()+v.pause))
}

// enqueue has d wait for its turn.
func (q *queue) enqueue(d *delivery) { q.wait(d, ready, WaitTurn, 0) }

// wait puts d, which is attempting, into another state, under key, which does not matter to ready. It drops d if q is
// closed.
func (q *queue) wait(d *delivery, s state, why Wait, key int64) {
	r := q.to
	r.mu.Lock()
	defer r.mu.Unlock()

	//planted:closed-queue-grows if false
	if q.closed {
		d.end(OutcomeUnsettled)
		return
	}

	q.move(d, s, why, key)
	r.dispatch()
}
