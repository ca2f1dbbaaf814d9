package delivery

import (
	"errors"
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
// It says what is attempted next, and shortfall whether the receiver is down. If one alert keeps failing, the receiver is
// shown as down, but other alerts do not wait: the fault may be the alert's own. Once two alerts have failed, the receiver
// is probed with one alert at a time. An alert that has not failed yet makes the better probe; pauses between such probes
// grow with the number of alerts that have failed. Failed alerts are attempted again only if no others wait.
type health struct {
	answers uint32        // alerts taken or refused for good since the dispatcher was made
	taken   int64         // of these, taken
	takenAt time.Duration // the last of them
	failure error         // the last that counted

	// Since an alert was last taken or refused for good:
	failures   int
	suspects   int           // different alerts that failed, except those that had failed while others succeeded
	nextNew    time.Duration // earliest time of a probe with an alert that has not failed
	nextFailed time.Duration // earliest time of a probe with one that has
}

// probed reports whether the receiver gets only one alert at a time. Then it is down.
func (h *health) probed() bool { return h.failures >= failuresToGoDown && h.suspects > 1 }

// succeeded records that the receiver has taken an alert, or refused it for good:
// either shows that it works.
func (h *health) succeeded(now time.Duration, taken bool) {
	*h = health{answers: h.answers + 1, taken: h.taken, takenAt: h.takenAt, failure: h.failure}
	if taken {
		h.taken++
		h.takenAt = now
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
	h.nextFailed = now + retryDelay(h.failures-failuresToGoDown+1)
	if suspect {
		h.nextNew = now + retryDelay(h.suspects-failuresToGoDown+1)
	}
}

const (
	rejectionsOfOne = 8                // of one device or two, after which the receiver is said to reject everything
	unsentFor       = 30 * time.Second // something is due, while nothing is accepted, until the receiver is down
)

// A shortfall is what a receiver has not accepted since it last accepted a notice. It alone says whether the receiver is
// up, to everybody: see outage. What is attempted next follows from health and from the pace. Times are by the
// dispatcher's clock.
type shortfall struct {
	asking  int           // messages under way
	inVain  bool          // a message is under way, or was not accepted
	since   time.Duration // if inVain: the beginning of the first of these
	waits   bool          // something waits for the receiver and nothing else, as of looked
	looked  time.Duration // when look was called last
	due     time.Duration // for how long, in all, something waited so while inVain
	last    *notify.Error // the last answer, nil if there was none
	refuses bool          // it refuses by number, and goes on when it was given time: see pace.Pace.Stuck

	failures     int           // but refusals by number
	failingSince time.Duration // the first of these

	rejections     int           // notices that the receiver refused for good
	rejectingSince time.Duration // the first of these
	about          []string      // the devices, or what devices share, that these were about, at most failuresToGoDown
}

// fail records an attempt that may succeed if it is repeated.
func (s *shortfall) fail(now time.Duration, failure *notify.Error) {
	s.last = failure
	if failure.Limited {
		return
	}

	if s.failures == 0 {
		s.failingSince = now
	}
	s.failures++
}

// look has s know whether something is due, and whether the receiver is stuck. Nothing is due for a moment when one alert
// is given up before the next: that is no sign that the receiver is up, so the times in which something was due add up
// until it accepts something.
func (s *shortfall) look(now time.Duration, due, stuck bool) {
	if s.waits && s.inVain {
		s.due += now - max(s.since, s.looked)
	}
	s.waits, s.looked, s.refuses = due, now, stuck
}

// reject records that the receiver has refused a notice for good.
func (s *shortfall) reject(now time.Duration, about string, failure *notify.Error) {
	if s.rejections == 0 {
		s.rejectingSince = now
	}

	s.rejections++
	s.last = failure
	if len(s.about) < failuresToGoDown && !slices.Contains(s.about, about) {
		s.about = append(s.about, strings.Clone(about))
	}
}

// An outage says how a receiver is down.
type outage struct {
	fault ReceiverFault
	since time.Duration
	last  error // the last failure
}

// outage returns what is wrong with the receiver; false if nothing is: it accepted something since it last did not. One
// device's notices may be refused because of what they say.
func (s *shortfall) outage() (o outage, down bool) {
	rejects := len(s.about) >= failuresToGoDown || s.rejections >= rejectionsOfOne
	fails := s.failures >= failuresToGoDown
	unsent := s.due > unsentFor
	//planted:waiting-is-up if !rejects && !fails && s.last != nil && s.last.Limited { return outage{}, false }
	switch {
	case rejects && (!fails || s.last.Refused):
		return outage{ReceiverRejects, s.rejectingSince, s.last}, true
	//planted:one-failure-is-down case s.failures > 0
	case fails:
		return outage{FaultOf(s.last), s.failingSince, s.last}, true
	case s.refuses, unsent && s.last != nil:
		return outage{FaultOf(s.last), s.since, s.last}, true
	case unsent:
		return outage{ReceiverFails, s.since, errSilent}, true
	}

	return outage{}, false
}

var errSilent = errors.New("it has not answered yet")

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

// succeeded records that the store answered. storeNow is its clock, zero if it did
// not say.
func (h *storeHealth) succeeded(now time.Duration, storeNow time.Time) {
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
