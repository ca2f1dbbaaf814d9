// Package backoff spaces retries.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Delay returns the pause after the nth failure in a row: first, doubled n-1
// times but never more than limit, and of that a random half to all, so that
// those who failed together do not retry together.
func Delay(n int, first, limit time.Duration) time.Duration {
	d := first
	for ; n > 1 && d < limit; n-- {
		d *= 2
	}

	d = min(d, limit)
	return d/2 + rand.N(d/2)
}

// Sleep waits for d. It returns false, without waiting any longer, once ctx has
// ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err() == nil
	}

	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
