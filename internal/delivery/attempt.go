package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

const (
	storeCalls = 16              // at a time, about the notices of a message
	gathering  = 2 * time.Second // after the first claim, no further one is made for a message

	// of one alert, each after the receiver has answered about others, and with an answer about the message
	ownFailuresToGiveUp = 8
)

// A message brings the notices of some deliveries to a receiver; often there is only one.
type message struct {
	to       *receiver
	began    time.Duration // by the dispatcher's clock
	attempts []attempt     // at each of the deliveries
	left     int           // of them, that have not ended; guarded by receiver.mu
	claimed  []*attempt    // those whose notices are in it; deliver's until it goes, then nobody changes it

	joins chan *attempt // to claimed, until it goes
	gone  chan struct{} // closed then
}

// An attempt is one to bring a delivery's notice to its receiver, in a message; or to write its dead letter, unless a window
// covers the notice already.
type attempt struct {
	d       *delivery
	message *message // nil if it is about a dead letter
	probe   bool

	claim   *throttle.Claim // nil if the key was not claimed
	result  throttle.Result // of the claim that was not made, or of the one that was settled
	err     error           // of the gate
	alert   notify.Alert    // the notice, once the key was claimed
	barred  error           // why it was not claimed, or not sent although it was; nil if nothing barred it
	failure *notify.Error   // the receiver's answer; nil if it took the notice
}

// A verdict says how a delivery goes on.
type verdict struct {
	outcome string              // not empty: its head is settled
	covers  func(*Reading) bool // then: which of the readings that joined are settled too; nil: none

	// Else what it waits for, and how long; ready has no time. What was given up stays so instead of pausing.
	state state
	why   Wait
	pause time.Duration
	err   error // why, if that may affect every delivery: it is logged
}

var errLate = errors.New("the message went before the notice was claimed")

func coversAll(*Reading) bool { return true }

// deliver makes the attempts of m: it claims each key, sends the notices in one message, and settles each claim as the
// receiver has answered.
//
// The message goes once all are claimed that can be. It waits no longer than gathering after the first claim, nor than half
// the time that the claim of any of them leaves, so that a slow store leaves the receiver time to answer. What is claimed
// later is given back, and waits for its turn again.
func (m *message) deliver() {
	m.joins, m.gone = make(chan *attempt), make(chan struct{})
	ended := make(chan struct{}) // all claims, or attempts at one
	go func() {
		defer close(ended)
		inParallel(len(m.attempts), func(i int) {
			if a := &m.attempts[i]; !a.claimKey() {
				a.finish()
			}
		})
	}()

	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	var goes time.Time // once anything has joined: when it goes at the latest
	for open := true; open; {
		select {
		case a := <-m.joins:
			if len(m.claimed) == 0 {
				goes = time.Now().Add(gathering)
			}

			m.claimed = append(m.claimed, a)
			if half := time.Now().Add(time.Until(a.claim.Grant.SendBy) / 2); half.Before(goes) {
				goes = half
			}
			timer.Reset(time.Until(goes))
		case <-timer.C:
			open = false
		case <-ended:
			open = false
		}
	}
	close(m.gone)

	if len(m.claimed) > 0 {
		err := m.send()
		inParallel(len(m.claimed), func(i int) {
			m.claimed[i].settle(err)
			m.claimed[i].finish()
		})
	}

	<-ended
}

// inParallel calls do for 0 to n-1, for storeCalls of them at a time.
func inParallel(n int, do func(int)) {
	var all errgroup.Group
	all.SetLimit(storeCalls)
	for i := range n {
		all.Go(func() error {
			do(i)
			return nil
		})
	}

	_ = all.Wait()
}

