package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/ops/deadletters"
	"alertworker/internal/ops/status"
)

const (
	listDoes = "list what is in DEAD_LETTER_CONTAINER: alerts that could not be delivered, and those replayed\n" +
		"since, each oldest first; with --state discarded those discarded. It says who did that\n" +
		"Usage: alertworker deadletters list [--state undelivered|replayed|discarded] [--since 24h]"

	replayDoes = "send undelivered alerts to their receivers again, with the same ids and at the receivers' pace,\n" +
		"several in one message where receivers accept that.\n" +
		"A dead letter whose alert is delivered is marked as replayed. Alerts for a device stay THROTTLE_WINDOW\n" +
		"apart: one within it is not sent, and the output says when it can be\n" +
		"Usage: alertworker deadletters replay ID... | --all [--since 24h] [--to RECEIVER] [--who ann] [--dry-run]"

	discardDoes = "give up undelivered alerts without sending them. They are kept as discarded, with who did that\n" +
		"Usage: alertworker deadletters discard ID... | --all [--since 24h] [--who ann]"
)

// ofLetters is what commands about dead letters need, of these and of more.
func ofLetters(more ...status.By) access {
	return access{
		parts: append(more, status.ByDeadLetters),
		has:   config.Config.HasStorage,
		lacks: "without Azure Storage, dead letters are only in the worker's log; set STORAGE_CONNECTION_STRING or " +
			"STORAGE_ACCOUNT_URL to keep them",
	}
}

// undelivered returns the dead letters with some ids, or else all with readings since then. One that is not among them is
// broken.
func (s *session) undelivered(ctx context.Context, ids []string, since time.Time) iter.Seq2[[]deadletter.Letter, error] {
	if len(ids) == 0 {
		return s.stores.deadLetters.List(ctx, deadletter.Undelivered, since)
	}

	var named []deadletter.Letter
	for _, id := range ids {
		l, err := s.stores.deadLetters.Get(ctx, deadletter.Undelivered, id)
		if err != nil {
			l = deadletter.Letter{ID: id, Broken: fmt.Errorf("not among those undelivered: %w", err)}
		}
		named = append(named, l)
	}

	return func(yield func([]deadletter.Letter, error) bool) { yield(named, nil) }
}

// listLetters is `alertworker deadletters list`.
func listLetters(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("deadletters list", listDoes)
	since := sinceFlag(flags)
	kinds := []deadletter.Kind{deadletter.Undelivered, deadletter.Replayed}
	flags.Func(
		"state",
		"only dead letters in this `STATE`: undelivered, replayed or discarded",
		func(text string) error {
			if kinds = []deadletter.Kind{deadletter.Kind(text)}; !slices.Contains(deadletter.Kinds, kinds[0]) {
				return errors.New("must be undelivered, replayed or discarded")
			}
			return nil
		},
	)
	if err := parseFlags(flags, args); err != nil {
		return err
	}

	return ofLetters().use(ctx, func(s *session) error {
		n := 0
		for _, kind := range kinds {
			for page, err := range s.stores.deadLetters.List(ctx, kind, since()) {
				if err != nil {
					return err
				}

				if err := deadletters.WriteTable(out, page, s.receivers, s.config.Zone(), n == 0); err != nil {
					return fmt.Errorf("print dead letters: %w", err)
				}

				n += len(page)
			}
		}

		if n == 0 {
			fmt.Fprintln(out, "no dead letters")
		}

		return nil
	})
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

	return ofLetters(status.ByStore, status.ByCheckpoints).use(ctx, func(s *session) error {
		r := &deadletters.Replay{
			Store:     s.stores.deadLetters,
			Receivers: s.receivers,
			Leases:    s.stores.leases,
			Config:    s.config,
			Rules:     s.config.Rules().Rules,
			To:        *to,
			By:        who(),
			DryRun:    *dryRun,
			Out:       out,
		}

		if s.config.CheckpointStore != config.StoreMemory {
			r.Incidents = incidents(s.config, s.stores.records)
		}
		if s.config.ThrottleStore == config.StoreMemory {
			fmt.Fprintln(
				out,
				"THROTTLE_STORE is memory: only the worker knows its windows, so an alert may follow one of the worker's within "+
					"THROTTLE_WINDOW",
			)
		}

		for page, err := range s.undelivered(ctx, ids, since) {
			if err != nil {
				return err
			}
			r.Send(ctx, page)
		}

		verb := "delivered"
		if r.DryRun {
			verb = "would be sent"
		}
		fmt.Fprintf(out, "%d %s, %d not\n", r.Delivered, verb, r.Failed)
		return failedIf(r.Failed > 0)
	})
}

// discardLetters is `alertworker deadletters discard`.
func discardLetters(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("deadletters discard", discardDoes)
	who := whoFlag(flags)
	ids, since, err := parseIDs(flags, args)
	if err != nil {
		return err
	}

	return ofLetters().use(ctx, func(s *session) error {
		n, failed := 0, 0
		for page, err := range s.undelivered(ctx, ids, since) {
			if err != nil {
				return err
			}

			for _, l := range page {
				err := l.Broken
				if l.Kind != "" { // it was found, and may be broken
					err = s.stores.deadLetters.Discard(ctx, l, who())
				}

				what := "discarded"
				if err != nil {
					what = err.Error()
					failed++
				}
				fmt.Fprintln(out, humanize.OneLine(strings.TrimSpace(l.ID+" "+l.Alert.From().String())+": "+what))
				n++
			}
		}

		fmt.Fprintf(out, "%d discarded\n", n-failed)
		return failedIf(failed > 0)
	})
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
