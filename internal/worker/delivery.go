package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

const ownFailuresToGiveUp = 8 // of one alert, each after the receiver has answered about others

// A reading is one that a rule tells of, or that cleared an alarm. A waiting delivery holds two, so it is small.
type reading struct {
	value    float64
	limit    float64 // that it reached, or is clear of
	enqueued int64   // when the hub took it, in Unix µs
	sequence int64
	since    int64    // when the hub took the first of the readings that reached the limit, in Unix µs; 0 if the rule has no state
	arrival  *arrival // nil if it came from the hub
}

// An arrival is what else is known of a reading that came through an Intake.
type arrival struct {
	at      time.Time                         // when it came; its monotonic clock gives the reading's age
	id      string                            // replaces the sequence number in the alert's id, unless empty
	alerted atomic.Bool                       // an alert about this reading was taken
	letter  atomic.Pointer[notify.DeadLetter] // that of an alert about this reading, once it is kept
}

// micros is t in µs, rounded up: rounding makes no reading older, and the hub counts in ms.
func micros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// A delivery takes one device's alert to one receiver, or tells it that the device is well
// again. It starts with a reading, and ends when that and all that have joined are
// settled; a device has at most one at a time for each level and receiver. It is in one
// of its queue's schedules while it waits, and belongs to one goroutine during an attempt.
//
// A resolved holds no watermark: the ledger keeps that it is owed.
//
// Tens of thousands may wait, so a test holds the memory of one, with all that
// belongs to it, below 420 bytes.
type delivery struct {
	device string
	level  *level
	entry  *entry  // holds the watermark before the first head; nil for a resolved that no reading has joined
	head   reading // what the alert is about
	owed   *owed   // the resolved that it tells; nil for an alert

	// The readings that have joined, guarded by stream.mu. Only the latest is kept:
	// what settles it settles those before it.
	latest     reading
	joined     uint32
	suppressed uint32 // readings before head that no alert has counted

	ended  chan struct{}      // closed at the end; nil if nobody waits for it. Guarded by stream.mu
	letter *notify.DeadLetter // the dead letter to keep, once it is composed
	trace  *tracked           // nil if deliveries are not traced

	since        int64 // from when on it could be told, in Unix µs: the time of its head, or the end of the window that a resolved waited for
	key          int64 // in the schedule where it waits
	index        int32 // in the heap of that
	answered     int64 // value of health.answered at the last failure; -1 if there was none
	attempts     uint16
	ownFailures  uint8 // failures after the receiver has answered about others since the one before
	givenUp      cause // why it was given up while it waited
	unanswered   bool  // the store did not answer the last time
	busy         bool  // the last time another claim was in force
	in           place // where it waits; like key, unanswered and busy guarded by receiver.mu
	deadLettered bool  // the last alert became a dead letter
	kept         bool  // its dead letter is kept
	unowned      bool  // the last time it was not known whether this replica still owns the partition
}

// A cause is why a delivery is given up while it waits.
type cause uint8

const (
	none cause = iota
	tooOld
	tooMany
)

// Values of [End.Outcome] that are not the gate's.
const (
	OutcomeDeadLetter = "dead_letter"
	OutcomeUnsettled  = "unsettled" // the partition ended first; its next owner starts again
)

// tracked is a delivery's trace.
type tracked struct {
	Trace
	err error // why the last attempt failed
}

// begin returns a new delivery about the reading r: of the resolved o, or of an alert if
// that is nil. It must be put into a schedule. The caller holds stream.mu.
func (q *queue) begin(device string, l *level, r reading, o *owed) *delivery {
	s := q.stream
	d := &delivery{device: device, level: l, head: r, owed: o, since: r.enqueued, answered: -1}
	q.deliveries[alarmKey{device, l}] = d
	if s.Trace != nil {
		d.trace = &tracked{Trace: s.Trace(Start{
			AlertID: s.alertID(d, r), Device: device, Rule: l.rule.Name, Level: l.Name, Resolved: o != nil, Receiver: q.to.Name,
			Partition: s.id, FromHub: s.partition != nil, Sequence: r.sequence, Enqueued: fromMicros(r.enqueued),
		})}
	}
	return d
}

