package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

// of one alert, each after the receiver has answered about others, and with an answer about the message
const ownFailuresToGiveUp = 8

// A group is deliveries whose notices go in one message; often there is only one.
type group struct {
	began time.Duration // by the dispatcher's clock

	// Guarded by receiver.mu.
	left int // deliveries that have not been attempted
	sent int // notices that the message had; 0 unless it was answered
}

// An attempt is the result of one delivery attempt.
type attempt struct {
	probe   bool
	group   *group          // nil if it is about a dead letter
	claim   *throttle.Claim // nil if the key was not claimed
	result  throttle.Result // of the claim that was not made, or of the one that was settled
	err     error           // of the gate; ErrLate if the message had gone before anything was claimed
	alert   notify.Alert    // the notice, once the key was claimed
	barred  error           // why it was not claimed, or not sent although it was; nil if nothing barred it
	failure *notify.Error   // its answer; nil if it took the notice
}

// A verdict says how a delivery goes on.
type verdict struct {
	outcome string              // not empty: its head is settled
	covers  func(*Reading) bool // then: which of the readings that joined are settled too; nil: none

	// Else what it waits for, and how long; ready has no time. Without a state it is attempted again after a pause.
	state state
	why   Wait
	pause time.Duration
	err   error // why, if that may affect every delivery: it is logged
}

func coversAll(*Reading) bool { return true }

// deliver makes an attempt at each of some deliveries, in one message, and has it go on.
func (r *receiver) deliver(together []chosen, probe bool, began time.Duration) {
	g := &group{began: began, left: len(together)}
	attempts := make([]attempt, len(together))
	Send(
		len(together),
		func(i int) (Claimed, bool) {
			c, a := together[i], &attempts[i]
			*a = attempt{probe: probe, group: g}
			if c.q.claim(c.d, a) {
				return Claimed{Alert: a.alert, Grant: a.claim.Grant, Under: c.q.box.sending}, true
			}

			c.q.finish(c.d, a)

			return Claimed{}, false
		},
		func(ctx context.Context, which []int, alerts ...notify.Alert) error {
			sent := make([]*delivery, len(which))
			for n, i := range which {
				sent[n] = together[i].d
			}
			return r.notify(ctx, g, probe, sent, alerts...)
		},
		func(i int, err error) {
			c, a := together[i], &attempts[i]
			if errors.Is(err, ErrLate) {
				*a = attempt{probe: probe, group: g, claim: a.claim, result: throttle.Result{Outcome: throttle.Busy}, err: ErrLate}
				if a.claim != nil {
					_, _ = c.q.gate(c.d).Settle(c.q.box.sending, a.claim, throttle.NotTaken)
					r.dispatcher.config.Stats.Outcomes[throttle.Busy].Add(1)
				}
			} else {
				c.q.settleClaim(c.d, a, c.q.answer(c.d, a, err))
			}

			c.q.finish(c.d, a)
		},
	)
}

// claim claims d's key, and reports whether its notice may be sent. It composes the notice once there is a claim, which is
// given back if something bars the notice.
func (q *queue) claim(d *delivery, a *attempt) bool {
	a.barred = q.box.account.Owner.MayClaim(d.subject, d.notice)
	if a.barred != nil {
		a.result.Outcome = throttle.Busy
		return false
	}

	under := q.box.sending
	a.claim, a.result, a.err = q.gate(d).Claim(under, q.request(d, &d.head))
	if a.claim == nil {
		q.box.dispatcher.config.Stats.Outcomes[a.result.Outcome].Add(1)
		return false
	}

	a.alert = q.message(d, a.claim.Grant)
	if d.dead == nil {
		asking, cancel := context.WithDeadline(under, a.claim.Grant.SendBy)
		var incident *notify.Incident
		incident, a.barred = q.box.account.Owner.MaySend(asking, d.subject, d.notice, a.claim.Grant)
		cancel()
		if a.barred == nil {
			if incident != nil {
				a.alert.Incident = incident
			}
			q.sends(d, a)
			return true
		}
	}

	q.settleClaim(d, a, throttle.NotTaken)

	return false
}

// sends notes that a's notice goes.
func (q *queue) sends(d *delivery, a *attempt) {
	if a.alert.Ambiguous {
		q.box.dispatcher.config.Stats.Ambiguous.Add(1)
	}

	if a.alert.Resolved { // nothing is open at the receiver any more, for all that is known: see Refresh
		q.box.mu.Lock()
		defer q.box.mu.Unlock()
		delete(q.taken, d.subject)
	}
}

