package admin

import (
	"context"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/humanize"
)

// minutes is how far back the plots go.
const minutes = 60

// A history has the counts of each of the last minutes, by the wall clock.
type history struct {
	minute int64            // the current one, since 1970
	before totals           // at its start
	done   map[int64]totals // in each minute before it
	recent []sample         // of about the last 60 s, the latest last
}

// A sample is the counters at one moment.
type sample struct {
	at time.Time
	totals
}

// add records the counters at now.
func (h *history) add(now time.Time, t totals) {
	for len(h.recent) > 1 && now.Sub(h.recent[1].at) >= time.Minute {
		h.recent = h.recent[1:]
	}

	h.recent = append(h.recent, sample{now, t})
	minute := minuteOf(now)
	if minute != h.minute {
		h.done[h.minute] = t.minus(h.before)
		h.minute, h.before = minute, t
	}

	// the clock may have been changed
	maps.DeleteFunc(h.done, func(m int64, _ totals) bool { return m <= minute-minutes || m > minute })
}

// minuteOf returns the minute of t since 1970.
func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// series returns the counts of each minute, the current one included, given the counters t now.
func (h *history) series(t totals) map[int64]totals {
	all := maps.Clone(h.done)
	all[h.minute] = t.minus(h.before)
	return all
}

// last60s returns the counts of the last 60 s, give or take a sample; of the time since the start if that is less.
func (h *history) last60s(t totals) totals { return t.minus(h.recent[0].totals) }

const (
	askAgain   = 4 * time.Second
	askTimeout = 3 * time.Second
	answerWait = 300 * time.Millisecond // of a request that has asked for a newer answer
)

// shared is what a service answered last. Requests never call the service: they take the last
// answer, and have run ask for a newer one.
type shared[T any] struct {
	ask    func(context.Context) (T, error) // nil: there is nothing to know
	wanted chan struct{}

	mu    sync.Mutex
	done  chan struct{} // closed when the next answer has come, or has not
	asked time.Time     // the last time; only run changes it
	err   error         // what came of that
	value T
	at    time.Time // when value was the answer; zero if there was none yet
}

// newShared returns one that has no answer yet.
func newShared[T any](ask func(context.Context) (T, error)) *shared[T] {
	return &shared[T]{ask: ask, wanted: make(chan struct{}, 1), done: make(chan struct{})}
}

// run asks when somebody wants an answer, until ctx ends.
func (s *shared[T]) run(ctx context.Context, log *zap.Logger) {
	for {
		select {
		case <-s.wanted:
		case <-ctx.Done():
			return
		}

		if time.Since(s.asked) < askAgain { // it came while the last answer did
			continue
		}

		asking, cancel := context.WithTimeout(ctx, askTimeout)
		value, err := s.ask(asking)
		cancel()
		if err != nil {
			log.Debug("cannot refresh what the status page shows", zap.Error(err))
		}

		s.mu.Lock()
		s.asked, s.err = time.Now(), err
		if err == nil {
			s.value, s.at = value, s.asked
		}

		close(s.done) // those who wait for it go on
		s.done = make(chan struct{})
		s.mu.Unlock()
	}
}

// get returns the last answer and its time, zero if there is none, and why there is no newer one,
// if the last attempt failed. If the answer is old, a newer one is asked for and get waits
// for it a moment, but not for a service that has failed.
func (s *shared[T]) get(ctx context.Context) (T, time.Time, error) {
	if done := s.askIfOld(); done != nil {
		waiting, cancel := context.WithTimeout(ctx, answerWait)
		defer cancel()

		select {
		case <-done:
		case <-waiting.Done():
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.at, s.err
}

// askIfOld asks for a newer answer if the last one is old. It returns what is closed when that has come, and nil if
// there is nothing to wait for.
func (s *shared[T]) askIfOld() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ask == nil || time.Since(s.asked) < askAgain {
		return nil
	}

	select {
	case s.wanted <- struct{}{}:
	default:
	}

	if s.err != nil {
		return nil
	}

	return s.done
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
