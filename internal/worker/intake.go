package worker

import (
	"context"
	"sync/atomic"

	"alertworker/internal/telemetry"
)

// An Intake is a telemetry.Intake: it takes events through the same gates and
// notifiers as partitions.
type Intake struct {
	s    *stream
	stop context.CancelFunc
	next atomic.Int64
}

var _ telemetry.Intake = (*Intake)(nil)

// NewIntake returns an Intake whose alerts name it as their partition. Close it
// once no Handle is under way.
func (w *Worker) NewIntake(ctx context.Context, name string) *Intake {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	in := &Intake{s: newStream(ctx, w, name), stop: stop}
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
	case s.full():
		return telemetry.VerdictFailed, telemetry.ErrBusy
	}
	s.stats.Over.Add(1)
	e.Sequence = in.next.Add(1)
	a := &arrival{id: key}
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