// notify sends one message about deliveries to the receiver, and records what its answer says about the receiver, as soon
// as there is one: what it accepted before it went down says nothing about it, however long the store then takes to
// record that.
func (r *receiver) notify(ctx context.Context, g *group, probe bool, sent []*delivery, alerts ...notify.Alert) error {
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
	g.sent = len(sent)
	if errors.Is(ctx.Err(), context.Canceled) { // by the owners, which says nothing about others
		return err
	}

	now, failure := r.dispatcher.now(), notify.AsError(err)
	if err != nil && (!failure.Refused || failure.Left != "") {
		r.failure = failure
	}

	isTaken := err == nil || failure.Left != "" // it may have taken it for its other recipients
	if isTaken {
		r.pace.Answered(now, g.began, nil)
	} else {
		r.pace.Answered(now, g.began, failure)
	}

	switch {
	case isTaken || failure.Refused: // it works
		r.answers++
		r.breaker = breaker{}
		if isTaken {
			r.taken += int64(len(sent))
			r.takenAt = now
			s := &r.shortfall
			*s = shortfall{asking: s.asking, inVain: s.asking > 0, since: now, waits: s.waits, looked: s.looked}
		} else if len(sent) == 1 { // else it may be because of another one
			r.shortfall.reject(now, sent[0].subject.About.Device, failure)
		}
	case failure.Limited:
		r.shortfall.fail(now, failure)
	default:
		r.shortfall.fail(now, failure)
		r.breaker.failed(now, r.failed(sent, failure), probe)
	}

	return err
}

// failed records that the receiver did not take a message about deliveries, and may if it is tried again. It reports
// whether that is so of one of them for the first time. The caller holds r.mu.
func (r *receiver) failed(sent []*delivery, failure *notify.Error) (suspect bool) {
	for _, d := range sent {
		switch d.failedAt {
		case 0:
			suspect = true
		case r.answers + 1:
		default: // again, and the receiver has answered about others since: the fault may be its own
			//planted:failure-takes-others skip
			d.sendAlone = true // the others in its message do not fail with it again
			if len(sent) == 1 && failure.OwnFault() {
				d.ownFailures++
			}
		}
		d.failedAt = r.answers + 1
	}

	return suspect
}

// answer takes the receiver's answer to a's notice, and returns what it is to the gate.
func (q *queue) answer(d *delivery, a *attempt, err error) throttle.Answer {
	// Some of its recipients will never get the alert, while all others have. Until their dead letter is kept it is not
	// delivered.
	if failure := notify.AsError(err); err != nil && failure.Refused && failure.Left != "" {
		letter := q.letter(a.alert, refusal(failure))
		letter.Alert.To = failure.Left
		if err = q.keep(q.box.sending, letter); err != nil {
			err = &notify.Error{Left: failure.Left, Err: err}
		}
	}

	switch {
	case err != nil:
		a.failure = notify.AsError(err)
		if !a.failure.Limited { // else it is only sent too much
			d.attempts++
		}
		q.debug(d, "alert not taken", zap.Uint16("attempt", d.attempts), zap.Bool("limited", a.failure.Limited), zap.Error(err))
	case a.alert.Resolved:
		d.suppressed = 0
		d.subject.Topic.Recovered.Add(1)
	default:
		d.suppressed = 0
		d.subject.Topic.Sent.Add(1)
		if q.to.to.Limits.Forgets && !a.alert.Since.IsZero() { // and it is about an alarm: see Refresh
			q.box.mu.Lock()
			q.taken[d.subject] = a.alert
			q.box.mu.Unlock()
		}
	}

	switch {
	case a.failure == nil:
		return throttle.Taken
	case a.failure.Untaken, a.failure.Refused:
		return throttle.NotTaken
	}

	//planted:unknown-is-untaken return throttle.NotTaken
	//planted:unknown-is-taken return throttle.Taken
	return throttle.Unknown
}

// settleClaim settles a's claim.
func (q *queue) settleClaim(d *delivery, a *attempt, answer throttle.Answer) {
	a.result, a.err = q.gate(d).Settle(q.box.sending, a.claim, answer)
	q.box.dispatcher.config.Stats.Outcomes[a.result.Outcome].Add(1)
}

// finish has d, which was to be sent, go on after an attempt.
func (q *queue) finish(d *delivery, a *attempt) {
	r := q.to
	r.attempted(q, d, *a)
	q.follow(d, q.conclude(d, a))

	r.mu.Lock()
	r.trying-- // it is known how d goes on
	r.look(r.dispatcher.now())
	r.mu.Unlock()
	q.box.work.Done()
}

