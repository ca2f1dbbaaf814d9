package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/delivery"
	"alertworker/internal/humanize"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/ops/backtesting"
	"alertworker/internal/partition"
)

const backtestDoes = "show what rules would have done with past readings. Nothing is sent, written or disturbed.\n" +
	"The settings in force are those of the environment; candidates are compared with them\n" +
	"Usage: alertworker backtest --file READINGS.csv | --since 24h [--rules a.yaml] [--set TEMPERATURE_THRESHOLD=75,80,85]"

// inForce is the name of the candidate that the environment describes.
const inForce = "in force"

// maxCandidates bounds the combinations of --rules and --set.
const maxCandidates = 16

// backtestFlags are those of `alertworker backtest`.
type backtestFlags struct {
	file    string
	names   backtesting.Names // of the file
	rules   []string
	sets    []set
	asJSON  bool
	history historyFlags
}

// A set is a variable and the values to try.
type set struct {
	name   string
	values []string
}

// runBacktest is `alertworker backtest`.
func runBacktest(ctx context.Context, out io.Writer, args []string) error {
	b, err := parseBacktest(args)
	if err != nil {
		return err
	}

	candidates, c, err := b.candidates()
	if err != nil {
		return err
	}

	run, err := backtesting.Start(candidates, c.Zone())
	if err != nil {
		return err
	}

	recording := &backtesting.Recording{} // which skips nothing, if it is the hub that is read

	if b.file != "" {
		if recording, err = backtesting.Open(b.file, field(candidates), b.names); err != nil {
			return &usageError{err}
		}
		defer recording.Close()
		if err = run.Take(ctx, withProgress(recording)); err != nil && run.Readings == 0 { // it is no recording
			err = &usageError{err}
		}
	} else {
		err = b.takeHub(ctx, c, run)
	}

	if run.Readings == 0 { // it failed, or was stopped
		return err
	}

	run.Finish()

	if b.asJSON {
		return errors.Join(err, run.PrintJSON(out, recording.Skipped))
	}

	return errors.Join(err, run.Print(out, recording.Skipped))
}

// parseBacktest reads the flags of a backtest.
func parseBacktest(args []string) (*backtestFlags, error) {
	b := &backtestFlags{}
	flags := newFlags("backtest", backtestDoes)
	flags.StringVar(&b.file, "file", "",
		"read the recording in `FILE`: CSV (timestamp,device,value), JSON or Avro, as Azure's tools write it; see "+
			"docs/questions.md")
	flags.StringVar(&b.names.Time, "time", "",
		"with --file, the `NAME` of the column with the time, or its path in JSON (default timestamp, and those of Azure)")
	flags.StringVar(&b.names.Device, "device", "",
		"with --file, the `NAME` of the column with the device, or its path in JSON (default device, and those of Azure)")
	b.history.define(flags, "since", "read what the hub received in the last `DURATION`, such as 24h")
	flags.Func("rules", "try the rules of this `FILE` in place of the settings in force; may be repeated", func(name string) error {
		b.rules = append(b.rules, name)
		return nil
	})
	flags.Func("set", "try other values of a setting, as `NAME=VALUE,VALUE`; may be repeated, for all combinations", b.set)
	flags.BoolVar(&b.asJSON, "json", false, "print one JSON object")
	if err := parseFlags(flags, args); err != nil {
		return nil, err
	}
	if (b.file == "") == (b.history.since == 0) {
		return nil, &usageError{
			errors.New("read a recording with --file, or the hub with --since; see alertworker backtest --help"),
		}
	}

	if b.file == "" && b.names != (backtesting.Names{}) {
		return nil, &usageError{errors.New("--time and --device say what the file of --file has: give it, too")}
	}

	return b, nil
}

