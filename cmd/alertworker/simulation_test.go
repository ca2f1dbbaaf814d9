package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lab/simulation"
)

// simulated is a replica by the worker's own wiring.
func simulated(ctx context.Context, c config.Config, dial simulation.Dialer, log *zap.Logger) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	return runConfigured(ctx, stop, c, dial, &memory{}, log)
}

// TestSimulation has worlds happen, each from a seed: SEEDS of them, from the seed FROM on.
func TestSimulation(t *testing.T) {
	number := func(name string, otherwise uint64) uint64 {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			return n
		}
		return otherwise
	}
	from, n := number("FROM", 1), number("SEEDS", 3)
	faults, length, began := 0, time.Duration(0), time.Now()
	for seed := from; seed < from+n; seed++ {
		p := simulation.NewPlan(seed)
		var story *simulation.Story
		if os.Getenv("STORY") != "" {
			story = &simulation.Story{}
		}
		var r simulation.Result
		synctest.Test(t, func(t *testing.T) {
			var err error
			r, err = simulation.Run(p, simulated, story)
			if err != nil {
				t.Fatal(err)
			}
		})
		faults, length = faults+r.Faults, length+r.Simulated
		if story != nil {
			_ = os.WriteFile(filepath.Join(os.Getenv("STORY"), fmt.Sprintf("story-%d", seed)), story.Bytes(), 0o644)
		}
		if !r.OK() || r.Delivered == 0 {
			t.Errorf("seed %d: %d faults, %d delivered: lost %v, too close %v, stale %v, wrong %v, no dead letters %v",
				seed, r.Faults, r.Delivered, r.Report.Lost, r.Report.TooClose, r.Report.Stale, r.Report.Wrong, r.Unkept)
		}
	}
	t.Logf("%v and %d faults in %v", length, faults, time.Since(began))
}
