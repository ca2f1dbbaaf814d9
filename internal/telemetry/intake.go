package telemetry

import (
	"context"
	"errors"
)

// An Intake settles events one by one, for callers who wait for the outcome.
// It is safe for concurrent use.
type Intake interface {
	// Handle asks every receiver of an alert about e once, and returns what came of
	// it. ctx ends the wait for somebody else who is sending an alert about the same;
	// a send of its own that is under way ends by itself. e.Enqueued is the
	// time.Now of its arrival: the monotonic clock gives its age, the time of day is
	// only shown to people. key, unless empty, identifies the event and its alert
	// when the event is handed in again. The error is nil unless the verdict is
	// VerdictFailed. Then it is a *DecodeError, an *UnsettledError, or ErrBusy if
	// there is no room for a reading that has to wait: one over the threshold of a
	// device whose window is not known to be in force. sensors are the verdicts of those of its device's sensors that e has
	// readings of, by their names, and the verdict is the worst of all; nil if it has none with a name.
	Handle(ctx context.Context, e Event, key string) (v Verdict, sensors map[string]Verdict, err error)
}

// A Verdict is what became of an event that was handed to an Intake.
type Verdict int

// Worst returns the one of v and another verdict that matters more: what failed, and then what alerted.
func (v Verdict) Worst(other Verdict) Verdict {
	if v == VerdictFailed || other == VerdictFailed {
		return VerdictFailed
	}
	return max(v, other)
}

const (
	VerdictFailed    Verdict = iota // not settled, or refused for good by a receiver: it may be handed in again
	VerdictNormal                   // below the threshold
	VerdictThrottled                // its device was alerted within the window
	VerdictAlerted                  // an alert about it was taken
)

// ErrBusy means that too many events wait in an Intake.
var ErrBusy = errors.New("too many readings wait to be settled")

// An UnsettledError is why an event was not settled, or not with an alert that a receiver
// took.
type UnsettledError struct {
	Reason string // one of few, for programs: "dead_letter", or what stands in the way
	Detail string // for people; no secrets
}

func (e *UnsettledError) Error() string { return e.Detail }

// A DecodeError is why an event has no reading.
type DecodeError struct{ Reason Reason }

func (e *DecodeError) Error() string { return "no reading in the body: " + e.Reason.String() }
