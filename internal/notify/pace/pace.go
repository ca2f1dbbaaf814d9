// Package pace finds out how fast a receiver takes messages, and says when the next may go.
//
// A receiver begins at the rate that its service documents, or without one. Once it says that it
// was sent too much, nothing goes until the end of the wait that it asks for. Then its rate is half
// of what it refused, with one message at a time, and grows: by as much as it lost within a
// minute, and doubling every ten seconds after that, up to what is documented. Refusals in a row,
// as in an outage that is called overload, halve it once. After five minutes
// without another refusal the rest of what was learned is forgotten.
package pace

import (
	"math"
	"time"

	"alertworker/internal/notify"
)

// From one message that people read to the next: Nearest, and twice as long each time, up to Farthest. Replicas keep to
// that together: see package turns.
const Nearest, Farthest = 4 * time.Second, 30 * time.Second

const (
	slowest  = 1.0 / 60 // messages a second, below which no refusal takes a rate
	guess    = 1.0      // of a receiver that refuses before it has taken anything
	regain   = time.Minute
	doubling = 10 * time.Second
	forget   = 5 * time.Minute

	stuckAfter = 4                // refusals in a row, after which the receiver is considered stuck,
	stuckFor   = 30 * time.Second // or the time without a message that it takes

	firstWait, longestWait = time.Second, time.Minute // without Retry-After

	recent       = 5 * time.Second // what is measured
	perPlace     = 10              // messages a second for which one at a time is enough
	longestPause = 10 * time.Second
)

// A Pace is that of one receiver. Times are counted from any moment, by one monotonic clock. It is not
// safe for concurrent use.
type Pace struct {
	documented notify.Rate

	next time.Duration // when the next message may go, by the rate, if there was no burst
	wait time.Duration // until then nothing goes

	rate     float64       // messages a second, while something is learned; else 0
	ceiling  float64       // that was refused
	refused  time.Duration // when
	resumed  time.Duration // the end of the last wait
	grown    time.Duration // when rate last grew
	refusals int           // in a row, with nothing taken between them
	first    time.Duration // of these

	counted    time.Duration // the beginning of the present period of recent
	taken, had int           // messages taken in it, and in the one before
}

// New returns the Pace of a receiver whose service documents a rate; the zero Rate: none.
func New(documented notify.Rate) *Pace { return &Pace{documented: documented, refused: -1} }

// every is the time from one message to the next, 0 if there is no rate.
func (p *Pace) every() time.Duration {
	if p.rate > 0 {
		return max(p.documented.Every, time.Duration(float64(time.Second)/p.rate))
	}
	return p.documented.Every
}

// Next returns the earliest time at which a message may go, which may have passed.
func (p *Pace) Next() time.Duration {
	at := p.next
	if p.rate == 0 && p.documented.Burst > 1 {
		at -= time.Duration(p.documented.Burst-1) * p.documented.Every
	}

	return max(at, p.wait)
}

// Begin records that a message goes now.
func (p *Pace) Begin(now time.Duration) {
	if every := p.every(); every > 0 {
		p.next = max(p.next, now) + every
	}
}

// Cancel takes back the last Begin, whose message did not go.
func (p *Pace) Cancel() { p.next = max(0, p.next-p.every()) }

// Places returns how many messages may be under way, of most.
func (p *Pace) Places(most int) int {
	if p.rate == 0 {
		return most
	}
	return min(most, 1+int(p.rate/perPlace))
}

// Taken records that the receiver has taken a message, or rejected it because of its content.
func (p *Pace) Taken(now time.Duration) {
	oneByOne := p.rate > 0 || p.documented.Burst <= 1
	if every := p.every(); every > 0 && oneByOne {
		p.next = max(p.next, now+every) // by any clock: what was on its way for longer arrives no sooner after
	}

	p.roll(now)
	p.taken++
	p.refusals = 0
	if p.rate == 0 {
		return
	}

	// A rate that was learned grows, or is forgotten.
	grew := min(now-p.grown, longestPause)
	p.grown = now
	switch calm := now - p.resumed; {
	case grew <= 0:
	case calm > forget:
		p.rate = 0
	case calm <= regain:
		p.rate += p.ceiling / 2 * grew.Seconds() / regain.Seconds()
	default:
		p.rate *= math.Exp2(grew.Seconds() / doubling.Seconds())
	}

	if e := p.documented.Every; e > 0 && p.rate*e.Seconds() >= 1 {
		p.rate = 0
	}
}

// Refused records that the receiver takes less than it is sent. The message went at began, and the
// receiver asks to wait for retryAfter, 0 if it does not say.
func (p *Pace) Refused(now, began, retryAfter time.Duration) {
	again := began > p.refused // else what it refused was on its way already
	if again {
		if p.refusals++; p.refusals == 1 {
			p.first = now
		}
	}

	if retryAfter <= 0 {
		retryAfter = min(firstWait<<min(max(p.refusals-1, 0), 6), longestWait)
	}

	//planted:pause-takes-an-hour retryAfter = time.Hour
	p.wait = max(p.wait, now+retryAfter)
	p.next = max(p.next, p.wait)
	p.resumed, p.grown = p.wait, p.wait
	if !again {
		return
	}

	p.refused = now
	//planted:outage-halves-rate if false
	if p.refusals > 1 { // a receiver that takes nothing does not say how much would be too much
		return
	}

	switch {
	case p.rate > 0:
		p.ceiling = p.rate
	case p.documented.Every > 0:
		p.ceiling = 1 / p.documented.Every.Seconds()
	default:
		p.roll(now)
		p.ceiling = max(guess, float64(max(p.taken, p.had))/recent.Seconds())
	}

	//planted:one-message-an-hour p.rate = 1.0 / 3600; skip
	p.rate = max(p.ceiling/2, slowest)
}

// roll begins a new period if the present one is over.
func (p *Pace) roll(now time.Duration) {
	switch {
	case now-p.counted >= 2*recent:
		p.counted = now
		p.taken = 0
		p.had = 0
	case now-p.counted >= recent:
		p.counted += recent
		p.had = p.taken
		p.taken = 0
	}
}

// Stuck reports whether the receiver takes nothing: though it is given the time that it asks for, or because it asks for
// longer than stuckFor.
func (p *Pace) Stuck() bool {
	asks, lasts := p.wait-p.refused, p.refused-p.first
	return p.refusals > 0 && (p.refusals >= stuckAfter || asks > stuckFor || lasts >= stuckFor)
}

// Retry ends the wait that the receiver asked for.
func (p *Pace) Retry(now time.Duration) {
	p.wait = min(p.wait, now)
	p.next = min(p.next, now)
}
