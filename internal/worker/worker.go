package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

const (
	maxMalformed    = 1024   // malformed events of a partition that are being kept
	checkpointEvery = 10_000 // events, unless CheckpointInterval ends first

	checkpointTimeout = 5 * time.Second
	ledgerTimeout     = 20 * time.Second // it may hold many alarms
)

// Config holds what a Worker needs. All fields but Malformed and Trace are required.
type Config struct {
	Origin      string // "<namespace>/<hub>": where events come from, in alert ids
	Replica     string // a label for people
	Rules       rules.Set
	Concurrency int // attempts at a time, for each receiver, over all partitions
	// age at which an alert that fails, or waits for a receiver that is down, becomes a dead letter
	GiveUp             time.Duration
	CheckpointInterval time.Duration
	DrainTimeout       time.Duration      // for attempts under way when a partition ends
	Decoder            *telemetry.Decoder // for the fields of Rules
	Clock              *rules.Clock       // for the time of Rules; nil if they have none
	Receivers          []Receiver         // at least one
	DeadLetters        delivery.DeadLetters
	// Ledger takes over the ledger of a partition: see ledger.Open. It is called if a rule has state, or if the
	// partition's checkpoint says that one had.
	Ledger    func(ctx context.Context, partition string) (*ledger.Ledger, ledger.Content, error)
	Roster    func(partition string) *roster.File // where a partition's is kept; required if a rule is about silence
	Malformed MalformedEvents                     // nil: malformed events are only counted
	Mutes     func() []rules.Mute                 // what people have silenced. It takes no time; nil: nothing
	Trace     func(delivery.Start) delivery.Trace // called when a delivery starts; nil: deliveries are not traced
	Log       *zap.Logger
}

// A Receiver gets at most one alert per device and window for each level of a rule, by gates of its own.
type Receiver struct {
	ID       string         // for dead letters
	Name     string         // for people; no secrets
	Filters  notify.Filters // which alerts it gets
	Limits   notify.Limits  // how it wants to be used
	Notifier notify.Notifier
	// Gate returns the receiver's gate for a level of a rule, which is of what devices share if that has Per. It is called
	// once for each level of Config.Rules; once more without Per if there is one, for devices without that property; and
	// at each take-over for levels that are not configured any more but have alarms.
	Gate func(*rules.Rule, *rules.Level) *throttle.Gate
}

// MalformedEvents keeps malformed events.
type MalformedEvents interface {
	// KeepMalformed returns nil once e is kept, or dropped because there are too
	// many. It may retain parts of e. Safe for concurrent use.
	KeepMalformed(ctx context.Context, e telemetry.MalformedEvent) error
}

// A Worker is safe for concurrent use by its partitions.
type Worker struct {
	Config
	dispatcher *delivery.Dispatcher
	started    time.Time
	stats      Stats

	maxChanges int     // of alarms behind the watermark of a partition; beyond it reading pauses
	fields     int     // that Decoder finds
	rules      []*rule // about readings
	silences   []*rule
	levels     []*level // in the order of Config
	stateful   bool

	mu      sync.Mutex
	streams map[*stream]struct{} // being consumed
	intakes map[*Intake]struct{} // that are open
}

// New returns a Worker, which does nothing until Consume or NewIntake is called.
func New(c Config) *Worker {
	w := &Worker{
		Config:     c,
		started:    time.Now(),
		maxChanges: maxChanges,
		streams:    map[*stream]struct{}{},
		intakes:    map[*Intake]struct{}{},
	}

	to := make([]delivery.Receiver, len(c.Receivers))
	for i, r := range c.Receivers {
		to[i] = delivery.Receiver{ID: r.ID, Name: r.Name, Limits: r.Limits, Notifier: r.Notifier}
	}

	w.dispatcher = delivery.New(delivery.Config{
		Receivers:   to,
		Concurrency: c.Concurrency,
		GiveUp:      c.GiveUp,
		DeadLetters: c.DeadLetters,
		Trace:       c.Trace,
		Stats:       &w.stats.Stats,
	})

	fields, _ := c.Rules.Fields()
	w.fields, w.stateful = len(fields), c.Rules.Stateful()
	for _, r := range c.Rules.Rules {
		w.stats.Levels = append(w.stats.Levels, make([]LevelStats, len(r.Levels))...)
	}

	w.rules, w.silences, w.levels = newRules(&w.Config, w.stats.Levels)

	return w
}

// now is the time since w was created, by the monotonic clock.
func (w *Worker) now() time.Duration { return time.Since(w.started) }

// Stats returns the counters of this worker, which keep changing.
func (w *Worker) Stats() *Stats { return &w.stats }

// Consume processes one partition until ctx ends or the partition fails; it is the
// function for [telemetry.Source.Run]. When it returns, none of its goroutines
// runs: attempts under way get DrainTimeout from the end of ctx, and then the time
// to settle. What is settled by then is checkpointed, if this replica still owns
// the partition.
func (w *Worker) Consume(ctx context.Context, p telemetry.Partition) error {
	resumed, _ := p.Resumed()
	s := newStream(ctx, w, p.ID(), logName(resumed.Generation, p.ID()))
	s.partition = p
	s.connect()
	w.track(s)
	defer w.untrack(s)
	begun := !w.stateful && resumed.Ledger == "" || s.takeOver()
	var err error
	if begun {
		s.work.Go(func() { s.commit(s.ctx) })
		err = s.read(s.ctx)
	}

	s.stop(err)
	s.drain()
	if errors.Is(context.Cause(s.ctx), telemetry.ErrLost) || !begun {
		return nil // the next owner continues from our last checkpoint
	}

	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkpointTimeout+ledgerTimeout)
	defer cancel()
	if commitErr := s.checkpoint(last, true, true); commitErr != nil {
		err = errors.Join(err, commitErr)
	}

	return err
}

// ids returns how the ids of alerts about the readings of a partition begin, or of an Intake.
func (w *Worker) ids(name string) string { return w.Origin + "/" + name + "/" }

func (w *Worker) track(s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams[s] = struct{}{}
}

func (w *Worker) untrack(s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.streams, s)
}
