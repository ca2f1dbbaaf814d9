package delivery

import (
	"context"
	"fmt"
	"time"

	"alertworker/internal/notify/pace"
)

const (
	askTurnFor = 5 * time.Second
	turnLasts  = 5 * time.Second // what is not used by then is asked for again
	yieldsPart = 15              // of the time until the longest pause is over
)

// A turn is what a receiver knows of which replica's turn it is. Times are by the dispatcher's clock. It is
// guarded by receiver.mu.
type turn struct {
	asking bool
	taken  bool
	at     time.Duration // if it is taken: when
	next   time.Duration // when it may be asked for again
	waits  bool          // a message waits for it
	since  time.Duration // if so: since when
	used   time.Duration // when our last message went
	went   bool          // one did
}

// hasTurn reports whether the next message, whose first delivery is q's, may go as far as other replicas are
// concerned. If that is not known it is asked for. A message that is full, or a probe of a receiver that is down, waits
// for nobody, and none waits for longer than the longest pause.
func (r *receiver) hasTurn(q *queue, now time.Duration, full bool) bool {
	t := &r.turn
	switch {
	case r.to.Turns == nil, full, r.probed(), t.taken && now-t.at < turnLasts, t.waits && now-t.since >= pace.Farthest:
		return true
	case !t.waits:
		t.waits, t.since = true, now
	}

	if t.asking || now < t.next {
		return false
	}

	t.asking, t.taken = true, false
	q.box.work.Go(func() { r.askTurn(q) })

	return false
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
	if q.cancelled() { // another owner asks for itself
		r.dispatch()
		return
	}

	if err != nil && t.went { // alone, after the longest pause
		wait = max(0, t.used+pace.Farthest-now)
	}

	if wait > 0 {
		wait += r.turn.yields(now)
	}

	t.next = now + wait
	if t.waits {
		t.next = min(t.next, t.since+pace.Farthest)
	}
	t.taken = wait == 0
	t.at = now
	r.dispatch()
}

// yields returns for how much longer than it has to this replica waits: whoever has not sent for longer goes first.
func (t *turn) yields(now time.Duration) time.Duration {
	if !t.went {
		return 0
	}

	return max(0, pace.Farthest-(now-t.used)) / yieldsPart
}

// useTurn records that a message goes.
func (r *receiver) useTurn(now time.Duration) {
	r.turn.taken = false
	r.turn.waits = false
	r.turn.used = now
	r.turn.went = true
}
