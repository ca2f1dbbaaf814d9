package telemetry

import (
	"context"
	"errors"
)

// An Intake settles events one by one, for callers who wait for the outcome.
// It is safe for concurrent use.
type Intake interface {
	// Handle settles one event, or gives up waiting for that when ctx ends: then
	// the verdict is VerdictFailed, and the work goes on without the caller.
	// e.Enqueued is the time.Now of its arrival: its age by the monotonic clock
	// decides, the time of day is only shown to people. key, if not empty, names
	// the event, and its alert, when it is handed in again. Errors are a
	// *DecodeError, or ErrBusy for a reading that needs an outcome: not one below
	// the threshold, or of a device whose window is known to be in force.
	Handle(ctx context.Context, e Event, key string) (Verdict, error)
}

// A Verdict says what became of an event that was handed to an Intake.
type Verdict int

const (
	VerdictFailed    Verdict = iota // not settled, or refused for good by a receiver: it may be handed in again
	VerdictNormal                   // below the threshold
	VerdictThrottled                // its device was alerted within the window
	VerdictAlerted                  // an alert about it was taken
)

// ErrBusy says that an Intake has too much to settle to take more.
var ErrBusy = errors.New("too many readings wait to be settled")

// A DecodeError says why an event holds no reading.
type DecodeError struct{ Reason Reason }

func (e *DecodeError) Error() string { return "no reading in the body: " + e.Reason.String() }