// conclude returns how d goes on after an attempt.
func (q *queue) conclude(d *delivery, a *attempt) verdict {
	switch {
	case a.barred != nil: // until its owner lets it go
		d.failedBecause(a.barred)
		pause := q.box.account.Owner.Pause()
		if pause == 0 {
			d.attempts++
			pause = retryDelay(int(d.attempts))
		}
		return verdict{why: WaitOwner, pause: pause}
	case errors.Is(a.err, ErrLate):
		return verdict{state: ready, why: WaitTurn}
	case a.result.Outcome == throttle.Failed && d.dead != nil:
		return q.compose(d, a)
	case a.result.Outcome == throttle.Failed:
		return q.failed(d, a)
	}

	d.failedBecause(a.err)
	q.debug(d, "asked the gate about an alert", zap.Stringer("outcome", a.result.Outcome), zap.Error(a.err))
	v := verdict{outcome: a.result.Outcome.String()}
	if next := a.result.NextReminder(q.request(d, &d.head)); !next.IsZero() {
		d.head.more().Alarm.wait(q.to.index, next)
	}

	switch a.result.Outcome {
	case throttle.Sent:
		//planted:sent-covers-nothing skip
		v.covers = coversAll
	case throttle.Throttled:
		q.box.dispatcher.config.Stats.Suppressed.Add(1)
		q.suppressedHead(d)
		//planted:window-covers-all v.covers = coversAll; skip
		v.covers = func(r *Reading) bool { return a.result.Covers(q.request(d, r)) }
	case throttle.Unconfirmed:
		q.to.dispatcher.Warn(q.box.account.Logger, "an alert was taken but its window is not recorded yet; if it is sent again within the window, "+
			"it has the same id", a.err)
		_ = q.gate(d).Confirm(q.box.settling, a.result) // the alert is delivered even if this fails
	case throttle.Busy:
		return q.busy(d, time.Until(a.result.Retry))
	case throttle.Unavailable:
		d.attempts++
		return verdict{why: WaitStore, pause: retryDelay(int(d.attempts)), err: a.err}
	}

	return v
}

// suppressedHead counts d's head for the next alert.
func (q *queue) suppressedHead(d *delivery) {
	if d.subject.Topic.Shared {
		q.gate(d).SuppressedShared(d.subject.About.Device, d.of(&d.head).Device)
		return
	}
	q.gate(d).Suppressed(d.subject.About, 1)
}

// busy has d wait for another claim to end, or of a recovery or an incident, for the window.
func (q *queue) busy(d *delivery, retry time.Duration) verdict {
	if !d.notice.recovers() && !d.subject.Topic.Incidents { // an alert of an incident waits for the window of the one before
		return verdict{why: WaitClaim, pause: min(retry, minAskAgain+rand.N(maxAskAgain-minAskAgain))}
	}

	wait := max(retry, minAskAgain)
	if now, ok := q.to.storeTime(); ok {
		d.since = now + wait.Microseconds()
	}

	d.dead = nil

	return verdict{state: awaitsWindow, why: WaitWindow, pause: wait}
}

// failed has d tried again, or given up, after the receiver did not accept its notice.
func (q *queue) failed(d *delivery, a *attempt) verdict {
	d.failedBecause(a.failure)

	//planted:message-refused-for-all if false
	if a.failure.Refused && a.group.sent != 1 {
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
	case q.old(d, a.result.Now):
		reason = q.tooLate(a.failure)
	case a.failure.Limited:
		d.limited = min(d.limited+1, patience)
		//planted:refused-keeps-turn skip
		d.number = 0 // the turn was its own, and it waits for another one
		return verdict{state: ready, why: WaitTurn}
	default:
		return verdict{state: awaitsReceiver, why: WaitPause, pause: retryDelay(int(d.attempts))}
	}

	d.dead = &deadLetter{letter: q.letter(a.alert, reason)}
	d.dead.letter.Alert.To = a.failure.Left
	if a.failure.Refused && d.notice == nil {
		d.dead.cause = refusedAlert
	}

	return verdict{state: givenUp, why: WaitDeadLetter}
}

// compose writes the dead letter of d, which was given up while it waited, and which the gate lets through.
func (q *queue) compose(d *delivery, a *attempt) verdict {
	//planted:estimate-is-believed if false
	if d.dead.cause == tooOld && !q.old(d, a.result.Now) { // the estimate was wrong
		d.dead = nil
		return verdict{why: WaitPause, pause: minBackoff}
	}

	reason := fmt.Sprintf("the oldest of more than %d alerts of the partition that waited for the receiver", q.to.dispatcher.MaxWaiting)
	if d.dead.cause == tooOld {
		q.to.mu.Lock()
		reason = q.tooLate(cmp.Or(q.to.shortfall.last, errNotAsked))
		q.to.mu.Unlock()
	}

	d.dead.letter = q.letter(a.alert, reason)

	return q.writeLetter(d)
}

