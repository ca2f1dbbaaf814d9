package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"go.uber.org/zap"

	"alertworker/internal/admin"
	"alertworker/internal/duty"
	"alertworker/internal/metrics"
	"alertworker/internal/notify"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/tally"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/throttle"
	"alertworker/internal/tracing"
	"alertworker/internal/worker"
)

// lagEvery is how often the hub is asked where its partitions end.
const lagEvery = 15 * time.Second

// A replica is one worker and what stands around it.
type replica struct {
	source    *eventhubs.Source
	worker    *worker.Worker
	receivers []receivers.Receiver
	duties    *duty.Roster  // nil if there are none
	tally     *tally.Tally  // for the daily summary; nil if there is none
	ends      *metrics.Ends // of partitions, for their lag
	http      *httpServer   // nil if HTTP is off
}

// newReplica puts a replica together. It is the only place that picks
// implementations. A nil tracer traces nothing.
func newReplica(c config, s stores, rs []receivers.Receiver, tracer *tracing.Tracing, log *zap.Logger) (*replica, error) {
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
		Origin:             origin(c),
		Replica:            c.ReplicaName,
		Threshold:          c.TemperatureThreshold,
		Window:             c.ThrottleWindow,
		Concurrency:        c.NotifyConcurrency,
		GiveUp:             c.NotifyGiveUp,
		CheckpointInterval: c.CheckpointInterval,
		DrainTimeout:       c.DrainTimeout,
		Decoder:            decoder,
		DeadLetters:        deadLetterLog{log},
		Trace:              tracer.Flights(),
		Log:                log,
	}
	if s.deadLetters != nil {
		config.DeadLetters = s.deadLetters
		if c.DeadLetterMalformed {
			config.Malformed = s.deadLetters
		}
	}

	if c.SummarySchedule != "" {
		r.tally = tally.New(s.tallies, scope(c), log)
	}
	measured, recorder := metrics.New(number()), &admin.Recorder{}
	store := string(c.ThrottleStore)
	leases := recorder.Store(measured.Store(tracer.Store(s.leases, store), store))
	for _, to := range rs {
		config.Receivers = append(config.Receivers, worker.Receiver{
			Name:     to.Name,
			Notifier: recorder.Notifier(measured.Notifier(tracer.Notifier(r.tally.Notifier(to.Notifier, to.Name), to.Name), to.Name), to.Name),
			Gate: throttle.New(throttle.Config{
				Store: leases, Scope: scope(c), Receiver: to.Name, Window: c.ThrottleWindow, SendTimeout: c.NotifyTimeout,
			}),
		})
	}
	r.worker = worker.New(config)
	r.ends = measured.Watch(r.worker, func() metrics.SourceStats {
		stats := r.source.Stats()
		return metrics.SourceStats{Owned: stats.Owned, Reading: stats.Reading, Lost: stats.Lost, Unread: stats.Unread, Restarts: stats.Restarts}
	}, store)
	if r.duties, err = newDuties(c, s, rs, r.tally, log); err != nil {
		return nil, err
	}
	if r.duties != nil {
		measured.Duties(r.duties.Leading)
	}
	if c.HTTPAddr != "" {
		if r.http, err = listenHTTP(c, s, r, measured.Handler(), recorder, log); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func newSource(c config, s stores, log *zap.Logger) (*eventhubs.Source, error) {
	var identity azcore.TokenCredential
	if c.EventHubNamespace != "" {
		var err error
		if identity, err = credential("EVENTHUB_NAMESPACE"); err != nil {
			return nil, err
		}
	}
	return eventhubs.New(eventhubs.Config{
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
		Logger:           log,
	})
}

// newDuties returns what one replica does for all of its scope, nil if that is nothing.
func newDuties(c config, s stores, rs []receivers.Receiver, counted *tally.Tally, log *zap.Logger) (*duty.Roster, error) {
	var duties []duty.Duty
	if blobs, ok := s.leases.(duty.Sweeper); ok { // the others forget by themselves
		duties = append(duties, duty.Janitor(blobs, scope(c), c.LeaseRetention))
	}
	if c.SummarySchedule != "" {
		schedule, err := duty.ParseSchedule(c.SummarySchedule)
		if err != nil {
			return nil, fmt.Errorf("SUMMARY_SCHEDULE: %w", err)
		}
		summary := duty.SummaryConfig{
			Tally: counted, Scope: scope(c), Source: "/" + origin(c),
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
		duties = append(duties, duty.Summary(schedule, summary))
	}
	if len(duties) == 0 {
		return nil, nil
	}
	return duty.New(duty.Config{
		Store: s.leases, Key: duty.Key(scope(c)), Replica: c.ReplicaName, Duties: duties, Log: log,
	}), nil
}

// run works until ctx ends and everything is handed over. HTTP answers until the end.
func (r *replica) run(ctx context.Context) error {
	defer func() {
		for _, to := range r.receivers {
			to.Close()
		}
	}()
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
	if r.duties != nil {
		beside.Go(func() { r.duties.Run(ctx) })
	}
	err := r.source.Run(ctx, r.worker.Consume) // returns when ctx ends
	beside.Wait()
	unserve()
	serving.Wait()
	uncount() // all alerts are counted by now
	counting.Wait()
	return err
}
