package worker

import (
	"slices"
	"time"

	"alertworker/internal/throttle"
)

// A queue holds the deliveries of one stream to one receiver.
type queue struct {
	stream *stream
	to     *receiver

	deliveries map[alarmKey]*delivery // all of them; guarded by stream.mu
	alerts     int                    // of them, those that hold the watermark; likewise

	// A waiting delivery is in one of these; guarded by to.mu.
	ready  schedule // waits for its turn; by the age of its reading
	later  schedule // waits for another replica's claim to end, or for the store; by the time of the next attempt
	failed schedule // has failed since the receiver last answered; by the earliest time of the next attempt
	dead   schedule // is to become a dead letter; by the time of the next attempt at that
	window schedule // tells that a device is normal again, and waits for the end of its window
	closed bool     // nothing starts any more
}

// waiting returns how many deliveries wait to be sent, without those that wait for a window's end.
func (q *queue) waiting() int { return q.ready.len() + q.later.len() + q.failed.len() }

// close drops the deliveries that wait. Attempts under way end by themselves, in
// stream.work, and their deliveries are then dropped unless they are settled.
func (q *queue) close() {
	r := q.to
	r.mu.Lock()
	q.closed = true
	r.queues = slices.DeleteFunc(r.queues, func(other *queue) bool { return other == q })
	var dropped []*delivery
	for _, in := range []*schedule{&q.ready, &q.later, &q.failed, &q.dead, &q.window} {
		dropped = append(dropped, in.drain()...)
	}
	r.dispatch()
	r.mu.Unlock()
	for _, d := range dropped {
		q.end(d, OutcomeUnsettled)
	}
}

// wait puts d into one of q's schedules, under key. It drops d if q is closed.
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

// waitTurn puts d among those that are ready to be sent.
func (q *queue) waitTurn(d *delivery) { q.wait(d, &q.ready, d.since) }

// withdraw takes d, which waits, out of its schedule. It reports false if d does not wait but
// belongs to an attempt. The caller holds stream.mu.
func (q *queue) withdraw(d *delivery) bool {
	q.to.mu.Lock()
	defer q.to.mu.Unlock()
	for _, in := range []*schedule{&q.ready, &q.later, &q.failed, &q.dead, &q.window} {
		if in.place == d.in {
			in.remove(d)
			q.to.dispatch()
			return true
		}
	}
	return false
}

// pause puts d into one of q's schedules for a time.
func (q *queue) pause(d *delivery, in *schedule, pause time.Duration) {
	if d.owed != nil {
		s := q.stream
		s.mu.Lock()
		defer s.mu.Unlock()
		if !q.stillOwed(d) {
			q.replace(d, throttle.Unneeded.String())
			return
		}
	}
	q.wait(d, in, int64(q.to.worker.now()+pause))
}

// giveUp schedules d, which has been waiting, to become a dead letter. The caller
// holds to.mu.
func (q *queue) giveUp(d *delivery, why cause, now time.Duration) {
	d.givenUp = why
	q.dead.push(d, int64(now))
}

// oldestAllowed returns the time, in Unix µs by the hub's clock, at or before which a
// reading is too old to wait any longer; false if it is not known yet. It is an
// estimate, from the store's clock when the store last answered and our monotonic
// clock since: the store is asked before a dead letter is written. Readings of an
// Intake have this machine's time.
func (q *queue) oldestAllowed(now time.Duration) (int64, bool) {
	store, giveUp := q.to.store, q.to.worker.GiveUp
	switch {
	case q.stream.partition == nil:
		return time.Now().Add(-giveUp).UnixMicro(), true
	case store.clock.IsZero():
		return 0, false
	}
	return store.clock.Add(now - store.answeredAt - giveUp).UnixMicro(), true
}

// gateAnswered records the outcome of asking the gate about d. sent says that this
// ends an attempt.
func (q *queue) gateAnswered(d *delivery, result throttle.Result, probe, sent bool) {
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
	case result.Outcome == throttle.Busy && result.Now.IsZero(): // from memory: nobody was asked
	case result.Outcome != throttle.Unavailable:
		r.store.answered(now, result.Now)
	case q.stream.send.Err() == nil: // else we cancelled the call
		r.store.failed(now, !d.unanswered, probe)
	}
	d.unanswered, d.busy = result.Outcome == throttle.Unavailable, result.Outcome == throttle.Busy
	r.dispatch()
}
