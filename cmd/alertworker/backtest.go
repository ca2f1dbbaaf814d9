package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/term"

	"alertworker/internal/config"
	"alertworker/internal/ops/backtesting"
	"alertworker/internal/worker"
)

const backtestDoes = "say what rules would have done with readings of the past. Nothing is sent, written or disturbed.\n" +
	"The settings in force are those of the environment; candidates are compared with them\n" +
	"Usage: alertworker backtest --file READINGS.csv [--rules a.yaml] [--set TEMPERATURE_THRESHOLD=75,80,85]"

// inForce is the name of the candidate that the environment describes.
const inForce = "in force"

// maxCandidates bounds the combinations of --rules and --set.
const maxCandidates = 16

// backtestFlags are those of `alertworker backtest`.
type backtestFlags struct {
	file, svg    string
	rules        []string
	sets         []set
	diff, asJSON bool
}

// A set is a variable and the values to try.
type set struct {
	name   string
	values []string
}

// runBacktest is `alertworker backtest`.
func runBacktest(ctx context.Context, args []string) error {
	return backtestTo(ctx, os.Stdout, os.Stderr, args)
}

func backtestTo(ctx context.Context, out io.Writer, progress *os.File, args []string) error {
	var b backtestFlags
	flags := newFlags("backtest", backtestDoes)
	flags.StringVar(&b.file, "file", "", "read the recording in `FILE`: CSV (timestamp,device,value) or a JSON object per line; see docs/questions.md")
	flags.Func("rules", "try the rules of this `FILE` in place of the settings in force; may be repeated", func(name string) error {
		b.rules = append(b.rules, name)
		return nil
	})
	flags.Func("set", "try other values of a setting, as `NAME=VALUE,VALUE`; may be repeated, for all combinations", b.set)
	flags.BoolVar(&b.diff, "diff", false, "name the devices that would newly be reported, and those that no longer would")
	flags.StringVar(&b.svg, "svg", "", "draw the alerts of each candidate over time into `FILE`")
	flags.BoolVar(&b.asJSON, "json", false, "print one JSON object")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if b.file == "" {
		return &usageError{errors.New("name a recording with --file; see alertworker backtest --help")}
	}
	candidates, zone, err := b.candidates()
	if err != nil {
		return err
	}
	recording, err := backtesting.Open(b.file, field(candidates))
	if err != nil {
		return &usageError{err}
	}
	defer recording.Close()
	run, err := backtesting.Start(candidates, zone)
	if err != nil {
		return err
	}
	show := newProgress(progress, recording)
	err = run.Take(ctx, recording, func() { show.at(run.Readings) })
	show.clear()
	if err != nil {
		return err
	}
	run.Finish()
	if b.svg != "" {
		if err := writeFile(b.svg, run.Draw); err != nil {
			return err
		}
	}
	if b.asJSON {
		return run.PrintJSON(out, recording.Skipped)
	}
	return run.Print(out, recording.Skipped.String(), b.diff)
}

// set reads --set.
func (b *backtestFlags) set(text string) error {
	name, values, ok := strings.Cut(text, "=")
	if !ok || !config.Tries(name) {
		return errors.New("must be NAME=VALUE,VALUE, where NAME is THROTTLE_WINDOW, NOTIFY_RESOLVED, NOTIFY_URLS, QUIET_PROPERTY or begins with TEMPERATURE_")
	}
	s := set{name, []string{values}}
	if name != "TEMPERATURE_FIELD" && name != "NOTIFY_URLS" { // whose values have commas
		s.values = strings.Split(values, ",")
	}
	b.sets = append(b.sets, s)
	return nil
}

// candidates returns the settings in force, if there are any, and every combination of the flags. Days are those of zone.
func (b *backtestFlags) candidates() (all []*backtesting.Candidate, zone *time.Location, err error) {
	type change struct {
		name   string
		values map[string]string
	}
	changes := []change{{values: map[string]string{}}}
	if len(b.rules) > 0 {
		changes = nil
		for _, file := range b.rules {
			values := map[string]string{"RULES_FILE": file}
			for _, v := range config.Variables() {
				if strings.HasPrefix(v.Name, "TEMPERATURE_") {
					values[v.Name] = ""
				}
			}
			changes = append(changes, change{filepath.Base(file), values})
		}
	}
	for _, s := range b.sets {
		var next []change
		for _, c := range changes {
			for _, value := range s.values {
				with := change{strings.TrimSpace(c.name + " " + s.name + "=" + value), map[string]string{}}
				for k, v := range c.values {
					with.values[k] = v
				}
				with.values[s.name] = value
				next = append(next, with)
			}
		}
		changes = next
	}
	if len(changes) > maxCandidates {
		return nil, nil, &usageError{fmt.Errorf("%d combinations of --rules and --set are too many: at most %d", len(changes), maxCandidates)}
	}
	existing := os.Getenv("TEMPERATURE_THRESHOLD")+os.Getenv("RULES_FILE") != ""
	switch {
	case len(b.rules)+len(b.sets) == 0:
		changes = []change{{inForce, nil}}
	case existing:
		changes = slices.Insert(changes, 0, change{inForce, nil})
	case b.diff:
		return nil, nil, &usageError{errors.New("--diff compares with the settings in force, and the environment has none: set TEMPERATURE_THRESHOLD or RULES_FILE")}
	}
	for _, change := range changes {
		c, err := config.LoadRules(change.values)
		if err != nil {
			return nil, nil, fmt.Errorf("candidate %s: %w", change.name, err)
		}
		candidate := &backtesting.Candidate{Name: change.name, Set: c.Rules()}
		rs, err := openReceivers(c, nil, zap.NewNop())
		if err != nil {
			return nil, nil, err
		}
		for _, r := range rs {
			r.Close()
			candidate.To = append(candidate.To, worker.Receiver{ID: r.ID, Name: r.Name, Filters: r.Filters})
		}
		if zone == nil {
			if zone, err = time.LoadLocation(c.TimeZone); err != nil {
				return nil, nil, fmt.Errorf("TIME_ZONE: %w", err)
			}
		}
		all = append(all, candidate)
	}
	return all, zone, nil
}

// field returns the first path of the field that all rules read, empty if they read several.
func field(candidates []*backtesting.Candidate) (one string) {
	for _, c := range candidates {
		for _, r := range c.Set.Rules {
			path, _, _ := strings.Cut(r.Field, ",")
			if path = strings.TrimSpace(path); one != "" && path != one {
				return ""
			}
			one = path
		}
	}
	return one
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	return errors.Join(write(f), f.Close())
}

// progress shows how far a source has been read, if there is a terminal to show it on.
type progress struct {
	to         *os.File // nil: none
	source     backtesting.Source
	began, due time.Time
}

func newProgress(to *os.File, s backtesting.Source) *progress {
	if to != nil && !term.IsTerminal(int(to.Fd())) {
		to = nil
	}
	now := time.Now()
	return &progress{to: to, source: s, began: now, due: now.Add(time.Second)}
}

func (p *progress) at(events int) {
	now := time.Now()
	if p.to == nil || now.Before(p.due) {
		return
	}
	p.due = now.Add(time.Second)
	took := now.Sub(p.began)
	left := "?"
	if share := p.source.Progress(); share > 0 {
		left = time.Duration(float64(took) * (1 - share) / share).Round(time.Second).String()
	}
	fmt.Fprintf(p.to, "\r\x1b[K%d events, %.0f a second, %s left", events, float64(events)/took.Seconds(), left)
}

func (p *progress) clear() {
	if p.to != nil {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
