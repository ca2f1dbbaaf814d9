package worker

import (
	"context"
	"sync/atomic"

	"alertworker/internal/telemetry"
)

// maxCallers may wait for an outcome at a time. A reading that needs none, because it is
// below the threshold or its device's windows are known to be in force, does not count.
const maxCallers = 256

// An Intake is a telemetry.Intake: it takes events through the same gates and
// notifiers as partitions.
type Intake struct {
	s       *stream
	stop    context.CancelFunc
	next    atomic.Int64
	callers chan struct{} // one for each that waits
}

var _ telemetry.Intake = (*Intake)(nil)

// NewIntake returns an Intake whose alerts name it as their partition. Close it
// once no Handle is under way.
func (w *Worker) NewIntake(ctx context.Context, name string) *Intake {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	in := &Intake{s: newStream(ctx, w, name), stop: stop, callers: make(chan struct{}, maxCallers)}
	w.track(in.s)
	return in
}

// Close waits for sends in flight, as Consume does when its partition ends.
func (in *Intake) Close() {
	in.stop()
	in.s.drain()
	in.s.untrack(in.s)
}

// Handle implements telemetry.Intake.
func (in *Intake) Handle(ctx context.Context, e telemetry.Event, key string) (telemetry.Verdict, error) {
	s := in.s
	value, reason := s.Decoder.Decode(&e)
	s.stats.Events[reason].Add(1)
	switch {
	case reason != telemetry.ReasonOK:
		return telemetry.VerdictFailed, &telemetry.DecodeError{Reason: reason}
	case value < s.Threshold:
		return telemetry.VerdictNormal, nil
	case s.full() || !in.enter():
		if s.covered(e.Device) {
			s.stats.Over.Add(1)
			return telemetry.VerdictThrottled, nil
		}
		return telemetry.VerdictFailed, telemetry.ErrBusy
	}
	defer in.leave()
	s.stats.Over.Add(1)
	e.Sequence = in.next.Add(1)
	a := &arrival{at: e.Enqueued, id: key}
	for _, d := range s.admit(telemetry.Position{}, &e, value, a) {
		select {
		case <-d.ended:
			if d.deadLettered {
				return telemetry.VerdictFailed, nil
			}
		case <-ctx.Done():
			return telemetry.VerdictFailed, nil
		}
	}
	if s.ctx.Err() != nil {
		return telemetry.VerdictFailed, nil // stopping: deliveries may have been dropped
	}
	if a.told.Load() {
		return telemetry.VerdictAlerted, nil
	}
	return telemetry.VerdictThrottled, nil
}

// enter reports whether one more may wait for an outcome; if so, call leave at the end.
func (in *Intake) enter() bool {
	select {
	case in.callers <- struct{}{}:
		return true
	default:
		return false
	}
}

func (in *Intake) leave() { <-in.callers }

// covered reports whether the device's window is known to be in force at every
// receiver, and counts a suppressed reading at those where one is.
func (s *stream) covered(device string) bool {
	for _, to := range s.receivers {
		if !to.Gate.Recent(device) {
			return false
		}
		s.stats.Suppressed.Add(1)
	}
	return true
}
