package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/telemetry"
)

// A stream is the state of one partition while this replica owns it, or of
// what comes in by other ways (see Intake).
type stream struct {
	*Worker
	id        string
	partition telemetry.Partition // nil for an Intake
	log       *zap.Logger
	queues    []*queue       // one for each receiver
	room      chan struct{}  // signals that something was settled
	progress  chan struct{}  // signals that much was settled
	work      sync.WaitGroup // attempts and the committer
	lastRead  telemetry.Position

	ctx context.Context
	// send is for sends: it goes on when ctx ends, until cut.
	send context.Context
	cut  context.CancelFunc

	mu        sync.Mutex
	mark      watermark
	malformed int                // events being kept
	sinceMark int                // events since progress was signalled
	readUntil time.Time          // when the last event read was enqueued
	committed telemetry.Position // written by whoever calls checkpoint, one at a time
}

// newStream returns the stream id. Its sends outlive ctx until drain cuts them. Drain it.
func newStream(ctx context.Context, w *Worker, id string) *stream {
	s := &stream{
		Worker:   w,
		id:       id,
		log:      w.Log.With(zap.String("partition", id)),
		room:     make(chan struct{}, 1),
		progress: make(chan struct{}, 1),
		ctx:      ctx,
	}
	s.send, s.cut = context.WithCancel(context.WithoutCancel(ctx))
	for _, r := range w.receivers {
		s.queues = append(s.queues, r.open(s))
	}
	return s
}

// drain drops the deliveries that wait, waits for attempts under way, and cuts
// what is still being sent after DrainTimeout. s.ctx has ended, and nothing is admitted any more.
func (s *stream) drain() {
	for _, q := range s.queues {
		q.close()
	}
	late := time.AfterFunc(s.DrainTimeout, s.cut)
	s.work.Wait()
	late.Stop()
	s.cut()
}

// admit hands e's reading over the threshold, the one after position before, to
// every receiver: to the device's delivery if there is one, else to its open
// window, else to a new delivery. It returns these deliveries if somebody waits for the reading:
// if it has an arrival.
func (s *stream) admit(before telemetry.Position, e *telemetry.Event, value float64, a *arrival) (in []*delivery) {
	r := reading{value: value, enqueued: micros(e.Enqueued), sequence: e.Sequence, arrival: a}
	s.mu.Lock()
	defer s.mu.Unlock()
	var held *entry
	for _, q := range s.queues {
		d := q.byDevice[e.Device]
		switch {
		case d != nil:
			d.join(r)
			s.stats.Suppressed.Add(1)
		case q.to.Gate.Recent(e.Device):
			s.stats.Suppressed.Add(1)
			continue
		default:
			if held == nil {
				held = s.mark.admit(before, r.enqueued)
			}
			d = q.begin(e.Device, r, held)
		}
		if a != nil {
			if d.ended == nil {
				d.ended = make(chan struct{})
			}
			in = append(in, d)
		}
	}
	return in
}

// keepMalformed has an event kept, the one after position before, which holds
// the watermark meanwhile. Where too many wait for that it is only counted.
func (s *stream) keepMalformed(before telemetry.Position, e telemetry.Event, reason telemetry.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.malformed >= maxMalformed {
		s.warn("too many events that cannot be decoded wait to be kept; more are not", nil)
		return
	}
	s.malformed++
	e.Body, e.Properties = bytes.Clone(e.Body), maps.Clone(e.Properties)
	held := s.mark.admit(before, micros(e.Enqueued))
	held.pending = 1
	s.work.Go(func() {
		for n := 1; ; n++ {
			err := s.Malformed.KeepMalformed(s.send, telemetry.MalformedEvent{Partition: s.id, Reason: reason, Event: e})
			if err == nil {
				break
			}
			s.warn("an event that cannot be decoded cannot be kept; it stays unsettled", err)
			if !backoff.Sleep(s.ctx, retryDelay(n)) {
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.malformed--
		s.settle(held)
	})
}

// settle says that one of those who settle an event has. The caller holds s.mu.
func (s *stream) settle(e *entry) {
	s.mark.settle(e)
	signal(s.room)
}

// advance says that every event up to p was settled or admitted.
func (s *stream) advance(p telemetry.Position, enqueued time.Time, events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark.read(p)
	s.readUntil = enqueued
	if s.sinceMark += events; s.sinceMark >= checkpointEvery {
		s.sinceMark = 0
		signal(s.progress)
	}
}

// warn logs what may befall every delivery at once, now and then.
func (s *stream) warn(msg string, err error) {
	now := time.Now().UnixNano()
	if last := s.warned.Load(); now-last > int64(10*time.Second) && s.warned.CompareAndSwap(last, now) {
		s.log.Warn(msg, zap.Error(err))
	}
}

// signal never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// full reports whether so much is unsettled, even of what was given up, that no more can be taken.
func (s *stream) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.queues, func(q *queue) bool { return len(q.byDevice) >= s.maxWaiting+maxGivenUp })
}

// waitForRoom pauses reading while s is full. It fails when ctx ends.
func (s *stream) waitForRoom(ctx context.Context) error {
	for {
		if !s.full() {
			return ctx.Err()
		}
		select {
		case <-s.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// commit lets the checkpoint follow the watermark, by time and by count.
func (s *stream) commit(ctx context.Context) {
	tick := time.NewTicker(s.CheckpointInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.progress:
		case <-ctx.Done():
			return
		}
		if err := s.checkpoint(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("checkpoint failed; trying again", zap.Error(err))
		}
	}
}

// checkpoint records the watermark if it has moved.
func (s *stream) checkpoint(ctx context.Context) error {
	s.mu.Lock()
	p, committed := s.mark.position(), s.committed
	s.mu.Unlock()
	if p == committed || p == (telemetry.Position{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	if err := s.partition.Checkpoint(ctx, p); err != nil && !errors.Is(err, telemetry.ErrLost) {
		return fmt.Errorf("checkpoint partition %s at sequence %d: %w", s.id, p.Sequence, err)
	}
	s.mu.Lock()
	s.committed = p
	s.mu.Unlock()
	return nil
}
