package delivery

import (
	"context"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/sensor"
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
//	awaitsReceiver the same as pausing: the receiver has     attempting; pausing once the receiver answers
//	               not answered since the last one failed
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

	trace *tracked // nil if deliveries are not traced
}

// tries is what is known of the attempts for one head.
type tries struct {
	// from when on it could be sent, in Unix µs: the time of the head, or the end of the window that a recovery waited
	// for
	since       int64
	number      int64       // given once it waits for its turn: see receiver.next; 0: none
	failedAt    uint32      // value of health.answers at the last failure, and 1; 0 if there was none
	attempts    uint16      // that failed
	failsAlone  bool        // it failed again after the receiver has answered about others
	ownFailures uint8       // failures like that which may be the message's own fault
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
	case d.recovers():
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
	cause   cause
	letter  *notify.DeadLetter // nil until it is composed
	refused bool               // the receiver refused the alert for what it says
	kept    bool
}

// A cause is why a delivery was given up.
type cause uint8

const (
	failedForGood cause = iota
	tooOld              // while it waited
	tooMany             // while it waited
)

// recovers reports whether d says that a device is normal again.
func (d *delivery) recovers() bool { return d.notice.recovers() }

// of returns what one of d's readings is of.
func (d *delivery) of(r *Reading) sensor.ID {
	if d.subject.Topic.Shared || r.More != nil && r.More.Of != (sensor.ID{}) {
		return r.More.Of
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

// waits says what d waits for from now on, unless it does already. The caller holds receiver.mu.
func (d *delivery) waits(s state, why Wait, now time.Duration) {
	d.state = s
	if d.wait != why || d.from == 0 {
		d.from = now
	}
	d.wait = why
}

// start makes r the head. Nothing has been tried for it.
func (d *delivery) start(r *Reading) {
	d.head = *r
	d.tries = tries{since: r.Enqueued}
}

// join adds a reading with the same key, the next after the place before. The caller holds Outbox.mu.
func (d *delivery) join(r *Reading, before Place) {
	if d.joined == 0 || !r.before(&d.latest) {
		d.latest, d.latestBefore = *r, before
	}
	//planted:joined-counted-twice d.joined++
	d.joined++
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

// end tells the trace that d has ended. Nothing may join d any more.
func (d *delivery) end(outcome string) {
	if d.trace != nil {
		d.trace.End(End{Outcome: outcome, Suppressed: int64(d.suppressed) + int64(d.joined), Err: d.trace.err})
	}
}