// claimKey claims the key of a's delivery, and reports whether its notice goes. It composes the notice once there is a
// claim, which is given back if something bars the notice.
func (a *attempt) claimKey() bool {
	d, m, box := a.d, a.message, a.d.q.box
	if m != nil {
		select {
		case <-m.gone:
			a.barred = errLate
		default:
		}
	}

	if a.barred == nil {
		a.barred = box.account.Owner.MayClaim(d.subject, d.notice)
	}

	if a.barred != nil {
		a.result.Outcome = throttle.Busy
		return false
	}

	outcomes := &box.dispatcher.config.Stats.Outcomes
	a.claim, a.result, a.err = d.gate().Claim(box.sending, d.request(&d.head))
	if a.claim == nil {
		outcomes[a.result.Outcome].Add(1)
		return false
	}

	grant := a.claim.Grant
	a.alert = d.compose(grant)
	if d.dead == nil {
		asking, cancel := context.WithDeadline(box.sending, grant.SendBy)
		defer cancel()
		var incident *notify.Incident
		incident, a.barred = box.account.Owner.MaySend(asking, d.subject, d.notice, grant)
		a.alert.Incident = cmp.Or(incident, a.alert.Incident)
	}

	if d.dead == nil && a.barred == nil {
		select {
		case m.joins <- a:
			return true
		case <-m.gone:
			a.barred = errLate
		}
	}

	a.result, a.err = d.gate().Settle(box.sending, a.claim, throttle.NotTaken)
	if errors.Is(a.barred, errLate) { // it is no failure of the receiver
		a.result.Outcome = throttle.Busy
	}
	outcomes[a.result.Outcome].Add(1)

	return false
}

// send sends m to the receiver, which must answer so soon that the first claim still holds. It is cancelled once no owner
// wants it any more.
func (m *message) send() error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.claimed[0].d.q.box.sending))
	defer cancel()
	var owners atomic.Int64 // that want it
	owners.Store(int64(len(m.claimed)))
	var alerts []notify.Alert
	for _, a := range m.claimed {
		alerts = append(alerts, a.alert)
		stop := context.AfterFunc(a.d.q.box.sending, func() {
			if owners.Add(-1) == 0 {
				cancel()
			}
		})
		defer stop()
	}

	first := slices.MinFunc(m.claimed, func(a, b *attempt) int { return a.claim.Grant.SendBy.Compare(b.claim.Grant.SendBy) })
	ctx, end := first.claim.Grant.Sending(ctx)
	defer end()

	r := m.to
	r.mu.Lock()
	if !r.shortfall.inVain {
		r.shortfall.inVain, r.shortfall.since = true, r.dispatcher.now()
	}
	r.shortfall.asking++
	r.mu.Unlock()

	err := r.to.Notifier.Notify(ctx, alerts...)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.shortfall.asking--
	if !errors.Is(ctx.Err(), context.Canceled) { // by the owners, which says nothing about others
		r.answered(m, err)
	}

	return err
}

// answered records what the receiver's answer to m says about the receiver, as soon as there is one: what it accepted before
// it went down says nothing about it, however long the store then takes to record that. The caller holds r.mu.
func (r *receiver) answered(m *message, err error) {
	s, now, failure := &r.shortfall, r.dispatcher.now(), notify.AsError(err)
	isTaken := err == nil || failure.Left != "" // it may have taken it for its other recipients
	if err != nil && (!failure.Refused || isTaken) {
		r.failure = failure
	}

	switch {
	case isTaken || failure.Refused: // it works
		r.answers++
		r.breaker = breaker{}
		for d := r.first(awaitsReceiver); d != nil; d = r.first(awaitsReceiver) { // what failed waits like any other
			d.move(pausing, d.wait, d.key)
		}
		r.pace.Taken(now)
		if isTaken {
			r.taken += int64(len(m.claimed))
			r.takenAt = now
			*s = shortfall{asking: s.asking, inVain: s.asking > 0, since: now, waits: s.waits, looked: s.looked}
		} else if len(m.claimed) == 1 { // else it may be because of another one
			s.rejections.add(now)
			s.last = failure
			about := m.claimed[0].d.subject.About.Device
			if len(s.about) < failuresToGoDown && !slices.Contains(s.about, about) {
				s.about = append(s.about, strings.Clone(about))
			}
		}
	case failure.Limited:
		s.last = failure
		r.pace.Refused(now, m.began, failure.RetryAfter)
	default:
		s.last = failure
		s.failures.add(now)
		suspect := false // whether one of them did not go for the first time
		for _, a := range m.claimed {
			d := a.d
			switch d.failedAt {
			case 0:
				suspect = true
			case r.answers:
			default: // again, and the receiver has answered about others since: the fault may be its own
				//planted:failure-takes-others skip
				d.sendAlone = true // the others in its message do not fail with it again
				if len(m.claimed) == 1 && failure.OwnFault() {
					d.ownFailures++
				}
			}
			d.failedAt = r.answers
		}
		r.breaker.failed(now, suspect, m.claimed[0].probe)
	}
}

