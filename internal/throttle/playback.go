package throttle

import (
	"time"

	"alertworker/internal/lease"
)

// A Playback is the record of one key in a recording, by the recording's clock, if every notice is sent at once and taken.
// A zero Playback is the record of a key that was never claimed. It decides as a Gate does.
type Playback struct {
	record lease.Record
	note   note
}

// Send decides about r at a time, and what it lets through is sent: the outcome is Sent, Throttled or Unneeded, or Busy for
// a recovery before Ends. window is that of an alert. No time may be before that of the call before.
func (p *Playback) Send(r Request, now time.Time, window time.Duration) Result {
	p.record.Now = now
	d := decide(p.note, p.record, holds(p.record), r, now)
	switch {
	case d.Outcome != Sent:
	case r.Recovery:
		p.note = d.claim.afterRecovery(r)
		p.record = lease.Record{Claimed: now, Written: now}
	default:
		p.note = d.claim.afterAlert(r, now, now)
		p.note.Proof = window.Milliseconds()
		p.record = lease.Record{Claimed: now, Written: now, Hold: window}
	}

	return d.Result
}

// Ends returns when the window is over; zero if there is none.
func (p *Playback) Ends() time.Time {
	if p.record.Hold == 0 {
		return time.Time{}
	}
	return p.record.Written.Add(p.record.Hold)
}