// hold has d hold the watermark by e. The caller holds stream.mu.
func (q *queue) hold(d *delivery, e *entry) {
	d.entry = e
	e.pending++
	q.alerts++
}

// owe does what follows from a change of what is owed about a device's level: a resolved that is
// not owed any more is dropped, unless it is being sent, and a new one is started, unless the device has a
// delivery that must end before. The caller holds stream.mu.
func (q *queue) owe(device string, l *level) {
	key := alarmKey{device, l}
	o := q.stream.alarms.of(device, l).owed
	d := q.deliveries[key]
	if d != nil && d.owed != nil && d.owed != o && q.withdraw(d) {
		q.replace(d, throttle.Unneeded.String())
		return
	}
	if d == nil && o != nil && o.receivers&q.to.bit() != 0 {
		q.waitTurn(q.begin(device, l, o.reading, o))
	}
}

// stillOwed reports whether the resolved that d tells is owed. The caller holds stream.mu.
func (q *queue) stillOwed(d *delivery) bool {
	return q.stream.alarms.of(d.device, d.level).owed == d.owed
}

// join adds a reading of the same device. The caller holds stream.mu.
func (d *delivery) join(r reading) {
	if d.joined == 0 || r.enqueued >= d.latest.enqueued {
		d.latest = r
	}
	d.joined++
}

// under returns the context for one step of d.
func (d *delivery) under(ctx context.Context) context.Context {
	if d.trace == nil {
		return ctx
	}
	return d.trace.Under(ctx)
}

// request returns the request to the gate for an alert about a reading of d's device.
func (q *queue) request(d *delivery, about reading) throttle.Request {
	r := throttle.Request{
		Device: d.device, ID: q.stream.alertID(d, about), Enqueued: fromMicros(about.enqueued), Sequence: about.sequence, Resolved: d.owed != nil,
	}
	if about.arrival != nil {
		r.Arrived = about.arrival.at
	}
	return r
}

// alert returns the alert about d's head under g.
func (q *queue) alert(d *delivery, g throttle.Grant) notify.Alert {
	s, l := q.stream, d.level
	a := notify.Alert{
		ID:          g.ID,
		Source:      "/" + s.Origin + l.suffix,
		Device:      d.device,
		Rule:        l.rule.Name,
		Level:       l.Name,
		Resolved:    d.owed != nil,
		Removed:     l.removed,
		Below:       l.rule.Below,
		Temperature: d.head.value,
		Threshold:   d.head.limit,
		Enqueued:    fromMicros(d.head.enqueued),
		Partition:   s.id,
		Sequence:    d.head.sequence,
		WillResolve: l.rule.Resolved && d.owed == nil && s.partition != nil,
		Window:      l.rule.Window,
		Remember:    q.gate(d).Remember(),
		Token:       g.Token,
		Expires:     g.Expires,
		Suppressed:  g.Suppressed + int64(d.suppressed),
		Replica:     s.Replica,
		Ambiguous:   g.Ambiguous,
	}
	if l.rule.Name != rules.DefaultName {
		a.Field = l.rule.Field
	}
	if d.head.since != 0 {
		a.Since = fromMicros(d.head.since)
	}
	return a
}

// gate returns the gate that d has to pass.
func (q *queue) gate(d *delivery) *throttle.Gate { return d.level.gates[q.to.index] }

