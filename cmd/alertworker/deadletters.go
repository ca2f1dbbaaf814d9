package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/ops/deadletters"
)

const (
	listDoes = "list what is in DEAD_LETTER_CONTAINER: alerts that could not be delivered, and those replayed\n" +
		"since, each oldest first; with --state discarded those discarded. It says who did that\n" +
		"Usage: alertworker deadletters list [--state undelivered|replayed|discarded] [--since 24h] [--json]"

	replayDoes = "send undelivered alerts to their receivers again, with the same ids and at the receivers' pace,\n" +
		"several in one message where receivers accept that.\n" +
		"A dead letter whose alert is delivered is marked as replayed. Alerts for a device stay THROTTLE_WINDOW\n" +
		"apart: one within it is not sent, and the output says when it can be\n" +
		"Usage: alertworker deadletters replay ID... | --all [--since 24h] [--to RECEIVER] [--who ann] [--dry-run]"

	discardDoes = "give up dead letters without sending them. They are kept as discarded, with who did that; " +
		"--state discarded\n" +
		"deletes them\n" +
		"Usage: alertworker deadletters discard ID... | --all [--since 24h] [--state undelivered|replayed|discarded] " +
		"[--who ann] [--dry-run]"
)

// deadLetters is `alertworker deadletters`. It has the configuration of the worker.
func deadLetters(ctx context.Context, out io.Writer, args []string) error {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}

	switch name {
	case "list":
		return listLetters(ctx, out, args)

	case "replay":
		return replayLetters(ctx, out, args)

	case "discard":
		return discardLetters(ctx, out, args)

	case "help", "-h", "-help", "--help":
		fmt.Fprintf(
			out,
			"alertworker deadletters list: %s\n\nalertworker deadletters replay: %s\n\nalertworker deadletters discard: %s\n",
			listDoes,
			replayDoes,
			discardDoes,
		)
		return nil
	}

	return &usageError{
		fmt.Errorf("unknown command %q: deadletters has list, replay and discard; see alertworker deadletters --help", name),
	}
}

// openLetters opens the dead letters. The caller closes the session.
func openLetters(ctx context.Context) (*session, error) {
	s, err := openSession()
	if err != nil {
		return nil, err
	}

	if !s.config.HasStorage() {
		err = &usageError{
			errors.New(
				"without Azure Storage, dead letters are only in the worker's log; set STORAGE_CONNECTION_STRING or " +
					"STORAGE_ACCOUNT_URL to keep them",
			),
		}
	} else if s.deadLetters, err = s.openDeadLetters(ctx, s.config, s.log); err != nil {
		err = fmt.Errorf("open DEAD_LETTER_CONTAINER=%s: %w", s.config.DeadLetterContainer, err)
	}

	if err != nil {
		s.Close()
		return nil, err
	}

	return s, nil
}

// listLetters is `alertworker deadletters list`.
func listLetters(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("deadletters list", listDoes)
	since := sinceFlag(flags)
	asJSON := flags.Bool("json", false, "print one JSON object per line")
	kinds := []deadletter.Kind{deadletter.Undelivered, deadletter.Replayed}
	stateFlag(flags, &kinds)
	if err := parseFlags(flags, args); err != nil {
		return err
	}

	s, err := openLetters(ctx)
	if err != nil {
		return err
	}
	defer s.Close()

	n := 0
	for _, kind := range kinds {
		for page, err := range s.deadLetters.List(ctx, kind, since.time()) {
			if err != nil {
				return err
			}

			if *asJSON {
				err = deadletters.WriteJSON(out, page, s.receivers)
			} else {
				err = deadletters.WriteTable(out, page, s.receivers, s.config.Zone(), n == 0)
			}

			if err != nil {
				return fmt.Errorf("print dead letters: %w", err)
			}

			n += len(page)
		}
	}

	if n == 0 && !*asJSON {
		fmt.Fprintf(out, "no dead letters%s\n", since)
	}

	return nil
}

