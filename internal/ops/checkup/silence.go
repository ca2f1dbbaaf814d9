package checkup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/ledger"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
)

// silence says of how many devices r, which is about silence, expects to hear, and how many of them are silent now.
func (k *checkup) silence(ctx context.Context, c config.Config, store records.Store, r *rules.Rule) (string, error) {
	known, silent, partitions, err := silences(ctx, store, k.services.Group(c), r)
	switch {
	case err != nil:
		return "", k.storageError(err)
	case known == 0:
		return "", undecided("no device is known yet: a worker with this rule learns each one from its first message")
	}
	return fmt.Sprintf("%s known in %s, %d silent now", humanize.Count(known, "device"), humanize.Count(partitions, "partition"), silent), nil
}

// silences counts what the replicas of a group have kept.
func silences(ctx context.Context, store records.Store, group string, r *rules.Rule) (known, silent, partitions int, err error) {
	rosters := group + "/roster/"
	all, err := records.All(ctx, store, rosters)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("list rosters: %w", err)
	}
	for _, record := range all {
		of, _, why, err := (&roster.File{Store: store, Name: record.Name}).Read(ctx)
		if err = errors.Join(err, why); err != nil {
			return 0, 0, 0, err
		}
		if of == nil { // it was deleted just now
			continue
		}
		n := of.Known(r.HeardBy())
		known += n
		if n > 0 {
			partitions++
		}
		kept, err := ledger.Look(ctx, store, group+"/ledger/"+strings.TrimPrefix(record.Name, rosters))
		if err != nil {
			return 0, 0, 0, err
		}
		for _, a := range kept.Alarms {
			if a.Rule == r.Name && a.Level == r.Levels[0].Name && a.Silence && a.Open {
				silent++
			}
		}
	}
	return known, silent, partitions, nil
}
