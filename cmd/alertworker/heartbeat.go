package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"alertworker/internal/backoff"
	"alertworker/internal/delivery"
	"alertworker/internal/notify/heartbeat"
	"alertworker/internal/ops/status"
	"alertworker/internal/telemetry/ownership"
)

// checkTimeout is for one look at all replicas and partitions.
const checkTimeout = 20 * time.Second

// heartbeatDuty is its name among the duties.
const heartbeatDuty = "heartbeat"

// newHeartbeat returns the calls of HEARTBEAT_URL, which the leader makes.
func (r *replica) newHeartbeat() (*heartbeat.Heartbeat, error) {
	target, err := heartbeat.Parse(r.config.HeartbeatURL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("HEARTBEAT_URL %w", err)
	}

	return &heartbeat.Heartbeat{
		Target: target,
		Log:    r.log,
		Leading: func() bool {
			_, leading := r.duties.Leading()
			return leading
		},
		Check: func(ctx context.Context) string { // why an alert of some device would not go out; empty if all would
			ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("no answer within %v", checkTimeout))
			defer cancel()
			reports, err := r.source.Reports(ctx)
			partitions, failed := r.source.Ownerships(ctx, false)
			return status.WouldArrive(
				time.Now().In(r.config.Zone()), r.self(), status.Statements(reports), partitions, cmp.Or(err, failed),
			)
		},
		Made: func(call heartbeat.Call) { r.duties.Record(heartbeatDuty, call.Err != "") },
	}, nil
}

// How often a replica looks at what others report: while a receiver is down here, which they may reach, and else.
const (
	askEvery     = 10 * time.Second
	compareEvery = 2 * time.Minute
)

// followOthers compares rules with those of other replicas, until ctx ends. It has receivers that are down here be asked
// again at once when another replica reports that they accept alerts: pauses between probes are up to a minute, and those
// that a receiver asks for up to an hour.
func (r *replica) followOthers(ctx context.Context) {
	var asked time.Time
	for backoff.Sleep(ctx, askEvery) {
		isDown := func(to delivery.ReceiverState) bool { return to.Down }
		if !slices.ContainsFunc(r.worker.Receivers(), isDown) && time.Since(asked) < compareEvery {
			continue
		}

		asked = time.Now()
		asking, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("no answer within %v", checkTimeout))
		reports, err := r.source.Reports(asking)
		cancel()
		others := status.Statements(reports)
		if err == nil { // else they tell later
			var alike time.Time
			if r.ops.monitor.Compare(r.self(), others, len(reports)) {
				alike = asked
			}
			r.alike.Store(alike)
		}

		for _, name := range status.Accepting(others) {
			//planted:pause-beside-served skip
			r.worker.Accepted(name)
		}
	}
}

func (r *replica) self() status.Statement {
	return status.Statement{
		Replica: r.config.ReplicaName,
		Status:  r.ops.monitor.Report(),
		Late:    r.lag.Late(),
		Rules:   r.facts,
	}
}

// report is what the other replicas read: at least a status.Statement.
func (r *replica) report() []byte {
	if r.admin != nil {
		return r.admin.Report(ownership.MaxReport)
	}
	return r.self().JSON(ownership.MaxReport)
}
