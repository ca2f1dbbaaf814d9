package delivery

import (
	"cmp"
	"errors"
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

// A breaker has a receiver, or the throttle store, asked about one alert at a time once it has failed three times in a row,
// about two alerts or more: then pauses between such probes grow. If one alert keeps failing, others do not wait: the fault
// may be its own. An alert that has not failed yet makes the better probe, and pauses between those grow with the number of
// alerts that have failed. Times are by the dispatcher's clock.
//
// It says what is attempted next, and shortfall whether the receiver is down.
type breaker struct {
	failures streak
	suspects int           // different alerts among them
	pauses   int           // between probes, so far
	next     time.Duration // while it is probed: the earliest time of the next probe
	nextNew  time.Duration // of one with an alert that has not failed
}

// A streak is of failures of one kind, with no success between them.
type streak struct {
	n     int
	since time.Duration // the first
}

func (s *streak) add(now time.Duration) {
	if s.n == 0 {
		s.since = now
	}
	s.n++
}

func (b *breaker) probed() bool { return b.failures.n >= failuresToGoDown && b.suspects > 1 }

// failed records a failure. While b is probed only a probe counts, since any other attempt started earlier. suspect says
// that the alert counts as one more that failed.
func (b *breaker) failed(now time.Duration, suspect, probe bool) {
	if b.probed() && !probe {
		return
	}

	b.failures.add(now)
	if suspect {
		b.suspects++
	}

	if b.probed() {
		b.pauses++
		b.next = now + retryDelay(b.pauses)
		if suspect {
			b.nextNew = now + retryDelay(b.suspects-failuresToGoDown+1)
		}
	}
}

// retryDelay is the pause after the nth failure in a row.
func retryDelay(n int) time.Duration { return backoff.Delay(n, minBackoff, maxBackoff) }

const (
	rejectionsOfOne = 8                // of one device or two, after which the receiver is said to reject everything
	unsentFor       = 30 * time.Second // something is due, while nothing is accepted, until the receiver is down
)

// A shortfall is what a receiver has not accepted since it last accepted a notice. It alone says whether the receiver is
// up, to everybody: see outage. What is attempted next follows from the breakers and from the pace. Times are by the
// dispatcher's clock.
type shortfall struct {
	asking int           // messages under way
	inVain bool          // a message is under way, or was not accepted
	since  time.Duration // if inVain: the beginning of the first of these
	waits  bool          // something waits for the receiver and nothing else, as of looked
	looked time.Duration // when look was called last
	due    time.Duration // for how long, in all, something waited so while inVain
	last   *notify.Error // the last answer, nil if there was none

	failures   streak   // but refusals by number
	rejections streak   // of notices, for good
	about      []string // the devices, or what devices share, that these were about, at most failuresToGoDown
}

// An outage says how a receiver is down.
type outage struct {
	fault ReceiverFault
	since time.Duration
	last  error // the last failure
}

// look has the shortfall know whether a delivery waits for the receiver, and not for the store. Nothing is due for a moment
// when one alert is given up before the next: that is no sign that the receiver is up, so the times in which something was
// due add up until it accepts something.
func (r *receiver) look(now time.Duration) {
	s := &r.shortfall
	if s.waits && s.inVain {
		s.due += now - max(s.since, s.looked)
	}

	wants := r.first(ready) != nil || r.first(awaitsReceiver) != nil
	s.waits = !r.store.probed() && (r.trying > 0 || wants)
	s.looked = now
}

// outage returns what is wrong with the receiver; false if nothing is: it accepted something since it last did not. One
// device's notices may be refused because of what they say. The caller holds r.mu.
func (r *receiver) outage() (o outage, down bool) {
	r.look(r.dispatcher.now())
	s := &r.shortfall
	rejects := len(s.about) >= failuresToGoDown || s.rejections.n >= rejectionsOfOne
	fails := s.failures.n >= failuresToGoDown
	unsent := s.due > unsentFor
	last := cmp.Or(s.last, errSilent)
	//planted:waiting-is-up if !rejects && !fails && s.last != nil && s.last.Limited { return outage{}, false }
	switch {
	case rejects && (!fails || last.Refused):
		return outage{ReceiverRejects, s.rejections.since, last}, true
	//planted:one-failure-is-down case s.failures.n > 0
	case fails:
		return outage{FaultOf(last), s.failures.since, last}, true
	case r.pace.Stuck(), unsent:
		return outage{FaultOf(last), s.since, last}, true
	}

	return outage{}, false
}

var errSilent = &notify.Error{Err: errors.New("it has not answered yet")}
