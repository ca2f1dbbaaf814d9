package delivery

import (
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

// A group is deliveries whose notices go in one message; often there is only one.
type group struct {
	size  int
	began time.Duration // by the dispatcher's clock

	// Guarded by receiver.mu.
	left     int  // deliveries that have not been attempted
	reported bool // whether the receiver's answer has been recorded
}

// An attempt is the result of one delivery attempt.
type attempt struct {
	probe   bool
	group   *group          // nil if it is about a dead letter
	early   error           // why nothing was claimed yet; nil if nothing barred that
	late    bool            // the message had gone before anything was claimed
	claim   *throttle.Claim // nil if the key was not claimed
	result  throttle.Result // of the claim that was not made, or of the one that was settled
	err     error           // of the gate
	alert   notify.Alert    // the notice, once the key was claimed
	barred  error           // why it was not sent although the key was claimed; nil if nothing barred it
	failure *notify.Error   // its answer; nil if it took the notice
}

// A verdict says how a delivery goes on.
type verdict struct {
	outcome string              // not empty: its head is settled
	covers  func(*Reading) bool // then: which of the readings that joined are settled too

	// Else what it waits for, and how long; ready has no time.
	state state
	why   Wait
	pause time.Duration
	grows bool  // the pause is as long as d has failed often
	err   error // why, if that may affect every delivery: it is logged
}

// again completes v for a d that is to be attempted again.
func (d *delivery) again(v verdict) verdict {
	v.state = pausing
	if d.dead != nil {
		v.state, v.why = givenUp, WaitDeadLetter
	}
	return v
}

// Which of the readings that joined a delivery are settled together with its head.
func coversNone(*Reading) bool { return false }

func coversAll(*Reading) bool { return true }

// coversRefused returns what a refusal for good settles: all that joined. Of devices that share alerts another one is
// tried once, because the fault may lie in what is said of the first.
func (d *delivery) coversRefused() func(*Reading) bool {
	if !d.subject.Topic.Shared || d.triedSecondDevice {
		return coversAll
	}

	d.triedSecondDevice = true
	refused := d.of(&d.head).Device
	return func(r *Reading) bool { return d.of(r).Device == refused }
}
