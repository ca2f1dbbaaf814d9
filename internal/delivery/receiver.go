package delivery

import (
	"slices"
	"sync"
	"time"

	"alertworker/internal/notify/pace"
	"alertworker/internal/throttle"
)

// A receiver schedules the deliveries to one receiver: at its pace, and not more messages at a time than it has
// places. What is ready when a message can go, goes in one if the receiver takes many; then there is one
// message at a time, so that what becomes ready meanwhile goes together. News come first: see
// delivery.class. Partitions take turns. At most Concurrency dead letters are written at a time. Neither a
// waiting delivery nor the receiver has a goroutine. A delivery waits in its queue;
// dispatch is called after every change, and by the timer.
//
// An outbox's lock is taken before a receiver's.
type receiver struct {
	Receiver
	*Dispatcher
	index int // among the dispatcher's receivers

	mu        sync.Mutex
	queues    []*queue // one for each outbox
	turn      int      // index of the queue whose turn is next
	pace      *pace.Pace
	messages  int  // under way, from the first claim to the last record
	sending   int  // deliveries in them
	writing   int  // dead letters being written
	probing   bool // whether a probe is under way
	health    health
	shortfall shortfall
	store     storeHealth
	timer     *time.Timer
	wake      time.Duration // when timer calls dispatch, by the worker's clock; 0 if it is stopped
}

