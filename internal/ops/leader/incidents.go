package leader

import (
	"context"
	"fmt"
	"slices"
	"time"

	"alertworker/internal/incident"
)

// goneAfter is for how long the hub must have had no such partition before the partition's members are no more.
const goneAfter = 10 * time.Minute

// A Hub says which partitions the hub has, and since when this replica has known it with no others.
type Hub func(ctx context.Context) (partitions []string, since time.Time, err error)

// Incidents takes the entries of partitions that are no more out of the records of incidents, every hour, and removes the
// records of those that have been over for longer than retention: see incident.Book.Sweep. A run takes at most 4 minutes; if records are
// left, the next run continues within a minute, whoever leads.
func Incidents(book *incident.Book, hub Hub, retention time.Duration) Duty {
	return sweep("incidents", func(ctx context.Context, c *Call) (report string, err error) {
		partitions, since, err := hub(ctx)
		if err != nil {
			return "nothing done", fmt.Errorf("ask the hub for its partitions: %w", err)
		}

		has := func(partition string) bool { return slices.Contains(partitions, partition) }
		if time.Since(since) < goneAfter {
			has = nil
		}

		done, next, err := book.Sweep(ctx, c.Mark, retention, has)
		c.Mark = next
		return fmt.Sprintf("%d removed, %d entries of partitions that are no more taken out", done.Removed, done.Entries), err
	})
}
