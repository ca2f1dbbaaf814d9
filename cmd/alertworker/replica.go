package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/leader"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/tally"
	"alertworker/internal/ops/tracing"
	"alertworker/internal/peers"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/iothub"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// lagEvery is how often the hub is asked where its partitions end.
const lagEvery = 15 * time.Second

// A replica is one worker and what stands around it.
type replica struct {
	source    *eventhubs.Source
	worker    *worker.Worker
	receivers []receivers.Receiver
	duties    *leader.Roster // nil if there are none
	tally     *tally.Tally   // for the daily summary; nil if there is none
	ends      *metrics.Ends  // of partitions, for their lag
	http      *httpServer    // nil if HTTP is off

	member  *peers.Member // nil if there can be no replica with other settings
	standby atomic.Value  // a string: why this replica waits for others to stop; empty if it does not
}

// waiting says why this replica stands by; empty if it does not.
func (r *replica) waiting() string {
	reason, _ := r.standby.Load().(string)
	return reason
}

// newReplica puts a replica together. It is the only place that picks
// implementations. A nil tracer traces nothing.
func newReplica(c config.Config, s stores, rs []receivers.Receiver, tracer *tracing.Tracing, log *zap.Logger) (*replica, error) {
	r := &replica{receivers: rs}
	var err error
	if r.source, err = newSource(c, s, log); err != nil {
		return nil, err
	}
	decoder, err := telemetry.NewDecoder(c.TemperatureField.String())
	if err != nil {
		return nil, fmt.Errorf("TEMPERATURE_FIELD: %w", err)
	}
	config := worker.Config{
		Origin:             c.Origin(),
		Replica:            c.ReplicaName,
		Threshold:          c.TemperatureThreshold,
		Window:             c.ThrottleWindow,
		Concurrency:        c.NotifyConcurrency,
		GiveUp:             c.NotifyGiveUp,
		CheckpointInterval: c.CheckpointInterval,
		DrainTimeout:       c.DrainTimeout,
		Decoder:            decoder,
		DeadLetters:        deadLetterLog{log},
		Trace:              tracer.Deliveries(),
		Log:                log,
	}
	if s.deadLetters != nil {
		config.DeadLetters = s.deadLetters
		if c.DeadLetterMalformed {
			config.Malformed = s.deadLetters
		}
	}

	if c.SummarySchedule != "" {
		r.tally = tally.New(s.tallies, c.Scope(), log)
	}
	measured, recorder := metrics.New(number()), &admin.Recorder{}
	store := string(c.ThrottleStore)
	leases := lease.Observe(s.leases, recorder.Store(), measured.Store(store), tracer.Store(store))
	for _, to := range rs {
		config.Receivers = append(config.Receivers, worker.Receiver{
			Name:     to.Name,
			Notifier: recorder.Notifier(measured.Notifier(tracer.Notifier(r.tally.Notifier(to.Notifier, to.Name), to.Name), to.Name), to.Name),
			Gate: throttle.New(throttle.Config{
				Store: leases, Scope: c.Scope(), Receiver: to.Name, Window: c.ThrottleWindow, SendTimeout: c.NotifyTimeout,
			}),
		})
	}
	r.worker = worker.New(config)
	r.ends = measured.Watch(r.worker, func() metrics.SourceStats {
		stats := r.source.Stats()
		return metrics.SourceStats{Owned: stats.Owned, Reading: stats.Reading, Lost: stats.Lost, Unread: stats.Unread, Restarts: stats.Restarts,
			Moves: stats.Moves, StartedOver: stats.StartedOver, Expired: stats.Expired, Skipped: stats.Skipped}
	}, store)
	if r.duties, err = newDuties(c, s, rs, r.tally, log); err != nil {
		return nil, err
	}
	if r.duties != nil {
		measured.Duties(r.duties.Leading)
	}
	measured.Standby(func() bool { return r.waiting() != "" })
	if c.HTTPAddr != "" {
		if r.http, err = listenHTTP(c, s, r, measured.Handler(), recorder, log); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func newSource(c config.Config, s stores, log *zap.Logger) (*eventhubs.Source, error) {
	var identity azcore.TokenCredential
	if c.EventHubNamespace != "" {
		identity = s.identity
	}
	var resolve func(context.Context) (string, error)
	if c.IoTHub() != "" {
		resolve = func(ctx context.Context) (string, error) {
			return iothub.Resolve(ctx, c.IoTHubConnectionString.Reveal())
		}
	}
	return eventhubs.New(eventhubs.Config{
		IoTHub:           c.IoTHub(),
		Resolve:          resolve,
		ConnectionString: c.EventHubConnectionString.Reveal(),
		Namespace:        c.EventHubNamespace,
		Credential:       identity,
		Hub:              c.EventHubName,
		ConsumerGroup:    c.EventHubConsumerGroup,
		Start:            c.EventHubStart,
		Prefetch:         c.EventHubPrefetch,
		OwnershipExpiry:  c.OwnershipExpiry,
		BalanceInterval:  c.BalanceInterval,
		Owner:            c.ReplicaName,
		Checkpoints:      s.checkpoints,
		Ownership:        s.ownership,
		Logger:           log,
	})
}

// newDuties returns what one replica does for all of its scope, nil if that is nothing.
func newDuties(c config.Config, s stores, rs []receivers.Receiver, counted *tally.Tally, log *zap.Logger) (*leader.Roster, error) {
	var duties []leader.Duty
	if blobs, ok := s.leases.(leader.Sweeper); ok { // the others forget by themselves
		duties = append(duties, leader.Janitor(blobs, c.Scope(), c.LeaseRetention))
	}
	if c.SummarySchedule != "" {
		schedule, err := leader.ParseSchedule(c.SummarySchedule)
		if err != nil {
			return nil, fmt.Errorf("SUMMARY_SCHEDULE: %w", err)
		}
		summary := leader.SummaryConfig{
			Tally: counted, Scope: c.Scope(), Source: "/" + c.Origin(),
			Receivers: map[string]notify.Reporter{}, Timeout: c.NotifyTimeout,
		}
		for _, to := range rs {
			if reporter, ok := to.Notifier.(notify.Reporter); ok {
				summary.Receivers[to.Name] = reporter
			}
		}
		if s.deadLetters != nil {
			summary.DeadLetters = s.deadLetters.Count
		}
		duties = append(duties, leader.Summary(schedule, summary))
	}
	if len(duties) == 0 {
		return nil, nil
	}
	return leader.New(leader.Config{
		Store: s.leases, Key: leader.Key(c.Scope()), Replica: c.ReplicaName, Duties: duties, Log: log,
	}), nil
}

// run works until ctx ends and everything is handed over. HTTP answers until the end.
func (r *replica) run(ctx context.Context) error {
	defer func() {
		for _, to := range r.receivers {
			to.Close()
		}
	}()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var beside, serving, counting sync.WaitGroup
	unserve := func() {}
	counted, uncount := context.WithCancel(context.WithoutCancel(ctx))
	if r.tally != nil {
		counting.Go(func() { r.tally.Run(counted) })
	}
	if r.http != nil {
		served, cancel := context.WithCancel(context.WithoutCancel(ctx))
		unserve = cancel
		serving.Go(func() { r.http.serve(served) })
		beside.Go(func() { r.source.FollowEnds(ctx, lagEvery, r.ends) })
		beside.Go(func() {
			<-ctx.Done()
			r.http.drain()
		})
	}
	err := r.work(ctx, stop)
	stop(err)
	beside.Wait()
	unserve()
	serving.Wait()
	r.source.Close()
	uncount() // all alerts are counted by now
	counting.Wait()
	return err
}

// work reads until ctx ends, once no replicas with other settings are active. It calls stop if
// some take over, and fails.
func (r *replica) work(ctx context.Context, stop context.CancelCauseFunc) error {
	var beside sync.WaitGroup
	keeping, unkeep := context.WithCancel(context.WithoutCancel(ctx)) // until all is settled
	defer beside.Wait()
	defer unkeep()
	if r.member != nil {
		err := r.member.Join(ctx, func(reason string) { r.standby.Store(reason) })
		r.standby.Store("")
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("compare settings with other replicas: %w", err)
		}
		beside.Go(func() {
			if err := r.member.Keep(keeping); err != nil {
				stop(err)
			}
		})
	}
	if r.duties != nil {
		beside.Go(func() { r.duties.Run(ctx) })
	}
	err := r.source.Run(ctx, r.worker.Consume) // returns when ctx ends
	if cause := context.Cause(ctx); errors.Is(cause, peers.ErrReplaced) {
		return cause
	}
	return err
}
