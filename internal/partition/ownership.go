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
	askAgain     = 10 * time.Second // how long the ledger is not asked after it did not answer
)

// ownership asks the ledger whether this replica still owns it. It is safe for concurrent use.
type ownership struct {
	check   func() error    // asks the ledger
	lost    func()          // is called when it is another's
	answers func()          // is called when the ledger answers again
	work    *sync.WaitGroup // of what asks

	mu       sync.Mutex
	question *ownerCheck // that has not been asked yet
	asking   bool        // a question has been asked and not been answered
	askAt    time.Time   // when the ledger may be asked again; zero unless it did not answer
}

// An ownerCheck is a question to the ledger, whether this replica owns it. One answer serves all that wait for it.
type ownerCheck struct {
	answered chan struct{} // closed then
	err      error
}

// owns returns nil once the ledger has said, to a question that was asked after the call, that this replica owns it.
func (o *ownership) owns(ctx context.Context) error {
	c := o.ask()
	late := time.NewTimer(ownerTimeout)
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

// ask returns a question to the ledger that has not been asked yet, and sees to it that it is.
func (o *ownership) ask() *ownerCheck {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.askLocked()
}

// askLocked is ask for a caller who holds o.mu.
func (o *ownership) askLocked() *ownerCheck {
	if o.question == nil {
		o.question = &ownerCheck{answered: make(chan struct{})}
		if !o.asking {
			o.asking = true
			o.work.Go(o.run)
		}
	}

	return o.question
}

// run asks the ledger for as long as there is a question.
func (o *ownership) run() {
	o.mu.Lock()
	defer o.mu.Unlock()

	for o.question != nil {
		c := o.question
		o.question = nil
		o.mu.Unlock()
		c.err = o.check()
		if errors.Is(c.err, ledger.ErrLost) {
			o.lost()
		}

		o.mu.Lock()
		close(c.answered)
		switch {
		case c.err != nil && !errors.Is(c.err, ledger.ErrLost):
			o.askAt = time.Now().Add(askAgain)

		case c.err == nil && !o.askAt.IsZero():
			o.askAt = time.Time{}
			o.mu.Unlock()
			o.answers()
			o.mu.Lock()
		}
	}

	o.asking = false
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
