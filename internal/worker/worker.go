// Package worker is the way of one event: decode, compare, gate, notify,
// settle. One [Worker] serves all partitions of a replica.
//
// A partition is read by one goroutine. Nearly every event ends there: below
// the threshold, or of a device whose window is known to be open. Any other
// starts a delivery to each receiver, which ends when its alert is delivered, proven
// needless, or kept as a dead letter. Later events of the same device join the delivery.
// Each receiver has a schedule of its own, which says when a delivery is
// tried: in a goroutine, for as long as an attempt takes.
// Unsettled events hold the partition's watermark, which the checkpoint follows.
package worker

import (
	"context"
	"errors"
	"fmt"
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
	maxWaiting      = 65_536 // alerts of a partition that wait for one receiver; the oldest beyond it become dead letters
	maxGivenUp      = 4096   // of these, to be kept; with more the partition's reading pauses
	maxMalformed    = 1024   // events of a partition that cannot be decoded and are being kept
	checkpointEvery = 10_000 // events, if CheckpointInterval has not come first

	checkpointTimeout = 5 * time.Second
)

// Config holds what a Worker needs. All fields but Malformed and Trace are required.
type Config struct {
	Origin             string // "<namespace>/<hub>": where events come from, in alert ids
	Replica            string // a label for people
	Threshold          float64
	Window             time.Duration // to tell receivers; the gates hold their own
	Concurrency        int           // alerts in flight, for each receiver, over all partitions
	GiveUp             time.Duration // age at which an alert that fails, or waits for a receiver that is down, becomes a dead letter
	CheckpointInterval time.Duration
	DrainTimeout       time.Duration // for sends in flight when a partition is given up
	Decoder            *telemetry.Decoder
	Receivers          []Receiver // at least one
	DeadLetters        DeadLetters
	Malformed          MalformedEvents   // nil: what cannot be decoded is only counted
	Trace              func(Start) Trace // called where a delivery begins; nil: nobody follows deliveries
	Log                *zap.Logger
}

// A Receiver is told of alerts at most once per device and window of its own gate.
type Receiver struct {
	Name     string // for people; no secrets
	Gate     *throttle.Gate
	Notifier notify.Notifier
}

// DeadLetters keeps what could not be delivered.
type DeadLetters interface {
	// Keep returns nil once d is kept durably. Safe for concurrent use.
	Keep(ctx context.Context, d notify.DeadLetter) error
}

// MalformedEvents keeps events that could not be decoded.
type MalformedEvents interface {
	// KeepMalformed returns nil once e is kept, or dropped because there are too many.
	// It may keep parts of e. Safe for concurrent use.
	KeepMalformed(ctx context.Context, e telemetry.MalformedEvent) error
}

// A Start is a reading of a device that no delivery was under way for: one begins.
type Start struct {
	AlertID   string
	Device    string
	Receiver  string
	Partition string
	FromHub   bool // else an Intake took it, whose name Partition is
	Sequence  int64
	Enqueued  time.Time
}

// A Trace follows one delivery, which makes one call at a time.
type Trace interface {
	// Under returns ctx for one thing that is done for the delivery: an attempt, a dead letter.
	Under(ctx context.Context) context.Context
	// End is called when the delivery has ended.
	End(End)
}

// An End is how a delivery ended.
type End struct {
	Outcome    string // the gate's that settled it, or OutcomeDeadLetter or OutcomeUnsettled
	Suppressed int64  // readings that no alert has told of
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

	mu      sync.Mutex
	streams map[*stream]struct{} // being consumed
}

func New(c Config) *Worker {
	w := &Worker{Config: c, started: time.Now(), maxWaiting: maxWaiting, streams: map[*stream]struct{}{}}
	for _, r := range c.Receivers {
		w.receivers = append(w.receivers, &receiver{Receiver: r, worker: w})
	}
	return w
}

// now is the time since w was made, by the monotonic clock.
func (w *Worker) now() time.Duration { return time.Since(w.started) }

// Stats returns the counters of this worker; they go on changing.
func (w *Worker) Stats() *Stats { return &w.stats }

// Consume works one partition until ctx ends or the partition breaks; it is
// what a telemetry.Source wants to call. When it returns, nothing of it runs
// any more: sends in flight have ended, at the latest DrainTimeout and the time to settle after
// ctx did, and what is settled is checkpointed if the partition is still ours.
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
		return nil // the next owner goes on from our last checkpoint
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkpointTimeout)
	defer cancel()
	if commitErr := s.checkpoint(last); commitErr != nil {
		err = errors.Join(err, commitErr)
	}
	return err
}

// alertID names the alert about one reading, the same whoever reads it. The time
// tells a recreated hub, which counts from the start again, from its predecessor.
func (w *Worker) alertID(partition string, r reading) string {
	if r.arrival != nil && r.arrival.id != "" {
		return strings.Join([]string{w.Origin, partition, r.arrival.id}, "/")
	}
	return strings.Join([]string{w.Origin, partition, strconv.FormatInt(r.sequence, 10), strconv.FormatInt(fromMicros(r.enqueued).UnixMilli(), 10)}, "/")
}

// read takes events off the partition until ctx ends or it breaks.
func (s *stream) read(ctx context.Context) error {
	for {
		if err := s.waitForRoom(ctx); err != nil {
			return nil
		}
		events, err := s.partition.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read partition %s: %w", s.id, err)
		}
		s.take(events)
	}
}

// take decides about events in order. This is the hot path.
func (s *stream) take(events []telemetry.Event) {
	var n [telemetry.ReasonCount]int64
	over := int64(0)
	at := s.lastRead
	for i := range events {
		e := &events[i]
		value, reason := s.Decoder.Decode(e)
		n[reason]++
		switch {
		case reason == telemetry.ReasonOK && value >= s.Threshold:
			over++
			s.admit(at, e, value, nil)
		case reason > telemetry.ReasonNotTelemetry && s.Malformed != nil:
			s.keepMalformed(at, *e, reason)
		}
		at = e.Position
	}
	s.lastRead = at
	s.advance(at, events[len(events)-1].Enqueued, len(events))
	s.stats.read(&n, over)
}
