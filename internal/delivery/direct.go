package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"alertworker/internal/backoff"
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
func (x *Direct) Alert(ctx context.Context, a *Alert) (worst Reply) {
	a.Reading.More = a.More()
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

// direct brings about to the receiver: it asks the gate, again while somebody else holds the key, and sends it if it may.
func (q *queue) direct(ctx context.Context, about *Alert) Reply {
	d := &delivery{q: q, subject: about.Key, head: about.Reading}
	sending, stats := q.box.sending, q.box.dispatcher.config.Stats
	for {
		a := attempt{d: d}
		a.claim, a.result, a.err = d.gate().Claim(sending, d.request(&d.head))
		if a.claim == nil {
			stats.Outcomes[a.result.Outcome].Add(1)
		} else {
			a.alert = d.compose(a.claim.Grant)
			m := message{to: q.to, began: q.to.dispatcher.now(), claimed: []*attempt{&a}}
			a.settle(m.send())
		}

		name := q.to.to.Name
		switch a.result.Outcome {
		case throttle.Throttled:
			d.suppressedHead()
			return Reply{}

		case throttle.Busy:
			wait := min(time.Until(a.result.Retry), minAskAgain+rand.N(maxAskAgain-minAskAgain))
			if !backoff.Sleep(ctx, wait) {
				return Reply{Reason: WaitClaim.String(), Detail: WaitClaim.text(name, 0, "")}
			}

			if about.covered(q.to.index) { // by what another caller has sent meanwhile
				stats.Suppressed.Add(1)
				return Reply{}
			}

		case throttle.Unavailable:
			text := WaitStore.text(name, 0, "")
			q.to.dispatcher.Warn(q.box.account.Logger, text, a.err)
			return Reply{Reason: WaitStore.String(), Detail: text}

		case throttle.Failed:
			if !a.failure.Refused {
				return Reply{Reason: WaitReceiver.String(), Detail: fmt.Sprintf("receiver %s did not accept the alert: %v", name, a.failure)}
			}

			refused, reason := time.Now(), refusal(a.failure)
			if q.keep(sending, a.alert, reason) != nil {
				detail := "receiver " + name + " refused the alert, and its dead letter cannot be written"
				return Reply{Reason: WaitDeadLetter.String(), Detail: detail}
			}

			d.gate().Refused(d.subject.About, refused) // within the window it needs no other
			return Reply{Reason: OutcomeDeadLetter, Detail: "the alert was kept as a dead letter: " + reason}

		default:
			if a.result.Outcome == throttle.Unconfirmed { // the alert is delivered even if the window is never recorded
				_ = d.gate().Confirm(ctx, a.result)
			}
			return Reply{Alerted: true}
		}
	}
}
