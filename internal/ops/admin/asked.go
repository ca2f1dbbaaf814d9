package admin

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/humanize"
)

const (
	askAgain   = 4 * time.Second
	askTimeout = 3 * time.Second
	answerWait = 200 * time.Millisecond // of a request, for an answer that is under way
)

// shared is what a service answered last. Requests never call the service: they take the last
// answer, and have run ask for a newer one.
type shared[T any] struct {
	ask    func(context.Context) (T, error) // nil: there is nothing to know
	wanted chan chan struct{}               // takes what is closed when the answer has come

	mu    sync.Mutex
	asked time.Time     // the last time
	done  chan struct{} // closed when the answer to that has come, or has not
	value T
	at    time.Time // when value was the answer; zero if there was none yet
	err   error     // why there is no newer one
}

// newShared returns one that has no answer yet.
func newShared[T any](ask func(context.Context) (T, error)) *shared[T] {
	s := &shared[T]{ask: ask, wanted: make(chan chan struct{}, 1), done: make(chan struct{})}
	close(s.done)
	return s
}

// run asks when somebody wants an answer, until ctx ends.
func (s *shared[T]) run(ctx context.Context, log *zap.Logger) {
	for {
		var done chan struct{}
		select {
		case done = <-s.wanted:
		case <-ctx.Done():
			return
		}

		asking, cancel := context.WithTimeout(ctx, askTimeout)
		value, err := s.ask(asking)
		cancel()

		s.mu.Lock()
		if s.err = err; err != nil {
			log.Debug("cannot refresh what the status page shows", zap.Error(err))
		} else {
			s.value, s.at = value, time.Now()
		}
		s.mu.Unlock()
		close(done)
	}
}

// get returns the last answer and its time, zero if there is none, and why there is no newer one,
// if the last attempt failed. If the answer is old, a newer one is asked for; get waits a moment for one that is under way.
func (s *shared[T]) get() (T, time.Time, error) {
	s.mu.Lock()
	if s.ask != nil && time.Since(s.asked) >= askAgain {
		s.asked, s.done = time.Now(), make(chan struct{})
		select {
		case s.wanted <- s.done:
		default: // the last question is still waiting
		}
	}
	done := s.done
	s.mu.Unlock()

	select {
	case <-done:
	case <-time.After(answerWait):
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.at, s.err
}

// aged says how old an answer of who is that should be newer; empty if it is not old. err is why there
// is no newer one.
func aged(who string, at, now time.Time, err error) string {
	switch age := now.Sub(at); {
	case at.IsZero():
		return who + " has not answered yet."
	case age <= askAgain+askTimeout:
		return ""
	case err == nil: // it is being asked
		return "This is the state " + humanize.Span(age) + " ago."
	default:
		return who + " does not respond: this is the state " + humanize.Span(age) + " ago."
	}
}
