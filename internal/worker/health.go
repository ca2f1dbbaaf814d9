package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"alertworker/internal/notify"
)

const (
	failuresToGoDown = 3
	minBackoff       = time.Second
	maxBackoff       = time.Minute
	maxRetryAfter    = 10 * time.Minute // no receiver silences its alerts for longer with one answer
)

// health is what all flights know about one receiver. While it is down only one
// of them at a time tries it.
type health struct {
	mu       sync.Mutex
	failures int       // in a row
	retry    time.Time // when down: the next probe; zero if up
	probing  bool
	taken    int64         // alerts, ever
	changed  chan struct{} // closed at each change
}

type change int

const (
	stayed change = iota
	wentDown
	cameUp
)

// await blocks until the receiver is up or due for a probe. False if ctx ended first.
func (h *health) await(ctx context.Context) bool {
	for {
		h.mu.Lock()
		wait, free, changed := time.Until(h.retry), h.retry.IsZero(), h.changed
		if h.probing {
			wait = maxBackoff
		}
		h.mu.Unlock()
		if free || wait <= 0 {
			return ctx.Err() == nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
			timer.Stop()
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// enter asks for leave to try the receiver; who gets it calls leave. probe says that
// the receiver is down and this is the one attempt to find out.
func (h *health) enter() (probe, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.retry.IsZero():
		return false, true
	case h.probing || time.Now().Before(h.retry):
		return false, false
	}
	h.probing = true
	return true, true
}

// leave ends what enter began.
func (h *health) leave(probe bool) {
	if !probe {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing = false
	h.broadcast()
}

// report tells what came of an attempt; nil is success. It returns how many
// alerts the receiver has taken. seen is what it returned at the same alert's last
// failure, or -1: one alert that fails alone does not take a receiver down.
func (h *health) report(failure *notify.Error, probe bool, seen int64) (taken int64, c change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	down := !h.retry.IsZero()
	switch {
	case failure == nil || failure.Refused: // it is well
		if failure == nil {
			h.taken++
		}
		h.failures, h.retry = 0, time.Time{}
		if down {
			h.broadcast()
			return h.taken, cameUp
		}
	case down && !probe: // began before it went down: no news
	case !down && seen == h.taken && failure.RetryAfter == 0: // it is known to fail
	default:
		h.failures++
		if h.failures < failuresToGoDown && failure.RetryAfter == 0 {
			break
		}
		wait := max(backoff(h.failures-failuresToGoDown+1), min(failure.RetryAfter, maxRetryAfter))
		h.retry = time.Now().Add(wait)
		if !down {
			return h.taken, wentDown
		}
	}
	return h.taken, stayed
}

func (h *health) broadcast() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// backoff is the pause after the nth failure in a row, doubling up to a minute, with jitter.
func backoff(n int) time.Duration {
	d := minBackoff << min(max(n-1, 0), 6)
	d = min(d, maxBackoff)
	return d/2 + rand.N(d/2)
}

// sleep returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
