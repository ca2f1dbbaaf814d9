package worker

import (
	"slices"
	"sync"
	"time"

	"alertworker/internal/throttle"
)

// A receiver schedules the deliveries to one receiver. Up to Concurrency of
// them are tried at a time, in turns between partitions, and besides as many
// dead letters are written. A delivery that waits has no goroutine: it is an element of
// its queue. Nor has the schedule: dispatch is called by whatever changes something, and by the
// timer.
//
// A stream's lock is taken before a receiver's.
type receiver struct {
	Receiver
	worker *Worker

	mu      sync.Mutex
	queues  []*queue // of the streams there are
	turn    int      // the queue to look at first
	sending int      // attempts under way
	writing int      // dead letters being written
	probing bool     // a probe is under way
	health  health
	store   storeHealth
	timer   *time.Timer
	wake    time.Duration // when timer calls dispatch; 0 if it does not
}

// A queue holds the deliveries of one stream to one receiver.
type queue struct {
	stream *stream
	to     *receiver

	byDevice map[string]*delivery // all of them; guarded by stream.mu

	// Those that wait, each in one of these; guarded by to.mu.
	ready  schedule // for their turn, by age
	later  schedule // for a foreign claim or the store, by when to try again
	failed schedule // since the receiver last answered, by when to try again at the earliest
	dead   schedule // to become dead letters, by when to try that
	closed bool     // nothing starts any more
}

// waiting is how many deliveries wait to be sent.
func (q *queue) waiting() int { return q.ready.len() + q.later.len() + q.failed.len() }

