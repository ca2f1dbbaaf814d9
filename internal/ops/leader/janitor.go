package leader

import (
	"context"
	"fmt"
	"time"

	"alertworker/internal/throttle"
)

const (
	sweepEvery   = time.Hour
	sweepTimeout = 4 * time.Minute // for one run; less than runTimeout
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
	return sweep("janitor", func(ctx context.Context, c *Call) (report string, err error) {
		removed, next, err := s.Sweep(ctx, c.Mark, retention, mine)
		c.Mark = next
		return fmt.Sprintf("%d removed", removed), err
	})
}

// sweep returns a duty that do performs every hour for at most 4 minutes, and reports in any case. If it leaves a mark then,
// the next run continues.
func sweep(name string, do func(ctx context.Context, c *Call) (report string, err error)) Duty {
	return Duty{
		Name:  name,
		Every: sweepEvery,
		Do: func(ctx context.Context, c *Call) (string, error) {
			limited, cancel := context.WithTimeout(ctx, sweepTimeout)
			defer cancel()
			report, err := do(limited, c)

			switch {
			case err == nil:
				return report, nil
			case limited.Err() != nil && ctx.Err() == nil && c.Mark != "":
				return report + ", not finished", nil
			}

			return "", fmt.Errorf("%s, then: %w", report, err)
		},
	}
}
