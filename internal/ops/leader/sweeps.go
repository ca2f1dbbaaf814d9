package leader

import (
	"context"
	"fmt"
	"slices"
	"time"

	"alertworker/internal/incident"
	"alertworker/internal/throttle"
)

const (
	sweepEvery   = time.Hour
	sweepTimeout = 4 * time.Minute // for one run; less than runTimeout

	// goneAfter is for how long the hub must have had no such partition before the partition's members are no more.
	goneAfter = 10 * time.Minute
)

// A Sweeper is a store that does not expire old records by itself.
type Sweeper interface {
	// Sweep removes the records whose keys are mine and that were not held or written for
	// longer than olderThan, by the store's clock, and returns their number. It never removes the
	// record of a key that is held. It starts at from: "", or next of an
	// earlier call. When ctx ends, or after an error, next is where to continue; "" after the last record.
	// mine is called concurrently.
	Sweep(
		ctx context.Context,
		from string,
		olderThan time.Duration,
		mine func(key string) bool,
	) (removed int, next string, err error)
}

// Janitor removes, every hour, the records of scope that have been unused for longer than
// retention. Retention must exceed the greatest delay of an event: a record also
// says which late events need no alert. A run takes at most 4 minutes; if records are left, the next run
// continues within a minute, whoever leads.
//
// Records of other scopes are left to their own janitors, and so are records whose
// key does not show its scope: see throttle.InScope.
func Janitor(s Sweeper, scope string, retention time.Duration) Duty {
	mine := throttle.InScope(scope)
	return sweep("janitor", func(ctx context.Context, from string) (report, next string, err error) {
		removed, next, err := s.Sweep(ctx, from, retention, mine)
		return fmt.Sprintf("%d removed", removed), next, err
	})
}

// A Hub says which partitions the hub has, and since when this replica has known it with no others.
type Hub func(ctx context.Context) (partitions []string, since time.Time, err error)

// Incidents takes the entries of partitions that are no more out of the records of incidents, every hour, and removes the
// records of those that have been over for longer than retention: see incident.Book.Sweep. A run takes at most 4 minutes; if records are
// left, the next run continues within a minute, whoever leads.
func Incidents(book *incident.Book, hub Hub, retention time.Duration) Duty {
	return sweep("incidents", func(ctx context.Context, from string) (report, next string, err error) {
		partitions, since, err := hub(ctx)
		if err != nil {
			return "nothing done", from, fmt.Errorf("ask the hub for its partitions: %w", err)
		}

		has := func(partition string) bool { return slices.Contains(partitions, partition) }
		if time.Since(since) < goneAfter {
			has = nil
		}

		done, next, err := book.Sweep(ctx, from, retention, has)
		return fmt.Sprintf("%d removed, %d entries of partitions that are no more taken out", done.Removed, done.Entries), next, err
	})
}

// sweep returns a duty that do performs every hour for at most 4 minutes, and reports in any case. If it has a next then,
// the next run continues.
func sweep(name string, do func(ctx context.Context, from string) (report, next string, err error)) Duty {
	return Duty{
		Name:  name,
		Every: sweepEvery,
		Do: func(ctx context.Context, mark string) (report, next string, err error) {
			limited, cancel := context.WithTimeout(ctx, sweepTimeout)
			defer cancel()
			report, next, err = do(limited, mark)

			switch {
			case err == nil:
				return report, next, nil
			case limited.Err() != nil && ctx.Err() == nil && next != "":
				return report + ", not finished", next, nil
			}

			return "", next, fmt.Errorf("%s, then: %w", report, err)
		},
	}
}
