package worker

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

// maxCallers bounds the callers that wait for an outcome at the same time. A reading
// that reaches no limit, or of a device whose windows are known to be in force, does
// not wait.
const maxCallers = 256

// An Intake is a [telemetry.Intake] that takes events through the same gates and
// notifiers as the events of partitions. Its rules have no state.
type Intake struct {
	*Worker
	name    string
	box     *delivery.Outbox
	seen    *lastSeen
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
	in := &Intake{Worker: w, name: name, seen: newLastSeen(time.Now()), callers: make(chan struct{}, maxCallers)}
	in.ctx, in.stop = context.WithCancel(context.WithoutCancel(ctx))
	send, cut := context.WithCancel(context.WithoutCancel(ctx))
	in.cut = cut
	in.box = w.dispatcher.Open(in.ctx, send, delivery.Account{
		Owner:  callers{},
		Name:   name,
		IDs:    w.ids(name),
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
	late := time.AfterFunc(in.DrainTimeout, in.cut)
	in.box.Wait()
	late.Stop()
	in.cut()
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.intakes, in)
}

// callers own the deliveries of an Intake: nothing is due to them, and each waits for its own.
type callers struct{}

func (callers) MayClaim(delivery.Key, *delivery.Notice) error { return nil }

func (callers) MaySend(context.Context, delivery.Key, *delivery.Notice, string) error { return nil }

func (callers) Pause() time.Duration { return 0 }

func (callers) Settled(delivery.Key, *delivery.Notice) {}

// Handle implements [telemetry.Intake].
func (in *Intake) Handle(ctx context.Context, e telemetry.Event, key string) (telemetry.Verdict, error) {
	found := make([]telemetry.Found, in.fields)
	reason, hash := in.Decoder.DecodeAll(&e, found), roster.Hash(e.Device)
	in.stats.Events[reason].Add(1)
	in.seen.mu.Lock()
	in.seen.add(&e, hash, reason, found, time.Now().UnixMicro())
	in.seen.mu.Unlock()
	switch {
	case reason != telemetry.ReasonOK:
		return telemetry.VerdictFailed, &telemetry.DecodeError{Reason: reason}
	case !in.reaches(&e, found, nil):
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
	a := &arriving{
		examination: in.examine(&e),
		box:         in.box,
		busy:        busy,
		arrival:     &delivery.Arrival{At: e.Enqueued, ID: key},
	}
	switch over := a.evaluate(found); {
	case !over:
		return telemetry.VerdictNormal, nil
	case busy && len(a.tickets) > 0:
		return telemetry.VerdictFailed, telemetry.ErrBusy
	}

	in.stats.Over.Add(1)

	return in.outcome(ctx, a)
}

// outcome waits for what becomes of the reading a.
func (in *Intake) outcome(ctx context.Context, a *arriving) (telemetry.Verdict, error) {
	for _, t := range a.tickets {
		select {
		case <-t.Ended:
			if letter := cmp.Or(t.Letter, a.arrival.Letter.Load()); letter != nil {
				return telemetry.VerdictFailed, &telemetry.UnsettledError{
					Reason: delivery.OutcomeDeadLetter,
					Detail: "the alert was kept as a dead letter: " + letter.Reason,
				}
			}

		case <-ctx.Done():
			return telemetry.VerdictFailed, in.unsettled(a.event.Device)
		}
	}

	switch {
	case in.ctx.Err() != nil: // deliveries may have been dropped
		return telemetry.VerdictFailed, &telemetry.UnsettledError{Reason: "stopping", Detail: "this replica is stopping"}
	case a.arrival.Alerted.Load():
		return telemetry.VerdictAlerted, nil
	}

	return telemetry.VerdictThrottled, nil
}

// unsettled returns what the alert about a device waits for.
func (in *Intake) unsettled(device string) error {
	all := in.box.States(ownKeys(device, in.levels))
	if len(all) == 0 { // it has ended just now
		return &telemetry.UnsettledError{
			Reason: delivery.WaitAttempt.String(),
			Detail: "the alert was not settled in time",
		}
	}

	return &telemetry.UnsettledError{Reason: all[0].For.String(), Detail: fmt.Sprintf("the alert is waiting: %v", all[0])}
}

// An arriving is a reading that a caller waits for.
type arriving struct {
	examination
	box     *delivery.Outbox
	busy    bool
	arrival *delivery.Arrival
	tickets []*delivery.Ticket // for the deliveries that it is part of; nil for one for which there was no room
}

// evaluate takes the event through every rule, and reports whether it reaches a limit. The highest level of a rule that
// it reaches alerts.
func (a *arriving) evaluate(found []telemetry.Found) (over bool) {
	for _, r := range a.worker.rules {
		f := &found[r.reads.Field]
		if f.Reason != telemetry.ReasonOK || !r.applies(a.event, found) {
			continue
		}

		inhibited := false
		for _, l := range r.levels {
			limit, _ := l.LimitFor(a.event.Properties)
			if !r.Breaching(f.Value, limit) {
				continue
			}

			over = true
			l.stats.Over.Add(1)
			if !inhibited {
				a.notify(l, a.reading(f.Value, limit))
			}

			inhibited = true
		}
	}

	a.count()
	return over
}

// notify takes the reading to every receiver that wants alerts of l.
func (a *arriving) notify(l *level, rd delivery.Reading) {
	if a.worker.silenced(a.event.Device, l.rule.Name, a.event.Enqueued, a.property) {
		a.worker.stats.Quieted.Add(1)
		return
	}

	about := &about{examination: &a.examination, arrival: a.arrival}
	alert := &delivery.Alert{
		Key:       a.key(l),
		Reading:   rd,
		Sender:    a.event.Device,
		Before:    placeOf(telemetry.Position{}),
		Receivers: a.receivers(l),
		JoinOnly:  a.busy,
		Waits:     true,
	}
	about.topic = alert.Topic
	a.tickets = append(a.tickets, a.box.Alert(alert, about)...)
}

// about implements delivery.Details for a reading that a caller waits for.
type about struct {
	*examination
	topic   *delivery.Topic
	arrival *delivery.Arrival
}

func (a *about) More() *delivery.More {
	m := a.more(a.topic)
	if m == nil {
		m = &delivery.More{}
	}

	m.Arrival = a.arrival
	return m
}

// state returns in as a partition.
func (in *Intake) state() PartitionState {
	n, _, oldest := in.box.Unsettled()
	return PartitionState{Partition: in.name, Delivering: in.box.Len(), Unsettled: n, Oldest: fromMicros0(oldest)}
}