// open adds a queue for o.
func (r *receiver) open(o *Outbox) *queue {
	q := &queue{
		box:        o,
		to:         r,
		deliveries: map[Key]*delivery{},
		later:      map[Key]*Notice{},
		sharing:    map[*delivery]map[string]struct{}{},
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues = append(r.queues, q)

	return q
}

// dispatch starts every attempt that may start now and sets the timer for the next.
// The caller holds r.mu.
func (r *receiver) dispatch() {
	now := r.now()
	r.ripen(now)

	for r.start(now) {
	}

	r.shed(now)

	for r.mayWrite(now) && r.startLetter(now) {
	}

	r.setTimer(now)
}

// ripen makes the deliveries ready whose time has come.
func (r *receiver) ripen(now time.Duration) {
	for _, q := range r.queues {
		for _, s := range [...]state{pausing, awaitsWindow} {
			for q.due(s, now) {
				q.push(q.take(s), ready, WaitTurn, 0)
			}
		}
	}
}

// startLetter starts an attempt about the next dead letter, if one is due.
func (r *receiver) startLetter(now time.Duration) bool {
	q := r.takeTurn(func(q *queue) bool { return q.due(givenUp, now) })
	if q == nil {
		return false
	}

	r.writing++
	d := q.take(givenUp)
	probe := d.letter == nil && r.store.probed()
	r.probing = r.probing || probe

	q.box.work.Go(func() {
		if d.letter == nil {
			q.try(d, probe, nil)
		} else {
			q.follow(d, q.writeLetter(d))
		}

		r.letterDone()
	})

	return true
}

// A chosen is a delivery for the next message, and its queue.
type chosen struct {
	q *queue
	d *delivery
}

// start starts the next message, if one may go now.
func (r *receiver) start(now time.Duration) bool {
	full := r.full()
	if r.messages >= r.places() || r.pace.Next(full) > now {
		return false
	}

	probe := r.probed()
	together := r.choose(now, probe)
	if len(together) == 0 {
		return false
	}

	r.messages++
	r.sending += len(together)
	r.probing = r.probing || probe
	r.pace.Begin(now, full)

	g := &group{
		Message: pace.NewMessage(r.Notifier, len(together)),
		size:    len(together),
		began:   now,
		left:    len(together),
	}
	for _, c := range together {
		c.q.box.work.Go(func() { c.q.try(c.d, probe, g) })
	}

	return true
}

// choose takes the deliveries that go in the next message; none if none may be attempted now. A probe is one delivery.
func (r *receiver) choose(now time.Duration, probe bool) (together []chosen) {
	q, from := r.next(now)
	if q == nil {
		return nil
	}

	first := q.take(from)
	together = append(together, chosen{q, first})
	if first.alone || probe {
		return together
	}

	for len(together) < r.Limits.Batch {
		q, from := r.next(now)
		if q == nil || q.lines[from].first().alone {
			break
		}

		together = append(together, chosen{q, q.take(from)})
	}

	return together
}

// full reports whether the next message has no room for what becomes ready while it waits.
func (r *receiver) full() bool {
	waiting := 0
	for _, q := range r.queues {
		if !q.isReady() {
			continue
		}

		if q.lines[ready].first().alone {
			return true
		}

		waiting += q.lines[ready].Len()
	}

	return waiting >= r.Limits.Batch
}

// places returns how many messages may be under way.
func (r *receiver) places() int {
	most := r.Concurrency
	if r.Limits.Places > 0 {
		most = min(most, r.Limits.Places)
	}

	if r.Limits.Batch > 1 {
		most = 1
	}

	return r.pace.Places(most)
}

// probed reports whether the receiver or the store seems to be down, so that only one
// attempt may be under way.
func (r *receiver) probed() bool { return r.health.probed() || r.store.probed() }

// next returns the queue and the state of the delivery to attempt now; no queue if there is none.
func (r *receiver) next(now time.Duration) (*queue, state) {
	if !r.probed() {
		return r.nextOfAll(now)
	}

	if r.probing || now < r.store.retry {
		return nil, 0
	}

	if r.anyReady() {
		return r.nextNewProbe(now), ready
	}

	return r.nextFailedProbe(now), failed
}

// nextOfAll is next while the receiver and the store seem to work: of what is ready the class that matters most goes
// first, and what has failed in the turn of its queue, if it is older.
func (r *receiver) nextOfAll(now time.Duration) (*queue, state) {
	best := r.bestClass()
	q := r.takeTurn(func(q *queue) bool {
		isBest := q.isReady() && q.lines[ready].first().class() == best
		return isBest || q.due(failed, now)
	})

	if q == nil || !q.due(failed, now) {
		return q, ready
	}

	if !q.isReady() || q.lines[failed].first().since < q.lines[ready].first().since {
		return q, failed
	}

	return q, ready
}

// bestClass returns the class of what is ready that matters most.
func (r *receiver) bestClass() class {
	best := class(classes)
	for _, q := range r.queues {
		if q.isReady() {
			best = min(best, q.lines[ready].first().class())
		}
	}

	return best
}

// nextNewProbe returns the queue of the delivery that is ready, to be the next probe; nil if none may go now.
func (r *receiver) nextNewProbe(now time.Duration) *queue {
	if now < r.health.nextNew {
		return nil
	}

	return r.takeTurn((*queue).isReady)
}

// nextFailedProbe returns the queue of the failed delivery that is due first, of all queues, to be the next probe; nil
// if none may go now.
func (r *receiver) nextFailedProbe(now time.Duration) (first *queue) {
	if now < r.health.nextFailed {
		return nil
	}

	for _, q := range r.queues {
		if !q.due(failed, now) {
			continue
		}

		if first == nil || q.lines[failed].first().key < first.lines[failed].first().key {
			first = q
		}
	}

	return first
}

// storeTime returns the time by the store's clock, in Unix µs, as estimated by our monotonic clock since the
// store last answered; false if it has not yet.
func (r *receiver) storeTime() (int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store.clock.Add(r.now() - r.store.answeredAt).UnixMicro(), !r.store.clock.IsZero()
}

// anyReady reports whether a delivery of any queue is ready.
func (r *receiver) anyReady() bool { return slices.ContainsFunc(r.queues, (*queue).isReady) }

// takeTurn returns the next queue in turn for which has is true, nil if there is none.
func (r *receiver) takeTurn(has func(*queue) bool) *queue {
	for i := range r.queues {
		n := (r.turn + i) % len(r.queues)
		if has(r.queues[n]) {
			r.turn = n + 1
			return r.queues[n]
		}
	}

	return nil
}

// mayWrite reports whether one more dead letter may be written.
func (r *receiver) mayWrite(now time.Duration) bool {
	if r.store.probed() && (r.probing || now < r.store.retry) {
		return false
	}
	return r.writing < r.Concurrency
}

// shed gives up the oldest deliveries of queues in which too many wait, of those that matter least.
func (r *receiver) shed(now time.Duration) {
	for _, q := range r.queues {
		for q.waiting() > r.MaxWaiting {
			q.giveUp(q.least(), tooMany, now)
		}
	}
}

// expire gives up the deliveries that have waited too long for a receiver that is
// down. The timer calls it before each probe.
func (r *receiver) expire() {
	now := r.now()
	if !r.health.probed() || r.probing {
		return
	}

	for _, q := range r.queues {
		oldest, ok := q.oldestAllowed(now)
		if !ok {
			continue
		}

		for _, d := range q.waitingSince(oldest) {
			q.giveUp(d, tooOld, now)
		}
	}
}

// setTimer sets the timer for the next delivery that becomes due. One that is due
// already waits for an attempt to end, which calls dispatch too.
func (r *receiver) setTimer(now time.Duration) {
	next := r.nextCall(now)
	if next == r.wake {
		return
	}

	r.wake = next

	switch {
	case next == 0:
		r.timer.Stop()
	case r.timer == nil:
		r.timer = time.AfterFunc(next-now, r.tick)
	default:
		r.timer.Reset(next - now)
	}
}

// nextCall returns the earliest time after now at which dispatch has to be called; 0 if there is none.
func (r *receiver) nextCall(now time.Duration) (next time.Duration) {
	at := func(t time.Duration) {
		if t > now && (next == 0 || t < next) {
			next = t
		}
	}

	for _, q := range r.queues {
		for s := range states {
			if q.lines[s].Len() > 0 {
				at(r.dueAt(s, time.Duration(q.lines[s].first().key)))
			}
		}
	}

	if r.messages < r.places() && slices.ContainsFunc(r.queues, (*queue).mayGo) {
		at(r.pace.Next(r.full()))
	}

	return next
}

// dueAt returns when the first delivery of a state, which has this key in its line, is due; 0 if no time brings that
// about.
func (r *receiver) dueAt(s state, key time.Duration) time.Duration {
	switch s {
	case pausing, awaitsWindow:
		return key

	case givenUp:
		return max(key, r.store.retry)

	case failed:
		return r.failedAt(key)

	case ready:
		if r.probed() && !r.probing {
			return max(r.health.nextNew, r.store.retry)
		}
	}

	return 0
}

// failedAt is dueAt for a delivery that failed: while only probes go, those that are ready come first.
func (r *receiver) failedAt(key time.Duration) time.Duration {
	switch {
	case !r.probed():
		return key
	case r.anyReady():
		return 0
	}

	return max(key, r.health.nextFailed, r.store.retry)
}

// tick is called by the timer.
func (r *receiver) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake = 0
	r.expire()
	r.dispatch()
}