// open makes a queue for s.
func (r *receiver) open(s *stream) *queue {
	q := &queue{stream: s, to: r, byDevice: map[string]*delivery{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues = append(r.queues, q)
	return q
}

// close drops what waits. What is under way ends by itself, in stream.work, and is dropped
// then unless it is settled.
func (q *queue) close() {
	r := q.to
	r.mu.Lock()
	q.closed = true
	r.queues = slices.DeleteFunc(r.queues, func(other *queue) bool { return other == q })
	var dropped []*delivery
	for _, in := range []*schedule{&q.ready, &q.later, &q.failed, &q.dead} {
		dropped = append(dropped, in.drain()...)
	}
	r.dispatch()
	r.mu.Unlock()
	for _, d := range dropped {
		q.end(d, OutcomeUnsettled)
	}
}

// wait has d wait in one of q's schedules, under key.
func (q *queue) wait(d *delivery, in *schedule, key int64) {
	r := q.to
	r.mu.Lock()
	if q.closed {
		r.mu.Unlock()
		q.end(d, OutcomeUnsettled)
		return
	}
	in.push(d, key)
	r.dispatch()
	r.mu.Unlock()
}

// waitTurn has d wait until it may be sent.
func (q *queue) waitTurn(d *delivery) { q.wait(d, &q.ready, d.head.enqueued) }

// pause has d wait in one of q's schedules for a time.
func (q *queue) pause(d *delivery, in *schedule, pause time.Duration) {
	q.wait(d, in, int64(q.to.worker.now()+pause))
}

// due reports whether the first of s, whose keys are times, is due.
func (s *schedule) due(now time.Duration) bool { return s.len() > 0 && s.first().key <= int64(now) }

// dispatch starts all that may start now, and sets the timer for what may later.
// The caller holds r.mu.
func (r *receiver) dispatch() {
	now := r.worker.now()
	for _, q := range r.queues {
		for q.later.due(now) {
			d := q.later.pop()
			q.ready.push(d, d.head.enqueued)
		}
	}
	for {
		q, d := r.next(now)
		if d == nil {
			break
		}
		probe := r.probed()
		r.sending++
		r.probing = r.probing || probe
		q.stream.work.Go(func() { q.send(d, probe) })
	}
	r.shed(now)
	for r.mayWrite(now) {
		q := r.takeTurn(func(q *queue) bool { return q.dead.due(now) })
		if q == nil {
			break
		}
		d := q.dead.pop()
		probe := d.letter == nil && r.store.probed()
		r.writing++
		r.probing = r.probing || probe
		q.stream.work.Go(func() { q.deadLetter(d, probe) })
	}
	r.setTimer(now)
}

// probed reports whether one attempt at a time is made, to find out whether all is well again.
func (r *receiver) probed() bool { return r.health.probed() || r.store.probed() }

// next removes and returns the delivery to try now, nil if there is none.
func (r *receiver) next(now time.Duration) (*queue, *delivery) {
	if r.sending >= r.worker.Concurrency {
		return nil, nil
	}
	if !r.probed() {
		q := r.takeTurn(func(q *queue) bool { return q.ready.len() > 0 || q.failed.due(now) })
		switch {
		case q == nil:
			return nil, nil
		case q.failed.due(now) && (q.ready.len() == 0 || q.failed.first().head.enqueued < q.ready.first().head.enqueued):
			return q, q.failed.pop()
		default:
			return q, q.ready.pop()
		}
	}
	if r.probing || now < r.store.retry {
		return nil, nil
	}
	if r.anyReady() {
		if now < r.health.untried {
			return nil, nil
		}
		q := r.takeTurn(func(q *queue) bool { return q.ready.len() > 0 })
		return q, q.ready.pop()
	}
	if now < r.health.tried {
		return nil, nil
	}
	var of *queue
	for _, q := range r.queues { // the one that has waited longest, of all
		if q.failed.due(now) && (of == nil || q.failed.first().key < of.failed.first().key) {
			of = q
		}
	}
	if of == nil {
		return nil, nil
	}
	return of, of.failed.pop()
}

func (r *receiver) anyReady() bool {
	return slices.ContainsFunc(r.queues, func(q *queue) bool { return q.ready.len() > 0 })
}

// takeTurn returns the queue whose turn it is among those that have something.
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
	return r.writing < r.worker.Concurrency
}

// shed gives up the oldest of what waits for its turn where too much waits.
func (r *receiver) shed(now time.Duration) {
	for _, q := range r.queues {
		for q.waiting() > r.worker.maxWaiting {
			from := &q.ready
			for _, other := range []*schedule{&q.failed, &q.later} {
				if from.len() == 0 {
					from = other
				}
			}
			q.giveUp(from.pop(), tooMany, now)
		}
	}
}

// expire gives up what has waited too long for a receiver that is down. The timer
// calls for it: before each probe, and when the oldest that is ready is due.
func (r *receiver) expire() {
	now := r.worker.now()
	if !r.health.probed() || r.probing {
		return
	}
	for _, q := range r.queues {
		oldest, ok := q.oldestAllowed(now)
		if !ok {
			continue
		}
		for q.ready.len() > 0 && q.ready.first().head.enqueued <= oldest {
			q.giveUp(q.ready.pop(), tooOld, now)
		}
		if !slices.ContainsFunc(q.failed.heap, func(d *delivery) bool { return d.head.enqueued <= oldest }) {
			continue
		}
		for _, d := range q.failed.drain() {
			if d.head.enqueued <= oldest {
				q.giveUp(d, tooOld, now)
			} else {
				q.failed.push(d, d.key)
			}
		}
	}
}

// giveUp has d, which waited, become a dead letter. The caller holds to.mu.
func (q *queue) giveUp(d *delivery, why cause, now time.Duration) {
	d.givenUp = why
	q.dead.push(d, int64(now))
}

// oldestAllowed is the time, in Unix µs by the hub's clock, at or before which a reading is
// too old to wait any longer. That is reckoned from the store's clock when it was
// last heard and our monotonic one since; the store is asked before a dead letter
// is written. False if the store was not heard yet. What an Intake took bears this machine's time.
func (q *queue) oldestAllowed(now time.Duration) (int64, bool) {
	store, giveUp := q.to.store, q.to.worker.GiveUp
	switch {
	case q.stream.partition == nil:
		return time.Now().Add(-giveUp).UnixMicro(), true
	case store.now.IsZero():
		return 0, false
	}
	return store.now.Add(now - store.heard - giveUp).UnixMicro(), true
}

// setTimer has dispatch called when the next of what waits for a time is due. What is due
// already waits for an attempt to end, and that calls dispatch too.
func (r *receiver) setTimer(now time.Duration) {
	var next time.Duration
	at := func(t time.Duration) {
		if t > now && (next == 0 || t < next) {
			next = t
		}
	}
	down, ready := r.probed() && !r.probing, r.anyReady()
	for _, q := range r.queues {
		if q.later.len() > 0 {
			at(time.Duration(q.later.first().key))
		}
		if q.dead.len() > 0 {
			at(max(time.Duration(q.dead.first().key), r.store.retry))
		}
		switch {
		case q.failed.len() == 0:
		case !r.probed():
			at(time.Duration(q.failed.first().key))
		case !ready:
			at(max(time.Duration(q.failed.first().key), r.health.tried, r.store.retry))
		}
		if down && q.ready.len() > 0 {
			at(max(r.health.untried, r.store.retry))
			if oldest, ok := q.oldestAllowed(now); ok && r.health.probed() {
				at(now + time.Duration(q.ready.first().head.enqueued-oldest)*time.Microsecond)
			}
		}
	}
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

// tick is what the timer calls.
func (r *receiver) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake = 0
	r.expire()
	r.dispatch()
}

// asked takes note of the gate's answer. sent says that an attempt has ended with it.
func (q *queue) asked(d *delivery, result throttle.Result, probe, sent bool) {
	r := q.to
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent {
		r.sending--
	}
	if probe {
		r.probing = false
	}
	now := r.worker.now()
	switch {
	case result.Outcome != throttle.Unavailable:
		r.store.answered(now, result.Now)
	case q.stream.send.Err() == nil: // else we cut it short
		r.store.failed(now, !d.unanswered, probe)
	}
	d.unanswered = result.Outcome == throttle.Unavailable
	r.dispatch()
}
