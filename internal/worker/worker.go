// Package worker takes each event through decoding, the threshold, the gate and
// the notifier until it is settled. One [Worker] serves all partitions of a replica.
//
// One goroutine reads a partition. Nearly every event ends there: it is below the
// threshold, or its device's window is known to be in force. Any other starts a
// delivery to each receiver, which ends when its alert is taken, suppressed by a
// window, or kept as a dead letter. Later readings of the device join the delivery.
// Each receiver schedules its deliveries by itself. A delivery has a goroutine only
// while an attempt is under way. The checkpoint follows the watermark, which
// unsettled events hold back.
package worker

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

const (
	maxWaiting      = 65_536 // alerts of a partition that wait for one receiver; beyond it the oldest become dead letters
	maxGivenUp      = 4096   // alerts that wait to be kept as dead letters; beyond it reading the partition pauses
	maxMalformed    = 1024   // malformed events of a partition that are being kept
	checkpointEvery = 10_000 // events, unless CheckpointInterval ends first

	checkpointTimeout = 5 * time.Second
)

// Config holds what a Worker needs. All fields but Malformed and Trace are required.
type Config struct {
	Origin             string // "<namespace>/<hub>": where events come from, in alert ids
	Replica            string // a label for people
	Threshold          float64
	Window             time.Duration // as stated in alerts; each gate has its own
	Concurrency        int           // attempts at a time, for each receiver, over all partitions
	GiveUp             time.Duration // age at which an alert that fails, or waits for a receiver that is down, becomes a dead letter
	CheckpointInterval time.Duration
	DrainTimeout       time.Duration // for attempts under way when a partition ends
	Decoder            *telemetry.Decoder
	Receivers          []Receiver // at least one
	DeadLetters        DeadLetters
	Malformed          MalformedEvents   // nil: malformed events are only counted
	Trace              func(Start) Trace // called when a delivery starts; nil: deliveries are not traced
	Log                *zap.Logger
}

// A Receiver gets at most one alert per device and window, by a gate of its own.
type Receiver struct {
	ID       string // for dead letters
	Name     string // for people; no secrets
	Level    string // the only level whose alerts it gets; empty for all
	Gate     *throttle.Gate
	Notifier notify.Notifier
}

// wants reports whether r gets the alerts of a level. An alert without a level goes to
// all receivers, because nothing says that it is a lesser one.
func (r Receiver) wants(level string) bool { return r.Level == "" || level == "" || r.Level == level }

// DeadLetters keeps alerts that could not be delivered.
type DeadLetters interface {
	// Keep returns nil once d is kept durably. Safe for concurrent use.
	Keep(ctx context.Context, d notify.DeadLetter) error
}

// MalformedEvents keeps malformed events.
type MalformedEvents interface {
	// KeepMalformed returns nil once e is kept, or dropped because there are too
	// many. It may retain parts of e. Safe for concurrent use.
	KeepMalformed(ctx context.Context, e telemetry.MalformedEvent) error
}

// A Start describes a delivery that starts, and the reading that it is about.
type Start struct {
	AlertID   string
	Device    string
	Receiver  string
	Partition string
	FromHub   bool // false: it came through the Intake that Partition names
	Sequence  int64
	Enqueued  time.Time
}

// A Trace follows one delivery. It gets one call at a time.
type Trace interface {
	// Under returns the context for one step of the delivery, such as an attempt.
	Under(ctx context.Context) context.Context
	// End is called once, when the delivery has ended.
	End(End)
}

// An End describes how a delivery ended.
type End struct {
	Outcome    string // of the gate, or OutcomeDeadLetter or OutcomeUnsettled
	Suppressed int64  // readings over the threshold that no alert has counted
	Err        error  // why the last attempt failed, if it did
}

// A Worker is safe for concurrent use by its partitions.
type Worker struct {
	Config
	receivers []*receiver
	started   time.Time
	stats     Stats
	warned    atomic.Int64 // when warn last logged

	maxWaiting int
	level      string // of the threshold, which has no name

	mu      sync.Mutex
	streams map[*stream]struct{} // being consumed
}

// New returns a Worker, which does nothing until Consume or NewIntake is called.
func New(c Config) *Worker {
	w := &Worker{Config: c, started: time.Now(), maxWaiting: maxWaiting, streams: map[*stream]struct{}{}}
	for _, r := range c.Receivers {
		w.receivers = append(w.receivers, &receiver{Receiver: r, worker: w})
	}
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
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := newStream(ctx, w, p.ID())
	s.partition = p
	s.work.Go(func() { s.commit(ctx) })
	w.track(s)
	defer w.untrack(s)

	err := s.read(ctx)

	stop(err)
	s.drain()
	if errors.Is(context.Cause(ctx), telemetry.ErrLost) {
		return nil // the next owner continues from our last checkpoint
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkpointTimeout)
	defer cancel()
	if commitErr := s.checkpoint(last); commitErr != nil {
		err = errors.Join(err, commitErr)
	}
	return err
}

// alertID returns the id of the alert about a reading, which is the same in every
// replica. The time distinguishes hubs of the same name, whose sequence numbers
// start again when the hub is recreated.
func (w *Worker) alertID(partition string, r reading) string {
	if r.arrival != nil && r.arrival.id != "" {
		return strings.Join([]string{w.Origin, partition, r.arrival.id}, "/")
	}
	return strings.Join([]string{w.Origin, partition, strconv.FormatInt(r.sequence, 10), strconv.FormatInt(fromMicros(r.enqueued).UnixMilli(), 10)}, "/")
}

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
