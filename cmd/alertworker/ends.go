package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/config"
)

// warnOfEnds logs which credentials end within 14 days, or have ended: at once, every day, and when one ends, until ctx does.
func warnOfEnds(ctx context.Context, all []config.Ending, log *zap.Logger) {
	for {
		now := time.Now()
		pause := 24 * time.Hour
		for _, e := range all {
			left := e.At.Sub(now)
			switch {
			case left <= 0:
				log.Error("a credential has ended", zap.String("credential", e.Credential), zap.String("error", e.Line(now)))
				continue
			case e.Soon(now):
				log.Warn("a credential ends soon", zap.String("credential", e.Credential), zap.String("error", e.Line(now)))
			}

			pause = min(pause, left)
		}

		if !backoff.Sleep(ctx, pause) {
			return
		}
	}
}
