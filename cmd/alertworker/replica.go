package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/config"
	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/lease/observe"
	"alertworker/internal/ledger"
	"alertworker/internal/muting"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/heartbeat"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/leader"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
	"alertworker/internal/peers"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/ingest"
	"alertworker/internal/telemetry/transport"
	"alertworker/internal/worker"
)

// A replica is one worker with everything that it needs.
type replica struct {
	config    config.Config
	stores    stores // their calls of records are observed, but those of leases only as leases below
	ops       *operations
	log       *zap.Logger
	source    *eventhubs.Source
	worker    *worker.Worker
	receivers []receivers.Receiver
	gates     []admin.Receiver  // of each receiver and each level that is configured
	duties    *leader.Scheduler // nil if there are none
	leases    lease.Store       // that of stores, observed
	lag       *metrics.LagTracker
	admin     *admin.Admin    // nil if HTTP is off
	trigger   *ingest.Handler // of readings that come over HTTP; nil if HTTP or the trigger is off
	intake    *worker.Intake  // of these readings

	muting    *muting.Cache        // what people have silenced
	heartbeat *heartbeat.Heartbeat // nil if there is none

	facts   map[string]string // what it decides by: see rules.Set.Facts
	alike   atomic.Value      // a time.Time: when all replicas last decided by the same; zero: they do not
	member  *peers.Peer
	standby atomic.Value // a string: what waiting returns
}

// waiting returns why this replica is standing by; empty if it is not.
func (r *replica) waiting() string {
	reason, _ := r.standby.Load().(string)
	return reason
}

// newReplica assembles a replica of stores that are open. Beside them it connects to nothing.
func newReplica(
	ctx context.Context, c config.Config, s stores, o *operations, log *zap.Logger,
) (*replica, error) {
	store := string(c.ThrottleStore)
	s.records = watched(s.records, &o.monitor.Checkpoints)
	set := c.Rules()
	r := &replica{config: c, stores: s, ops: o, log: log, facts: set.Facts()}
	r.leases = observe.Store(s.leases, o.metrics.Store(store), o.monitor.Store.Store)
	r.muting = muting.NewCache(silences(c, s.records), log)

	var err error
	if r.member, err = s.member(ctx, c, s.records, log); err != nil {
		return nil, err
	}
	if r.receivers, err = openReceivers(c, s.identity, s.network.http, log); err != nil {
		return nil, err
	}

	reading := sourceConfig(c, s, log)
	reading.Report = r.report
	reading.Verdict = func() string { return o.monitor.Report().Verdict() }
	if r.source, err = eventhubs.New(reading); err != nil {
		return nil, err
	}

	deciding, err := r.workerConfig()
	if err != nil {
		return nil, err
	}

	r.worker = worker.New(deciding)
	r.lag = o.metrics.Watch(r.worker, r.source.Stats, store)
	r.source.RecordEnds(r.lag.Record)
	r.ops.metrics.Standby(func() bool { return r.waiting() != "" })
	r.ops.monitor.Watch(status.Replica{
		Worker: r.worker, Source: r.source.Stats, Standby: r.waiting, Store: r.leases, Key: status.ProbeKey(c.Scope()),
	})

	if r.duties = r.newDuties(); r.duties != nil {
		r.ops.metrics.Duties(r.duties.Leading, r.duties.Failures)
	}
	if c.HeartbeatURL.IsSet() {
		if r.heartbeat, err = r.newHeartbeat(); err != nil {
			return nil, err
		}
	}
	if r.ops.http != nil {
		r.admin = r.newAdmin()
		r.ops.http.handler.Store(r.admin)
	}

	return r, nil
}

// workerConfig returns what r's worker needs to read, to decide, and to deliver.
func (r *replica) workerConfig() (worker.Config, error) {
	c := r.config
	set := c.Rules()
	decoder, err := set.Decoder()
	if err != nil {
		return worker.Config{}, fmt.Errorf("fields of the rules: %w", err)
	}
	clock, err := set.Clock()
	if err != nil {
		return worker.Config{}, fmt.Errorf("TIME_PROPERTY %w", err)
	}

	letters := r.ops.recorder.DeadLetters(deadLetterLog{r.log}, func(notify.DeadLetter) string { return "" })
	//planted:dead-letters-logged if false
	if r.stores.deadLetters != nil {
		letters = r.ops.recorder.DeadLetters(r.stores.deadLetters, deadletter.ID)
	}

	return worker.Config{
		Rulebook: partition.Rulebook{
			Origin:    c.Origin(),
			Replica:   c.ReplicaName,
			Rules:     set,
			Decoder:   decoder,
			Clock:     clock,
			Mutes:     r.muting.Mutes,
			Receivers: r.deliverTo(set),
			Alike: func(since time.Time) bool {
				at, _ := r.alike.Load().(time.Time)
				return at.After(since)
			},
		},
		Deliveries: delivery.Config{
			Concurrency: c.NotifyConcurrency,
			GiveUp:      c.NotifyGiveUp,
			DeadLetters: letters,
		},
		Partitions: partition.Config{
			CheckpointInterval: c.CheckpointInterval,
			DrainTimeout:       c.DrainTimeout,
			Ledger: func(ctx context.Context, partition string) (*ledger.Ledger, ledger.Content, error) {
				return ledger.Open(ctx, r.stores.records, ledgerName(c, partition))
			},
			Roster: func(partition string) *roster.File {
				return &roster.File{Store: r.stores.records, Name: rosterName(c, partition)}
			},
			Incidents: incidents(c, r.stores.records),
			Log:       r.log,
		},
	}, nil
}