// settle takes the receiver's answer to a's notice, and settles a's claim by it.
func (a *attempt) settle(err error) {
	d, q := a.d, a.d.q
	stats := q.box.dispatcher.config.Stats
	// Some of its recipients will never get the alert, while all others have. Until their dead letter is kept it is not
	// delivered.
	if failure := notify.AsError(err); err != nil && failure.Refused && failure.Left != "" {
		left := a.alert
		left.To = failure.Left
		if err = q.keep(q.box.sending, left, refusal(failure)); err != nil {
			err = &notify.Error{Left: failure.Left, Err: err}
		}
	}

	if a.alert.Ambiguous {
		stats.Ambiguous.Add(1)
	}

	q.box.mu.Lock()
	switch {
	case a.alert.Resolved: // nothing is open at the receiver any more, for all that is known: see Refresh
		delete(q.taken, d.subject)
	case err == nil && q.to.to.Limits.Forgets && !a.alert.Since.IsZero():
		q.taken[d.subject] = a.alert
	}
	q.box.mu.Unlock()

	answer := throttle.Taken
	if err == nil {
		d.suppressed = 0
		if a.alert.Resolved {
			d.subject.Topic.Recovered.Add(1)
		} else {
			d.subject.Topic.Sent.Add(1)
		}
	} else {
		a.failure = notify.AsError(err)
		if !a.failure.Limited { // else it is only sent too much
			d.attempts++
		}
		d.debug("alert not taken", zap.Uint16("attempt", d.attempts), zap.Bool("limited", a.failure.Limited), zap.Error(err))

		//planted:unknown-is-untaken answer = throttle.NotTaken; skip
		//planted:unknown-is-taken skip
		answer = throttle.Unknown
		if a.failure.Untaken || a.failure.Refused {
			answer = throttle.NotTaken
		}
	}

	a.result, a.err = d.gate().Settle(q.box.sending, a.claim, answer)
	stats.Outcomes[a.result.Outcome].Add(1)
}

// finish ends a, records what it has shown about the store, and has its delivery go on.
func (a *attempt) finish() {
	d, m, r := a.d, a.message, a.d.q.to
	r.mu.Lock()
	if m != nil { // the last one ends the message
		r.sending--
		if m.left--; m.left == 0 {
			r.messages--
			if len(m.claimed) == 0 {
				r.pace.Cancel()
			}
		}
	}

	if a.probe {
		r.probing = false
	}

	now := r.dispatcher.now()
	isUnavailable := a.result.Outcome == throttle.Unavailable
	switch {
	case a.result.Outcome == throttle.Busy && a.result.Now.IsZero(): // nobody was asked
	case !isUnavailable:
		r.store = breaker{}
		if !a.result.Now.IsZero() {
			r.clock, r.clockAt = a.result.Now, now
		}
	case d.q.box.sending.Err() == nil: // else we ended it, which says nothing about others
		r.store.failed(now, !d.unanswered, a.probe)
	}
	d.unanswered = isUnavailable
	r.dispatch()
	r.mu.Unlock()

	d.follow(a.conclude())

	if m != nil {
		r.mu.Lock()
		r.trying-- // it is known how d goes on
		r.look(r.dispatcher.now())
		r.mu.Unlock()
		d.q.box.work.Done()
	}
}

