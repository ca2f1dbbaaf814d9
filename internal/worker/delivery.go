package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

const refusalsToGiveUp = 8 // failures of one alert, each after the receiver answered others

// A reading over the threshold. A delivery that waits holds two, so it is small.
type reading struct {
	value    float64
	enqueued int64 // when the hub took it, in Unix µs
	sequence int64
	arrival  *arrival // nil if it came from the hub
}

// An arrival is what there is to a reading that an Intake took.
type arrival struct {
	at   time.Time   // when, with this machine's monotonic clock, by which its age counts
	id   string      // names the alert instead of the sequence number, unless empty
	told atomic.Bool // an alert about this very reading was taken
}

// micros is t in µs, rounded up: rounding makes no reading older, and the hub counts in ms.
func micros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// A delivery brings one device's alert to one receiver: from a reading that no
// other is under way for until that one and all that joined are settled. It is in
// its queue's schedules while it waits, and a goroutine's own while it is tried.
//
// Tens of thousands may wait: a test keeps what one occupies, with all that belongs to it, below 300 bytes.
type delivery struct {
	device string
	entry  *entry  // holds the watermark before the first head
	head   reading // what the alert is about

	// Readings that came meanwhile, guarded by stream.mu. The
	// latest stands for all: what settles it settles those before it.
	latest reading
	joined uint32
	quiet  uint32 // readings before head that no alert has told of

	ended  chan struct{}      // closed at the end; nil if nobody waits for that. Guarded by stream.mu
	letter *notify.DeadLetter // to be kept, once it is written
	trace  *tracked           // nil if nobody follows

	key          int64 // of the schedule it waits in
	answered     int64 // alerts that the receiver had answered at the last failure; -1 if there was none
	attempts     uint16
	refusals     uint8 // of these, after the receiver answered others
	givenUp      cause // why it was given up while it waited
	unanswered   bool  // the store gave no answer last time
	deadLettered bool  // an alert became a dead letter
}

// A cause is why an alert is given up while it waits.
type cause uint8

const (
	none cause = iota
	tooOld
	tooMany
)

// OutcomeDeadLetter and OutcomeUnsettled are how deliveries end besides the gate's outcomes.
const (
	OutcomeDeadLetter = "dead_letter"
	OutcomeUnsettled  = "unsettled" // the partition ended first, and its next owner begins again
)

// A tracked delivery is followed by a Trace.
type tracked struct {
	Trace
	err error // why the last attempt failed
}

// begin starts a delivery of the reading r, for which e holds the watermark. The caller holds stream.mu.
func (q *queue) begin(device string, r reading, e *entry) *delivery {
	s := q.stream
	d := &delivery{device: device, entry: e, head: r, answered: -1}
	e.pending++
	q.byDevice[device] = d
	if s.Trace != nil {
		d.trace = &tracked{Trace: s.Trace(Start{
			AlertID: s.alertID(s.id, r), Device: device, Receiver: q.to.Name,
			Partition: s.id, FromHub: s.partition != nil, Sequence: r.sequence, Enqueued: fromMicros(r.enqueued),
		})}
	}
	q.waitTurn(d)
	return d
}

// join adds a reading of the same device. The caller holds stream.mu.
func (d *delivery) join(r reading) {
	if d.joined == 0 || r.enqueued >= d.latest.enqueued {
		d.latest = r
	}
	d.joined++
}

// under returns ctx for what is done for d.
func (d *delivery) under(ctx context.Context) context.Context {
	if d.trace == nil {
		return ctx
	}
	return d.trace.Under(ctx)
}

// request asks the gate for leave to alert about a reading of d's device.
func (q *queue) request(d *delivery, about reading) throttle.Request {
	r := throttle.Request{Device: d.device, ID: q.stream.alertID(q.stream.id, about), Enqueued: fromMicros(about.enqueued)}
	if about.arrival != nil {
		r.Arrived = about.arrival.at
	}
	return r
}

// alert puts together what the receiver is told under g.
func (q *queue) alert(d *delivery, g throttle.Grant) notify.Alert {
	s := q.stream
	return notify.Alert{
		ID:          g.ID,
		Source:      "/" + s.Origin,
		Device:      d.device,
		Temperature: d.head.value,
		Threshold:   s.Threshold,
		Enqueued:    fromMicros(d.head.enqueued),
		Partition:   s.id,
		Sequence:    d.head.sequence,
		Window:      s.Window,
		Token:       g.Token,
		Expires:     g.Expires,
		Suppressed:  g.Suppressed + int64(d.quiet),
		Replica:     s.Replica,
	}
}