// send makes one attempt and settles or reschedules d.
func (q *queue) send(d *delivery, probe bool) {
	s, r := q.stream, q.to
	var alert notify.Alert
	var failure *notify.Error
	var unowned error
	result, err := q.gate(d).Do(d.under(s.send), q.request(d, d.head), func(ctx context.Context, g throttle.Grant) throttle.Answer {
		if g.Ambiguous {
			s.stats.Ambiguous.Add(1)
		}
		if unowned = q.mayTell(ctx, d); unowned != nil {
			return throttle.NotTaken
		}
		d.unowned = false
		alert = q.alert(d, g)
		if failure = q.notify(ctx, d, alert, probe); failure == nil {
			return throttle.Taken
		}
		if failure.Untaken || failure.Refused {
			return throttle.NotTaken
		}
		return throttle.Unknown
	})
	s.stats.Outcomes[result.Outcome].Add(1)
	q.gateAnswered(d, result, probe, true)
	if result.Outcome != throttle.Failed {
		q.conclude(d, result, err)
		return
	}
	if unowned != nil {
		d.note(unowned)
		d.unowned = true
		d.attempts++
		q.pause(d, &q.later, retryDelay(int(d.attempts)))
		return
	}
	d.note(failure)
	reason := q.reason(d, failure, result.Now)
	if reason == "" {
		q.pause(d, &q.failed, max(retryDelay(int(d.attempts)), min(failure.RetryAfter, maxRetryAfter)))
		return
	}
	d.letter = &notify.DeadLetter{Alert: alert, Receiver: r.ID, Name: r.Name, Reason: reason}
	q.pause(d, &q.dead, 0)
}

// errNotOwed says that a device has been hot again since a resolved was owed.
var errNotOwed = errors.New("the resolved is not owed any more")

// errSilent says that a resolved waits until the ledger answers another one.
var errSilent = errors.New("the ledger did not answer a moment ago")

// askLedgerAgain is how long the ledger is not asked after it did not answer.
const askLedgerAgain = 10 * time.Second

// mayTell returns why d, if it is a resolved, must not be told under the claim that was just made:
// it is not owed any more, or it is not known that this replica still owns the partition. A claim proves nothing
// about the partition, and another owner may have read on.
func (q *queue) mayTell(ctx context.Context, d *delivery) error {
	s := q.stream
	if d.owed == nil {
		return nil
	}
	s.mu.Lock()
	owed, now := q.stillOwed(d), s.now()
	silent := now < s.askLedger
	if s.askLedger > 0 && !silent {
		s.askLedger = now + askLedgerAgain // one asks; it may wait for as long as an attempt takes, of which there are few at a time
	}
	s.mu.Unlock()
	switch {
	case !owed:
		return errNotOwed
	case silent:
		return errSilent
	}
	err := s.ledger.Check(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.askLedger = 0
	case errors.Is(err, ledger.ErrLost):
		s.lose()
	default:
		s.askLedger = s.now() + askLedgerAgain
	}
	return err
}

// notify sends alert. It returns nil if the receiver took it.
func (q *queue) notify(ctx context.Context, d *delivery, alert notify.Alert, probe bool) *notify.Error {
	err := q.to.Notifier.Notify(ctx, alert)
	if err == nil {
		if alert.Resolved {
			d.level.stats.Resolved.Add(1)
		} else {
			d.level.stats.Sent.Add(1)
		}
		d.suppressed = 0
		if d.head.arrival != nil {
			d.head.arrival.alerted.Store(true)
		}
		q.report(d, nil, probe)
		return nil
	}
	failure := notify.AsError(err)
	d.attempts++
	q.debug(d, "alert not taken", zap.Uint16("attempt", d.attempts), zap.Error(err))
	q.report(d, failure, probe)
	return failure
}

// report records an attempt in the receiver's health, which is for others to report.
func (q *queue) report(d *delivery, failure *notify.Error, probe bool) {
	if q.stream.send.Err() != nil {
		return // we cancelled it: that says nothing about the receiver
	}
	q.to.report(d, failure, probe)
}

// reason returns why a failed alert should not be attempted again, empty if it
// should. now is the store's clock.
func (q *queue) reason(d *delivery, failure *notify.Error, now time.Time) string {
	switch {
	case failure.Refused:
		return fmt.Sprintf("refused for good: %v", failure)
	case d.ownFailures >= ownFailuresToGiveUp:
		return fmt.Sprintf("failed %d times while the receiver took others: %v", d.attempts, failure)
	case q.old(d, now):
		return q.tooOld(failure)
	}
	return ""
}

