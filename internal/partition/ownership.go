package partition

import (
	"context"
	"errors"
	"sync"
	"time"

	"alertworker/internal/ledger"
)

const (
	ownerTimeout = 4 * time.Second  // of a notice that waits for the ledger's answer, and holds a claim
	slowTimeout  = 8 * time.Second  // the same, of a ledger that was slow to answer
	askAgain     = 10 * time.Second // how long the ledger is not asked after it did not answer
	askAnyway    = time.Second      // until the next question no longer waits for the answer to the last one
)

// ownership asks the ledger whether this replica still owns it. It is safe for concurrent use.
type ownership struct {
	check   func() error    // asks the ledger
	lost    func()          // is called when it is another's
	answers func()          // is called when the ledger answers again
	work    *sync.WaitGroup // of what asks

	mu       sync.Mutex
	question *ownerCheck   // that has not been asked yet
	asked    *ownerCheck   // the last one that was
	took     time.Duration // until the last answer came
	askAt    time.Time     // when the ledger may be asked again; zero unless it did not answer
}

// An ownerCheck is a question to the ledger, whether this replica owns it. One answer serves all that wait for it.
type ownerCheck struct {
	answered chan struct{} // closed then
	err      error
}

// owns returns nil once the ledger has said, to a question that was asked after the call, that this replica owns it.
func (o *ownership) owns(ctx context.Context) error {
	c, limit := o.ask()
	late := time.NewTimer(limit)
	defer late.Stop()

	select {
	case <-c.answered:
		return c.err

	case <-ctx.Done():
		return context.Cause(ctx)

	case <-late.C:
		o.mu.Lock()
		defer o.mu.Unlock()
		if next := time.Now().Add(askAgain); next.After(o.askAt) {
			o.askAt = next
		}

		return errUnanswered
	}
}

// ask returns a question to the ledger that has not been asked yet, and sees to it that it is; and how long to wait for
// its answer.
func (o *ownership) ask() (c *ownerCheck, limit time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.askLocked(), min(max(ownerTimeout, 2*o.took), slowTimeout)
}

// askLocked is ask for a caller who holds o.mu.
func (o *ownership) askLocked() *ownerCheck {
	if o.question == nil {
		c, last := &ownerCheck{answered: make(chan struct{})}, o.asked
		o.question = c
		o.work.Go(func() { o.run(c, last) })
	}

	return o.question
}

// run asks the ledger c, once last, the question before, is answered. A claim has no time for both answers of a slow
// ledger, so c does not wait for long.
func (o *ownership) run(c, last *ownerCheck) {
	if last != nil {
		slow := time.NewTimer(askAnyway)
		defer slow.Stop()
		select {
		case <-last.answered:
		case <-slow.C:
		}
	}

	o.mu.Lock()
	o.question, o.asked = nil, c
	o.mu.Unlock()
	began := time.Now()
	c.err = o.check()
	if errors.Is(c.err, ledger.ErrLost) {
		o.lost()
	}

	o.mu.Lock()
	close(c.answered)
	if c.err == nil {
		o.took = time.Since(began)
	}

	again := c.err == nil && !o.askAt.IsZero()
	switch {
	case again:
		o.askAt = time.Time{}
	case c.err != nil && !errors.Is(c.err, ledger.ErrLost):
		o.askAt = time.Now().Add(askAgain)
	}
	o.mu.Unlock()

	if again {
		o.answers()
	}
}

// unanswered reports whether the ledger has not answered the last question, which it is asked again in time. Then
// nothing that is due is claimed: it could not be sent.
func (o *ownership) unanswered() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.askAt.IsZero() && !time.Now().Before(o.askAt) {
		o.askLocked()
	}

	return !o.askAt.IsZero()
}

// pause returns for how long the ledger is not asked because it did not answer, a second at least; 0 if it did.
func (o *ownership) pause() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.askAt.IsZero() {
		return 0
	}

	return max(time.Until(o.askAt), minBackoff)
}
