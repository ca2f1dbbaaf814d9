package delivery

import (
	"slices"
	"time"

	"alertworker/internal/throttle"
)

// A queue holds the deliveries of one Outbox to one receiver.
type queue struct {
	box *Outbox
	to  *receiver

	// Guarded by box.mu.
	deliveries map[Key]*delivery                 // all of them
	later      map[Key]*Notice                   // what is due once the delivery of its key has ended
	sharing    map[*delivery]map[string]struct{} // the devices whose readings have joined one that they share
	sharers    int                               // in all of them, at most maxSharers
	alerts     int                               // deliveries that hold what is settled

	// Guarded by to.mu.
	lines  [states]heapOf[*delivery] // those that wait, by state; none is attempting
	closed bool                      // nothing starts any more
}

// waiting returns how many deliveries wait to be sent, without those that wait for a window's end.
func (q *queue) waiting() int {
	return q.lines[ready].Len() + q.lines[pausing].Len() + q.lines[failed].Len()
}

// due reports whether the first delivery of a state whose keys are times is due.
func (q *queue) due(s state, now time.Duration) bool {
	return q.lines[s].Len() > 0 && q.lines[s].first().key <= int64(now)
}

// take removes and returns the first delivery of a state; there must be one. It is attempting then.
func (q *queue) take(s state) *delivery {
	d := q.lines[s].pop()
	d.waits(attempting, WaitAttempt, q.to.now())
	return d
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
		q.getReady(d)
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
		q.getReady(next)
	} else if n := q.later[d.Key]; n != nil {
		delete(q.later, d.Key)
		q.getReady(q.begin(d.Key, &n.Reading, n))
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

// suppressedHead counts d's head for the next alert.
func (q *queue) suppressedHead(d *delivery) {
	if d.Shared {
		q.gate(d).SuppressedShared(d.About, d.device(&d.head))
		return
	}
	q.gate(d).Suppressed(d.About, 1)
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

// close drops the deliveries that wait. Attempts under way end by themselves, in
// box.work, and their deliveries are then dropped unless they are settled.
func (q *queue) close() {
	r := q.to
	r.mu.Lock()
	q.closed = true
	r.queues = slices.DeleteFunc(r.queues, func(other *queue) bool { return other == q })
	var dropped []*delivery
	for i := range q.lines {
		for q.lines[i].Len() > 0 {
			dropped = append(dropped, q.take(state(i)))
		}
	}
	r.dispatch()
	r.mu.Unlock()
	for _, d := range dropped {
		d.end(OutcomeUnsettled)
	}
}

// follow has d, which is attempting, go on as v says.
func (q *queue) follow(d *delivery, v verdict) {
	switch {
	case v.outcome != "":
		q.settle(d, v.covers, v.outcome)
		return
	case v.state == ready:
		q.getReady(d)
		return
	case v.grows:
		v.pause = retryDelay(int(d.attempts))
	}
	q.box.mu.Lock()
	defer q.box.mu.Unlock()
	if d.due != nil && d.due.withdrawn {
		q.replace(d, throttle.Unneeded.String())
		return
	}
	q.wait(d, v.state, v.why, int64(q.to.now()+v.pause))
}

// getReady has d wait for its turn.
func (q *queue) getReady(d *delivery) { q.wait(d, ready, WaitTurn, 0) }

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

// push does what wait does, on a queue that is not closed. The caller holds to.mu.
func (q *queue) push(d *delivery, s state, why Wait, key int64) {
	d.waits(s, why, q.to.now())
	d.key = key
	if s == ready {
		d.key = d.order()
	}
	q.lines[s].add(d)
}

// wake has the deliveries that are pausing for a reason attempted in their turn.
func (q *queue) wake(why Wait) {
	r := q.to
	r.mu.Lock()
	defer r.mu.Unlock()
	var woken []*delivery
	for _, d := range q.lines[pausing].all {
		if d.wait == why {
			woken = append(woken, d)
		}
	}
	for _, d := range woken {
		q.lines[pausing].remove(d)
		q.push(d, ready, WaitTurn, 0)
	}
	r.dispatch()
}

// withdraw takes d, which waits, out of its line. It reports false if d is being
// attempted. The caller holds box.mu.
func (q *queue) withdraw(d *delivery) bool {
	q.to.mu.Lock()
	defer q.to.mu.Unlock()
	if d.state == attempting {
		return false
	}
	q.lines[d.state].remove(d)
	d.waits(attempting, WaitAttempt, q.to.now())
	q.to.dispatch()
	return true
}

// giveUp has d, which waits, become a dead letter. The caller holds to.mu.
func (q *queue) giveUp(d *delivery, why cause, now time.Duration) {
	q.lines[d.state].remove(d)
	d.cause = why
	q.push(d, givenUp, WaitDeadLetter, int64(now))
}

// oldestAllowed returns the time, in Unix µs by the hub's clock, at or before which a
// reading is too old to wait any longer; false if it is not known yet. It is an
// estimate, from the store's clock when the store last answered and our monotonic
// clock since: the store is asked before a dead letter is written. Readings that do not come from the hub
// have this machine's time.
func (q *queue) oldestAllowed(now time.Duration) (int64, bool) {
	store, giveUp := q.to.store, q.to.GiveUp
	switch {
	case !q.box.FromHub:
		return time.Now().Add(-giveUp).UnixMicro(), true
	case store.clock.IsZero():
		return 0, false
	}
	return store.clock.Add(now - store.answeredAt - giveUp).UnixMicro(), true
}