// old reports whether d could have been told for as long as NOTIFY_GIVE_UP. now is the
// store's clock.
func (q *queue) old(d *delivery, now time.Time) bool {
	age := now.Sub(fromMicros(d.since))
	if d.head.arrival != nil {
		age = time.Since(d.head.arrival.at)
	}
	return age >= q.stream.GiveUp
}

func (q *queue) tooOld(failure *notify.Error) string {
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
		q.gate(d).Suppressed(d.device, 1)
		q.settle(d, func(r reading) bool { return result.Covers(q.request(d, r)) }, result.Outcome.String())
	case throttle.Unconfirmed:
		s.warn("an alert was taken but its window is not recorded yet; if it is sent again within the window, it has the same id", err)
		_ = q.gate(d).Confirm(d.under(s.ctx), result) // the alert is delivered even if this fails
		q.settle(d, coversNone, result.Outcome.String())
	case throttle.SentLate, throttle.Unneeded:
		q.settle(d, coversNone, result.Outcome.String())
	case throttle.Busy:
		if d.owed != nil {
			wait := max(time.Until(result.Retry), minAskAgain)
			if now, ok := q.to.storeTime(); ok {
				d.since = now + wait.Microseconds()
			}
			d.givenUp = none
			q.pause(d, &q.window, wait)
			return
		}
		q.pause(d, q.retrySchedule(d), min(time.Until(result.Retry), minAskAgain+rand.N(maxAskAgain-minAskAgain)))
	case throttle.Unavailable:
		s.warn("the throttle store is not responding; alerts wait", err)
		d.attempts++
		q.pause(d, q.retrySchedule(d), retryDelay(int(d.attempts)))
	}
}

// retrySchedule is where d waits to ask the gate again.
func (q *queue) retrySchedule(d *delivery) *schedule {
	if d.givenUp != none {
		return &q.dead
	}
	return &q.later
}

// note keeps for d's trace why the last attempt failed, nil if it did not.
func (d *delivery) note(err error) {
	if d.trace != nil {
		d.trace.err = err
	}
}

// deadLetter keeps d's alert as a dead letter. If d was given up while it waited,
// the gate is asked first, since a window may already suppress the alert.
func (q *queue) deadLetter(d *delivery, probe bool) {
	if d.letter == nil {
		result, err := q.composeLetter(d)
		q.gateAnswered(d, result, probe, false)
		if result.Outcome != throttle.Failed {
			q.to.letterDone()
			q.conclude(d, result, err)
			return
		}
		if d.givenUp == tooOld && !q.old(d, result.Now) { // the estimate was wrong
			d.letter, d.givenUp = nil, none
			q.to.letterDone()
			q.pause(d, &q.later, minBackoff)
			return
		}
	}
	err := q.keep(d)
	q.to.letterDone()
	if err != nil {
		d.attempts++
		q.pause(d, &q.dead, retryDelay(int(d.attempts)))
		return
	}
	d.deadLettered = true
	if d.head.arrival != nil {
		d.head.arrival.letter.Store(d.letter)
	}
	q.debug(d, "alert kept as a dead letter", zap.String("reason", d.letter.Reason))
	covers := coversNone
	if d.givenUp == tooMany {
		covers = coversAll // to make room
	}
	q.settle(d, covers, OutcomeDeadLetter)
}

// keep keeps d's dead letter. Of a rule that tells when a device is normal again, it then tells
// the gate that the alert was given up, so that a replay does not send it after that.
func (q *queue) keep(d *delivery) error {
	s := q.stream
	if !d.kept {
		if err := s.DeadLetters.Keep(d.under(s.ctx), *d.letter); err != nil {
			s.warn("cannot keep a dead letter; its event stays unsettled", err)
			return err
		}
		d.kept = true
		s.stats.DeadLetters.Add(1)
	}
	if !d.level.rule.Resolved || d.owed != nil || s.partition == nil {
		return nil
	}
	err := q.gate(d).GiveUp(d.under(s.ctx), q.request(d, d.head))
	if err != nil {
		s.warn("the throttle store is not responding; an alert that was given up stays unsettled", err)
	}
	return err
}

