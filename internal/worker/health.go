package worker

import (
	"time"

	"alertworker/internal/backoff"
	"alertworker/internal/notify"
)

const (
	failuresToGoDown = 3
	minBackoff       = time.Second
	maxBackoff       = time.Minute
	maxRetryAfter    = 10 * time.Minute // no receiver silences its alerts for longer with one answer

	minAskAgain = time.Second // after a foreign claim was met: claims usually end early
	maxAskAgain = 2 * time.Second
)

// health is what attempts have shown about one receiver. Times are the worker's.
//
// One alert that keeps failing says little about the receiver, which is shown as
// down, but other alerts do not wait. Once two alerts have failed
// the receiver is probed, by one alert at a time. The better probe is one that has not failed yet;
// the pauses between such grow with the number of alerts that have. What has
// failed is tried again only if nothing else waits.
type health struct {
	answered int64         // alerts taken or refused for good, ever
	taken    int64         // of these
	failure  *notify.Error // the last one that counted

	// Since the receiver last answered so:
	failures int
	suspects int // different alerts that failed, without those that failed before while others did not
	down     bool
	untried  time.Duration // no probe with an alert that has not failed before this
	tried    time.Duration // no probe with one that has before this
}

type change int

const (
	unchanged change = iota
	wentDown
	cameUp
)

// probed reports whether the receiver may be tried only by one alert at a time.
func (h *health) probed() bool { return h.down && h.suspects > 1 }

// succeeded says that the receiver has taken an alert, or refused it for good: it is well.
func (h *health) succeeded(taken bool) (c change) {
	if h.down {
		c = cameUp
	}
	*h = health{answered: h.answered + 1, taken: h.taken, failure: h.failure}
	if taken {
		h.taken++
	}
	return c
}

// failed says that an attempt failed. While the receiver is probed only a probe counts: other
// attempts began before. suspect says that the alert counts as one more that failed.
func (h *health) failed(now time.Duration, failure *notify.Error, suspect, probe bool) (c change) {
	if h.probed() && !probe {
		return unchanged // no news
	}
	h.failures++
	if suspect {
		h.suspects++
	}
	h.failure = failure
	told := min(failure.RetryAfter, maxRetryAfter)
	if !h.down && (h.failures >= failuresToGoDown || h.suspects > 1 && told > 0) {
		h.down, c = true, wentDown
	}
	h.tried = now + max(retryDelay(h.failures-failuresToGoDown+1), told)
	if suspect {
		h.untried = now + max(retryDelay(h.suspects-failuresToGoDown+1), told)
	}
	return c
}

// storeHealth is what attempts have shown about the throttle store. When it
// has not answered about several alerts in a row it is asked about one at a time.
type storeHealth struct {
	failures int           // of different alerts, in a row
	retry    time.Duration // not before this, by the worker's clock

	now   time.Time // the store's clock, when it was last heard
	heard time.Duration
}

func (h *storeHealth) probed() bool { return h.failures >= failuresToGoDown }

// answered says that the store's clock was at storeNow, if that is not zero.
func (h *storeHealth) answered(now time.Duration, storeNow time.Time) {
	h.failures, h.retry = 0, 0
	if !storeNow.IsZero() {
		h.now, h.heard = storeNow, now
	}
}

// failed says that the store did not answer about an alert, and whether it did when it was
// asked about the same alert before.
func (h *storeHealth) failed(now time.Duration, first, probe bool) {
	if h.probed() && !probe {
		return // no news
	}
	if first || h.probed() {
		h.failures++
	}
	if h.probed() {
		h.retry = now + retryDelay(h.failures-failuresToGoDown+1)
	}
}

// retryDelay is the pause after the nth failure in a row.
func retryDelay(n int) time.Duration { return backoff.Delay(n, minBackoff, maxBackoff) }