// replayLetters is `alertworker deadletters replay`.
func replayLetters(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("deadletters replay", replayDoes)
	all := flags.Bool("all", false, "send all dead letters instead of named ones")
	since := sinceFlag(flags)
	to := flags.String("to", "", "send to this `RECEIVER` instead of the original one")
	dryRun := flags.Bool("dry-run", false, "only print what would be sent")
	who := whoFlag(flags)
	ids, err := parseIDs(flags, args, all, since)
	if err != nil {
		return err
	}

	s, err := openLetters(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	r := &deadletters.Replay{
		Store:     s.deadLetters,
		Receivers: s.receivers,
		Config:    s.config,
		Rules:     s.config.Rules().Rules,
		By:        who(),
		DryRun:    *dryRun,
		Out:       out,
	}

	if *to != "" {
		if r.To, err = deadletters.Receiver(s.receivers, *to); err != nil {
			return &usageError{fmt.Errorf("--to %s: %w", *to, err)}
		}
	}

	if err := s.connectLeases(ctx); err != nil {
		return err
	}

	r.Leases = s.leases

	if s.config.CheckpointStore != config.StoreMemory {
		if err := s.connectRecords(ctx); err != nil {
			return err
		}
		r.Incidents = incidents(s.config, s.records)
	}

	if s.config.ThrottleStore == config.StoreMemory {
		fmt.Fprintln(
			out,
			"THROTTLE_STORE is memory: only the worker knows its windows, so an alert may follow one of the worker's within "+
				"THROTTLE_WINDOW",
		)
	}

	for _, id := range ids {
		r.ByID(ctx, id)
	}

	if *all {
		for page, listErr := range s.deadLetters.List(ctx, deadletter.Undelivered, since.time()) {
			if err = listErr; err != nil {
				break
			}
			r.Send(ctx, page)
		}
	}

	fmt.Fprintln(out, replaySummary(r, since))
	switch {
	case err != nil:
		return err
	case r.Failed > 0:
		return &silentError{exitFailed}
	}

	return nil
}

// discardLetters is `alertworker deadletters discard`.
func discardLetters(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("deadletters discard", discardDoes)
	all := flags.Bool("all", false, "discard all dead letters instead of named ones")
	since := sinceFlag(flags)
	kinds := []deadletter.Kind{deadletter.Undelivered}
	stateFlag(flags, &kinds)
	dryRun := flags.Bool("dry-run", false, "only print what would be discarded")
	who := whoFlag(flags)
	ids, err := parseIDs(flags, args, all, since)
	if err != nil {
		return err
	}

	s, err := openLetters(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	verb, end := "discarded", func(l deadletter.Letter) error { return s.deadLetters.Discard(ctx, l, who()) }
	if kinds[0] == deadletter.Discarded {
		verb, end = "deleted", func(l deadletter.Letter) error { return s.deadLetters.Delete(ctx, l) }
	}
	if *dryRun {
		verb, end = "would be "+verb, func(deadletter.Letter) error { return nil }
	}

	n, failed := 0, 0
	discard := func(l deadletter.Letter) error {
		if err := end(l); err != nil && !errors.Is(err, deadletter.ErrNotFound) {
			return err
		}

		n++
		fmt.Fprintln(out, humanize.OneLine(strings.TrimSpace(l.ID+" "+l.Alert.From().String())+": "+verb))
		return nil
	}
	for _, id := range ids {
		l, err := s.deadLetters.Get(ctx, kinds[0], id)
		if err == nil {
			err = discard(l)
		}

		if err != nil {
			failed++
			fmt.Fprintf(out, "%s: %v\n", humanize.OneLine(id), err)
		}
	}

	if *all {
		for page, listErr := range s.deadLetters.List(ctx, kinds[0], since.time()) {
			if listErr != nil {
				return listErr
			}

			for _, l := range page {
				if err := discard(l); err != nil {
					return err
				}
			}
		}
	}

	fmt.Fprintf(out, "%d %s\n", n, verb)
	if failed > 0 {
		return &silentError{exitFailed}
	}

	return nil
}

// stateFlag restricts kinds to one.
func stateFlag(flags *flag.FlagSet, kinds *[]deadletter.Kind) {
	flags.Func(
		"state",
		"only dead letters in this `STATE`: undelivered, replayed or discarded",
		func(text string) error {
			if *kinds = []deadletter.Kind{deadletter.Kind(text)}; !slices.Contains(deadletter.Kinds, (*kinds)[0]) {
				return errors.New("must be undelivered, replayed or discarded")
			}
			return nil
		},
	)
}

// parseIDs returns the dead letters that args name, which are none with --all.
func parseIDs(flags *flag.FlagSet, args []string, all *bool, since *age) ([]string, error) {
	ids, err := parseArgs(flags, args)
	if err != nil {
		return nil, err
	}

	switch {
	case *all && len(ids) > 0:
		err = errors.New("name dead letters or use --all, not both")
	case !*all && len(ids) == 0:
		err = errors.New("name dead letters, or use --all")
	case !*all && since.Duration > 0:
		err = errors.New("--since requires --all")
	}

	if err != nil {
		return nil, &usageError{fmt.Errorf("%w; see %s --help", err, flags.Name())}
	}

	return ids, nil
}

// replaySummary is the last line of a replay.
func replaySummary(r *deadletters.Replay, since *age) string {
	verb := "delivered"
	if r.DryRun {
		verb = "would be sent"
	}

	switch {
	case r.Delivered+r.Failed == 0:
		return "no dead letters" + since.String()
	case r.Failed == 0:
		return fmt.Sprintf("%d %s", r.Delivered, verb)
	}

	return fmt.Sprintf("%d %s, %d not", r.Delivered, verb, r.Failed)
}

// age is the maximum age of the readings in dead letters; 0 means any age.
type age struct{ time.Duration }

func sinceFlag(f *flag.FlagSet) *age {
	s := &age{}
	f.Func(
		"since",
		"only dead letters with a reading from the last `DURATION`, such as 24h",
		func(text string) (err error) {
			if s.Duration, err = time.ParseDuration(text); err != nil || s.Duration <= 0 {
				return errors.New("must be a duration such as 30m or 24h")
			}
			return nil
		},
	)
	return s
}

func (s *age) time() time.Time {
	if s.Duration == 0 {
		return time.Time{}
	}
	return time.Now().Add(-s.Duration)
}

func (s *age) String() string {
	if s.Duration == 0 {
		return ""
	}
	return fmt.Sprintf(" with a reading from the last %v", s.Duration)
}
