package delivery

import (
	"container/heap"
	"slices"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

// A delivery brings one notice to one receiver: an alert, or a recovery. It starts with one
// reading, its head. Later readings with the same key join it. When it ends, the latest reading that
// joined is settled with the head, or a delivery of its own follows. There is at most one delivery for
// each key and receiver.
//
// A delivery is in exactly one state. In all but attempting it waits in the queue's heap of that state.
//
//	state          what it waits for                         then
//	ready          its turn                                  attempting
//	pausing        the time of the next attempt              ready
//	awaitsWindow   the last alert's window to end            ready; of recoveries and incidents only
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
	q       *queue
	subject Key
	notice  *Notice // the notice that it brings; nil for an alert about a reading
	held    Hold    // the place before the head, unless it brings a due notice that no reading has joined
	head    Reading // what the notice is about

	// The readings that have joined, guarded by Outbox.mu. Only the latest is kept:
	// what settles it settles those before it.
	latest       Reading
	latestBefore Place               // of the event before the latest that does not linger, or if all do before the latest
	joined       uint32              // how many, without those that linger
	suppressed   uint32              // readings before the head that no alert has counted
	sharing      map[string]struct{} // the devices of both, if devices share it

	lingers           bool // the latest does, of those that have joined: see Alert.Lingers
	triedSecondDevice bool // devices share it, it was refused for one of them, and is tried for another; for a third it is not
	reminder          bool // the devices of its readings have been alerted before, in the same alarms. Changed under both locks

	// What it waits for, guarded by receiver.mu.
	state state
	wait  Wait
	from  time.Duration // since when it waits for that, by the dispatcher's clock
	index int32         // its slot in the heap of the state
	key   int64         // in that heap: the time of the next attempt by the dispatcher's clock, or its turn

	// What is known of its attempts.

	// from when on it could be sent, in Unix µs: the time of the head, or its notice's RaisedAt or Anew.Deadline; or the end
	// of the window that a recovery waited for
	since       int64
	number      int64       // given once it waits for its turn: see receiver.next; 0: none
	failedAt    uint32      // value of receiver.answers at the last failure; 0 if there was none
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

// A deadLetter is what a delivery that was given up becomes.
type deadLetter struct {
	cause  cause
	alert  *notify.Alert // nil until it is composed
	reason string        // then
	kept   bool

	// If it is a refusedAlert: when it was, and up to which readings, by the hub's clock in Unix µs, it settles them too.
	refused time.Time
	covers  int64
}

// A cause is why a delivery was given up.
type cause uint8

const (
	failedForGood cause = iota
	refusedAlert        // by the receiver, for what it says about a reading
	tooOld              // while it waited
	tooMany             // while it waited
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

// A queue holds the deliveries of one Outbox to one receiver.
type queue struct {
	box *Outbox
	to  *receiver

	// Guarded by box.mu.
	deliveries map[Key]*delivery    // all of them
	later      map[Key]*Notice      // what is due once the delivery of its key has ended
	sharers    int                  // devices in sharing of all deliveries, at most maxSharers
	taken      map[Key]notify.Alert // the last of each alarm that a receiver took that forgets: see Refresh

	// Guarded by to.mu.
	lines      [states]heapOf[*delivery] // those that wait, by state; none is attempting
	writing    int                       // dead letters that are being composed or written
	unwritable bool                      // the last one could not be
	closed     bool                      // nothing starts any more
	last       int64                     // number that was given: see receiver.next
}

// waiting returns how many deliveries wait to be sent, without those that wait for a window's end.
func (q *queue) waiting() int {
	return q.lines[ready].Len() + q.lines[pausing].Len() + q.lines[awaitsReceiver].Len()
}

// gate returns the gate that d has to pass.
func (d *delivery) gate() Gate { return d.subject.Topic.Gates[d.q.to.index] }

// begin has d, which is new, wait for its turn. An alert holds the place of its reading, after before. The caller holds
// box.mu.
func (q *queue) begin(d *delivery, before Place) {
	d.q = q
	d.since = d.head.Enqueued
	switch {
	case d.notice == nil:
		q.box.held.Add(&d.held, before, d.head.Enqueued)
	case d.notice.Anew != nil:
		d.since = d.notice.Anew.Deadline
	//planted:removed-recovery-old case d.notice.Silent()
	case d.notice.RaisedAt > 0:
		d.since = d.notice.RaisedAt
	}

	q.deliveries[d.subject] = d
	q.to.mu.Lock()
	defer q.to.mu.Unlock()
	d.move(ready, WaitTurn, 0)
	q.to.dispatch()
}

// maxSharers bounds the devices that alerts are to count while others of what they share are under way.
const maxSharers = 65_536

// join has a's reading join d. The caller holds box.mu.
func (d *delivery) join(a *Alert) {
	q, r := d.q, &a.Reading
	first := d.held.index == 0 // that joins a notice
	if first {
		q.box.held.Add(&d.held, a.Before, r.Enqueued)
	}

	//planted:read-again-holds-later if !d.hasJoined() || !r.before(&d.latest)
	if !d.hasJoined() || d.latest.before(r) { // else it has come again, maybe after other events
		d.latest, d.lingers = *r, a.Lingers
		//planted:lingering-takes-place if true
		if !a.Lingers || d.joined == 0 { // the next owner's rule may repeat nothing, so that only the others are a cause to alert
			d.latestBefore = a.Before
		}
	}
	if !a.Lingers {
		//planted:joined-counted-twice d.joined++
		d.joined++
		q.box.dispatcher.config.Stats.Suppressed.Add(1)
	}

	//planted:news-wait-as-reminders if first
	if first || d.reminder && !a.Reminder {
		q.to.mu.Lock()
		d.reminder = a.Reminder
		if d.state == ready { // its turn is another one now
			d.move(ready, d.wait, 0)
		}
		q.to.mu.Unlock()
	}

	if !d.subject.Topic.Shared {
		return
	}

	if d.sharing == nil {
		d.sharing = map[string]struct{}{}
	}

	if _, known := d.sharing[r.More.Of.Device]; !known && q.sharers < maxSharers {
		d.sharing[r.More.Of.Device] = struct{}{}
		q.sharers++
	}
}

// move puts d into a state, and into the line of that under key, which does not matter to ready. If its queue is closed it
// drops d instead. The caller holds to.mu.
func (d *delivery) move(s state, why Wait, key int64) {
	q := d.q
	//planted:closed-queue-grows if false
	if q.closed {
		d.end(OutcomeUnsettled)
		return
	}

	if d.index > 0 {
		heap.Remove(&q.lines[d.state], int(d.index-1))
	}

	if d.wait != why || d.from == 0 {
		d.from = q.to.dispatcher.now()
	}

	d.state, d.wait, d.key = s, why, key
	switch s {
	case attempting:
		return
	case ready:
		if d.number == 0 { // the next, which is no further ahead of the last that went than deliveries wait
			gone := q.to.gone
			q.last = max(gone, min(q.last, gone+int64(q.lines[ready].Len()))+1)
			d.number = q.last
		}
		d.key = d.turn()
	}

	heap.Push(&q.lines[s], d)
}

// giveUp has d, which waits, become a dead letter. The caller holds to.mu.
func (d *delivery) giveUp(why cause, now time.Duration) {
	d.dead = &deadLetter{cause: why}
	d.move(givenUp, WaitDeadLetter, int64(now))
}

// toSend returns the deliveries that wait to be sent, in no order.
func (q *queue) toSend() []*delivery {
	return slices.Concat(q.lines[ready].all, q.lines[pausing].all, q.lines[awaitsReceiver].all)
}

// follow has d, which is attempting, go on as v says: it is settled, or waits.
func (d *delivery) follow(v verdict) {
	q := d.q
	if v.outcome != "" {
		q.box.mu.Lock()
		var done *Notice
		if d.notice != nil && d.notice.Settle(q.to.index) {
			done = d.notice
		}
		d.replace(v.covers, v.outcome)
		q.box.mu.Unlock()

		q.box.account.Owner.Settled(d.subject, done)
		return
	}

	if v.state == pausing && d.dead != nil {
		v.state, v.why = givenUp, WaitDeadLetter
	}

	if v.err != nil {
		q.to.dispatcher.Warn(q.box.account.Logger, v.why.text(q.to.to.Name, 0, ""), v.err)
	}

	q.box.mu.Lock()
	defer q.box.mu.Unlock()

	//planted:withdrawn-tried-again if false
	if d.notice != nil && d.notice.withdrawn {
		d.replace(nil, throttle.Unneeded.String())
		return
	}

	q.to.mu.Lock()
	defer q.to.mu.Unlock()
	d.move(v.state, v.why, int64(q.to.dispatcher.now()+v.pause))
	q.to.dispatch()
}

// replace ends d, and starts what follows: an alert about the latest of the readings that have joined, unless d is itself
// an alert whose end covers that reading; else a notice that has become due since. The caller holds box.mu.
func (d *delivery) replace(covers func(*Reading) bool, outcome string) {
	q := d.q
	delete(q.deliveries, d.subject)
	q.box.held.Release(&d.held)

	switch later := q.later[d.subject]; {
	//planted:latest-always-alerts case d.hasJoined()
	case d.hasJoined() && (d.notice != nil || covers == nil || !covers(&d.latest)):
		next := &delivery{
			subject: d.subject, head: d.latest, sharing: d.sharing, reminder: d.reminder, triedSecondDevice: d.triedSecondDevice,
		}
		next.suppressed = d.suppressed + d.joined
		//planted:promoted-counts-itself skip
		if !d.lingers { // the latest is one of them
			next.suppressed--
		}
		head := d.of(&d.latest).Device
		if _, joined := d.sharing[head]; joined { // its reading is not suppressed any more
			delete(d.sharing, head)
			q.sharers--
		}
		//planted:promoted-holds-nothing q.begin(next, d.latestBefore); q.box.held.Release(&next.held); skip
		q.begin(next, d.latestBefore)

	default:
		// The next alert counts the readings that this one has suppressed besides its head, or the devices if they share it.
		if !d.subject.Topic.Shared {
			d.gate().Suppressed(d.subject.About, int64(d.suppressed)+int64(d.joined))
		}
		//planted:sharing-uncounted skip
		for device := range d.sharing {
			d.gate().SuppressedShared(d.subject.About.Device, device)
		}
		q.sharers -= len(d.sharing)

		//planted:due-later-lost if false
		if later != nil {
			delete(q.later, d.subject)
			q.begin(&delivery{subject: d.subject, head: later.Reading, notice: later}, Place{})
		}
	}

	d.end(outcome)
}

// hasJoined reports whether any reading has joined d. If none of them counts, all linger.
func (d *delivery) hasJoined() bool { return d.joined > 0 || d.lingers }

// An item is an element of a heapOf.
type item[T any] interface {
	comparable
	less(T) bool
	slot() *int32
}

// A heapOf holds elements in their order. Each knows its slot: its index plus 1, or 0 while it is in no heap.
type heapOf[T item[T]] struct{ all []T }

// The rest implements heap.Interface, for package heap.

func (h *heapOf[T]) Len() int           { return len(h.all) }
func (h *heapOf[T]) Less(i, j int) bool { return h.all[i].less(h.all[j]) }

func (h *heapOf[T]) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	*h.all[i].slot(), *h.all[j].slot() = int32(i+1), int32(j+1)
}

func (h *heapOf[T]) Push(e any) {
	h.all = append(h.all, e.(T))
	*e.(T).slot() = int32(len(h.all))
}

func (h *heapOf[T]) Pop() any {
	last := len(h.all) - 1
	e := h.all[last]
	clear(h.all[last:])
	h.all = h.all[:last]
	*e.slot() = 0

	return e
}

// Holds are events of one log that are not settled. What is settled reaches up to the first of them. They are only as
// many as there are hot devices.
type Holds struct{ all heapOf[*Hold] }

// A Hold is one event that is not settled.
type Hold struct {
	before   Place // of the event before
	enqueued int64 // when the hub took the event, in Unix µs
	index    int32 // its slot in Holds: 0 unless it is in any
}

// A Place is a position in a log.
type Place struct {
	Sequence int64
	Offset   string // empty: before the first event that was read
	Time     int64  // when the hub took the event, in Unix ns, if it is known
}

// Add has h hold the place before an event, in any order. before is that of the event before.
func (hs *Holds) Add(h *Hold, before Place, enqueued int64) {
	h.before = before
	h.enqueued = enqueued
	heap.Push(&hs.all, h)
}

// Release ends what h holds, if it does.
func (hs *Holds) Release(h *Hold) {
	if h.index > 0 {
		heap.Remove(&hs.all, int(h.index-1))
	}
}

// Len returns how many there are.
func (hs *Holds) Len() int { return hs.all.Len() }

// First returns the place before the first event that is not settled, and when the hub took that event, in Unix µs.
// Both are zero if there is none.
func (hs *Holds) First() (before Place, enqueued int64) {
	if hs.all.Len() == 0 {
		return Place{}, 0
	}
	first := hs.all.all[0]
	return first.before, first.enqueued
}

func (h *Hold) slot() *int32 { return &h.index }

func (h *Hold) less(than *Hold) bool { return h.before.Sequence < than.before.Sequence }
