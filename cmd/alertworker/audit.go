package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/ledger"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/ops/audit"
	"alertworker/internal/ops/backtesting"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

const auditDoes = "compare the alerts and recoveries that the readings in the hub call for with what the stores say became of them;\n" +
	"exit 0 if all are accounted for, 1 if not. Nothing is sent, written or created: a container that is missing is an error.\n" +
	"One read of the throttle store for each device, level and receiver\n" +
	"Usage: alertworker audit --since 24h [--group GROUP]"

// runAudit is `alertworker audit`. It has the configuration of the worker.
func runAudit(ctx context.Context, args []string) error {
	return auditTo(ctx, os.Stdout, os.Stderr, args)
}

func auditTo(ctx context.Context, out io.Writer, progress *os.File, args []string) error {
	var history historyFlags
	flags := newFlags("audit", auditDoes)
	history.define(flags)
	asJSON := flags.Bool("json", false, "print one JSON object")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if err := history.check(); err != nil {
		return &usageError{err}
	}
	if history.since == 0 {
		return &usageError{errors.New("say how far back with --since; see alertworker audit --help")}
	}
	c, _, err := configure()
	if err != nil {
		return err
	}
	if c.ThrottleStore == config.StoreMemory || c.CheckpointStore == config.StoreMemory {
		return &usageError{errors.New("with THROTTLE_STORE or CHECKPOINT_STORE in memory only the worker knows what it has sent")}
	}
	source, done, err := history.open(ctx, c)
	defer done()
	if err != nil {
		return err
	}
	began := time.Now()
	s, err := newReadStores(c)
	if err != nil {
		return err
	}
	defer s.Close()
	if c, err = resolveHub(ctx, c, zap.NewNop()); err != nil {
		return err
	}
	if s, err = s.open(ctx, c, zap.NewNop()); err != nil {
		return err
	}
	rs, err := openReceivers(c, s.identity, zap.NewNop())
	if err != nil {
		return err
	}
	var names []string
	candidate := &backtesting.Candidate{Name: inForce, Set: c.Rules()}
	for _, r := range rs {
		defer r.Close()
		names = append(names, r.Name)
		candidate.To = append(candidate.To, worker.Receiver{ID: r.ID, Name: r.Name, Filters: r.Filters})
	}
	expected := audit.Expected{}
	candidate.Notice = expected.Add
	if candidate.Mutes, err = silences(c, s.records).Mutes(ctx); err != nil {
		return err
	}
	run, err := backtesting.Start([]*backtesting.Candidate{candidate}, time.UTC)
	if err != nil {
		return err
	}
	show := newProgress(progress, source)
	err = run.Take(ctx, source, func() { show.at(run.Readings) })
	show.clear()
	switch {
	case err != nil:
		return err
	case !run.Complete:
		return errors.New("stopped before all readings were read: nothing is known")
	}
	run.Finish()

	stores, err := auditStores(ctx, c, s, rs, began.Add(-history.since))
	if err != nil {
		return err
	}
	report, err := audit.Compare(ctx, expected, began, stores)
	if err != nil {
		return err
	}
	if *asJSON {
		err = report.PrintJSON(out, names)
	} else {
		fmt.Fprintf(out, "%d events of the last %v; the latest message of each device, level and receiver:\n", run.Readings, history.since)
		err = report.Print(out, names)
	}
	if err == nil && len(report.Missing) > 0 {
		err = &silentError{exitFailed}
	}
	return err
}

// auditStores reads what an audit needs. since is when the first reading was taken.
func auditStores(ctx context.Context, c config.Config, s stores, rs []receivers.Receiver, since time.Time) (all audit.Stores, err error) {
	gates := map[audit.Key]*throttle.Gate{}
	per := map[string]string{}
	for _, r := range c.Rules().Rules {
		per[r.Name] = r.Per
	}
	all.Gate = func(receiver int, rule, level string) *throttle.Gate {
		key := audit.Key{Receiver: receiver, Rule: rule, Level: level}
		if gates[key] == nil { // to read with: it needs no window
			gates[key] = throttle.New(throttle.Config{Store: s.leases, Scope: c.Scope(), Receiver: rs[receiver].ID, Rule: rule, Level: level, Per: per[rule], SendTimeout: c.NotifyTimeout})
		}
		return gates[key]
	}
	all.Letters = map[audit.Key]time.Time{}
	if s.deadLetters != nil {
		for _, kind := range []deadletter.Kind{deadletter.Undelivered, deadletter.Replayed} {
			for page, err := range s.deadLetters.List(ctx, kind, since) {
				if err != nil {
					return all, err
				}
				for _, l := range page {
					for i := range rs {
						if key := (audit.Key{Receiver: i, Device: l.Alert.About(), Rule: l.Alert.Rule, Level: l.Alert.Level}); rs[i].ID == l.Receiver && l.Alert.Enqueued.After(all.Letters[key]) {
							all.Letters[key] = l.Alert.Enqueued
						}
					}
				}
			}
		}
	}
	hub := c.Hub()
	checkpoints, _, err := eventhubs.ReadCheckpoints(ctx, s.records, eventhubs.NewGroup(hub.Host, hub.Name, c.EventHubConsumerGroup))
	if err != nil {
		return all, err
	}
	all.Checkpoints = map[string]telemetry.Position{}
	for partition, checkpoint := range checkpoints {
		all.Checkpoints[partition] = checkpoint.Position
		content, err := ledger.Look(ctx, s.records, ledgerName(c, partition))
		if err != nil {
			return all, err
		}
		all.Ledgers = append(all.Ledgers, content)
	}
	return all, nil
}
