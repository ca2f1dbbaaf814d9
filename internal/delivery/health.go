package delivery

import (
	"slices"
	"strings"
	"time"

	"alertworker/internal/backoff"
	"alertworker/internal/notify"
)

const (
	failuresToGoDown = 3
	minBackoff       = time.Second
	maxBackoff       = time.Minute

	minAskAgain = time.Second // after another replica's claim: claims usually end early
	maxAskAgain = 2 * time.Second
)

// health is what attempts have shown about one receiver. Times are by the dispatcher's
// clock.
//
// If one alert keeps failing, the receiver is shown as down, but other alerts do not
// wait: the fault may be the alert's own. Once two alerts have failed, the receiver
// is probed with one alert at a time. An alert that has not failed yet makes the
// better probe; pauses between such probes grow with the number of alerts that have
// failed. Failed alerts are attempted again only if no others wait.
type health struct {
	answered int64 // alerts taken or refused for good since the dispatcher was made
	taken    int64 // of these, taken
	failure  error // the last that counted

	// Since an alert was last taken or refused for good:
	failures   int
	suspects   int // different alerts that failed, except those that had failed while others succeeded
	down       bool
	nextNew    time.Duration // earliest time of a probe with an alert that has not failed
	nextFailed time.Duration // earliest time of a probe with one that has
}

// probed reports whether the receiver gets only one alert at a time.
func (h *health) probed() bool { return h.down && h.suspects > 1 }

// succeeded records that the receiver has taken an alert, or refused it for good:
// either shows that it works.
func (h *health) succeeded(taken bool) {
	*h = health{answered: h.answered + 1, taken: h.taken, failure: h.failure}
	if taken {
		h.taken++
	}
}

// failed records a failed attempt. While the receiver is probed only a probe counts,
// since any other attempt started earlier. suspect says that the alert counts as one
// more that failed.
func (h *health) failed(now time.Duration, failure error, suspect, probe bool) {
	if h.probed() && !probe {
		return
	}

	h.failures++
	if suspect {
		h.suspects++
	}

	h.failure = failure
	h.down = h.down || h.failures >= failuresToGoDown
	h.nextFailed = now + retryDelay(h.failures-failuresToGoDown+1)
	if suspect {
		h.nextNew = now + retryDelay(h.suspects-failuresToGoDown+1)
	}
}

const rejectionsOfOne = 8 // of one device or two, after which the receiver is said to reject everything

// A shortfall is what a receiver has not accepted since it last accepted a notice. It is what people are
// told about the receiver; what is attempted next follows from health. Times are by the dispatcher's clock.
type shortfall struct {
	last     *notify.Error // of the last attempt
	failures int
	failed   time.Duration // the first failure

	rejections int           // notices that the receiver refused for good
	rejected   time.Duration // the first of these
	about      []string      // the devices, or what devices share, that these were about, at most failuresToGoDown
}

// fail records an attempt that may succeed if it is repeated.
func (s *shortfall) fail(now time.Duration, failure *notify.Error) {
	if s.failures == 0 {
		s.failed = now
	}
	s.failures++
	s.last = failure
}

// reject records that the receiver has refused a notice for good.
func (s *shortfall) reject(now time.Duration, about string, failure *notify.Error) {
	if s.rejections == 0 {
		s.rejected = now
	}

	s.rejections++
	s.last = failure
	if len(s.about) < failuresToGoDown && !slices.Contains(s.about, about) {
		s.about = append(s.about, strings.Clone(about))
	}
}

// fault returns what is wrong with the receiver and since when; false if nothing is. One device's notices may be
// refused because of what they say.
func (s *shortfall) fault() (fault ReceiverFault, since time.Duration, down bool) {
	switch {
	case s.failures >= failuresToGoDown && !s.last.Refused:
		return ReceiverFails, s.failed, true
	case len(s.about) >= failuresToGoDown, s.rejections >= rejectionsOfOne:
		return ReceiverRejects, s.rejected, true
	case s.failures >= failuresToGoDown:
		return ReceiverFails, s.failed, true
	}

	return ReceiverFails, 0, false
}

// storeHealth is what attempts have shown about the throttle store. Once it has not
// answered about several alerts in a row, it is asked about one at a time. Times are
// by the dispatcher's clock.
type storeHealth struct {
	failures int           // in a row, about different alerts
	since    time.Duration // the first of them
	retry    time.Duration // earliest time of the next call

	clock      time.Time // the store's clock at answeredAt; zero if it is not known
	answeredAt time.Duration
}

func (h *storeHealth) probed() bool { return h.failures >= failuresToGoDown }

// answered records that the store answered. storeNow is its clock, zero if it did
// not say.
func (h *storeHealth) answered(now time.Duration, storeNow time.Time) {
	h.failures, h.retry = 0, 0
	if !storeNow.IsZero() {
		h.clock, h.answeredAt = storeNow, now
	}
}

// failed records that the store did not answer about an alert. first is false if it
// also did not the last time it was asked about that one.
func (h *storeHealth) failed(now time.Duration, first, probe bool) {
	if h.probed() && !probe {
		return
	}

	if h.failures == 0 {
		h.since = now
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
