package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/notify/pace"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

// of one alert, each after the receiver has answered about others, and with an answer about the message
const ownFailuresToGiveUp = 8

// request returns the request to the gate for a notice about one of d's readings.
func (q *queue) request(d *delivery, about reading) throttle.Request {
	r := throttle.Request{
		Device: d.about, ID: q.stream.alertID(d, about), Enqueued: fromMicros(about.enqueued),
		Sequence: about.sequence, Recovery: d.recovers(),
	}
	switch {
	case d.due != nil:
		r.Log, r.Part = d.due.log, d.due.part
	case d.shared:
		r.Sequence = 0 // those of other devices and partitions say nothing about it
	default:
		r.Log = q.stream.logName
	}
	if about.arrival != nil {
		r.Arrived = about.arrival.at
	}
	return r
}

// alert returns the notice about d's head under g.
func (q *queue) alert(d *delivery, g throttle.Grant) notify.Alert {
	s, l := q.stream, d.level
	a := notify.Alert{
		ID:          g.ID,
		Source:      "/" + s.Origin + d.suffix,
		Device:      d.deviceOf(d.head),
		Rule:        l.rule.Name,
		Level:       l.Name,
		Resolved:    d.recovers(),
		Removed:     !l.removed.IsZero(),
		Below:       l.rule.Below,
		Title:       l.rule.Title,
		Unit:        l.rule.Unit,
		Runbook:     l.rule.Runbook,
		Temperature: d.head.value,
		Threshold:   d.head.limit,
		Enqueued:    fromMicros(d.head.enqueued),
		DeviceTime:  fromMicros0(d.head.device),
		Since:       fromMicros0(d.head.since),
		Partition:   s.id,
		Sequence:    d.head.sequence,
		Log:         q.request(d, d.head).Log,
		WillResolve: l.rule.Resolved && !d.recovers() && d.head.since != 0, // else it has no alarm
		Window:      l.rule.Window,
		Remember:    q.gate(d).Remember(),
		Token:       g.Token,
		Expires:     g.Expires,
		Suppressed:  g.Suppressed + int64(d.suppressed),
		Replica:     s.Replica,
		Test:        notify.IsTest(d.deviceOf(d.head)),
		Ambiguous:   g.Ambiguous,
	}
	if a.Resolved { // one of unknown fate is sent again for as long
		a.Remember += s.GiveUp
	}
	if d.head.more != nil {
		a.Shown = d.head.more.shown
	}
	if d.shared {
		a.Per, a.PerValue = l.rule.Per, d.about
		a.Suppressed = g.Suppressed // these are devices
	}
	if l.rule.Silence() {
		a.Silent = time.Duration(d.head.limit * float64(time.Second))
		a.Threshold = 0
		a.LastHeard = fromMicros0(d.due.heard)
	}
	a.Forgotten = d.due != nil && d.due.forgotten
	if l.rule.Name != rules.DefaultName {
		a.Field = l.rule.Field
	}
	if words := l.rule.Is; len(words) > 0 && a.Resolved {
		a.Word = strings.Join(words, " or ")
	} else if len(words) > 0 {
		a.Word = words[int(d.head.value)-1]
	}
	return a
}

// gate returns the gate that d has to pass.
func (q *queue) gate(d *delivery) *throttle.Gate { return d.gates[q.to.index] }

