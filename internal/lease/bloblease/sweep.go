package bloblease

import (
	"context"
	"time"
)

// Sweep removes at most limit records that have been neither held nor written
// for longer than olderThan, by the service's clock, and says how many.
func (s *Store) Sweep(ctx context.Context, olderThan time.Duration, limit int) (removed int, err error) {
	return s.blobs.Sweep(ctx, olderThan, limit)
}