// send makes one attempt.
func (q *queue) send(d *delivery, probe bool) {
	s, r := q.stream, q.to
	var alert notify.Alert
	var failure *notify.Error
	result, err := r.Gate.Do(d.under(s.send), q.request(d, d.head), func(ctx context.Context, g throttle.Grant) throttle.Answer {
		if g.Ambiguous {
			s.stats.Ambiguous.Add(1)
		}
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
	q.asked(d, result, probe, true)
	if result.Outcome != throttle.Failed {
		q.conclude(d, result, err)
		return
	}
	d.note(failure)
	reason := q.reason(d, failure, result.Now)
	if reason == "" {
		q.pause(d, &q.failed, max(retryDelay(int(d.attempts)), min(failure.RetryAfter, maxRetryAfter)))
		return
	}
	d.letter = &notify.DeadLetter{Alert: alert, Receiver: r.Name, Reason: reason}
	q.pause(d, &q.dead, 0)
}

// notify sends alert and says why it was not taken, nil if it was.
func (q *queue) notify(ctx context.Context, d *delivery, alert notify.Alert, probe bool) *notify.Error {
	s, r := q.stream, q.to
	err := r.Notifier.Notify(ctx, alert)
	if err == nil {
		d.quiet = 0
		if d.head.arrival != nil {
			d.head.arrival.told.Store(true)
		}
		q.report(d, nil, probe)
		return nil
	}
	failure := notify.AsError(err)
	d.attempts++
	s.log.Debug("alert not taken", zap.String("device", d.device), zap.String("receiver", r.Name), zap.Uint16("attempt", d.attempts), zap.Error(err))
	q.report(d, failure, probe)
	return failure
}

// report tells the receiver's health of an attempt, and people if that changed it.
func (q *queue) report(d *delivery, failure *notify.Error, probe bool) {
	s, r := q.stream, q.to
	if s.send.Err() != nil {
		return // we cut it short: that says nothing about the receiver
	}
	switch r.report(d, failure, probe) {
	case wentDown:
		s.log.Warn("receiver is down; its alerts wait, nothing is lost", zap.String("receiver", r.Name), zap.Error(failure))
	case cameUp:
		s.log.Info("receiver is back", zap.String("receiver", r.Name))
	}
}

// report takes note of what an attempt shows about the receiver. If it is well, alerts that
// failed wait like those that did not.
func (r *receiver) report(d *delivery, failure *notify.Error, probe bool) change {
	r.mu.Lock()
	defer r.mu.Unlock()
	if failure == nil || failure.Refused {
		for _, q := range r.queues {
			for _, failed := range q.failed.drain() {
				q.later.push(failed, failed.key)
			}
		}
		c := r.health.succeeded(failure == nil)
		r.dispatch()
		return c
	}
	first := d.answered != r.health.answered // since the receiver last answered
	if first && d.answered >= 0 {
		d.refusals++
	}
	d.answered = r.health.answered
	suspect := first && d.refusals == 0 // else it is known to fail when others do not
	return r.health.failed(r.worker.now(), failure, suspect, probe)
}

// reason says why a failed alert should be tried no more; empty if it should. now is the store's clock.
func (q *queue) reason(d *delivery, failure *notify.Error, now time.Time) string {
	switch {
	case failure.Refused:
		return fmt.Sprintf("refused for good: %v", failure)
	case d.refusals >= refusalsToGiveUp:
		return fmt.Sprintf("failed %d times while the receiver took others: %v", d.attempts, failure)
	case q.old(d, now):
		return q.tooOld(failure)
	}
	return ""
}

// old reports whether d's alert is older than NOTIFY_GIVE_UP. now is the store's clock.
func (q *queue) old(d *delivery, now time.Time) bool {
	age := now.Sub(fromMicros(d.head.enqueued))
	if d.head.arrival != nil {
		age = time.Since(d.head.arrival.at)
	}
	return age >= q.stream.GiveUp
}

func (q *queue) tooOld(failure *notify.Error) string {
	return fmt.Sprintf("not taken within %v (NOTIFY_GIVE_UP): %v", q.stream.GiveUp, failure)
}

// What a delivery's end covers, of the readings that joined.
func coversNone(reading) bool { return false }
func coversAll(reading) bool  { return true }

// conclude goes on with d after an attempt whose outcome is not Failed.
func (q *queue) conclude(d *delivery, result throttle.Result, err error) {
	s := q.stream
	d.note(err)
	switch result.Outcome {
	case throttle.Sent:
		q.settle(d, coversAll, result.Outcome.String())
	case throttle.Throttled:
		s.stats.Suppressed.Add(1)
		q.settle(d, func(r reading) bool { return result.Covers(q.request(d, r)) }, result.Outcome.String())
	case throttle.Unconfirmed:
		s.warn("an alert was taken but its window is not recorded yet; a second one within the window has the same id", err)
		_ = q.to.Gate.Confirm(d.under(s.ctx), result) // delivered is delivered, recorded or not
		q.settle(d, coversNone, result.Outcome.String())
	case throttle.SentLate:
		q.settle(d, coversNone, result.Outcome.String())
	case throttle.Busy:
		q.pause(d, q.again(d), min(time.Until(result.Retry), minAskAgain+rand.N(maxAskAgain-minAskAgain)))
	case throttle.Unavailable:
		s.warn("the throttle store does not answer; alerts wait", err)
		d.attempts++
		q.pause(d, q.again(d), retryDelay(int(d.attempts)))
	}
}

// again is where d waits to ask the gate again.
func (q *queue) again(d *delivery) *schedule {
	if d.givenUp != none {
		return &q.dead
	}
	return &q.later
}

// note keeps why the last attempt failed, nil if it did not.
func (d *delivery) note(err error) {
	if d.trace != nil {
		d.trace.err = err
	}
}

// deadLetter makes d's alert a dead letter. One that was given up while it waited asks the gate
// first, without sending: it may be covered.
func (q *queue) deadLetter(d *delivery, probe bool) {
	if d.letter == nil {
		result, err := q.writeLetter(d)
		q.asked(d, result, probe, false)
		if result.Outcome != throttle.Failed {
			q.to.written()
			q.conclude(d, result, err)
			return
		}
		if d.givenUp == tooOld && !q.old(d, result.Now) { // we reckoned wrong
			d.letter, d.givenUp = nil, none
			q.to.written()
			q.pause(d, &q.later, minBackoff)
			return
		}
	}
	s := q.stream
	err := s.DeadLetters.Keep(d.under(s.ctx), *d.letter)
	q.to.written()
	if err != nil {
		s.warn("a dead letter cannot be kept; its event stays unsettled", err)
		d.attempts++
		q.pause(d, &q.dead, retryDelay(int(d.attempts)))
		return
	}
	s.stats.DeadLetters.Add(1)
	d.deadLettered = true
	covers := coversNone
	if d.givenUp == tooMany {
		covers = coversAll // its place is needed
	}
	q.settle(d, covers, OutcomeDeadLetter)
}

// writeLetter writes the letter of an alert that was given up while it waited, under a claim.
func (q *queue) writeLetter(d *delivery) (throttle.Result, error) {
	q.to.mu.Lock()
	failure := q.to.health.failure
	q.to.mu.Unlock()
	reason := fmt.Sprintf("the oldest of more than %d alerts of the partition that waited for the receiver", q.stream.maxWaiting)
	if d.givenUp == tooOld {
		reason = q.tooOld(failure)
	}
	result, err := q.to.Gate.Do(d.under(q.stream.send), q.request(d, d.head), func(_ context.Context, g throttle.Grant) throttle.Answer {
		d.letter = &notify.DeadLetter{Alert: q.alert(d, g), Receiver: q.to.Name, Reason: reason}
		return throttle.NotTaken
	})
	q.stream.stats.Outcomes[result.Outcome].Add(1)
	return result, err
}

// written says that a dead letter is no longer being written.
func (r *receiver) written() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing--
	r.dispatch()
}

// settle ends d if all of its readings are settled: head is, and those that
// joined are if their latest is covered. Otherwise the latest becomes the head
// and d goes on; the entry stays where it is, which is safe.
func (q *queue) settle(d *delivery, covers func(reading) bool, outcome string) {
	s := q.stream
	s.mu.Lock()
	if d.joined > 0 && !covers(d.latest) {
		d.head, d.quiet, d.joined = d.latest, d.quiet+d.joined-1, 0
		s.mu.Unlock()
		d.attempts, d.refusals, d.answered, d.letter, d.givenUp = 0, 0, -1, nil, none
		q.waitTurn(d)
		return
	}
	q.to.Gate.Suppressed(d.device, int64(d.quiet)+int64(d.joined))
	delete(q.byDevice, d.device)
	s.settle(d.entry)
	s.mu.Unlock()
	q.end(d, outcome)
}

// end tells those who wait for d's end or follow it. Nothing joins d any more.
func (q *queue) end(d *delivery, outcome string) {
	if d.ended != nil {
		close(d.ended)
	}
	if d.trace != nil {
		d.trace.End(End{Outcome: outcome, Suppressed: int64(d.quiet) + int64(d.joined), Err: d.trace.err})
	}
}