// takeHub has run take what the hub of c holds.
func (b *backtestFlags) takeHub(ctx context.Context, c config.Config, run *backtesting.Run) error {
	s, err := newStores(c, network{})
	if err != nil {
		return err
	}
	defer s.Close()

	if c, err = s.findHub(ctx, c, zap.NewNop()); err != nil {
		return err
	}

	history, err := b.history.open(ctx, c, s)
	if err != nil {
		return err
	}
	defer history.Close()

	err = run.Take(ctx, withProgress(history))
	if err == nil && run.Readings == 0 && ctx.Err() == nil {
		err = fmt.Errorf(
			"the hub holds no events from the last %s: its retention may be shorter, or nothing was sent",
			humanize.Span(b.history.since),
		)
	}

	return err
}

// set reads --set.
func (b *backtestFlags) set(text string) error {
	name, values, ok := strings.Cut(text, "=")
	if !ok || !config.Tries(name) {
		return errors.New(
			"must be NAME=VALUE,VALUE, where NAME is THROTTLE_WINDOW, NOTIFY_RESOLVED, NOTIFY_URLS, " +
				"TIME_PROPERTY or begins with TEMPERATURE_",
		)
	}

	s := set{name, []string{values}}
	if !slices.Contains([]string{"TEMPERATURE_FIELD", "NOTIFY_URLS"}, name) { // whose values have commas
		s.values = strings.Split(values, ",")
	}

	b.sets = append(b.sets, s)

	return nil
}

// candidates returns the settings in force, if there are any, and every combination of the flags; of the last one
// also all settings, which say where the hub is.
func (b *backtestFlags) candidates() (all []*backtesting.Candidate, c config.Config, err error) {
	type change struct {
		name   string
		values map[string]string
	}

	changes := []change{{}}

	if len(b.rules) > 0 {
		changes = nil
		for _, file := range b.rules {
			values := map[string]string{"RULES": "", "RULES_FILE": file, "TEMPERATURE_THRESHOLD": "", "TEMPERATURE_FIELD": ""}
			changes = append(changes, change{filepath.Base(file), values})
		}
	}

	for _, s := range b.sets {
		var next []change
		for _, c := range changes {
			for _, value := range s.values {
				values := map[string]string{}
				maps.Copy(values, c.values)
				values[s.name] = value
				next = append(next, change{strings.TrimSpace(c.name + " " + s.name + "=" + value), values})
			}
		}

		changes = next
	}

	if len(changes) > maxCandidates {
		return nil, c, &usageError{
			fmt.Errorf("%d combinations of --rules and --set are too many: at most %d", len(changes), maxCandidates),
		}
	}

	existing := os.Getenv("TEMPERATURE_THRESHOLD")+os.Getenv("RULES")+os.Getenv("RULES_FILE") != ""
	switch {
	case len(b.rules)+len(b.sets) == 0:
		changes = []change{{inForce, nil}}

	case existing:
		changes = slices.Insert(changes, 0, change{inForce, nil})
	}

	for _, change := range changes {
		if c, err = config.LoadRules(change.values, b.file == ""); err != nil {
			return nil, c, fmt.Errorf("candidate %s: %w", change.name, err)
		}

		rs, err := openReceivers(c, nil, nil, zap.NewNop())
		if err != nil {
			return nil, c, err
		}

		closeAll(rs)
		all = append(all, &backtesting.Candidate{Name: change.name, Set: c.Rules(), To: asked(rs)})
	}

	return all, c, nil
}

// asked returns what a backtest has to know of receivers.
func asked(rs []receivers.Receiver) (to []partition.Receiver) {
	for _, r := range rs {
		to = append(to, partition.Receiver{To: delivery.Receiver{ID: r.ID, Name: r.Name}, Filters: r.Filters})
	}
	return to
}

// field returns the first path of the field that all rules read, empty if they read several.
func field(candidates []*backtesting.Candidate) (one string) {
	for _, c := range candidates {
		for _, r := range c.Set.Rules {
			if r.Field == "" { // any message counts
				continue
			}

			path, _, _ := strings.Cut(r.Field, ",")
			if one != "" && path != one {
				return ""
			}

			one = path
		}
	}

	return one
}
