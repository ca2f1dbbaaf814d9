package admin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// What keeps a device from being alerted about.
const (
	whyWaiting     = "waiting"         // an alert is being delivered, or waits
	whyDeadLetter  = "dead_letter"     // its last alert became a dead letter
	whyWindow      = "window"          // hot, and a window is in force
	whySending     = "sending"         // hot, and another replica has a claim
	whyDelivered   = "delivered"       // hot, and an alert that was delivered covers the reading
	whyUnknown     = "unknown"         // hot, and the store does not respond
	whyBelow       = "below_threshold" // its last reading is
	whyUndecodable = "undecodable"     // its last event has no reading
	whyNotHeard    = "not_heard"       // nothing was read of it, as far as is remembered
)

// findings are what is known of a device.
type findings struct {
	now        time.Time
	threshold  float64
	window     time.Duration
	partitions []string // that this replica reads
	state      worker.DeviceState
	ended      []ended // deliveries, the latest first
	gates      []gateState
}

// A gateState is what the store knows of the device's window at one receiver.
type gateState struct {
	throttle.State
	receiver string
	err      error
}

// delivered returns when the receiver took the device's last alert, to within a few seconds; zero if
// the store does not know.
func (g gateState) delivered(window time.Duration) time.Time {
	switch {
	case g.Quiet.IsZero():
		return time.Time{}
	case g.Quiet.After(g.Claimed):
		return g.Claimed
	}
	return g.Quiet.Add(-window) // the last claim failed: it was the one before
}

// alert returns the last alert that a receiver took, nil if none is remembered.
func (f findings) alert() *ended { return f.last(func(e ended) bool { return e.reason == "" }) }

// letter returns the last dead letter, nil if none is remembered.
func (f findings) letter() *ended { return f.last(func(e ended) bool { return e.reason != "" }) }

func (f findings) last(is func(ended) bool) *ended {
	if i := slices.IndexFunc(f.ended, is); i >= 0 {
		return &f.ended[i]
	}
	return nil
}

// undelivered returns the last dead letter, unless its receiver has taken an alert of the device since.
func (f findings) undelivered() *ended {
	l := f.letter()
	if l == nil || f.last(func(e ended) bool { return e.reason == "" && e.receiver == l.receiver && e.at.After(l.at) }) != nil {
		return nil
	}
	for _, g := range f.gates {
		if g.receiver == l.receiver && g.delivered(f.window).After(l.at) {
			return nil // by another replica, or a replay
		}
	}
	return l
}

// delivered returns when the last alert was delivered, by anybody; zero if that is not known.
func (f findings) delivered() (at time.Time) {
	if t := f.alert(); t != nil {
		at = t.at
	}
	for _, g := range f.gates {
		if d := g.delivered(f.window); d.After(at.Add(f.window / 2)) { // else it is the same one
			at = d
		}
	}
	return at
}

// quiet returns the end of the last window in force; zero if none is known to be.
func (f findings) quiet() (until time.Time) {
	for _, g := range f.gates {
		if g.err == nil && g.Phase == throttle.Closed && g.Until.After(until) {
			until = g.Until
		}
	}
	if t := f.alert(); t != nil && until.IsZero() && f.storeError() != nil && t.at.Add(f.window).After(f.now) {
		until = t.at.Add(f.window)
	}
	return until
}

// claimed returns the end of a claim in force; zero if there is none.
func (f findings) claimed() (until time.Time) {
	for _, g := range f.gates {
		if g.err == nil && g.Phase == throttle.Sending {
			until = g.Until
		}
	}
	return until
}

func (f findings) storeError() error {
	for _, g := range f.gates {
		if g.err != nil {
			return g.err
		}
	}
	return nil
}

// why returns the status of the device and, in a sentence, why it has not been alerted about. What is
// in the way of an alert comes first, then what the device sent last.
func (f findings) why() (status, text string) {
	if len(f.state.Deliveries) > 0 {
		return whyWaiting, f.waiting()
	}
	if l := f.undelivered(); l != nil {
		return whyDeadLetter, f.deadLetter(l)
	}
	h := f.state.Heard
	switch {
	case h == nil:
		return whyNotHeard, f.notHeard() + f.also()
	case h.Undecodable != nil && (h.Reading == nil || h.Undecodable.Enqueued.After(h.Reading.Enqueued) || h.Undecodable.Sequence > h.Reading.Sequence):
		return whyUndecodable, fmt.Sprintf("Its last event, %s in partition %s (sequence %d), has no reading: %s%s",
			f.at(h.Undecodable.Enqueued), h.Partition, h.Undecodable.Sequence, h.Undecodable.Reason.Text(), f.also())
	case h.Reading == nil:
		return whyNotHeard, f.notHeard() + f.also()
	case h.Reading.Value < f.threshold:
		return whyBelow, fmt.Sprintf("Its last reading, %s %s, is below the threshold of %s%s",
			number(h.Reading.Value), f.at(h.Reading.Enqueued), number(f.threshold), f.also())
	}
	return f.hot(*h.Reading)
}