func sourceConfig(c config.Config, s stores, log *zap.Logger) eventhubs.Config {
	var resolve func(context.Context) (string, error)
	if c.IoTHub() != "" {
		resolve = func(ctx context.Context) (string, error) { return s.askIoTHub(ctx, c) }
	}
	return eventhubs.Config{
		IoTHub:           c.IoTHub(),
		Resolve:          resolve,
		ConnectionString: c.EventHubConnectionString.Reveal(),
		Namespace:        c.EventHubNamespace,
		Credential:       s.identity,
		Transport:        transport.Transport(c.EventHubTransport),
		Network:          transport.Network{Connect: s.network.dial},
		Hub:              c.EventHubName,
		ConsumerGroup:    c.EventHubConsumerGroup,
		Start:            c.EventHubStart,
		Prefetch:         c.EventHubPrefetch,
		OwnershipExpiry:  c.OwnershipExpiry,
		BalanceInterval:  c.BalanceInterval,
		Owner:            c.ReplicaName,
		Records:          s.records,
		Logger:           log,
	}
}

// newDuties returns the duties that one replica performs for its scope, nil if there are none.
func (r *replica) newDuties() *leader.Scheduler {
	c := r.config
	var duties []leader.Duty
	if blobs, ok := r.stores.leases.(leader.Sweeper); ok { // the others expire records themselves
		duties = append(duties, leader.Janitor(blobs, c.Scope(), c.LeaseRetention))
	}
	if slices.ContainsFunc(c.Rules().Rules, func(rule rules.Rule) bool { return rule.Grouped() }) {
		duties = append(duties, leader.Incidents(incidents(c, r.stores.records), r.source.Partitions, c.LeaseRetention))
	}
	if c.HeartbeatURL.IsSet() {
		duties = append(duties, leader.Duty{Name: heartbeatDuty})
	}
	if len(duties) == 0 {
		return nil
	}
	return leader.New(leader.Config{
		Store: r.leases, Key: leader.Key(c.Scope()), Duties: duties, Log: r.log,
	})
}

// run works until ctx ends and everything is handed over, in the order of
// docs/promise.md: the replica becomes unready, receives no more, finishes its
// deliveries, gives back partitions and the leader's lease, and stops serving HTTP.
func (r *replica) run(ctx context.Context) (err error) {
	var end cleanup
	defer func() { err = errors.Join(err, end.run()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lasting := context.WithoutCancel(ctx) // each step ends what runs in it
	receiving, stopReceiving := context.WithCancel(lasting)
	handOver := r.config.DrainTimeout + handOverMargin

	for _, to := range r.receivers {
		end.add("receiver "+to.Name, closeLimit, to.Close)
	}
	end.add("hub client", closeLimit, r.source.Close)
	if r.admin != nil {
		end.background(lasting, "status page", closeLimit, running(r.admin.Run))
	}
	end.add("operations", closeTimeout+closeLimit, r.ops.close)
	if r.join(ctx) {
		if err := r.muting.Refresh(ctx); err != nil && ctx.Err() == nil { // alerts matter more
			r.log.Warn("cannot read the silences: silenced alerts may be sent", zap.Error(err))
		}
		end.background(lasting, "settings record", closeLimit, func(ctx context.Context) error {
			err := r.member.Keep(ctx, r.muting.Refresh)
			if err != nil { // replicas with other settings have taken over
				stop()
			}
			return err
		})
		end.background(receiving, "receivers of others", closeLimit, running(r.followOthers))
		if r.duties != nil {
			end.background(receiving, "duties", handOverMargin, running(r.duties.Run))
		}
		if r.heartbeat != nil {
			end.background(receiving, "heartbeat", closeLimit, running(r.heartbeat.Run))
		}
		end.background(receiving, "partitions", handOver, func(ctx context.Context) error {
			defer stop()
			return r.source.Run(ctx, r.worker.Consume)
		})
	}
	if r.trigger != nil {
		end.background(receiving, "HTTP trigger", handOver, running(r.closeTrigger))
	}
	end.add("receiving", closeLimit, stopReceiving)
	end.add("readiness", closeLimit, r.ops.monitor.Drain)
	<-ctx.Done()
	return nil
}

// handOverMargin is what handing over may take besides DRAIN_TIMEOUT: recording the
// last outcomes, the last checkpoints, and giving back what is owned.
const handOverMargin = time.Minute

// join returns true once no replicas with other settings are active, and false if ctx ends
// first. While that cannot be determined it tries again.
func (r *replica) join(ctx context.Context) bool {
	defer r.standby.Store("")
	for n := 1; ; n++ {
		err := r.member.Join(ctx, func(reason string) { r.standby.Store(reason) })
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		r.ops.monitor.Checkpoints.Called(status.Read, fmt.Errorf("compare settings with other replicas: %w", err))
		backoff.Sleep(ctx, backoff.Delay(n, connectMin, connectMax))
	}
}
