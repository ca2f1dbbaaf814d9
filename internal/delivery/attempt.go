package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/pace"
	"alertworker/internal/throttle"
)

// of one alert, each after the receiver has answered about others, and with an answer about the message
const ownFailuresToGiveUp = 8

// gate returns the gate that d has to pass.
func (q *queue) gate(d *delivery) *throttle.Gate { return d.Gates[q.to.index] }

// A group is deliveries whose notices go in one message; often there is only one.
type group struct {
	*pace.Message
	size  int
	began time.Duration // by the dispatcher's clock

	// Guarded by receiver.mu.
	left     int  // deliveries that have not been attempted
	reported bool // whether the receiver's answer has been recorded
}

// An attempt is what one has shown.
type attempt struct {
	probe   bool
	group   *group // nil if it was about a dead letter
	result  throttle.Result
	alert   notify.Alert  // the notice, once the key was claimed
	barred  error         // why it was not sent although the key was claimed; nil if nothing barred it
	asked   bool          // the receiver was
	failure *notify.Error // its answer; nil if it took the notice
}

// send asks the gate about d, and sends the notice, as a part of g, if it may. If d was given up g is nil, and send
// only composes the dead letter, and writes it, because a window may already suppress the alert.
func (q *queue) send(d *delivery, probe bool, g *group) {
	a := attempt{probe: probe, group: g}
	late := g != nil && !g.Admit()
	if err := q.box.Owner.MayClaim(d.Key, d.due); err != nil {
		q.unasked(d, a)
		q.awaitOwner(d, err)
		return
	}
	if late {
		q.unasked(d, a)
		q.getReady(d)
		return
	}

	do := func(ctx context.Context, grant throttle.Grant) throttle.Answer { return q.sendUnder(ctx, grant, d, &a) }
	result, err := q.gate(d).Do(d.under(q.box.sending), q.request(d, &d.head), do)
	if g != nil {
		g.Leave(a.asked)
	}
	q.box.Stats.Outcomes[result.Outcome].Add(1)
	a.result = result
	q.to.attempted(q, d, a)

	switch {
	case result.Outcome != throttle.Failed:
		q.conclude(d, result, err)
	case a.barred != nil:
		q.awaitOwner(d, a.barred)
	case d.cause == tooOld && !q.old(d, result.Now): // the estimate was wrong
		d.cause = notGivenUp
		q.retry(d, WaitPause, minBackoff)
	default:
		q.failed(d, a)
	}
}

// unasked ends the attempt a before anybody was asked.
func (q *queue) unasked(d *delivery, a attempt) {
	if a.group != nil {
		a.group.Leave(false)
	}
	a.result.Outcome = throttle.Busy
	q.to.attempted(q, d, a)
}

// sendUnder sends d's notice under the claim that grant is about, unless something bars it, and notes in a what came
// of it.
func (q *queue) sendUnder(ctx context.Context, grant throttle.Grant, d *delivery, a *attempt) throttle.Answer {
	a.alert = q.message(d, grant)
	if d.cause != notGivenUp {
		return throttle.NotTaken
	}
	if grant.Ambiguous {
		q.box.Stats.Ambiguous.Add(1)
	}
	if a.barred = q.box.Owner.MaySend(ctx, d.Key, d.due, grant.Before); a.barred != nil {
		return throttle.NotTaken
	}
	a.asked = true
	a.failure = q.notify(ctx, d, a.alert, a.group)
	q.to.answered(q, d, *a)
	switch {
	case a.failure == nil:
		return throttle.Taken
	case a.failure.Untaken, a.failure.Refused:
		return throttle.NotTaken
	}
	return throttle.Unknown
}

// failed has d tried again, or given up, after an attempt in which the receiver did not take it, or in which the gate
// let a notice through that was given up before.
func (q *queue) failed(d *delivery, a attempt) {
	refused := a.failure != nil && a.failure.Refused
	if a.failure != nil {
		d.note(a.failure)
	}
	if refused && a.group.size > 1 {
		d.alone = true
		q.getReady(d)
		return
	}

	reason := q.reason(d, a.failure, a.result.Now)
	switch {
	case reason == "" && a.failure.Limited:
		d.limited = min(d.limited, patience) + 1
		q.getReady(d)
		return
	case reason == "":
		q.pause(d, failed, retryDelay(int(d.attempts)))
		return
	}
	d.letter = &notify.DeadLetter{Alert: a.alert, Receiver: q.to.ID, Name: q.to.Name, Reason: reason}
	d.refused = refused && d.due == nil
	if a.group == nil {
		q.writeLetter(d)
		return
	}
	q.pause(d, givenUp, 0)
}

// awaitOwner has d wait until its owner may let it go.
func (q *queue) awaitOwner(d *delivery, why error) {
	d.note(why)
	pause := q.box.Owner.Pause()
	if pause == 0 {
		d.attempts++
		pause = retryDelay(int(d.attempts))
	}
	q.retry(d, WaitOwner, pause)
}

// notify sends alert, as a part of g. It returns nil if the receiver took it.
func (q *queue) notify(ctx context.Context, d *delivery, alert notify.Alert, g *group) *notify.Error {
	err := g.Notify(ctx, alert)
	if err != nil {
		if failure := notify.AsError(err); failure.Limited {
			q.debug(d, "alert not taken, because there are too many", zap.Error(err))
			return failure
		}
		d.attempts++
		q.debug(d, "alert not taken", zap.Uint16("attempt", d.attempts), zap.Error(err))
		return notify.AsError(err)
	}
	if alert.Resolved {
		d.Recovered.Add(1)
	} else {
		d.Sent.Add(1)
	}
	d.suppressed = 0
	if arrival := d.head.arrival(); arrival != nil {
		arrival.Alerted.Store(true)
	}
	return nil
}

