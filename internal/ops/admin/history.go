package admin

import (
	"context"
	"slices"
	"sync"
	"time"
)

// minutes is how far back the plots go.
const minutes = 60

// totals are counters since the start of the worker.
type totals struct{ readings, alerts, suppressed int64 }

func (t totals) minus(u totals) totals {
	return totals{t.readings - u.readings, t.alerts - u.alerts, t.suppressed - u.suppressed}
}

// A history has the counts of each of the last minutes, by the wall clock.
type history struct {
	minute time.Time // the current one
	before totals    // at its start
	done   []totals  // in each minute before it, the latest last
}

// add records the counters at now.
func (h *history) add(now time.Time, t totals) {
	minute := now.Round(0).Truncate(time.Minute)
	switch gap := minute.Sub(h.minute); {
	case h.minute.IsZero():
		h.minute = minute // what was counted before is part of it
	case gap < 0 || gap > minutes*time.Minute: // the clock was changed, or the machine suspended
		h.minute, h.before, h.done = minute, t, nil
	}
	for ; h.minute.Before(minute); h.minute = h.minute.Add(time.Minute) {
		h.done = append(h.done, t.minus(h.before))
		h.done = h.done[max(0, len(h.done)-(minutes-1)):]
		h.before = t
	}
}

// series returns the counts of each minute up to the current one, given the
// counters t now, and when the first of them began.
func (h *history) series(t totals) (all []totals, first time.Time) {
	all = append(slices.Clone(h.done), t.minus(h.before))
	return all, h.minute.Add(-time.Duration(len(all)-1) * time.Minute)
}

// rateOver is the time over which a rate is computed.
const rateOver = time.Minute

// rates computes how fast sequence numbers grow.
type rates map[string][]observation

type observation struct {
	at       time.Time
	sequence int64
}

// observe records id's sequence number at now. If it has decreased, the rate
// starts over.
func (r rates) observe(id string, sequence int64, now time.Time) {
	seen := r[id]
	if n := len(seen); n > 0 && sequence < seen[n-1].sequence {
		seen = nil
	}
	r[id] = append(seen, observation{now, sequence})
}

// forgetBefore drops observations that are too old at now.
func (r rates) forgetBefore(now time.Time) {
	for id, seen := range r {
		old := 0
		for old < len(seen) && now.Sub(seen[old].at) > rateOver {
			old++
		}
		if r[id] = seen[old:]; old == len(seen) {
			delete(r, id)
		}
	}
}

// rate returns how much id's number grows per second; false if that is unknown.
func (r rates) rate(id string) (float64, bool) {
	seen := r[id]
	if len(seen) < 2 {
		return 0, false
	}
	first, last := seen[0], seen[len(seen)-1]
	return float64(last.sequence-first.sequence) / last.at.Sub(first.at).Seconds(), true
}

const (
	askAgain   = 4 * time.Second
	askTimeout = 3 * time.Second
)

// shared caches an answer of a store while the status page is open.
type shared[T any] struct {
	mu    sync.Mutex
	asked time.Time
	at    time.Time // when value was the answer
	value T
}

// get returns the last answer and its time, after asking again if it is old. fresh
// reports that it was just received, and err why it could not be.
func (s *shared[T]) get(ctx context.Context, ask func(context.Context) (T, error)) (value T, at time.Time, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked.IsZero() && time.Since(s.asked) < askAgain {
		return s.value, s.at, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	value, err = ask(ctx)
	s.asked = time.Now()
	if err != nil {
		return s.value, s.at, false, err
	}
	s.value, s.at = value, s.asked
	return s.value, s.at, true, nil
}
