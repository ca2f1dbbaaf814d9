package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/muting"
	"alertworker/internal/ops/status"
	"alertworker/internal/records"
)

const (
	silenceDoes = "mute the alerts of some devices, or of a rule, for a time. Readings are still evaluated and " +
		"counted, and recoveries\n" +
		"are sent. All replicas apply it within 15 s. If a device is still hot when it ends, its next\n" +
		"reading causes an alert\n" +
		"Usage: alertworker silence [--device 'oven-*'] [--rule hot] [--where site=berlin] [--from '2026-12-01 22:00'] --for 2h " +
		"--why \"service\""

	silencesDoes = "list the silences in force and planned, with the mute times of the rules, or end one. --all lists those that\n" +
		"ended within the last day too, and who ended them\n" +
		"Usage: alertworker silences list [--all] | end ID [--who ann]"
)

// silences returns where the silences of c's consumer group are.
func silences(c config.Config, s records.Store) muting.Store {
	return muting.Store{Records: s, Name: groupName(c) + "/silences"}
}

// ofSilences is what commands about them need.
var ofSilences = access{
	parts: []status.By{status.ByCheckpoints},
	has:   func(c config.Config) bool { return c.CheckpointStore != config.StoreMemory },
	lacks: "silences are stored with the checkpoints: with CHECKPOINT_STORE=memory, only the worker itself has them",
}

// silence is `alertworker silence`.
func silence(ctx context.Context, out io.Writer, args []string) error {
	var r muting.Request
	flags := newFlags("silence", silenceDoes)
	flags.StringVar(&r.Device, "device", "", "only this `DEVICE`, or DEVICE/SENSOR; * stands for any characters")
	flags.StringVar(&r.Rule, "rule", "", "only alerts of this `RULE`")
	flags.StringVar(&r.Where, "where", "", "only readings whose messages have this value at a name, `NAME=VALUE`")
	flags.StringVar(&r.From, "from", "", "from when on, as a `TIME` in TIME_ZONE such as '2026-12-01 22:00' (default: now)")
	flags.StringVar(&r.For, "for", "", "how long, as a `DURATION` such as 2h")
	flags.StringVar(&r.Why, "why", "", "the `REASON`, shown to others")
	who := whoFlag(flags)
	if err := parseFlags(flags, args); err != nil {
		return err
	}

	r.Who = who()
	return ofSilences.use(ctx, func(opened *session) error {
		zone := opened.config.Zone()
		s, lasts, err := r.Mute(opened.config.Rules(), zone)
		if err != nil {
			return &usageError{fmt.Errorf("%w; see alertworker silence --help", err)}
		}

		s, err = silences(opened.config, opened.stores.records).Add(ctx, s, lasts)
		if err == nil {
			fmt.Fprintf(out, "silenced %s: %v; to end it before: alertworker silences end %s\n", s.Text(zone), s, s.ID)
		}
		return err
	})
}

// endSilence is `alertworker silences end`.
func endSilence(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("silences end", silencesDoes)
	who := whoFlag(flags)
	ids, err := parseArgs(flags, args)
	if err != nil {
		return err
	}
	if len(ids) != 1 {
		return &usageError{errors.New("name one silence by its id; silences list has them")}
	}

	return ofSilences.use(ctx, func(opened *session) error {
		s, err := silences(opened.config, opened.stores.records).End(ctx, ids[0], who())
		if err == nil {
			fmt.Fprintf(out, "ended: %v\n", s)
		}
		return err
	})
}

// listSilences is `alertworker silences list`.
func listSilences(ctx context.Context, out io.Writer, args []string) error {
	flags := newFlags("silences list", silencesDoes)
	ended := flags.Bool("all", false, "list also those that ended within the last day")
	if err := parseFlags(flags, args); err != nil {
		return err
	}

	return ofSilences.use(ctx, func(opened *session) error {
		store := silences(opened.config, opened.stores.records)
		list := store.List
		if *ended {
			list = store.Recent
		}

		all, err := list(ctx)
		if err != nil {
			return err
		}

		set := opened.config.Rules()
		all = append(muting.Planned(&set, time.Now()), all...)
		if len(all) == 0 {
			fmt.Fprintln(out, "no silences")
			return nil
		}

		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ID\tSILENCED\tWHEN\tWHO\tWHY")
		for _, s := range all {
			until := s.Text(opened.config.Zone())
			if s.EndedBy != "" {
				until += ", ended by " + s.EndedBy
			}
			fmt.Fprintf(table, "%s\t%v\t%s\t%s\t%s\n", cmp.Or(s.ID, "-"), s, until, s.Who, s.Why)
		}

		return table.Flush()
	})
}