// attempted records that an attempt for d has ended, and what it has shown about the store.
func (r *receiver) attempted(q *queue, d *delivery, a attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if a.group != nil {
		r.leave(a)
	}

	if a.probe {
		r.probing = false
	}

	now := r.now()
	isUnavailable := a.result.Outcome == throttle.Unavailable

	switch {
	case a.result.Outcome == throttle.Busy && a.result.Now.IsZero(): // nobody was asked
	case !isUnavailable:
		r.store.answered(now, a.result.Now)
	case !q.cancelled():
		r.store.failed(now, !d.unanswered, a.probe)
	}

	d.unanswered = isUnavailable
	r.dispatch()
}

// leave takes an attempt out of its message, whose last one ends it. The caller holds r.mu.
func (r *receiver) leave(a attempt) {
	r.sending--
	a.group.left--
	if a.group.left > 0 {
		return
	}

	r.messages--
	if !a.group.reported {
		r.pace.Cancel()
	}
}

// answered records what the receiver answered to an attempt at d, as soon as it has: what it accepted before it went
// down says nothing about it, however long the store then takes to record that.
func (r *receiver) answered(q *queue, d *delivery, a attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()

	defer func() { a.group.reported = true }()
	if q.cancelled() {
		return
	}

	if a.failure != nil && a.failure.Left != "" { // it took the notice for its other recipients
		r.health.failure = a.failure
		a.failure = nil
	}

	now := r.now()
	if !a.group.reported {
		r.pace.Answered(now, a.group.began, a.failure)
	}

	switch {
	case a.failure == nil || a.failure.Refused:
		r.works(now, d, a)
	case a.failure.Limited:
		r.health.failure = a.failure
	default:
		r.failed(now, d, a)
	}
}

// works records that the receiver took d, or refused it for good. Deliveries that failed wait like any other then. The
// caller holds r.mu.
func (r *receiver) works(now time.Duration, d *delivery, a attempt) {
	switch {
	case a.failure == nil:
		r.shortfall = shortfall{}
	case a.group.size == 1: // else it may be because of another one
		r.shortfall.reject(now, d.About, a.failure)
	}

	for _, q := range r.queues {
		for q.lines[failed].Len() > 0 {
			d := q.take(failed)
			q.push(d, pausing, WaitPause, d.key)
		}
	}

	r.health.succeeded(a.failure == nil)
}

// failed records that the receiver did not take d, and may if it is tried again. The caller holds r.mu.
func (r *receiver) failed(now time.Duration, d *delivery, a attempt) {
	first := d.answered != r.health.answered // since the receiver last answered
	if first && d.answered >= 0 {
		d.odd = true
		d.alone = true // the others in its message do not fail with it again
		if a.group.size == 1 && a.failure.OwnFault() {
			d.ownFailures++
		}
	}

	d.answered = r.health.answered
	if a.group.reported {
		return
	}

	suspect := first && !d.odd // else the fault may be the alert's own
	r.health.failed(now, a.failure, suspect, a.probe)
	r.shortfall.fail(now, a.failure)
}

// letterDone records that an attempt about a dead letter has ended.
func (r *receiver) letterDone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing--
	r.dispatch()
}

// failure returns the receiver's last failure, nil if there was none.
func (r *receiver) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.health.failure
}
