package delivery

import (
	"cmp"
	"slices"
	"time"

	"alertworker/internal/notify"
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
	taken      map[Key]notify.Alert              // the last of each alarm that a receiver took that forgets: see Refresh

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

// full reports whether maxGivenUp dead letters are not written; while they cannot be, what the receiver is about to be
// asked about counts too, because it may refuse that as it did the others.
func (q *queue) full() bool {
	q.to.mu.Lock()
	defer q.to.mu.Unlock()
	letters := q.lines[givenUp].Len() + q.writing
	//planted:full-too-late if false
	if q.unwritable && !q.to.probed() {
		letters += q.waiting() + q.to.trying
	}

	return letters >= maxGivenUp
}

// isReady reports whether a delivery waits for its turn.
func (q *queue) isReady() bool { return q.lines[ready].Len() > 0 }

// mayGo reports whether a delivery waits for its turn, or to be tried again in it.
func (q *queue) mayGo() bool { return q.lines[ready].Len()+q.lines[awaitsReceiver].Len() > 0 }

// isDue reports whether the first delivery of a state whose keys are times is due.
func (q *queue) isDue(s state, now time.Duration) bool {
	return q.lines[s].Len() > 0 && q.lines[s].first().key <= int64(now)
}

// take removes and returns the first delivery of a state; there must be one. It is attempting then.
func (q *queue) take(s state) *delivery {
	d := q.lines[s].pop()
	d.waits(attempting, WaitAttempt, q.to.dispatcher.now())
	return d
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

// push puts d into a line, under key, which does not matter to ready. q is not closed, and d is in no line. The caller
// holds to.mu.
func (q *queue) push(d *delivery, s state, why Wait, key int64) {
	d.waits(s, why, q.to.dispatcher.now())
	d.key = key
	if s == ready {
		if d.number == 0 { // the next, which is no further ahead of the last that went than deliveries wait
			gone := q.to.gone
			q.last = max(gone, min(q.last, gone+int64(q.lines[ready].Len()))+1)
			d.number = q.last
		}
		d.key = d.turn()
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
	d.waits(attempting, WaitAttempt, q.to.dispatcher.now())
	q.to.dispatch()

	return true
}

// giveUp has d, which waits, become a dead letter. The caller holds to.mu.
func (q *queue) giveUp(d *delivery, why cause, now time.Duration) {
	q.lines[d.state].remove(d)
	d.dead = &deadLetter{cause: why}
	q.push(d, givenUp, WaitDeadLetter, int64(now))
}

// least returns the oldest delivery of those that matter least, of the first state in which any wait to be sent. There
// must be one.
func (q *queue) least() *delivery {
	line := pausing

	switch {
	case q.isReady():
		line = ready
	case q.lines[awaitsReceiver].Len() > 0:
		line = awaitsReceiver
	}

	return slices.MaxFunc(q.lines[line].all, func(a, b *delivery) int {
		return cmp.Or(cmp.Compare(a.class(), b.class()), cmp.Compare(b.since, a.since))
	})
}

// cancelled reports whether we end attempts, whose results say nothing about others then.
func (q *queue) cancelled() bool { return q.box.sending.Err() != nil }

// gate returns the gate that d has to pass.
func (q *queue) gate(d *delivery) Gate { return d.subject.Topic.Gates[q.to.index] }
