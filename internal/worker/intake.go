package worker

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/partition"
	"alertworker/internal/telemetry"
)

// maxCallers bounds the callers that wait for an outcome at the same time. A reading
// that reaches no limit, or of a device whose windows are known to be in force, does
// not wait.
const maxCallers = 256

// An Intake is a [telemetry.Intake] that takes events through the same gates and
// notifiers as the events of partitions. Its rules have no state.
type Intake struct {
	worker  *Worker
	rules   *partition.Evaluator
	name    string
	box     *delivery.Outbox
	seen    *partition.Seen
	next    atomic.Int64
	callers chan struct{} // one for each caller that waits

	ctx  context.Context
	stop context.CancelFunc // ends ctx
	cut  context.CancelFunc // cancels attempts
}

var _ telemetry.Intake = (*Intake)(nil)

// NewIntake returns an Intake; name is the partition in its alerts. Close it when no
// Handle is under way.
func (w *Worker) NewIntake(ctx context.Context, name string) *Intake {
	in := &Intake{
		worker:  w,
		rules:   w.evaluator,
		name:    name,
		seen:    partition.NewSeen(time.Now(), w.Log.With(zap.String("partition", name))),
		callers: make(chan struct{}, maxCallers),
	}
	in.ctx, in.stop = context.WithCancel(context.WithoutCancel(ctx))
	send, cut := context.WithCancel(context.WithoutCancel(ctx))
	in.cut = cut
	in.box = w.dispatcher.Open(in.ctx, send, delivery.Account{
		Owner:  callers{},
		Name:   name,
		IDs:    w.evaluator.IDs(name),
		Logger: w.Log.With(zap.String("partition", name)),
	})

	w.mu.Lock()
	defer w.mu.Unlock()
	w.intakes[in] = struct{}{}

	return in
}

// Close waits for attempts under way, as Consume does when its partition ends.
func (in *Intake) Close() {
	in.stop()
	in.box.Close()
	late := time.AfterFunc(in.worker.DrainTimeout, in.cut)
	in.box.Wait()
	late.Stop()
	in.cut()
	in.worker.mu.Lock()
	defer in.worker.mu.Unlock()
	delete(in.worker.intakes, in)
}

// callers own the deliveries of an Intake: nothing is due to them, and each waits for its own.
type callers struct{}

func (callers) MayClaim(delivery.Key, *delivery.Notice) error { return nil }

func (callers) MaySend(context.Context, delivery.Key, *delivery.Notice, string) error { return nil }

func (callers) Pause() time.Duration { return 0 }

func (callers) Settled(delivery.Key, *delivery.Notice) {}

// Handle implements [telemetry.Intake].
func (in *Intake) Handle(ctx context.Context, e telemetry.Event, key string) (telemetry.Verdict, error) {
	found, reason := in.rules.Decode(&e)
	in.seen.Note(&e, reason, in.rules.Readings(found))
	switch {
	case !reason.HasReading():
		return telemetry.VerdictFailed, &telemetry.DecodeError{Reason: reason}
	case !in.rules.Reaches(&e, found):
		return telemetry.VerdictNormal, nil
	}

	busy := true // there is no room: nobody waits for it, and no delivery starts

	select {
	case in.callers <- struct{}{}:
		defer func() { <-in.callers }()
		busy = in.box.Full()
	default:
	}

	e.Sequence = in.next.Add(1)
	alerts, over := in.rules.Alerts(&e, found)
	if !over {
		return telemetry.VerdictNormal, nil
	}

	arrival := &delivery.Arrival{At: e.Enqueued, ID: key}
	var tickets []*delivery.Ticket // for the deliveries that it is part of; nil for one for which there was no room
	for i := range alerts {
		a := &alerts[i]
		a.JoinOnly, a.Waits = busy, true
		tickets = append(tickets, in.box.Alert(&a.Alert, &arriving{a, arrival})...)
	}

	if busy && len(tickets) > 0 {
		return telemetry.VerdictFailed, telemetry.ErrBusy
	}

	return in.outcome(ctx, e.Device, tickets, arrival)
}

// outcome waits for what becomes of the alerts about a reading of device.
func (in *Intake) outcome(
	ctx context.Context,
	device string,
	tickets []*delivery.Ticket,
	arrival *delivery.Arrival,
) (telemetry.Verdict, error) {
	for _, t := range tickets {
		select {
		case <-t.Ended:
			if letter := cmp.Or(t.Letter, arrival.Letter.Load()); letter != nil {
				return telemetry.VerdictFailed, &telemetry.UnsettledError{
					Reason: delivery.OutcomeDeadLetter,
					Detail: "the alert was kept as a dead letter: " + letter.Reason,
				}
			}

		case <-ctx.Done():
			return telemetry.VerdictFailed, in.unsettled(device)
		}
	}

	switch {
	case in.ctx.Err() != nil: // deliveries may have been dropped
		return telemetry.VerdictFailed, &telemetry.UnsettledError{Reason: "stopping", Detail: "this replica is stopping"}
	case arrival.Alerted.Load():
		return telemetry.VerdictAlerted, nil
	}

	return telemetry.VerdictThrottled, nil
}

// unsettled returns what the alert about a device waits for.
func (in *Intake) unsettled(device string) error {
	all := in.box.States(in.rules.Keys(device))
	if len(all) == 0 { // it has ended just now
		return &telemetry.UnsettledError{
			Reason: delivery.WaitAttempt.String(),
			Detail: "the alert was not settled in time",
		}
	}

	waits := all[0].Waits
	return &telemetry.UnsettledError{Reason: waits.For.String(), Detail: "the alert is waiting: " + waits.Text}
}

// An arriving alert is about a reading that a caller waits for.
type arriving struct {
	*partition.Alert
	arrival *delivery.Arrival
}

// More implements delivery.Details.
func (a *arriving) More() *delivery.More {
	m := a.Alert.More()
	if m == nil {
		m = &delivery.More{}
	}

	m.Arrival = a.arrival
	return m
}

// describe adds what in knows of a device to d.
func (in *Intake) describe(device string, d *partition.DeviceState) {
	d.See(in.rules, in.seen, device, in.name)
	d.Deliveries = append(d.Deliveries, in.box.States(in.rules.Keys(device))...)
}

// state returns in as a partition.
func (in *Intake) state() partition.State {
	state := partition.State{Partition: in.name, Delivering: in.box.Len()}
	n, _, oldest := in.box.Unsettled()
	if n > 0 {
		state.Unsettled, state.Oldest = n, time.UnixMicro(oldest).UTC()
	}

	return state
}
