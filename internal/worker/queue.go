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

	deliveries map[deliveryKey]*delivery         // all of them; guarded by stream.mu
	sharing    map[*delivery]map[string]struct{} // the devices whose readings have joined one that they share; likewise
	sharers    int                               // in all of them, at most maxSharers; likewise
	alerts     int                               // of them, those that hold the watermark; likewise

	lines  [states]heapOf[*delivery] // those that wait, by state; none is attempting. Guarded by to.mu
	closed bool                      // nothing starts any more; likewise
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
	d.state = attempting
	return d
}

// begin returns a new delivery about the reading r: of the due notice n, or of an alert if
// that is nil. It must be made to wait. The caller holds stream.mu.
func (q *queue) begin(key deliveryKey, r reading, n *dueNotice) *delivery {
	s := q.stream
	d := &delivery{deliveryKey: key, due: n}
	d.start(r)
	if n != nil && n.opened > 0 {
		d.tries.since = n.opened
	}
	q.deliveries[key] = d
	if s.Trace != nil {
		d.trace = &tracked{Trace: s.Trace(Start{
			AlertID: s.alertID(d, r), Device: d.deviceOf(r), Rule: key.level.rule.Name, Level: key.level.Name,
			Recovery: d.recovers(), Receiver: q.to.Name,
			Partition: s.id, FromHub: s.partition != nil, Sequence: r.sequence, Enqueued: fromMicros(r.enqueued),
		})}
	}
	return d
}

// hold has d hold the watermark before a reading, the next after the place before. The caller holds stream.mu.
func (q *queue) hold(d *delivery, r reading, before place) {
	q.stream.mark.admit(&d.entry, before, r.enqueued)
	q.alerts++
}

// letGo ends d's hold of the watermark, if it has one. The caller holds stream.mu.
func (q *queue) letGo(d *delivery) {
	if d.entry.index > 0 {
		q.stream.mark.settle(&d.entry)
		q.alerts--
		signal(q.stream.room)
	}
}

// schedule does what follows from a change of the notice that is due of a device's level: a delivery of one that is
// not due any more ends, unless it is being attempted, and one of a new one starts, unless the device has a
// delivery that must end before, or the notice waits. The caller holds stream.mu.
func (q *queue) schedule(key alarmKey) {
	due := q.stream.alarms.of[key].due
	if b := q.stream.backtest; b != nil {
		b.schedule(q, key, due)
		return
	}
	d := q.deliveries[key.notices()]
	if d != nil && d.due != nil && d.due != due && q.withdraw(d) {
		q.replace(d, throttle.Unneeded.String())
		return
	}
	if d == nil && due != nil && due.receivers&q.to.bit() != 0 && !q.stream.behind && !due.waits(key.level) {
		q.getReady(q.begin(key.notices(), due.reading, due))
	}
}

// stillPending reports whether the notice that d brings is due. The caller holds stream.mu.
func (q *queue) stillPending(d *delivery) bool {
	return q.stream.alarms.of[d.alarm()].due == d.due
}

// settle settles d's head, and ends d unless the latest reading that joined is not
// covered. That one then becomes the head and holds the watermark instead.
func (q *queue) settle(d *delivery, covers func(reading) bool, outcome string) {
	s := q.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case d.due != nil:
		s.settleDue(d, q.to.bit())
		q.replace(d, outcome)
	case d.joined > 0 && !covers(d.latest):
		q.letGo(d)
		q.hold(d, d.latest, d.latestBefore)
		d.start(d.latest)
		d.suppressed, d.joined = d.suppressed+d.joined-1, 0
		q.getReady(d)
	default:
		q.suppressed(d)
		delete(q.deliveries, d.deliveryKey)
		q.letGo(d)
		if s.alarms != nil && !d.shared {
			q.schedule(d.alarm())
		}
		d.end(outcome)
	}
}

// suppressed counts for the next alert the readings that d has suppressed besides its head, or the devices if they
// share it. The caller holds stream.mu.
func (q *queue) suppressed(d *delivery) {
	if !d.shared {
		q.gate(d).Suppressed(d.about, int64(d.suppressed)+int64(d.joined))
		return
	}
	for device := range q.sharing[d] {
		q.gate(d).SuppressedShared(d.about, device)
	}
	q.sharers -= len(q.sharing[d])
	delete(q.sharing, d)
}

// suppressedHead counts d's head for the next alert.
func (q *queue) suppressedHead(d *delivery) {
	if d.shared {
		q.gate(d).SuppressedShared(d.about, d.deviceOf(d.head))
		return
	}
	q.gate(d).Suppressed(d.about, 1)
}

