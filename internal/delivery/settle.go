package delivery

import "alertworker/internal/throttle"

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
	q.follows(d, r)

	return d
}

// follows has a trace follow d, which begins with the reading r, if deliveries are traced.
func (q *queue) follows(d *delivery, r *Reading) {
	if q.box.dispatcher.config.Trace == nil {
		return
	}

	of := d.of(r)
	d.trace = &tracked{Trace: q.box.dispatcher.config.Trace(Start{
		AlertID:   q.id(d, r),
		Device:    of.Device,
		Sensor:    of.Name,
		Rule:      d.subject.Topic.Message.Rule,
		Level:     d.subject.Topic.Message.Level,
		Recovery:  d.recovers(),
		Receiver:  q.to.to.Name,
		Partition: q.box.account.Name,
		FromHub:   q.box.account.FromHub,
		Sequence:  r.Sequence,
		Enqueued:  fromMicros(r.Enqueued),
	})}
}

// hold has d hold the place before a reading, the next after the place before. The caller holds box.mu.
func (q *queue) hold(d *delivery, r *Reading, before Place) {
	q.box.held.Add(&d.held, before, r.Enqueued)
}

// release ends what d holds, if it does. The caller holds box.mu.
func (q *queue) release(d *delivery) { q.box.held.Release(&d.held) }

// settle settles d's head, and ends d unless the latest reading that joined is not
// covered. That one then becomes the head and is held instead.
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
	case d.joined > 0 && !covers(&d.latest):
		q.promoteLatest(d)

	default:
		q.suppressed(d)
		q.replace(d, outcome)
	}

	q.box.mu.Unlock()
	q.box.account.Owner.Settled(d.subject, done)
}

// promoteLatest makes the latest reading that joined d its head, which d holds instead. The caller holds box.mu.
func (q *queue) promoteLatest(d *delivery) {
	q.release(d)
	//planted:promoted-holds-nothing skip
	q.hold(d, &d.latest, d.latestBefore)
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
}

// replace ends d, and starts what follows: of a notice that was due, an alert about the readings that have joined; else
// a notice that has become due since. The caller holds box.mu.
func (q *queue) replace(d *delivery, outcome string) {
	delete(q.deliveries, d.subject)
	q.release(d)

	switch later := q.later[d.subject]; {
	case d.notice != nil && d.joined > 0:
		next := q.begin(d.subject, &d.latest, nil) // the alert about the readings that have joined
		next.reminder = d.reminder
		next.suppressed = d.joined - 1
		q.hold(next, &d.latest, d.latestBefore)
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
		q.hold(d, r, a.Before)
	}

	d.join(r, a.Before)
	//planted:news-wait-as-reminders if first
	if first || d.reminder && !a.Reminder {
		q.reminds(d, a.Reminder)
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

// reminds sets whether d is a reminder, by what has joined it, and so its turn. The caller holds box.mu.
func (q *queue) reminds(d *delivery, reminder bool) {
	q.to.mu.Lock()
	defer q.to.mu.Unlock()
	d.reminder = reminder
	if d.state == ready {
		q.lines[ready].remove(d)
		q.push(d, ready, d.wait, 0)
	}
}

// follow has d, which is attempting, go on as v says.
func (q *queue) follow(d *delivery, v verdict) {
	if v.outcome != "" {
		q.settle(d, v.covers, v.outcome)
		return
	}

	if v.grows {
		v.pause = retryDelay(int(d.attempts))
	}

	if v.err != nil {
		q.box.warn(q.waitText(d, v.why), v.err)
	}

	q.box.mu.Lock()
	defer q.box.mu.Unlock()

	//planted:withdrawn-tried-again if false
	if d.notice != nil && d.notice.withdrawn {
		q.replace(d, throttle.Unneeded.String())
		return
	}

	if v.state == ready {
		v.why = WaitTurn
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

	q.push(d, s, why, key)
	r.dispatch()
}
