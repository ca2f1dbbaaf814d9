package duty

import (
	"context"
	"fmt"
	"time"
)

const (
	sweepEvery = 6 * time.Hour
	sweepLimit = 10_000 // records in one run
)

// A Sweeper is a store that does not forget by itself.
type Sweeper interface {
	// Sweep removes at most limit records that nobody has held or written for longer than
	// olderThan, by the store's clock, and says how many. It never removes the
	// record of a key that is held. It may be cut short, and called again.
	Sweep(ctx context.Context, olderThan time.Duration, limit int) (removed int, err error)
}

// Janitor removes, every 6 hours, up to 10,000 records unused for longer than
// retention. That must be longer than any event can arrive late: a record also
// says which late events need no alert.
func Janitor(s Sweeper, retention time.Duration) Duty {
	return Duty{
		Name:     "janitor",
		Schedule: Every(sweepEvery),
		Do: func(ctx context.Context, _ Call) (string, error) {
			removed, err := s.Sweep(ctx, retention, sweepLimit)
			if err != nil {
				return "", fmt.Errorf("%d removed, then: %w", removed, err)
			}
			return fmt.Sprintf("%d removed", removed), nil
		},
	}
}