// composeLetter composes, under a claim, the dead letter of an alert that was given
// up while it waited.
func (q *queue) composeLetter(d *delivery) (throttle.Result, error) {
	q.to.mu.Lock()
	failure := q.to.health.failure
	q.to.mu.Unlock()
	reason := fmt.Sprintf("the oldest of more than %d alerts of the partition that waited for the receiver", q.stream.maxWaiting)
	if d.givenUp == tooOld {
		reason = q.tooOld(failure)
	}
	result, err := q.gate(d).Do(d.under(q.stream.send), q.request(d, d.head), func(_ context.Context, g throttle.Grant) throttle.Answer {
		d.letter = &notify.DeadLetter{Alert: q.alert(d, g), Receiver: q.to.ID, Name: q.to.Name, Reason: reason}
		return throttle.NotTaken
	})
	q.stream.stats.Outcomes[result.Outcome].Add(1)
	return result, err
}

// debug logs what became of d's head.
func (q *queue) debug(d *delivery, msg string, fields ...zap.Field) {
	if line := q.stream.log.Check(zap.DebugLevel, msg); line != nil {
		line.Write(append([]zap.Field{
			zap.Int64("sequence", d.head.sequence), zap.String("device", d.device), zap.String("receiver", q.to.Name), zap.Float64("temperature", d.head.value),
		}, fields...)...)
	}
}

// settle settles d's head, and ends d unless the latest reading that joined is not
// covered. That one then becomes the head and d starts again. Its watermark entry
// stays at the first head, which is safe.
func (q *queue) settle(d *delivery, covers func(reading) bool, outcome string) {
	s := q.stream
	s.mu.Lock()
	if d.owed != nil {
		s.settleOwed(d, q.to.bit())
		q.replace(d, outcome)
		s.mu.Unlock()
		return
	}
	if d.joined > 0 && !covers(d.latest) {
		d.head, d.suppressed, d.joined = d.latest, d.suppressed+d.joined-1, 0
		s.mu.Unlock()
		d.since, d.kept = d.head.enqueued, false
		d.attempts, d.ownFailures, d.answered, d.letter, d.deadLettered, d.givenUp = 0, 0, -1, nil, false, none
		q.waitTurn(d)
		return
	}
	q.gate(d).Suppressed(d.device, int64(d.suppressed)+int64(d.joined))
	delete(q.deliveries, alarmKey{d.device, d.level})
	q.alerts--
	s.settle(d.entry)
	if s.alarms != nil {
		q.owe(d.device, d.level)
	}
	s.mu.Unlock()
	q.end(d, outcome)
}

// replace ends d, which told a resolved or is not to tell it any more, and starts what follows: an alert
// about the readings that have joined, or a resolved that is owed since. The caller
// holds stream.mu.
func (q *queue) replace(d *delivery, outcome string) {
	delete(q.deliveries, alarmKey{d.device, d.level})
	if d.joined > 0 {
		next := q.begin(d.device, d.level, d.latest, nil)
		next.entry, next.suppressed, next.ended = d.entry, d.joined-1, d.ended
		d.ended = nil
		q.waitTurn(next)
	} else {
		q.owe(d.device, d.level)
	}
	q.end(d, outcome)
}

// settleOwed records that a receiver has settled the resolved that d tells. The caller holds s.mu.
func (s *stream) settleOwed(d *delivery, receiver uint32) {
	o := d.owed
	if o.receivers &^= receiver; o.receivers != 0 {
		return
	}
	if k := s.alarms.of(d.device, d.level); k.owed == o {
		k.owed = nil
		s.alarms.set(d.device, d.level, k)
	}
	s.alarms.history.settle(alarmKey{d.device, d.level}, o)
}

// end notifies those who wait for d's end and the trace. Nothing may join d any more.
func (q *queue) end(d *delivery, outcome string) {
	if d.ended != nil {
		close(d.ended)
	}
	if d.trace != nil {
		d.trace.End(End{Outcome: outcome, Suppressed: int64(d.suppressed) + int64(d.joined), Err: d.trace.err})
	}
}