var errNotAsked = &notify.Error{Err: errors.New("other alerts went first, or the throttle store did not answer")}

// tooLate says that an alert was given up because it is old.
func (q *queue) tooLate(last *notify.Error) string {
	return fmt.Sprintf("not taken within %v (NOTIFY_GIVE_UP): %v", q.to.dispatcher.config.GiveUp, last)
}

// old reports whether d could have been sent for as long as NOTIFY_GIVE_UP. now is the
// store's clock.
func (q *queue) old(d *delivery, now time.Time) bool {
	return now.Sub(fromMicros(d.since)) >= q.to.dispatcher.config.GiveUp
}

func refusal(failure *notify.Error) string { return fmt.Sprintf("refused for good: %v", failure) }

// letter returns the dead letter of an alert.
func (q *queue) letter(alert notify.Alert, reason string) *notify.DeadLetter {
	return &notify.DeadLetter{Alert: alert, Receiver: q.to.to.ID, Name: q.to.to.Name, Reason: reason}
}

// keep keeps a dead letter.
func (q *queue) keep(ctx context.Context, letter *notify.DeadLetter) error {
	err := q.box.dispatcher.config.DeadLetters.Keep(ctx, *letter)
	if err == nil {
		q.box.dispatcher.config.Stats.DeadLetters.Add(1)
	}
	return err
}

// writeLetter writes d's dead letter. Of an alert that has a recovery, and of a silence, the gate notes it then, so that a
// replay does not send an alert after the recovery, nor the next owner a silence once more.
func (q *queue) writeLetter(d *delivery) verdict {
	settling, why, err := q.box.settling, WaitDeadLetter, error(nil)
	//planted:letter-written-again if true
	if !d.dead.kept {
		err = q.keep(settling, d.dead.letter)
		q.to.mu.Lock()
		q.unwritable = err != nil
		q.to.mu.Unlock()
		//planted:dead-letter-kept-early d.dead.kept, err = true, nil; skip
		d.dead.kept = err == nil
	}

	//planted:letter-not-noted if false
	if d.dead.kept && (d.notice.Silent() || d.notice == nil && d.subject.Topic.Message.WillResolve) {
		why, err = WaitStore, q.gate(d).GiveUp(settling, q.request(d, &d.head))
	}

	if err != nil {
		d.attempts++
		return verdict{state: givenUp, why: why, pause: retryDelay(int(d.attempts)), err: err}
	}

	q.debug(d, "alert kept as a dead letter", zap.String("reason", d.dead.letter.Reason))
	v := verdict{outcome: OutcomeDeadLetter}
	//planted:letter-covers-all if true
	if d.dead.cause == tooMany {
		v.covers = coversAll // to make room
	}

	if d.subject.Topic.Incidents && !d.notice.recovers() { // members that breach again need none within the window
		d.head.more().Alarm.wait(q.to.index, time.Now().Add(d.subject.Topic.Message.Window))
	}

	if d.dead.cause == refusedAlert { // one dead letter in a window is enough
		v.covers = d.coversRefused()
		//planted:refusal-forgotten skip
		//planted:site-refused-each q.gate(d).Refused(d.of(&d.head)); skip
		q.gate(d).Refused(d.subject.About)
	}

	return v
}

// coversRefused returns what a refusal for good settles: all that joined. Of devices that share alerts another one is
// tried once, because the fault may lie in what is said of the first.
func (d *delivery) coversRefused() func(*Reading) bool {
	if !d.subject.Topic.Shared || d.triedSecondDevice {
		return coversAll
	}

	d.triedSecondDevice = true
	refused := d.of(&d.head).Device
	return func(r *Reading) bool { return d.of(r).Device == refused }
}

// debug logs what became of d's head.
func (q *queue) debug(d *delivery, msg string, fields ...zap.Field) {
	line := q.box.account.Logger.Check(zap.DebugLevel, msg)
	if line == nil {
		return
	}

	about := []zap.Field{
		zap.Int64("sequence", d.head.Sequence),
		zap.Stringer("device", d.of(&d.head)),
		zap.String("receiver", q.to.to.Name),
		zap.Float64("temperature", d.head.Value),
	}

	line.Write(append(about, fields...)...)
}
