package worker

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

// maxCallers bounds the callers that wait for an outcome at the same time. A reading
// that reaches no limit, or of a device whose windows are known to be in force, does
// not wait.
const maxCallers = 256

// An Intake is a [telemetry.Intake] that takes events through the same gates and
// notifiers as the events of partitions.
type Intake struct {
	s       *stream
	stop    context.CancelFunc
	next    atomic.Int64
	callers chan struct{} // one for each caller that waits
}

var _ telemetry.Intake = (*Intake)(nil)

// NewIntake returns an Intake; name is the partition in its alerts. Close it when no
// Handle is under way.
func (w *Worker) NewIntake(ctx context.Context, name string) *Intake {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	in := &Intake{s: newStream(ctx, w, name, nil), stop: stop, callers: make(chan struct{}, maxCallers)}
	w.track(in.s)
	return in
}

// Close waits for attempts under way, as Consume does when its partition ends.
func (in *Intake) Close() {
	in.stop()
	in.s.drain()
	in.s.untrack(in.s)
}

// Handle implements [telemetry.Intake].
func (in *Intake) Handle(ctx context.Context, e telemetry.Event, key string) (telemetry.Verdict, error) {
	s := in.s
	found := make([]telemetry.Found, s.fields)
	reason, hash := s.Decoder.DecodeAll(&e, found), roster.Hash(e.Device)
	s.stats.Events[reason].Add(1)
	s.seen.mu.Lock()
	s.seen.add(&e, hash, reason, found, time.Now().UnixMicro())
	s.seen.mu.Unlock()
	switch {
	case reason != telemetry.ReasonOK:
		return telemetry.VerdictFailed, &telemetry.DecodeError{Reason: reason}
	case !s.mayMatter(&e, hash, found, nil):
		return telemetry.VerdictNormal, nil
	}
	a := &arrival{at: e.Enqueued, id: key}
	select {
	case in.callers <- struct{}{}:
		defer func() { <-in.callers }()
		a.busy = s.full()
	default:
		a.busy = true
	}
	e.Sequence = in.next.Add(1)
	over, joined := s.evaluate(telemetry.Position{}, &e, found, nil, a)
	switch {
	case !over:
		return telemetry.VerdictNormal, nil
	case a.busy && len(joined) > 0:
		return telemetry.VerdictFailed, telemetry.ErrBusy
	}
	s.stats.Over.Add(1)
	for _, d := range joined {
		select {
		case <-d.ended:
			if letter := cmp.Or(d.letter, a.letter.Load()); letter != nil {
				return telemetry.VerdictFailed, &telemetry.UnsettledError{
					Reason: OutcomeDeadLetter,
					Detail: "the alert was kept as a dead letter: " + letter.Reason,
				}
			}
		case <-ctx.Done():
			return telemetry.VerdictFailed, s.unsettled(e.Device)
		}
	}
	if s.ctx.Err() != nil { // deliveries may have been dropped
		return telemetry.VerdictFailed, &telemetry.UnsettledError{Reason: "stopping", Detail: "this replica is stopping"}
	}
	if a.alerted.Load() {
		return telemetry.VerdictAlerted, nil
	}
	return telemetry.VerdictThrottled, nil
}

// unsettled returns what the alert about a device waits for.
func (s *stream) unsettled(device string) error {
	all := s.deliveries(device, nil)
	if len(all) == 0 { // it has ended just now
		return &telemetry.UnsettledError{Reason: WaitAttempt.String(), Detail: "the alert was not settled in time"}
	}
	return &telemetry.UnsettledError{Reason: all[0].For.String(), Detail: fmt.Sprintf("the alert is waiting: %v", all[0])}
}
