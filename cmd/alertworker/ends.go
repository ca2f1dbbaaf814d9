package main

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/config"
	"alertworker/internal/lease"
)

// endedToo adds to an error of a service that refuses the credentials which of all have ended.
func endedToo(err error, all []config.Ending) error {
	now := time.Now()
	for _, e := range all {
		if lease.IsRefused(err) && !now.Before(e.At) {
			err = fmt.Errorf("%w; %s", err, e.Line(now))
		}
	}

	return err
}

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
