package worker

import (
	"slices"
	"sync"
	"time"

	"alertworker/internal/notify"
)

// A receiver schedules the deliveries to one receiver: at most Concurrency attempts
// at a time, which partitions take in turns, and as many dead letters. Neither a
// waiting delivery nor the schedule has a goroutine. A delivery waits in its queue;
// dispatch is called after every change, and by the timer.
//
// A stream's lock is taken before a receiver's.
type receiver struct {
	Receiver
	worker *Worker
	index  int // among the worker's receivers

	mu      sync.Mutex
	queues  []*queue // one for each stream
	turn    int      // index of the queue whose turn is next
	sending int      // attempts under way
	writing int      // dead letters being written
	probing bool     // whether a probe is under way
	health  health
	store   storeHealth
	timer   *time.Timer
	wake    time.Duration // when timer calls dispatch, by the worker's clock; 0 if it is stopped
}

// bit is r among the receivers of an owed.
func (r *receiver) bit() uint32 { return 1 << r.index }

// open adds a queue for s.
func (r *receiver) open(s *stream) *queue {
	q := &queue{
		stream: s, to: r, deliveries: map[alarmKey]*delivery{},
		ready: schedule{place: inReady}, later: schedule{place: inLater}, failed: schedule{place: inFailed}, dead: schedule{place: inDead},
		window: schedule{place: inWindow},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues = append(r.queues, q)
	return q
}

// dispatch starts every attempt that may start now and sets the timer for the next.
// The caller holds r.mu.
func (r *receiver) dispatch() {
	now := r.worker.now()
	for _, q := range r.queues {
		for _, in := range []*schedule{&q.later, &q.window} {
			for in.due(now) {
				d := in.pop()
				q.ready.push(d, d.since)
			}
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

// probed reports whether the receiver or the store seems to be down, so that only one
// attempt may be under way.
func (r *receiver) probed() bool { return r.health.probed() || r.store.probed() }

// next removes and returns the delivery to attempt now, nil if there is none.
func (r *receiver) next(now time.Duration) (*queue, *delivery) {
	if r.sending >= r.worker.Concurrency {
		return nil, nil
	}
	if !r.probed() {
		q := r.takeTurn(func(q *queue) bool { return q.ready.len() > 0 || q.failed.due(now) })
		switch {
		case q == nil:
			return nil, nil
		case q.failed.due(now) && (q.ready.len() == 0 || q.failed.first().since < q.ready.first().since):
			return q, q.failed.pop()
		default:
			return q, q.ready.pop()
		}
	}
	if r.probing || now < r.store.retry {
		return nil, nil
	}
	if r.anyReady() {
		if now < r.health.nextNew {
			return nil, nil
		}
		q := r.takeTurn(func(q *queue) bool { return q.ready.len() > 0 })
		return q, q.ready.pop()
	}
	if now < r.health.nextFailed {
		return nil, nil
	}
	var of *queue
	for _, q := range r.queues { // the failed delivery that is due first, of all queues
		if q.failed.due(now) && (of == nil || q.failed.first().key < of.failed.first().key) {
			of = q
		}
	}
	if of == nil {
		return nil, nil
	}
	return of, of.failed.pop()
}

// storeTime returns the time by the store's clock, in Unix µs, as estimated by our monotonic clock since the
// store last answered; false if it has not yet.
func (r *receiver) storeTime() (int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store.clock.Add(r.worker.now() - r.store.answeredAt).UnixMicro(), !r.store.clock.IsZero()
}

func (r *receiver) anyReady() bool {
	return slices.ContainsFunc(r.queues, func(q *queue) bool { return q.ready.len() > 0 })
}

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
	return r.writing < r.worker.Concurrency
}

// shed gives up the oldest deliveries of queues in which too many wait.
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

// expire gives up the deliveries that have waited too long for a receiver that is
// down. The timer calls it before each probe, and when the oldest ready delivery
// becomes too old.
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
		for q.ready.len() > 0 && q.ready.first().since <= oldest {
			q.giveUp(q.ready.pop(), tooOld, now)
		}
		if !slices.ContainsFunc(q.failed.heap, func(d *delivery) bool { return d.since <= oldest }) {
			continue
		}
		for _, d := range q.failed.drain() {
			if d.since <= oldest {
				q.giveUp(d, tooOld, now)
			} else {
				q.failed.push(d, d.key)
			}
		}
	}
}

// setTimer sets the timer for the next delivery that becomes due. One that is due
// already waits for an attempt to end, which calls dispatch too.
func (r *receiver) setTimer(now time.Duration) {
	var next time.Duration
	at := func(t time.Duration) {
		if t > now && (next == 0 || t < next) {
			next = t
		}
	}
	down, ready := r.probed() && !r.probing, r.anyReady()
	for _, q := range r.queues {
		for _, in := range []*schedule{&q.later, &q.window} {
			if in.len() > 0 {
				at(time.Duration(in.first().key))
			}
		}
		if q.dead.len() > 0 {
			at(max(time.Duration(q.dead.first().key), r.store.retry))
		}
		switch {
		case q.failed.len() == 0:
		case !r.probed():
			at(time.Duration(q.failed.first().key))
		case !ready:
			at(max(time.Duration(q.failed.first().key), r.health.nextFailed, r.store.retry))
		}
		if down && q.ready.len() > 0 {
			at(max(r.health.nextNew, r.store.retry))
			if oldest, ok := q.oldestAllowed(now); ok && r.health.probed() {
				at(now + time.Duration(q.ready.first().since-oldest)*time.Microsecond)
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

// tick is called by the timer.
func (r *receiver) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake = 0
	r.expire()
	r.dispatch()
}

// report records what an attempt shows about the receiver. Once the receiver has
// answered, failed deliveries wait like any other.
func (r *receiver) report(d *delivery, failure *notify.Error, probe bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if failure == nil || failure.Refused {
		for _, q := range r.queues {
			for _, failed := range q.failed.drain() {
				q.later.push(failed, failed.key)
			}
		}
		r.health.succeeded(failure == nil)
		r.dispatch()
		return
	}
	first := d.answered != r.health.answered // since the receiver last answered
	if first && d.answered >= 0 {
		d.ownFailures++
	}
	d.answered = r.health.answered
	suspect := first && d.ownFailures == 0 // else the fault may be the alert's own
	r.health.failed(r.worker.now(), failure, suspect, probe)
}

// letterDone records that a dead letter is no longer being written.
func (r *receiver) letterDone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing--
	r.dispatch()
}

func (r *receiver) state() ReceiverState {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := ReceiverState{Name: r.Name, Down: r.health.down, Taken: r.health.taken}
	state.Waiting = r.sending
	for _, q := range r.queues {
		state.Waiting += q.waiting()
	}
	if state.Down {
		state.Since, state.Err = r.worker.started.Add(r.health.since), r.health.failure
		state.Retry = r.nextAttempt()
	}
	return state
}

// nextAttempt returns the earliest time of the next attempt while r is probed; zero if one is
// under way. The caller holds r.mu.
func (r *receiver) nextAttempt() time.Time {
	if r.wake == 0 || r.probing {
		return time.Time{}
	}
	return r.worker.started.Add(r.wake)
}

// failure returns the receiver's last failure, nil if there was none. The caller holds r.mu.
func (r *receiver) failure() error {
	if r.health.failure == nil {
		return nil
	}
	return r.health.failure
}
