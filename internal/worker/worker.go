package worker

import (
	"context"
	"sync"

	"alertworker/internal/delivery"
	"alertworker/internal/partition"
	"alertworker/internal/telemetry"
)

// Config holds what a Worker needs: of each of its parts. New completes them.
type Config struct {
	Rulebook   partition.Rulebook // all but Counters; its Receivers are at least one
	Deliveries delivery.Config    // all but Receivers and Stats
	Partitions partition.Config   // all but Evaluator, Dispatcher and MaxChanges
}

// A Worker is safe for concurrent use by its partitions.
type Worker struct {
	Config     Config
	dispatcher *delivery.Dispatcher
	evaluator  *partition.Evaluator
	stats      Stats

	mu      sync.Mutex
	streams map[*partition.Stream]struct{} // being consumed
}

// New returns a Worker, which does nothing until Consume or NewIntake is called.
func New(c Config) *Worker {
	w := &Worker{Config: c, streams: map[*partition.Stream]struct{}{}}
	for _, r := range c.Rulebook.Receivers {
		c.Deliveries.Receivers = append(c.Deliveries.Receivers, r.To)
	}

	c.Deliveries.Stats = &w.stats.Stats
	w.dispatcher = delivery.New(c.Deliveries)
	c.Rulebook.Counters = &w.stats.Counters
	w.evaluator = partition.NewEvaluator(c.Rulebook)
	w.Config.Partitions.Evaluator = w.evaluator
	w.Config.Partitions.Dispatcher = w.dispatcher
	w.Config.Partitions.MaxChanges = partition.MaxChanges

	return w
}

// Stats returns the counters of this worker, which keep changing.
func (w *Worker) Stats() *Stats { return &w.stats }

// Consume processes one partition until ctx ends or the partition fails; it is the
// function for [telemetry.Source.Run]. See [partition.Stream.Run].
func (w *Worker) Consume(ctx context.Context, p telemetry.Partition) error {
	s := partition.New(ctx, w.Config.Partitions, p)
	w.mu.Lock()
	w.streams[s] = struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.streams, s)
	}()

	return s.Run()
}
