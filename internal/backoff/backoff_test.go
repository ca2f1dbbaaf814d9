package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/backoff"
)

func TestDelay(t *testing.T) {
	for n, whole := range map[int]time.Duration{-1: 1, 0: 1, 1: 1, 2: 2, 3: 4, 6: 32, 7: 60, 1_000_000: 60} {
		whole *= time.Second
		for range 100 {
			if d := backoff.Delay(n, time.Second, time.Minute); d < whole/2 || d > whole {
				t.Fatalf("after failure %d: %v, want %v to %v", n, d, whole/2, whole)
			}
		}
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if !backoff.Sleep(ctx, time.Second/2) || time.Since(start) != time.Second/2 {
			t.Errorf("half a second took %v", time.Since(start))
		}
		if backoff.Sleep(ctx, time.Minute) || time.Since(start) != time.Second {
			t.Errorf("it outlived its context by %v", time.Since(start)-time.Second)
		}
		if backoff.Sleep(ctx, time.Minute) || backoff.Sleep(ctx, 0) || time.Since(start) != time.Second {
			t.Error("it slept although its context had ended")
		}
	})
}