// reason returns why an alert should not be attempted again, empty if it
// should. now is the store's clock.
func (q *queue) reason(d *delivery, failure *notify.Error, now time.Time) string {
	switch {
	case d.cause == tooMany:
		return fmt.Sprintf(
			"the oldest of more than %d alerts of the partition that waited for the receiver",
			q.to.MaxWaiting,
		)
	case d.cause == tooOld:
		return q.tooOld(q.to.failure())
	case failure.Refused:
		return fmt.Sprintf("refused for good: %v", failure)
	case d.ownFailures >= ownFailuresToGiveUp:
		return fmt.Sprintf("failed %d times while the receiver took others: %v", d.attempts, failure)
	case q.old(d, now):
		return q.tooOld(failure)
	}
	return ""
}

// old reports whether d could have been sent for as long as NOTIFY_GIVE_UP. now is the
// store's clock.
func (q *queue) old(d *delivery, now time.Time) bool {
	age := now.Sub(fromMicros(d.since))
	if arrival := d.head.arrival(); arrival != nil {
		age = time.Since(arrival.At)
	}
	return age >= q.to.GiveUp
}

func (q *queue) tooOld(failure error) string {
	return fmt.Sprintf("not taken within %v (NOTIFY_GIVE_UP): %v", q.to.GiveUp, failure)
}

// Which of the readings that joined a delivery are settled together with its head.
func coversNone(*Reading) bool { return false }
func coversAll(*Reading) bool  { return true }

// conclude settles or reschedules d after an attempt whose outcome is not Failed.
func (q *queue) conclude(d *delivery, result throttle.Result, err error) {
	box := q.box
	d.note(err)
	q.debug(d, "asked the gate about an alert", zap.Stringer("outcome", result.Outcome), zap.Error(err))
	switch result.Outcome {
	case throttle.Sent:
		q.settle(d, coversAll, result.Outcome.String())
	case throttle.Throttled:
		box.Stats.Suppressed.Add(1)
		q.suppressedHead(d)
		q.settle(d, func(r *Reading) bool { return result.Covers(q.request(d, r)) }, result.Outcome.String())
	case throttle.Unconfirmed:
		box.Warn(
			box.Logger,
			"an alert was taken but its window is not recorded yet; if it is sent again within the window, it has the same id",
			err,
		)
		_ = q.gate(d).Confirm(d.under(box.settling), result) // the alert is delivered even if this fails
		q.settle(d, coversNone, result.Outcome.String())
	case throttle.SentLate, throttle.Unneeded:
		q.settle(d, coversNone, result.Outcome.String())
	case throttle.Busy:
		if d.recovers() {
			wait := max(time.Until(result.Retry), minAskAgain)
			if now, ok := q.to.storeTime(); ok {
				d.since = now + wait.Microseconds()
			}
			d.cause = notGivenUp
			q.pause(d, awaitsWindow, wait)
			return
		}
		q.retry(d, WaitClaim, min(time.Until(result.Retry), minAskAgain+rand.N(maxAskAgain-minAskAgain)))
	case throttle.Unavailable:
		box.Warn(box.Logger, "the throttle store is not responding; alerts wait", err)
		d.attempts++
		q.retry(d, WaitStore, retryDelay(int(d.attempts)))
	}
}

// writeLetter writes d's dead letter. Then the gate notes it, so that a replay does not send an alert after the
// recovery, nor the next owner a silence once more.
func (q *queue) writeLetter(d *delivery) {
	box := q.box
	again := func(msg string, err error) {
		box.Warn(box.Logger, msg, err)
		d.attempts++
		q.pause(d, givenUp, retryDelay(int(d.attempts)))
	}
	if !d.written {
		if err := box.DeadLetters.Keep(d.under(box.settling), *d.letter); err != nil {
			again("cannot keep a dead letter; its event stays unsettled", err)
			return
		}
		d.written = true
		box.Stats.DeadLetters.Add(1)
	}
	if d.due.Silent() || d.Message.WillResolve && d.due == nil && box.FromHub {
		if err := q.gate(d).GiveUp(d.under(box.settling), q.request(d, &d.head)); err != nil {
			again("the throttle store is not responding; an alert that was given up stays unsettled", err)
			return
		}
	}
	q.letterKept(d)
}

// letterKept settles d, whose dead letter is kept.
func (q *queue) letterKept(d *delivery) {
	if arrival := d.head.arrival(); arrival != nil {
		arrival.Letter.Store(d.letter)
	}
	q.debug(d, "alert kept as a dead letter", zap.String("reason", d.letter.Reason))
	covers := coversNone
	if d.cause == tooMany {
		covers = coversAll // to make room
	}
	if d.refused { // one dead letter in a window is enough
		covers = d.coversRefused()
		q.gate(d).Refused(d.About)
	}
	q.settle(d, covers, OutcomeDeadLetter)
}

// coversRefused returns what a refusal for good settles: all that joined. Of devices that share alerts another one is
// tried once, because the fault may lie in what is said of the first.
func (d *delivery) coversRefused() func(*Reading) bool {
	if !d.Shared || d.another {
		return coversAll
	}
	d.another = true
	refused := d.device(&d.head)
	return func(r *Reading) bool { return d.device(r) == refused }
}

// debug logs what became of d's head.
func (q *queue) debug(d *delivery, msg string, fields ...zap.Field) {
	if line := q.box.Logger.Check(zap.DebugLevel, msg); line != nil {
		line.Write(append([]zap.Field{
			zap.Int64("sequence", d.head.Sequence), zap.String("device", d.device(&d.head)),
			zap.String("receiver", q.to.Name), zap.Float64("temperature", d.head.Value),
		}, fields...)...)
	}
}