// maxSharers bounds the devices that alerts are to count while others of what they share are under way.
const maxSharers = 65_536

// join has a reading join d, the next after the place before. The caller holds stream.mu.
func (q *queue) join(d *delivery, r reading, before place) {
	if d.entry.index == 0 {
		q.hold(d, r, before)
	}
	d.join(r, before)
	if !d.shared {
		return
	}
	devices := q.sharing[d]
	if devices == nil {
		devices = map[string]struct{}{}
		q.sharing[d] = devices
	}
	if _, known := devices[r.more.device]; !known && q.sharers < maxSharers {
		devices[r.more.device] = struct{}{}
		q.sharers++
	}
}

// replace ends d, which brought a due notice or is not to bring it any more, and starts what follows: an alert
// about the readings that have joined, or a notice that has become due since. The caller
// holds stream.mu.
func (q *queue) replace(d *delivery, outcome string) {
	delete(q.deliveries, d.deliveryKey)
	q.letGo(d)
	if d.joined > 0 {
		next := q.begin(d.deliveryKey, d.latest, nil)
		next.suppressed, next.ended = d.joined-1, d.ended
		d.ended = nil
		q.hold(next, d.latest, d.latestBefore)
		q.getReady(next)
	} else {
		q.schedule(d.alarm())
	}
	d.end(outcome)
}

// settleDue records that a receiver has settled the due notice that d brings. The caller holds s.mu.
func (s *stream) settleDue(d *delivery, receiver uint32) {
	r := d.due
	if r.receivers &^= receiver; r.receivers != 0 {
		return
	}
	if k := s.alarms.of[d.alarm()]; k.due == r {
		k.due = nil
		s.alarms.set(d.alarm(), k)
	}
	s.alarms.history.settle(d.alarm(), r)
}

// close drops the deliveries that wait. Attempts under way end by themselves, in
// stream.work, and their deliveries are then dropped unless they are settled.
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

// wait puts d, which is attempting, into another state, under key, which does not matter to ready. It drops d if q is
// closed.
func (q *queue) wait(d *delivery, s state, key int64) {
	r := q.to
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.closed {
		d.end(OutcomeUnsettled)
		return
	}
	q.push(d, s, key)
	r.dispatch()
}

// push does what wait does, on a queue that is not closed. The caller holds to.mu.
func (q *queue) push(d *delivery, s state, key int64) {
	d.state, d.key = s, key
	if s == ready {
		d.key = d.order()
	}
	q.lines[s].add(d)
}

// getReady has d wait for its turn.
func (q *queue) getReady(d *delivery) { q.wait(d, ready, 0) }

// pause has d wait for a time, unless it brings a notice that is not due any more.
func (q *queue) pause(d *delivery, in state, pause time.Duration) {
	if d.due != nil {
		s := q.stream
		s.mu.Lock()
		defer s.mu.Unlock()
		if !q.stillPending(d) {
			q.replace(d, throttle.Unneeded.String())
			return
		}
	}
	q.wait(d, in, int64(q.to.worker.now()+pause))
}

// retry has d, which waits for why, be attempted again after a time.
func (q *queue) retry(d *delivery, why Wait, pause time.Duration) {
	d.why = why
	if d.cause != notGivenUp {
		q.pause(d, givenUp, pause)
		return
	}
	q.pause(d, pausing, pause)
}

// wake has the deliveries that are pausing for a reason attempted in their turn.
func (q *queue) wake(why Wait) {
	r := q.to
	r.mu.Lock()
	defer r.mu.Unlock()
	var woken []*delivery
	for _, d := range q.lines[pausing].all {
		if d.why == why {
			woken = append(woken, d)
		}
	}
	for _, d := range woken {
		q.lines[pausing].remove(d)
		q.push(d, ready, 0)
	}
	r.dispatch()
}

// withdraw takes d, which waits, out of its line. It reports false if d is being
// attempted. The caller holds stream.mu.
func (q *queue) withdraw(d *delivery) bool {
	q.to.mu.Lock()
	defer q.to.mu.Unlock()
	if d.state == attempting {
		return false
	}
	q.lines[d.state].remove(d)
	d.state = attempting
	q.to.dispatch()
	return true
}

// giveUp has d, which waits, become a dead letter. The caller holds to.mu.
func (q *queue) giveUp(d *delivery, why cause, now time.Duration) {
	q.lines[d.state].remove(d)
	d.cause = why
	q.push(d, givenUp, int64(now))
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
