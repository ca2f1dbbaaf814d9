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
		"[--who ann]"
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
		for page, err := range s.deadLetters.List(ctx, kind, since()) {
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
		fmt.Fprintln(out, "no dead letters")
	}

	return nil
}

// replayLetters is `alertworker deadletters replay`.
func replayLetters(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("deadletters replay", replayDoes)
	to := flags.String("to", "", "send to this `RECEIVER` instead of the original one")
	dryRun := flags.Bool("dry-run", false, "only print what would be sent")
	who := whoFlag(flags)
	ids, since, err := parseIDs(flags, args)
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
	if len(ids) == 0 {
		for page, err := range s.deadLetters.List(ctx, deadletter.Undelivered, since) {
			if err != nil {
				return err
			}
			r.Send(ctx, page)
		}
	}

	verb := "delivered"
	if r.DryRun {
		verb = "would be sent"
	}
	fmt.Fprintf(out, "%d %s, %d not\n", r.Delivered, verb, r.Failed)
	if r.Failed > 0 {
		return &silentError{exitFailed}
	}

	return nil
}

// discardLetters is `alertworker deadletters discard`.
func discardLetters(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("deadletters discard", discardDoes)
	kinds := []deadletter.Kind{deadletter.Undelivered}
	stateFlag(flags, &kinds)
	who := whoFlag(flags)
	ids, since, err := parseIDs(flags, args)
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

	n, failed := 0, 0
	discard := func(l deadletter.Letter, err error) {
		if err == nil {
			if err = end(l); errors.Is(err, deadletter.ErrNotFound) { // somebody else has done it
				err = nil
			}
		}
		if err != nil {
			failed++
			fmt.Fprintf(out, "%s: %v\n", humanize.OneLine(l.ID), err)
			return
		}

		n++
		fmt.Fprintln(out, humanize.OneLine(strings.TrimSpace(l.ID+" "+l.Alert.From().String())+": "+verb))
	}
	for _, id := range ids {
		l, err := s.deadLetters.Get(ctx, kinds[0], id)
		l.ID = id
		discard(l, err)
	}
	if len(ids) == 0 {
		for page, err := range s.deadLetters.List(ctx, kinds[0], since) {
			if err != nil {
				return err
			}
			for _, l := range page {
				if discard(l, nil); failed > 0 {
					return &silentError{exitFailed}
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

// parseIDs returns the dead letters that args name: none with --all, which is about those with readings since then.
func parseIDs(flags *flag.FlagSet, args []string) (ids []string, since time.Time, err error) {
	all := flags.Bool("all", false, "all dead letters instead of named ones")
	from := sinceFlag(flags)
	if ids, err = parseArgs(flags, args); err != nil {
		return nil, since, err
	}

	since = from()
	switch {
	case *all == (len(ids) > 0):
		err = errors.New("name dead letters, or use --all")
	case !*all && !since.IsZero():
		err = errors.New("--since requires --all")
	default:
		return ids, since, nil
	}

	return nil, since, &usageError{fmt.Errorf("%w; see %s --help", err, flags.Name())}
}

// sinceFlag adds --since, and returns what it says: the zero time means any.
func sinceFlag(f *flag.FlagSet) func() time.Time {
	last := f.Duration("since", 0, "only dead letters with a reading from the last `DURATION`, such as 24h")
	return func() time.Time {
		if *last == 0 {
			return time.Time{}
		}
		return time.Now().Add(-*last)
	}
}
