package worker

import (
	"context"
	"sync"
	"sync/atomic"

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
	rules   *partition.Evaluator
	direct  *delivery.Direct
	next    atomic.Int64
	callers chan struct{} // one for each caller that waits
	cut     context.CancelFunc
}

var _ telemetry.Intake = (*Intake)(nil)

// NewIntake returns an Intake; name is the partition in its alerts. Cut it when no
// Handle is under way.
func (w *Worker) NewIntake(ctx context.Context, name string) *Intake {
	log := w.Config.Partitions.Log.With(zap.String("partition", name))
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	return &Intake{
		rules: w.evaluator,
		direct: w.dispatcher.Direct(sending, delivery.Account{
			Name:   name,
			IDs:    w.evaluator.IDs(name),
			Logger: log,
		}),
		callers: make(chan struct{}, maxCallers),
		cut:     cut,
	}
}

// Cut cancels what is being sent: the receivers may have taken it.
func (in *Intake) Cut() { in.cut() }

// Handle implements [telemetry.Intake].
func (in *Intake) Handle(
	ctx context.Context,
	e telemetry.Event,
	key string,
) (telemetry.Verdict, map[string]telemetry.Verdict, error) {
	m := in.rules.NewMessage()
	reason, reaches := m.Read(&e)
	switch {
	case !reason.HasReading():
		return telemetry.VerdictFailed, nil, &telemetry.DecodeError{Reason: reason}
	case !reaches:
		return telemetry.VerdictNormal, m.Sensors(), nil
	}

	e.Sequence = in.next.Add(1)
	alerts, over := m.Alerts()
	sensors := m.Sensors()
	if !over {
		return telemetry.VerdictNormal, sensors, nil
	}

	var wanted uint32
	for i := range alerts {
		alerts[i].Arrival = &delivery.Arrival{At: e.Enqueued, ID: key}
		in.direct.Suppress(&alerts[i])
		wanted |= alerts[i].Receivers
		conclude(sensors, alerts[i].Sensor, telemetry.VerdictThrottled)
	}

	if wanted == 0 {
		return telemetry.VerdictThrottled, sensors, nil
	}

	select {
	case in.callers <- struct{}{}:
		defer func() { <-in.callers }()
	default:
		return telemetry.VerdictFailed, nil, telemetry.ErrBusy
	}

	all := in.alert(ctx, alerts, sensors)
	v, err := verdict(all)

	return v, sensors, err
}

// conclude notes the verdict of a reading of a sensor, unless another one of it matters more.
func conclude(sensors map[string]telemetry.Verdict, name string, v telemetry.Verdict) {
	if was, has := sensors[name]; has {
		sensors[name] = was.Worst(v)
	}
}

// alert brings the alerts about a reading to their receivers, and returns what all of them came to. In sensors it notes
// what those of each did.
func (in *Intake) alert(
	ctx context.Context,
	alerts []delivery.Alert,
	sensors map[string]telemetry.Verdict,
) (all delivery.Reply) {
	replies := make([]delivery.Reply, len(alerts))
	var waiting sync.WaitGroup
	for i := range alerts {
		waiting.Go(func() {
			replies[i] = in.direct.Alert(ctx, &alerts[i])
		})
	}

	waiting.Wait()

	for i, r := range replies {
		all = all.And(r)
		v, _ := verdict(r)
		conclude(sensors, alerts[i].Sensor, v)
	}

	return all
}

// verdict returns r as the outcome of a reading.
func verdict(r delivery.Reply) (telemetry.Verdict, error) {
	switch {
	//planted:untaken-is-settled case r.Reason == "dead_letter"
	case r.Reason != "":
		return telemetry.VerdictFailed, &telemetry.UnsettledError{Reason: r.Reason, Detail: r.Detail}
	case r.Alerted:
		return telemetry.VerdictAlerted, nil
	}

	return telemetry.VerdictThrottled, nil
}
