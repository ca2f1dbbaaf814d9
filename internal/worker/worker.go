package worker

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/partition"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// Config holds what a Worker needs. All fields but Trace are required.
type Config struct {
	Origin      string // "<namespace>/<hub>": where events come from, in alert ids
	Replica     string // a label for people
	Rules       rules.Set
	Concurrency int // attempts at a time, for each receiver, over all partitions
	// age at which an alert that fails, or waits for a receiver that is down, becomes a dead letter
	GiveUp             time.Duration
	CheckpointInterval time.Duration
	DrainTimeout       time.Duration  // for attempts under way when a partition ends
	Decoder            *rules.Decoder // for Rules
	Clock              *rules.Clock   // for the time of Rules; nil if they have none
	Receivers          []Receiver     // at least one
	DeadLetters        delivery.DeadLetters
	// Ledger takes over the ledger of a partition: see ledger.Open. It is called if a rule has state, or if the
	// partition's checkpoint says that one had.
	Ledger func(ctx context.Context, partition string) (*ledger.Ledger, ledger.Content, error)
	Roster func(partition string) *roster.File // where a partition's is kept
	Mutes  func() rules.Mutes                  // what people have silenced. It takes no time; nil: nothing
	Trace  func(delivery.Start) delivery.Trace // called when a delivery starts; nil: deliveries are not traced
	Log    *zap.Logger
}

// A Receiver gets at most one alert per device and window for each level of a rule, by gates of its own.
type Receiver struct {
	ID       string         // for dead letters
	Name     string         // for people; no secrets
	Filters  notify.Filters // which alerts it gets
	Limits   notify.Limits  // how it wants to be used
	Notifier notify.Notifier
	Turns    delivery.Turns // nil: this replica alone sends to it
	// Gate returns the receiver's gate for a level of a rule, which is of what devices share if that has Per. It is called
	// once for each level of Config.Rules; once more without Per if there is one, for devices without that property; and
	// at each take-over for levels that are not configured any more but have alarms.
	Gate func(*rules.Rule, *rules.Level) delivery.Gate
}

// A Worker is safe for concurrent use by its partitions.
type Worker struct {
	Config
	dispatcher *delivery.Dispatcher
	evaluator  *partition.Evaluator
	partitions partition.Config
	stats      Stats

	mu      sync.Mutex
	streams map[*partition.Stream]struct{} // being consumed
	intakes map[*Intake]struct{}           // that are open
}

// New returns a Worker, which does nothing until Consume or NewIntake is called.
func New(c Config) *Worker {
	w := &Worker{Config: c, streams: map[*partition.Stream]struct{}{}, intakes: map[*Intake]struct{}{}}

	to := make([]delivery.Receiver, len(c.Receivers))
	wants := make([]partition.Receiver, len(c.Receivers))
	for i, r := range c.Receivers {
		to[i] = delivery.Receiver{ID: r.ID, Name: r.Name, Limits: r.Limits, Notifier: r.Notifier, Turns: r.Turns}
		wants[i] = partition.Receiver{Filters: r.Filters, Gate: r.Gate}
	}

	w.dispatcher = delivery.New(delivery.Config{
		Receivers:   to,
		Concurrency: c.Concurrency,
		GiveUp:      c.GiveUp,
		DeadLetters: c.DeadLetters,
		Trace:       c.Trace,
		Stats:       &w.stats.Stats,
	})

	w.evaluator = partition.NewEvaluator(partition.Rulebook{
		Origin:    c.Origin,
		Replica:   c.Replica,
		Rules:     c.Rules,
		Decoder:   c.Decoder,
		Clock:     c.Clock,
		Receivers: wants,
		Mutes:     c.Mutes,
		Counters:  &w.stats.Counters,
	})

	w.partitions = partition.Config{
		Evaluator:          w.evaluator,
		Dispatcher:         w.dispatcher,
		CheckpointInterval: c.CheckpointInterval,
		DrainTimeout:       c.DrainTimeout,
		MaxChanges:         partition.MaxChanges,
		Ledger:             c.Ledger,
		Roster:             c.Roster,
		Log:                c.Log,
	}

	return w
}

// Stats returns the counters of this worker, which keep changing.
func (w *Worker) Stats() *Stats { return &w.stats }

// Consume processes one partition until ctx ends or the partition fails; it is the
// function for [telemetry.Source.Run]. See [partition.Stream.Run].
func (w *Worker) Consume(ctx context.Context, p telemetry.Partition) error {
	s := partition.New(ctx, w.partitions, p)
	w.track(s)
	defer w.untrack(s)
	return s.Run()
}

func (w *Worker) track(s *partition.Stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams[s] = struct{}{}
}

func (w *Worker) untrack(s *partition.Stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.streams, s)
}
