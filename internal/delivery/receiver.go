package delivery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"alertworker/internal/notify/pace"
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
	to         Receiver
	dispatcher *Dispatcher
	index      int // among the dispatcher's receivers
	places     int // for messages, as far as its pace allows

	mu        sync.Mutex
	queues    []*queue // one for each outbox
	gone      int64    // the highest number of a delivery that was attempted: see next
	pace      *pace.Pace
	messages  int  // under way, from the first claim to the last record
	sending   int  // deliveries in them
	trying    int  // and those of which it is not known yet how they go on
	writing   int  // dead letters being written
	probing   bool // whether a probe is under way
	breaker   breaker
	shortfall shortfall
	answers   uint32        // messages that it took or refused for good, and 1
	taken     int64         // alerts that it took
	takenAt   time.Duration // the last of them
	failure   error         // the last
	turn      turn
	looked    time.Duration // when what is too old was looked for
	timer     *time.Timer
	wake      time.Duration // when timer calls dispatch, by the worker's clock; 0 if it is stopped

	// Of the throttle store.
	store   breaker
	clock   time.Time     // its clock at clockAt; zero if it is not known
	clockAt time.Duration // by the dispatcher's
}

// dispatch starts every attempt that may start now, gives up what has waited too long or in too long a queue, and sets the
// timer for the next time at which it may have something to do. The caller holds r.mu.
func (r *receiver) dispatch() {
	now := r.dispatcher.now()

	// What has waited for a time, or for a window, is ready.
	for _, s := range [...]state{pausing, awaitsWindow} {
		for d := r.first(s); d != nil && d.key <= int64(now); d = r.first(s) {
			d.move(ready, WaitTurn, 0)
		}
	}

	for r.start(now) {
	}

	r.look(now)

	// What has waited for too long is given up, whatever it waits for and whether or not it was ever tried. What is too old
	// is an estimate, from the store's clock when the store last answered and our monotonic clock since: the store is asked
	// before a dead letter is written.
	//planted:age-asked-while-probed if now-r.looked >= lookEvery && r.breaker.probed()
	if now-r.looked >= lookEvery {
		r.looked = now
		oldest := r.clock.Add(now - r.clockAt - r.dispatcher.config.GiveUp).UnixMicro() // by the hub's clock; long ago if that is not known
		for _, q := range r.queues {
			for _, d := range q.toSend() {
				if d.since <= oldest {
					d.giveUp(tooOld, now)
				}
			}
		}
	}

	// Where too many wait, the oldest of those that matter least are given up.
	for _, q := range r.queues {
		for q.waiting() > r.dispatcher.MaxWaiting {
			oldest := slices.MaxFunc(q.toSend(), func(a, b *delivery) int {
				return cmp.Or(cmp.Compare(a.class(), b.class()), cmp.Compare(b.since, a.since))
			})
			oldest.giveUp(tooMany, now)
		}
	}

	// Dead letters have attempts of their own.
	storeDown := r.store.probed()
	for r.writing < r.dispatcher.config.Concurrency {
		d := r.first(givenUp)
		if d == nil || d.key > int64(now) || storeDown && (r.probing || now < r.store.next) {
			break
		}

		r.writing++
		d.q.writing++
		d.move(attempting, WaitAttempt, 0)
		a := attempt{d: d, probe: storeDown && d.dead.alert == nil}
		r.probing = r.probing || a.probe
		d.q.box.work.Go(a.makeLetter)
	}

	// The timer may come in vain. A delivery that is due already waits for an attempt to end, which calls dispatch too.
	r.wake = 0
	wakeAt := func(t time.Duration) {
		if t > now && (r.wake == 0 || t < r.wake) {
			r.wake = t
		}
	}

	for _, s := range [...]state{pausing, awaitsWindow, awaitsReceiver, givenUp} {
		if d := r.first(s); d != nil {
			wakeAt(time.Duration(d.key))
		}
	}

	wakeAt(r.nextProbe())
	wakeAt(r.store.next)
	if slices.ContainsFunc(r.queues, func(q *queue) bool { return q.waiting() > 0 }) {
		wakeAt(r.looked + lookEvery)
		wakeAt(r.pace.Next())
		wakeAt(r.turn.next)
		wakeAt(r.turn.since + pace.Farthest)
	}

	if r.wake == 0 {
		r.timer.Stop()
	} else {
		r.timer.Reset(r.wake - now)
	}
}

// start starts the next message, if one may go now.
func (r *receiver) start(now time.Duration) bool {
	if r.messages >= r.pace.Places(r.places) || r.pace.Next() > now {
		return false
	}

	d := r.next(now)
	if d == nil {
		return false
	}

	// If replicas take turns, and it is not known that this one may go, that is asked for. A message that is full, or a probe of
	// a receiver that is down, waits for nobody, and none waits for longer than the longest pause.
	t, probe := &r.turn, r.probed()
	if r.to.Turns != nil && !r.full() && !probe && now >= t.until && (!t.waits || now-t.since < pace.Farthest) {
		if !t.waits {
			t.waits, t.since = true, now
		}

		if !t.asking && now >= t.next {
			t.asking = true
			q := d.q
			q.box.work.Go(func() { r.askTurn(q) })
		}
		return false
	}

	// Some deliveries go by themselves, and so does a probe.
	m := &message{to: r, began: now}
	for d != nil {
		d.move(attempting, WaitAttempt, 0)
		r.gone = max(r.gone, d.number)
		m.attempts = append(m.attempts, attempt{d: d, message: m, probe: probe})
		d.q.box.work.Add(1)
		if probe || d.sendAlone || len(m.attempts) >= r.to.Limits.Batch {
			break
		}

		if d = r.next(now); d != nil && d.sendAlone {
			break
		}
	}

	m.left = len(m.attempts)
	r.messages++
	r.sending += m.left
	r.trying += m.left
	r.probing = r.probing || probe
	r.pace.Begin(now)
	t.until, t.waits, t.used = 0, false, now
	go m.deliver()

	return true
}

