package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/telemetry"
)

// A stream is the state of one partition while this replica owns it.
type stream struct {
	*Worker
	partition telemetry.Partition
	log       *zap.Logger
	send      context.Context // for sends: outlives the partition's by DrainTimeout
	slots     chan struct{}   // this partition's share of the worker's
	room      chan struct{}   // signals that something was settled
	progress  chan struct{}   // signals that much was settled
	work      sync.WaitGroup  // flights and the committer
	lastRead  telemetry.Position

	mu        sync.Mutex
	mark      watermark
	flights   []map[string]*flight // by receiver, then device
	sinceMark int                  // events since progress was signalled

	committed telemetry.Position // the committer's alone
}

// A reading over the threshold.
type reading struct {
	device   string
	value    float64
	enqueued time.Time
	sequence int64
}

// admit hands a reading over the threshold, the one after position before, to
// every receiver: to the device's flight if there is one, else to its open
// window, else to a new flight, which waits no longer than ctx.
func (s *stream) admit(ctx context.Context, before telemetry.Position, r reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e *entry
	for i, to := range s.receivers {
		if f := s.flights[i][r.device]; f != nil {
			f.join(r)
			s.stats.Suppressed.Add(1)
			continue
		}
		if to.Gate.Recent(r.device) {
			s.stats.Suppressed.Add(1)
			continue
		}
		if e == nil {
			e = s.mark.admit(before)
		}
		e.pending++
		f := &flight{stream: s, to: to, among: s.flights[i], entry: e, head: r, seen: -1}
		s.flights[i][r.device] = f
		s.work.Go(func() { f.fly(ctx) })
	}
}

// advance says that every event up to p was settled or admitted.
func (s *stream) advance(p telemetry.Position, events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark.read(p)
	if s.sinceMark += events; s.sinceMark >= checkpointEvery {
		s.sinceMark = 0
		signal(s.progress)
	}
}

// warn logs what may befall every flight at once, now and then.
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

// waitForRoom pauses reading while too much is unsettled. It fails when ctx ends.
func (s *stream) waitForRoom(ctx context.Context) error {
	for {
		s.mu.Lock()
		full := len(s.mark.unsettled) >= maxUnsettled
		s.mu.Unlock()
		if !full {
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
	p := s.mark.position()
	s.mu.Unlock()
	if p == s.committed || p == (telemetry.Position{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	if err := s.partition.Checkpoint(ctx, p); err != nil && !errors.Is(err, telemetry.ErrLost) {
		return fmt.Errorf("checkpoint partition %s at sequence %d: %w", s.partition.ID(), p.Sequence, err)
	}
	s.committed = p
	return nil
}