// A group is deliveries whose notices go in one message; often there is only one.
type group struct {
	*pace.Message
	size  int
	began time.Duration // by the worker's clock

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
	s := q.stream
	a := attempt{probe: probe, group: g}
	late := g != nil && !g.Admit()
	if err := q.mayClaim(d); err != nil {
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
	result, err := q.gate(d).Do(d.under(s.send), q.request(d, d.head), do)
	if g != nil {
		g.Leave(a.asked)
	}
	s.stats.Outcomes[result.Outcome].Add(1)
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
	s := q.stream
	a.alert = q.alert(d, grant)
	if d.head.arrival == nil && grant.Before != "" {
		s.compareLogs(d.about, grant.Before)
	}
	if d.cause != notGivenUp {
		return throttle.NotTaken
	}
	if grant.Ambiguous {
		s.stats.Ambiguous.Add(1)
	}
	if a.barred = q.mayNotify(ctx, d); a.barred != nil {
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

// mayClaim returns why the key must not be claimed yet for d, if d brings a due notice: the ledger does not
// answer, or it is not proven, or not any more, that the device is silent.
func (q *queue) mayClaim(d *delivery) error {
	switch s := q.stream; {
	case d.due == nil:
		return nil
	case s.unanswered():
		return errUnanswered
	case d.due.silence() && !s.proven(d.level, d.due):
		return errUnproven
	}
	return nil
}

// awaitOwner has d, which brings a due notice, wait until the ledger may say whose the partition is, and the hub
// that a device is silent.
func (q *queue) awaitOwner(d *delivery, why error) {
	d.note(why)
	if pause := q.stream.ledgerPause(); pause > 0 {
		q.retry(d, WaitLedger, pause)
		return
	}
	d.attempts++
	q.retry(d, WaitLedger, retryDelay(int(d.attempts)))
}

var (
	// errNotDue says that a device has been hot again since a recovery became due, or heard since a silence.
	errNotDue = errors.New("the notice is no longer due")
	// errUnanswered says that the ledger has not answered the last question in time.
	errUnanswered = errors.New("the ledger did not answer a moment ago")
	// errUnproven says that events of a silent device may have come that were not read yet.
	errUnproven = errors.New("it is not certain that the device is still silent")
)

const (
	ownerTimeout = 4 * time.Second  // of a notice that waits for the ledger's answer, and holds a claim
	askAgain     = 10 * time.Second // how long the ledger is not asked after it did not answer
)

// An ownerCheck is a question to the ledger, whether this replica owns it. One answer serves all that wait for it.
type ownerCheck struct {
	answered chan struct{} // closed then
	err      error
}

// askOwner returns a question to the ledger that has not been asked yet, and sees to it that it is. The caller holds
// s.mu.
func (s *stream) askOwner() *ownerCheck {
	if s.question == nil {
		s.question = &ownerCheck{answered: make(chan struct{})}
		if !s.asking {
			s.asking = true
			s.work.Go(s.checkOwner)
		}
	}
	return s.question
}

// checkOwner asks the ledger for as long as there is a question.
func (s *stream) checkOwner() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.question != nil {
		c := s.question
		s.question = nil
		s.mu.Unlock()
		c.err = s.ledger.Check(s.send)
		s.mu.Lock()
		close(c.answered)
		switch {
		case c.err == nil:
			if s.askOwnerAt > 0 {
				s.askOwnerAt = 0
				s.wakeOwned()
			}
		case errors.Is(c.err, ledger.ErrLost):
			s.lose()
		default:
			s.askOwnerAt = s.now() + askAgain
		}
	}
	s.asking = false
}

// unanswered reports whether the ledger has not answered the last question, which it is asked again in time. Then
// nothing that is due is claimed: it could not be sent.
func (s *stream) unanswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.askOwnerAt > 0 && s.now() >= s.askOwnerAt {
		s.askOwner()
	}
	return s.askOwnerAt > 0
}

// ledgerPause returns how long the ledger is not asked, after it did not answer: whatever waits for it waits for as
// long, and is woken by its answer. It is 0 if it has answered.
func (s *stream) ledgerPause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.askOwnerAt == 0 {
		return 0
	}
	return max(s.askOwnerAt-s.now(), minBackoff)
}

// wakeOwned has the deliveries that wait for the ledger go on. The caller holds s.mu.
func (s *stream) wakeOwned() {
	for _, q := range s.queues {
		q.wake(WaitLedger)
	}
}

// mayNotify returns why d, if it brings a due notice, must not be sent under the claim that was just made:
// it is not due any more, or it is not known that this replica still owns the partition. Neither the claim nor an
// answer from before it says so: another owner may have read on, and a reading that opened an alarm
// may have been covered by the window that has just ended, which leaves no trace in the gate's record.
func (q *queue) mayNotify(ctx context.Context, d *delivery) error {
	s := q.stream
	if d.due == nil {
		return nil
	}
	s.mu.Lock()
	due := q.stillPending(d)
	s.mu.Unlock()
	if !due {
		return errNotDue
	}
	return s.owns(ctx)
}