// conclude returns how a's delivery goes on.
func (a *attempt) conclude() verdict {
	d, q := a.d, a.d.q
	failed := a.result.Outcome == throttle.Failed
	switch {
	case errors.Is(a.barred, errLate):
		return verdict{state: ready, why: WaitTurn}
	case a.barred != nil: // until its owner lets it go
		d.failedBecause(a.barred)
		pause := q.box.account.Owner.Pause()
		if pause == 0 {
			d.attempts++
			pause = retryDelay(int(d.attempts))
		}
		return verdict{state: pausing, why: WaitOwner, pause: pause}
	case failed && d.dead != nil:
		return a.composeLetter()
	case failed:
		return a.failed()
	}

	d.failedBecause(a.err)
	d.debug("asked the gate about an alert", zap.Stringer("outcome", a.result.Outcome), zap.Error(a.err))
	v := verdict{outcome: a.result.Outcome.String()}
	if next := a.result.NextReminder(d.request(&d.head)); !next.IsZero() {
		d.head.more().Alarm.wait(q.to.index, next)
	}

	switch a.result.Outcome {
	case throttle.Sent:
		//planted:sent-covers-nothing skip
		v.covers = coversAll
	case throttle.Throttled:
		d.suppressedHead()
		//planted:window-covers-all v.covers = coversAll; skip
		v.covers = func(r *Reading) bool { return a.result.Covers(d.request(r)) }
	case throttle.Unconfirmed:
		q.to.dispatcher.Warn(q.box.account.Logger, "an alert was taken but its window is not recorded yet; if it is sent again within the window, "+
			"it has the same id", a.err)
		_ = d.gate().Confirm(q.box.settling, a.result) // the alert is delivered even if this fails
	case throttle.Busy:
		retry := time.Until(a.result.Retry)
		if !d.notice.recovers() && !d.subject.Topic.Incidents {
			return verdict{state: pausing, why: WaitClaim, pause: min(retry, minAskAgain+rand.N(maxAskAgain-minAskAgain))}
		}

		// A recovery waits for the window, and an alert of an incident for that of the one before.
		wait := max(retry, minAskAgain)
		if now, ok := q.to.storeTime(); ok {
			d.since = now + wait.Microseconds()
		}
		d.dead = nil
		return verdict{state: awaitsWindow, why: WaitWindow, pause: wait}
	case throttle.Unavailable:
		d.attempts++
		return verdict{state: pausing, why: WaitStore, pause: retryDelay(int(d.attempts)), err: a.err}
	}

	return v
}

// suppressedHead counts d's head, which needs no alert, for the next one.
func (d *delivery) suppressedHead() {
	d.q.box.dispatcher.config.Stats.Suppressed.Add(1)
	if d.subject.Topic.Shared {
		d.gate().SuppressedShared(d.subject.About.Device, d.of(&d.head).Device)
		return
	}
	d.gate().Suppressed(d.subject.About, 1)
}

// failed has a's delivery tried again, or given up, after the receiver did not accept its notice.
func (a *attempt) failed() verdict {
	d, q := a.d, a.d.q
	d.failedBecause(a.failure)

	//planted:message-refused-for-all if false
	if a.failure.Refused && len(a.message.claimed) != 1 {
		d.sendAlone = true
		return verdict{state: ready, why: WaitTurn}
	}

	var reason string
	switch {
	case a.failure.Refused:
		reason = refusal(a.failure)
	//planted:own-fault-never-given-up case false
	case d.ownFailures >= ownFailuresToGiveUp:
		reason = fmt.Sprintf("failed %d times while the receiver took others: %v", d.attempts, a.failure)
	case d.old(a.result.Now):
		reason = q.tooLate(a.failure)
	case a.failure.Limited:
		d.limited = min(d.limited+1, patience)
		//planted:refused-keeps-turn skip
		d.number = 0 // the turn was its own, and it waits for another one
		return verdict{state: ready, why: WaitTurn}
	default:
		return verdict{state: awaitsReceiver, why: WaitPause, pause: retryDelay(int(d.attempts))}
	}

	alert := a.alert
	alert.To = a.failure.Left
	d.dead = &deadLetter{alert: &alert, reason: reason}
	if a.failure.Refused && d.notice == nil {
		d.dead.cause, d.dead.refused = refusedAlert, time.Now()
		d.dead.covers = a.claim.Grant.Now.Add(d.subject.Topic.Message.Window).UnixMicro()
	}

	return verdict{state: givenUp, why: WaitDeadLetter}
}

