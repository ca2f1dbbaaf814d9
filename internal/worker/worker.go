// Package worker is the way of one event: decode, compare, gate, notify,
// settle. One [Worker] serves all partitions of a replica.
//
// A partition is read by one goroutine. Nearly every event ends there: below
// the threshold, or of a device whose window is known to be open. Any other
// starts a flight, a goroutine that ends when its alert is delivered, proven
// needless, or kept as a dead letter. Later events of the same device join the flight.
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
	perPartition    = 16     // alerts in flight
	maxUnsettled    = 4096   // per partition; then its reading pauses
	checkpointEvery = 10_000 // events, if CheckpointInterval has not come first

	checkpointTimeout = 5 * time.Second
	refusalsToGiveUp  = 8 // failures of one alert, each while the receiver took others
)

// Config holds what a Worker needs. All fields but Malformed and Trace are required.
type Config struct {
	Origin             string // "<namespace>/<hub>": where events come from, in alert ids
	Replica            string // a label for people
	Threshold          float64
	Window             time.Duration // to tell receivers; the gates hold their own
	Concurrency        int           // alerts in flight, over all partitions
	GiveUp             time.Duration // age of a failing alert at which it becomes a dead letter
	CheckpointInterval time.Duration
	DrainTimeout       time.Duration // for sends in flight when a partition is given up
	Decoder            *telemetry.Decoder
	Receivers          []Receiver // at least one
	DeadLetters        DeadLetters
	Malformed          MalformedEvents       // nil: what cannot be decoded is only counted
	Trace              func(Departure) Trace // called where a flight begins; nil: nobody follows flights
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

// A Departure is a reading that no flight of its device was under way for: one begins.
type Departure struct {
	AlertID   string
	Device    string
	Receiver  string
	Partition string
	FromHub   bool // else an Intake took it, whose name Partition is
	Sequence  int64
	Enqueued  time.Time
}

// A Trace follows one flight, which calls it from one goroutine.
type Trace interface {
	// Under returns ctx for what is done in the flight, once for each context it has.
	Under(ctx context.Context) context.Context
	// End is called when the flight has ended.
	End(Landing)
}

// A Landing is how a flight ended.
type Landing struct {
	Outcome    throttle.Outcome // the last one; Failed with Settled: the alert became a dead letter
	Settled    bool             // else its partition ended first, and its next owner begins again
	Suppressed int64            // readings that no alert has told of
	Err        error            // why the last attempt failed, if it did
}

// A Worker is safe for concurrent use by its partitions.
type Worker struct {
	Config
	receivers []*receiver
	slots     chan struct{} // one for each alert in flight
	stats     Stats
	warned    atomic.Int64 // when warn last logged

	mu      sync.Mutex
	streams map[*stream]struct{} // being consumed
}

type receiver struct {
	Receiver
	health health
}

func New(c Config) *Worker {
	w := &Worker{Config: c, slots: make(chan struct{}, c.Concurrency), streams: map[*stream]struct{}{}}
	for _, r := range c.Receivers {
		w.receivers = append(w.receivers, &receiver{Receiver: r, health: health{changed: make(chan struct{})}})
	}
	return w
}

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

// alert puts together what r's receiver is told under grant.
func (w *Worker) alert(partition string, r reading, g throttle.Grant, suppressed int64) notify.Alert {
	return notify.Alert{
		ID:          g.ID,
		Source:      "/" + w.Origin,
		Device:      r.device,
		Temperature: r.value,
		Threshold:   w.Threshold,
		Enqueued:    r.enqueued,
		Partition:   partition,
		Sequence:    r.sequence,
		Window:      w.Window,
		Token:       g.Token,
		Expires:     g.Expires,
		Suppressed:  suppressed,
		Replica:     w.Replica,
	}
}

// alertID names the alert about one reading, the same whoever reads it. The time
// tells a recreated hub, which counts from the start again, from its predecessor.
func (w *Worker) alertID(partition string, r reading) string {
	if r.id != "" {
		return strings.Join([]string{w.Origin, partition, r.id}, "/")
	}
	return strings.Join([]string{w.Origin, partition, strconv.FormatInt(r.sequence, 10), strconv.FormatInt(r.enqueued.UnixMilli(), 10)}, "/")
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
		s.take(ctx, events)
	}
}

// take decides about events in order. This is the hot path.
func (s *stream) take(ctx context.Context, events []telemetry.Event) {
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
			s.admit(ctx, at, reading{device: e.Device, value: value, enqueued: e.Enqueued, sequence: e.Sequence})
		case reason > telemetry.ReasonNotTelemetry && s.Malformed != nil:
			s.keepMalformed(ctx, at, *e, reason)
		}
		at = e.Position
	}
	s.lastRead = at
	s.advance(at, events[len(events)-1].Enqueued, len(events))
	s.stats.read(&n, over)
}
