// Package backoff spaces retries.
package backoff

import (
	"context"
	"fmt"
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

// Lasting returns a context for a call that should not be interrupted when ctx ends, because its outcome would be unknown:
// it ends after limit, or grace after ctx.
func Lasting(ctx context.Context, limit, grace time.Duration) (context.Context, context.CancelFunc) {
	late := fmt.Errorf("no answer within %v", limit)
	lasting, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, late)
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(lasting, func() { timer.Stop() })
	})

	return lasting, func() {
		stop()
		cancel()
	}
}