// hot is why for a device whose last reading, r, is over the threshold and settled.
func (f findings) hot(r worker.Reading) (status, text string) {
	reading := fmt.Sprintf("Its last reading over the threshold, %s %s,", number(r.Value), f.at(r.Enqueued))
	switch quiet, claimed, delivered := f.quiet(), f.claimed(), f.delivered(); {
	case !quiet.IsZero():
		return whyWindow, fmt.Sprintf("%s is suppressed: an alert was delivered %s, and its window is in force until %s", reading, f.at(delivered), f.until(quiet))
	case !claimed.IsZero():
		return whySending, fmt.Sprintf("%s is settled here, and another replica has a claim until %s: it is sending an alert, or it has died", reading, f.until(claimed))
	case f.storeError() != nil:
		return whyUnknown, fmt.Sprintf("%s is settled; more is not known, because the throttle store is not responding", reading)
	case !delivered.IsZero():
		return whyDelivered, fmt.Sprintf("%s is covered by the alert that was delivered %s; no window is in force, so the next one causes an alert", reading, f.at(delivered))
	}
	return whyDelivered, reading + " is settled; no window is in force, so the next one causes an alert"
}

// until says when t is, a time to come by the store's clock.
func (f findings) until(t time.Time) string {
	now := f.now
	for _, g := range f.gates {
		if !g.Now.IsZero() {
			now = g.Now
		}
	}
	return fmt.Sprintf("%s (another %s)", f.clock(t), span(max(0, t.Sub(now))))
}

func (f findings) waiting() string {
	first := slices.MinFunc(f.state.Deliveries, func(x, y worker.DeliveryState) int { return x.Since.Compare(y.Since) })
	var parts []string
	for _, d := range f.state.Deliveries {
		part := d.String()
		if claimed := f.claimed(); d.For == worker.WaitClaim && !claimed.IsZero() {
			part += "; the claim ends at the latest at " + f.until(claimed)
		}
		if !d.Until.IsZero() {
			part += "; the next attempt is due " + until(d.Until.Sub(f.now))
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("An alert about %s has been waiting since %s: %s", number(first.Value), f.clock(first.Since), strings.Join(parts, "; "))
}

func (f findings) deadLetter(l *ended) string {
	where := "it is only in the log"
	if l.letter != "" {
		where = "`alertworker deadletters replay " + l.letter + "` sends it again"
	}
	return fmt.Sprintf("The alert about %s %s became a dead letter of receiver %s %s: %s; %s",
		number(l.temperature), f.at(l.enqueued), l.receiver, f.at(l.at), l.reason, where)
}

func (f findings) notHeard() string {
	if len(f.partitions) == 0 {
		return "This replica reads no partition, so it has not heard of the device: ask another replica"
	}
	partitions := "partition " + f.partitions[0]
	if n := len(f.partitions); n > 1 {
		partitions = "partitions " + strings.Join(f.partitions[:n-1], ", ") + " and " + f.partitions[n-1]
	}
	return fmt.Sprintf("This replica has not heard of the device since %s; it reads %s, and another replica may know more", f.clock(f.state.Since), partitions)
}

// also says what else is known of the device's alerts, as the end of a sentence.
func (f findings) also() string {
	switch quiet, claimed, delivered := f.quiet(), f.claimed(), f.delivered(); {
	case !quiet.IsZero():
		return fmt.Sprintf("; its last alert was delivered %s, and its window is in force until %s", f.at(delivered), f.until(quiet))
	case !claimed.IsZero():
		return fmt.Sprintf("; a replica has a claim until %s: it is sending an alert, or it has died", f.until(claimed))
	case !delivered.IsZero():
		return "; its last alert was delivered " + f.at(delivered)
	}
	return ""
}

// at says when t was: the time, and how long ago.
func (f findings) at(t time.Time) string {
	ago := "just now"
	if d := f.now.Sub(t); d >= time.Second {
		ago = span(d) + " ago"
	}
	return fmt.Sprintf("at %s (%s)", f.clock(t), ago)
}

// clock formats t, with its date unless that is today's.
func (f findings) clock(t time.Time) string {
	t = t.Round(time.Millisecond) // windows end a few µs before a full second
	layout := "15:04:05 UTC"
	if t.UTC().Format(time.DateOnly) != f.now.UTC().Format(time.DateOnly) {
		layout = "2006-01-02 15:04:05 UTC"
	}
	return t.UTC().Format(layout)
}
