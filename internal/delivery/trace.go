package delivery

import (
	"context"
	"time"
)

// A Start describes a delivery that starts, and the reading that it is about.
type Start struct {
	AlertID   string
	Device    string
	Sensor    string // of the device; empty: the reading is the device's own
	Rule      string
	Level     string
	Recovery  bool
	Receiver  string
	Partition string
	FromHub   bool // false: it came through the intake that Partition names
	Sequence  int64
	Enqueued  time.Time
}

// A Trace follows one delivery. It gets one call at a time.
type Trace interface {
	// Under returns the context for one step of the delivery, such as an attempt.
	Under(ctx context.Context) context.Context
	// End is called once, when the delivery has ended.
	End(End)
}

// An End describes how a delivery ended.
type End struct {
	Outcome    string // of the gate, or OutcomeDeadLetter or OutcomeUnsettled
	Suppressed int64  // readings that reached the limit and that no alert has counted
	Err        error  // why the last attempt failed, if it did
}

// Values of [End.Outcome] that are not the gate's.
const (
	OutcomeDeadLetter = "dead_letter"
	OutcomeUnsettled  = "unsettled" // its owner ended first; the next one starts again
)

// tracked is a delivery's trace.
type tracked struct {
	Trace
	err error // why the last attempt failed
}