// owns returns nil once the ledger has said, to a question that was asked after the call, that this replica owns it.
func (s *stream) owns(ctx context.Context) error {
	s.mu.Lock()
	c := s.askOwner()
	s.mu.Unlock()
	late := time.NewTimer(ownerTimeout)
	defer late.Stop()
	select {
	case <-c.answered:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.askOwnerAt = max(s.askOwnerAt, s.now()+askAgain)
		return errUnanswered
	}
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
		d.level.stats.Recovered.Add(1)
	} else {
		d.level.stats.Sent.Add(1)
	}
	d.suppressed = 0
	if d.head.arrival != nil {
		d.head.arrival.alerted.Store(true)
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
			q.stream.maxWaiting,
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
	if d.head.arrival != nil {
		age = time.Since(d.head.arrival.at)
	}
	return age >= q.stream.GiveUp
}

func (q *queue) tooOld(failure error) string {
	return fmt.Sprintf("not taken within %v (NOTIFY_GIVE_UP): %v", q.stream.GiveUp, failure)
}

// Which of the readings that joined a delivery are settled together with its head.
func coversNone(reading) bool { return false }
func coversAll(reading) bool  { return true }

// conclude settles or reschedules d after an attempt whose outcome is not Failed.
func (q *queue) conclude(d *delivery, result throttle.Result, err error) {
	s := q.stream
	d.note(err)
	q.debug(d, "asked the gate about an alert", zap.Stringer("outcome", result.Outcome), zap.Error(err))
	switch result.Outcome {
	case throttle.Sent:
		q.settle(d, coversAll, result.Outcome.String())
	case throttle.Throttled:
		s.stats.Suppressed.Add(1)
		q.suppressedHead(d)
		q.settle(d, func(r reading) bool { return result.Covers(q.request(d, r)) }, result.Outcome.String())
	case throttle.Unconfirmed:
		s.warn(
			"an alert was taken but its window is not recorded yet; if it is sent again within the window, it has the same id",
			err,
		)
		_ = q.gate(d).Confirm(d.under(s.ctx), result) // the alert is delivered even if this fails
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
		s.warn("the throttle store is not responding; alerts wait", err)
		d.attempts++
		q.retry(d, WaitStore, retryDelay(int(d.attempts)))
	}
}

// writeLetter writes d's dead letter. Then the gate notes it, so that a replay does not send an alert after the
// recovery, nor the next owner a silence once more.
func (q *queue) writeLetter(d *delivery) {
	s := q.stream
	again := func(msg string, err error) {
		s.warn(msg, err)
		d.attempts++
		q.pause(d, givenUp, retryDelay(int(d.attempts)))
	}
	if !d.written {
		if err := s.DeadLetters.Keep(d.under(s.ctx), *d.letter); err != nil {
			again("cannot keep a dead letter; its event stays unsettled", err)
			return
		}
		d.written = true
		s.stats.DeadLetters.Add(1)
	}
	if d.due.silence() || d.level.rule.Resolved && d.due == nil && s.partition != nil {
		if err := q.gate(d).GiveUp(d.under(s.ctx), q.request(d, d.head)); err != nil {
			again("the throttle store is not responding; an alert that was given up stays unsettled", err)
			return
		}
	}
	q.letterKept(d)
}

// letterKept settles d, whose dead letter is kept.
func (q *queue) letterKept(d *delivery) {
	if d.head.arrival != nil {
		d.head.arrival.letter.Store(d.letter)
	}
	q.debug(d, "alert kept as a dead letter", zap.String("reason", d.letter.Reason))
	covers := coversNone
	if d.cause == tooMany {
		covers = coversAll // to make room
	}
	if d.refused { // one dead letter in a window is enough
		covers = d.coversRefused()
		q.gate(d).Refused(d.about)
	}
	q.settle(d, covers, OutcomeDeadLetter)
}

// coversRefused returns what a refusal for good settles: all that joined. Of devices that share alerts another one is
// tried once, because the fault may lie in what is said of the first.
func (d *delivery) coversRefused() func(reading) bool {
	if !d.shared || d.another {
		return coversAll
	}
	d.another = true
	refused := d.deviceOf(d.head)
	return func(r reading) bool { return d.deviceOf(r) == refused }
}

// debug logs what became of d's head.
func (q *queue) debug(d *delivery, msg string, fields ...zap.Field) {
	if line := q.stream.log.Check(zap.DebugLevel, msg); line != nil {
		line.Write(append([]zap.Field{
			zap.Int64("sequence", d.head.sequence), zap.String("device", d.deviceOf(d.head)),
			zap.String("receiver", q.to.Name), zap.Float64("temperature", d.head.value),
		}, fields...)...)
	}
}