// makeLetter composes the dead letter of a's delivery, unless a window covers its alert by now, and writes it.
func (a *attempt) makeLetter() {
	d, r := a.d, a.d.q.to
	if d.dead.alert == nil {
		a.claimKey()
		a.finish()
	} else {
		d.follow(d.writeLetter())
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing--
	d.q.writing--
	r.dispatch()
}

// composeLetter writes the dead letter of a's delivery, which was given up while it waited, and which the gate lets through.
func (a *attempt) composeLetter() verdict {
	d, q := a.d, a.d.q
	//planted:estimate-is-believed if false
	if d.dead.cause == tooOld && !d.old(a.result.Now) { // the estimate was wrong
		d.dead = nil
		return verdict{state: pausing, why: WaitPause, pause: minBackoff}
	}

	d.dead.alert = &a.alert
	d.dead.reason = fmt.Sprintf("the oldest of more than %d alerts of the partition that waited for the receiver", q.to.dispatcher.MaxWaiting)
	if d.dead.cause == tooOld {
		q.to.mu.Lock()
		d.dead.reason = q.tooLate(cmp.Or(q.to.shortfall.last, errNotAsked))
		q.to.mu.Unlock()
	}

	return d.writeLetter()
}

var errNotAsked = &notify.Error{Err: errors.New("other alerts went first, or the throttle store did not answer")}

// tooLate says that an alert was given up because it is old.
func (q *queue) tooLate(last *notify.Error) string {
	return fmt.Sprintf("not taken within %v (NOTIFY_GIVE_UP): %v", q.to.dispatcher.config.GiveUp, last)
}

// old reports whether d could have been sent for as long as NOTIFY_GIVE_UP. now is the
// store's clock.
func (d *delivery) old(now time.Time) bool {
	return now.Sub(fromMicros(d.since)) >= d.q.to.dispatcher.config.GiveUp
}

func refusal(failure *notify.Error) string { return fmt.Sprintf("refused for good: %v", failure) }

// keep keeps the dead letter of an alert.
func (q *queue) keep(ctx context.Context, alert notify.Alert, reason string) error {
	letter := notify.DeadLetter{Alert: alert, Receiver: q.to.to.ID, Name: q.to.to.Name, Reason: reason}
	err := q.box.dispatcher.config.DeadLetters.Keep(ctx, letter)
	if err == nil {
		q.box.dispatcher.config.Stats.DeadLetters.Add(1)
	}
	return err
}

// writeLetter writes d's dead letter. Of an alert that has a recovery, and of a silence, the gate notes it then, so that a
// replay does not send an alert after the recovery, nor the next owner a silence once more.
func (d *delivery) writeLetter() verdict {
	q := d.q
	settling, why, err := q.box.settling, WaitDeadLetter, error(nil)
	//planted:letter-written-again if true
	if !d.dead.kept {
		err = q.keep(settling, *d.dead.alert, d.dead.reason)
		q.to.mu.Lock()
		q.unwritable = err != nil
		q.to.mu.Unlock()
		//planted:dead-letter-kept-early d.dead.kept, err = true, nil; skip
		d.dead.kept = err == nil
	}

	//planted:letter-not-noted if false
	if d.dead.kept && (d.notice.Silent() || d.notice == nil && d.subject.Topic.Message.WillResolve) {
		why, err = WaitStore, d.gate().GiveUp(settling, d.request(&d.head))
	}

	if err != nil {
		d.attempts++
		return verdict{state: givenUp, why: why, pause: retryDelay(int(d.attempts)), err: err}
	}

	d.debug("alert kept as a dead letter", zap.String("reason", d.dead.reason))
	v := verdict{outcome: OutcomeDeadLetter}
	//planted:letter-covers-all if true
	if d.dead.cause == tooMany {
		v.covers = coversAll // to make room
	}

	if d.subject.Topic.Incidents && !d.notice.recovers() { // members that breach again need none within the window
		d.head.more().Alarm.wait(q.to.index, time.Now().Add(d.subject.Topic.Message.Window))
	}

	if d.dead.cause == refusedAlert { // one dead letter in a window is enough
		// Of devices that share alerts another one is tried once, because the fault may lie in what is said of the first.
		refused, until := d.of(&d.head).Device, d.dead.covers
		all := !d.subject.Topic.Shared || d.triedSecondDevice
		d.triedSecondDevice = true
		v.covers = func(r *Reading) bool { return r.Enqueued < until && (all || d.of(r).Device == refused) }
		//planted:refusal-forgotten skip
		//planted:site-refused-each d.gate().Refused(d.of(&d.head), d.dead.refused); skip
		d.gate().Refused(d.subject.About, d.dead.refused)
	}

	return v
}

// debug logs what became of d's head.
func (d *delivery) debug(msg string, fields ...zap.Field) {
	about := []zap.Field{
		zap.Int64("sequence", d.head.Sequence),
		zap.Stringer("device", d.of(&d.head)),
		zap.String("receiver", d.q.to.to.Name),
		zap.Float64("temperature", d.head.Value),
	}

	d.q.box.account.Logger.Debug(msg, append(about, fields...)...)
}
