package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"alertworker/internal/backoff"
	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

// A Direct brings alerts straight to receivers, for callers who wait for the outcome and repeat what is not settled: it
// asks the gate, sends at once, and tries nothing twice. Nothing waits in a queue or for the pace of a receiver, which
// learns from the answers all the same. It is safe for concurrent use.
type Direct struct{ box *Outbox }

// Direct returns a Direct whose account has no Owner. Once sending has ended, sends under way are cancelled.
func (dp *Dispatcher) Direct(sending context.Context, a Account) *Direct {
	box := &Outbox{account: a, dispatcher: dp, settling: sending, sending: sending}
	for _, r := range dp.receivers {
		box.queues = append(box.queues, &queue{box: box, to: r}) // the receiver does not know it: it composes messages
	}

	return &Direct{box}
}

// Suppress takes the receivers off a whose window is known to be in force, without asking anybody, and counts the reading
// for their next alert.
func (x *Direct) Suppress(a *Alert) {
	for i := range x.box.queues {
		if a.Receivers&(1<<i) != 0 && a.covered(i) {
			a.Receivers &^= 1 << i
			x.box.dispatcher.config.Stats.Suppressed.Add(1)
		}
	}
}

// A Reply is what an alert came to.
type Reply struct {
	Alerted bool   // a receiver took it
	Reason  string // why it is not settled, for programs; empty if every receiver has taken it or needs none
	Detail  string // the same for people, without secrets
}

// Alert brings a to its receivers, to all at the same time. It waits until each is settled or known not to be. ctx ends
// the wait for other claims; a send that is under way then still ends by itself, within the time of a claim.
func (x *Direct) Alert(ctx context.Context, a *Alert, details Details) (worst Reply) {
	a.Reading.More = details.More()
	replies := make([]Reply, len(x.box.queues))
	var sending sync.WaitGroup
	for i, q := range x.box.queues {
		if a.Receivers&(1<<i) != 0 {
			sending.Go(func() { replies[i] = q.direct(ctx, a) })
		}
	}

	sending.Wait()

	for _, r := range replies {
		worst = worst.And(r)
	}

	return worst
}

// And returns what r and another one are together: not settled if one is not.
func (r Reply) And(other Reply) Reply {
	if r.Reason == "" {
		r.Reason, r.Detail = other.Reason, other.Detail
	}

	r.Alerted = r.Alerted || other.Alerted

	return r
}

// direct brings a to the receiver.
func (q *queue) direct(ctx context.Context, a *Alert) Reply {
	d := &delivery{subject: a.Key}
	d.start(&a.Reading)
	q.follows(d, &a.Reading)
	outcome, reply := q.directly(ctx, d, a)
	d.end(outcome)

	return reply
}

// directly asks the gate about d, again while somebody else holds the key, and sends d if it may. It returns how d has
// ended.
func (q *queue) directly(ctx context.Context, d *delivery, about *Alert) (outcome string, reply Reply) {
	sending, name := d.under(q.box.sending), q.to.to.Name
	for {
		a := attempt{group: &group{size: 1, began: q.to.dispatcher.now()}}
		a.claim, a.result, a.err = q.gate(d).Claim(sending, q.request(d, &d.head))
		if a.claim == nil {
			q.box.dispatcher.config.Stats.Outcomes[a.result.Outcome].Add(1)
		} else {
			a.alert = q.message(d, a.claim.Grant)
			q.sends(d, &a)
			ctx, cancel := a.claim.Grant.Sending(sending)
			err := q.to.notify(ctx, a.alert)
			cancel()
			q.settleClaim(d, &a, q.answer(d, &a, err))
		}

		d.note(a.err)
		outcome = a.result.Outcome.String()

		switch a.result.Outcome {
		case throttle.Throttled:
			q.box.dispatcher.config.Stats.Suppressed.Add(1)
			q.suppressedHead(d)
			return outcome, Reply{}

		case throttle.Busy:
			wait := min(time.Until(a.result.Retry), minAskAgain+rand.N(maxAskAgain-minAskAgain))
			if !backoff.Sleep(ctx, wait) {
				return OutcomeUnsettled, Reply{Reason: WaitClaim.String(), Detail: q.waitText(d, WaitClaim)}
			}

			if about.covered(q.to.index) { // by what another caller has sent meanwhile
				q.box.dispatcher.config.Stats.Suppressed.Add(1)
				return throttle.Throttled.String(), Reply{}
			}

		case throttle.Unavailable:
			q.box.warn(q.waitText(d, WaitStore), a.err)
			return OutcomeUnsettled, Reply{Reason: WaitStore.String(), Detail: q.waitText(d, WaitStore)}

		case throttle.Failed:
			d.note(a.failure)
			if a.failure.Refused {
				return q.directLetter(sending, d, &a)
			}

			return OutcomeUnsettled, Reply{
				Reason: WaitReceiver.String(),
				Detail: fmt.Sprintf("receiver %s did not accept the alert: %v", name, a.failure),
			}

		case throttle.Unconfirmed: // the alert is delivered even if the window is never recorded
			_ = q.gate(d).Confirm(ctx, a.result)
			return outcome, Reply{Alerted: true}

		default:
			return outcome, Reply{Alerted: true}
		}
	}
}

// directLetter keeps the dead letter of d, which the receiver has refused for good. Within the window it needs no other.
func (q *queue) directLetter(ctx context.Context, d *delivery, a *attempt) (outcome string, reply Reply) {
	letter := notify.DeadLetter{
		Alert:    a.alert,
		Receiver: q.to.to.ID,
		Name:     q.to.to.Name,
		Reason:   fmt.Sprintf("refused for good: %v", a.failure),
	}
	if err := q.box.dispatcher.config.DeadLetters.Keep(ctx, letter); err != nil {
		detail := "receiver " + q.to.to.Name + " refused the alert, and its dead letter cannot be written"
		return OutcomeUnsettled, Reply{Reason: WaitDeadLetter.String(), Detail: detail}
	}

	q.box.dispatcher.config.Stats.DeadLetters.Add(1)
	q.gate(d).Refused(d.subject.About)

	return OutcomeDeadLetter, Reply{
		Reason: OutcomeDeadLetter,
		Detail: "the alert was kept as a dead letter: " + letter.Reason,
	}
}
