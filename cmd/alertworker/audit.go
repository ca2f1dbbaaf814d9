package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/ledger"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/ops/audit"
	"alertworker/internal/ops/backtesting"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/throttle"
)

const auditDoes = "compare the alerts and recoveries that the hub's readings call for with what became of them, " +
	"according to the stores;\n" +
	"exit 0 if all are accounted for, 1 if not. Nothing is sent, written or created: a container that is missing is an " +
	"error.\n" +
	"It reads the throttle store once for each device, level and receiver\n" +
	"Usage: alertworker audit --since 24h [--group GROUP]"

// runAudit is `alertworker audit`. It has the configuration of the worker.
func runAudit(ctx context.Context, out io.Writer, args []string) error {
	history, asJSON := &historyFlags{}, false
	flags := newFlags("audit", auditDoes)
	history.define(flags, "since", "read what the hub received in the last `DURATION`, such as 24h")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	if err := parseFlags(flags, args); err != nil {
		return err
	}

	if history.since <= 0 {
		return &usageError{errors.New("say how far back with --since; see alertworker audit --help")}
	}

	ofAll := access{
		readOnly: true,
		has:      isShared,
		lacks:    "with THROTTLE_STORE or CHECKPOINT_STORE in memory only the worker knows what it has sent",
	}
	return ofAll.use(ctx, func(s *session) error {
		began := time.Now()
		expected, run, err := s.expect(ctx, history)
		if err != nil {
			return err
		}

		stores, err := s.auditStores(ctx, began.Add(-history.since))
		if err != nil {
			return err
		}

		asking := newMeter()
		report, err := audit.Compare(ctx, expected, began, stores, func(share float64) {
			asking.say(
				share,
				fmt.Sprintf("asked the throttle store about %.0f of %d messages", share*float64(len(expected)), len(expected)),
			)
		})
		if err != nil {
			return err
		}

		if asJSON {
			err = report.PrintJSON(out)
		} else {
			fmt.Fprintf(out, "%s; the latest message of each device, level and receiver:\n", run.Extent())
			err = report.Print(out, s.config.Zone())
		}

		if err != nil {
			return err
		}

		return failedIf(len(report.Missing) > 0)
	})
}

// expect reads what the hub holds, and returns which messages its readings call for.
func (s *session) expect(
	ctx context.Context,
	history *historyFlags,
) (audit.Expected, *backtesting.Run, error) {
	source, err := history.open(ctx, s.config, s.stores)
	if err != nil {
		return nil, nil, err
	}
	defer source.Close()
	events, takes := source.Held()
	text := fmt.Sprintf("reading up to %s that the hub holds", humanize.Count(int(events), "event"))
	if takes > 0 {
		text += fmt.Sprintf(", which takes up to %s (--rate)", humanize.Span(takes))
	}
	fmt.Fprintln(os.Stderr, text)

	set := s.config.Rules()
	set.Rules = slices.DeleteFunc(slices.Clone(set.Rules), func(r rules.Rule) bool { return r.Silence() })
	if len(set.Rules) == 0 {
		return nil, nil, errors.New(
			"all rules are about silence, which an audit cannot judge: it does not know who was heard before it begins",
		)
	}

	expected := audit.Expected{}
	candidate := &backtesting.Candidate{Name: inForce, Set: set, To: asked(s.receivers), Notice: expected.Add}
	if candidate.Mutes, err = silences(s.config, s.stores.records).Mutes(ctx); err != nil {
		return nil, nil, err
	}

	run, err := backtesting.Start([]*backtesting.Candidate{candidate}, s.config.Zone())
	if err != nil {
		return nil, nil, err
	}

	switch err := run.Take(ctx, withProgress(source)); {
	case err != nil:
		return nil, nil, err

	case !run.Complete:
		return nil, nil, errors.New("stopped before all readings were read: there is no result")

	case run.Readings == 0:
		return nil, nil, fmt.Errorf(
			"the hub holds no events from the last %s: nothing can be proved",
			humanize.Span(history.since),
		)
	}

	run.Finish()

	return expected, run, nil
}

// auditStores reads what an audit needs. since is when the first reading was taken.
func (s *session) auditStores(ctx context.Context, since time.Time) (all audit.Stores, err error) {
	all.Gates = map[audit.Key]*throttle.Gate{}
	s.eachGate(func(receiver int, rule *rules.Rule, level *rules.Level, gate throttle.Config) {
		key := audit.Key{Receiver: receiver, Rule: rule.Name, Level: level.Name, Shared: rule.Per != ""}
		all.Gates[key] = throttle.New(gate)
	})
	receiver := map[string]int{} // by id
	for i, r := range s.receivers {
		receiver[r.ID] = i
		all.Names = append(all.Names, r.Name)
	}

	all.Letters = map[audit.Key]time.Time{}
	for _, kind := range deadletter.Kinds {
		for page, err := range s.stores.deadLetters.List(ctx, kind, since) {
			if err != nil {
				return all, err
			}

			for _, l := range page {
				i, ok := receiver[l.Receiver]
				key := audit.Key{
					Receiver: i,
					Of:       l.Alert.Of(),
					Rule:     l.Alert.Rule,
					Level:    l.Alert.Level,
					Shared:   l.Alert.Per != "",
				}
				if ok && l.Alert.Enqueued.After(all.Letters[key]) {
					all.Letters[key] = l.Alert.Enqueued
				}
			}
		}
	}

	hub := s.config.Hub()
	checkpoints, _, err := eventhubs.ReadCheckpoints(
		ctx,
		s.stores.records,
		eventhubs.NewGroup(hub.Host, hub.Name, s.config.EventHubConsumerGroup),
	)
	if err != nil {
		return all, err
	}

	all.Checkpoints = map[string]telemetry.Position{}
	for partition, checkpoint := range checkpoints {
		all.Checkpoints[partition] = checkpoint.Position
		content, err := ledger.Look(ctx, s.stores.records, ledgerName(s.config, partition))
		if err != nil {
			return all, err
		}

		all.Ledgers = append(all.Ledgers, content)
	}

	member, err := s.stores.member(ctx, s.config, s.stores.records, s.log)
	if err != nil {
		return all, err
	}

	all.InForce, err = member.Since(ctx)

	return all, err
}