// full reports whether the next message has no room for what becomes ready while it waits.
func (r *receiver) full() bool {
	waiting := 0
	for _, q := range r.queues {
		line := q.lines[ready].all
		if len(line) > 0 && line[0].sendAlone {
			return true
		}

		waiting += len(line)
	}

	return waiting >= r.to.Limits.Batch
}

// probed reports whether the receiver or the store seems to be down, so that only one
// attempt may be under way.
func (r *receiver) probed() bool { return r.breaker.probed() || r.store.probed() }

// next returns the delivery to attempt now, nil if there is none.
//
// This is where it is said whose turn it is: that of the delivery with the lowest turn, which is its number and, for
// its class, so many times worth. It gets its number when it begins to wait, and keeps it until it is sent, or refused
// for rate: one more than the last of its owner, or than the last that went if that is higher. So owners take turns,
// classes age, and nobody waits for ever: before a delivery go only those that waited when it came and, of each owner,
// as many later ones as its class times worth, the deliveries of its own owner that waited then, and two. A first alert
// goes before every reminder of its owner that becomes due after it, and of another owner before the third of any device,
// unless more than 3 × 16 × worth of its owner wait before it. One that is given up or withdrawn leaves its turn to
// another of its owner.
//
// While the receiver or the store seems to be down only probes go: see breaker.
func (r *receiver) next(now time.Duration) *delivery {
	probed := r.probed()
	//planted:probes-go-together if probed && now < r.nextProbe()
	if probed && (r.probing || now < r.nextProbe()) {
		return nil
	}

	fresh, again := r.first(ready), r.first(awaitsReceiver)
	if again != nil && again.key <= int64(now) && (fresh == nil || !probed && again.turn() < fresh.turn()) {
		return again
	}

	return fresh
}

// nextProbe returns the earliest time of the next probe: with an alert that has not failed, if there is one.
func (r *receiver) nextProbe() time.Duration {
	if r.first(ready) != nil {
		return max(r.breaker.nextNew, r.store.next)
	}
	return max(r.breaker.next, r.store.next)
}

// first returns the first delivery of a state, nil if there is none.
func (r *receiver) first(s state) (first *delivery) {
	for _, q := range r.queues {
		if line := q.lines[s].all; len(line) > 0 && (first == nil || line[0].key < first.key) {
			first = line[0]
		}
	}

	return first
}

// storeTime returns the time by the store's clock, in Unix µs, as estimated by our monotonic clock since the
// store last answered; false if it has not yet.
func (r *receiver) storeTime() (int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clock.Add(r.dispatcher.now() - r.clockAt).UnixMicro(), !r.clock.IsZero()
}

// Accepted says that a receiver has just accepted something from another replica. If it is down here it is asked at
// once: neither the pause between probes nor one that it asked for holds any more.
func (dp *Dispatcher) Accepted(name string) {
	for _, r := range dp.receivers {
		if r.to.Name != name {
			continue
		}

		r.mu.Lock()
		if o, down := r.outage(); down && o.fault != ReceiverRejects {
			now := dp.now()
			r.pace.Retry(now)
			r.breaker.next, r.breaker.nextNew = min(r.breaker.next, now), min(r.breaker.nextNew, now)
			if d := r.first(awaitsReceiver); d != nil {
				d.move(awaitsReceiver, d.wait, min(d.key, int64(now)))
			}
			r.dispatch()
		}
		r.mu.Unlock()
	}
}

const (
	askTurnFor = 5 * time.Second
	turnLasts  = 5 * time.Second // what is not used by then is asked for again
	yieldsPart = 15              // of the time until the longest pause is over
)

// A turn is what a receiver knows of which replica's turn it is. Times are by the dispatcher's clock. It is
// guarded by receiver.mu.
type turn struct {
	asking bool
	until  time.Duration // it is ours
	next   time.Duration // when it may be asked for again
	waits  bool          // a message waits for it
	since  time.Duration // if so: since when
	used   time.Duration // when our last message went; long ago if none did
}

// askTurn takes the turn for q, if it is ours.
func (r *receiver) askTurn(q *queue) {
	ctx, cancel := context.WithTimeoutCause(q.box.sending, askTurnFor, fmt.Errorf("no answer within %v", askTurnFor))
	defer cancel()
	wait, err := r.to.Turns.Take(ctx)

	r.mu.Lock()
	defer r.mu.Unlock()
	now, t := r.dispatcher.now(), &r.turn
	t.asking = false
	if q.box.sending.Err() != nil { // another owner asks for itself
		r.dispatch()
		return
	}

	pauses := max(0, t.used+pace.Farthest-now) // until the longest pause is over
	if err != nil {                            // alone, after that
		wait = pauses
	}

	if wait > 0 { // whoever has not sent for longer goes first
		wait += pauses / yieldsPart
	} else {
		t.until = now + turnLasts
	}

	t.next = now + wait
	if t.waits {
		t.next = min(t.next, t.since+pace.Farthest)
	}
	r.dispatch()
}
