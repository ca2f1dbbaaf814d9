package worker

import (
	"context"
	"errors"
	"sync/atomic"

	"alertworker/internal/telemetry"
)

// A Verdict says what became of an event that was handed to an Intake.
type Verdict int

const (
	Failed    Verdict = iota // not settled, or refused for good by a receiver: it may be handed in again
	Normal                   // below the threshold
	Throttled                // its device was alerted within the window
	Alerted                  // an alert about it was taken
)

// ErrBusy says that an Intake has too much to settle to take more.
var ErrBusy = errors.New("too many readings wait to be settled")

// A DecodeError says why an event holds no reading.
type DecodeError struct{ Reason telemetry.Reason }

func (e *DecodeError) Error() string { return "no reading in the body: " + e.Reason.String() }

// An Intake takes events one by one from callers who wait for the outcome,
// through the same gates and notifiers as partitions. Safe for concurrent use.
type Intake struct {
	s    *stream
	ctx  context.Context
	stop context.CancelFunc
	next atomic.Int64
}

// NewIntake returns an Intake whose alerts name it as their partition. Close it
// once no Handle is under way.
func (w *Worker) NewIntake(ctx context.Context, name string) *Intake {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	in := &Intake{s: newStream(ctx, w, name), ctx: ctx, stop: stop}
	w.track(in.s)
	return in
}

// Close waits for sends in flight, as Consume does when its partition ends.
func (in *Intake) Close() {
	in.stop()
	in.s.drain()
	in.s.untrack(in.s)
}

// Handle settles one event, or gives up waiting for that when ctx ends: then
// the verdict is Failed, and the work goes on without the caller. key, if not
// empty, names the event, and its alert, when it is handed in again. Errors are
// a *DecodeError or ErrBusy.
func (in *Intake) Handle(ctx context.Context, e telemetry.Event, key string) (Verdict, error) {
	s := in.s
	value, reason := s.Decoder.Decode(&e)
	s.stats.Events[reason].Add(1)
	switch {
	case reason != telemetry.ReasonOK:
		return Failed, &DecodeError{reason}
	case value < s.Threshold:
		return Normal, nil
	case s.full():
		return Failed, ErrBusy
	}
	s.stats.Over.Add(1)
	r := reading{device: e.Device, value: value, enqueued: e.Enqueued, sequence: in.next.Add(1), id: key, told: new(atomic.Bool)}
	for _, f := range s.admit(in.ctx, telemetry.Position{}, r) {
		select {
		case <-f.ended:
			if f.buried {
				return Failed, nil
			}
		case <-ctx.Done():
			return Failed, nil
		}
	}
	if in.ctx.Err() != nil {
		return Failed, nil // stopping: flights may have been dropped
	}
	if r.told.Load() {
		return Alerted, nil
	}
	return Throttled, nil
}
