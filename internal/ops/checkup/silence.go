package checkup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"alertworker/internal/humanize"
	"alertworker/internal/ledger"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
)

// silence says how many devices the replicas of a group expect to hear by r, which is about silence, and how many of
// them are silent now.
func silence(ctx context.Context, store records.Store, group string, r *rules.Rule) (string, error) {
	rosters := group + "/roster/"
	all, err := records.All(ctx, store, rosters)
	if err != nil {
		return "", fmt.Errorf("list rosters: %w", err)
	}

	known := 0
	silent := 0
	partitions := 0
	for _, record := range all {
		of, _, why, err := (&roster.File{Store: store, Name: record.Name}).Read(ctx)
		if err = errors.Join(err, why); err != nil {
			return "", err
		}
		if of == nil { // it was deleted just now
			continue
		}

		n, err := silentNow(ctx, store, group+"/ledger/"+strings.TrimPrefix(record.Name, rosters), r)
		if err != nil {
			return "", err
		}

		silent += n
		known += of.Known(r.Name)
		partitions += min(of.Known(r.Name), 1)
	}

	if known == 0 {
		return "", undecided("no device is known yet: a worker with this rule learns each one from its first message")
	}

	return fmt.Sprintf(
		"%s known in %s, %d silent now",
		humanize.Count(known, "device"),
		humanize.Count(partitions, "partition"),
		silent,
	), nil
}

// silentNow returns how many open alarms of r, which is about silence, are in a ledger.
func silentNow(ctx context.Context, store records.Store, name string, r *rules.Rule) (n int, err error) {
	kept, err := ledger.Look(ctx, store, name)
	if err != nil {
		return 0, err
	}

	for _, a := range kept.Alarms {
		if a.Rule == r.Name && a.Silence && a.Open {
			n++
		}
	}

	return n, nil
}
