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

// A stream is the state of one partition while this replica owns it, or of one
// [Intake].
type stream struct {
	*Worker
	id        string
	partition telemetry.Partition // nil for an Intake
	log       *zap.Logger
	queues    []*queue       // one for each receiver
	room      chan struct{}  // signals that something was settled
	progress  chan struct{}  // signals that many events were read
	work      sync.WaitGroup // attempts, what keeps malformed events, and commit
	lastRead  telemetry.Position
	results   []result // of the batch being taken, reused
	heard     *heard

	ctx  context.Context
	send context.Context // of attempts: it outlives ctx, until cut is called
	cut  context.CancelFunc

	mu        sync.Mutex
	mark      watermark
	malformed int                // malformed events being kept
	sinceMark int                // events since progress was signalled
	first     int64              // sequence number of the first event read
	readUntil time.Time          // when the last event read was enqueued
	committed telemetry.Position // the last checkpoint; checkpoint calls come one at a time
}

// newStream returns a stream, which must be drained after ctx has ended.
func newStream(ctx context.Context, w *Worker, id string) *stream {
	s := &stream{
		Worker:   w,
		id:       id,
		log:      w.Log.With(zap.String("partition", id)),
		room:     make(chan struct{}, 1),
		progress: make(chan struct{}, 1),
		heard:    newHeard(time.Now()),
		ctx:      ctx,
	}
	s.send, s.cut = context.WithCancel(context.WithoutCancel(ctx))
	for _, r := range w.receivers {
		s.queues = append(s.queues, r.open(s))
	}
	return s
}

// drain drops the deliveries that wait and waits for the attempts under way, which
// it cancels after DrainTimeout. s.ctx must have ended, and nothing may be admitted
// any more.
func (s *stream) drain() {
	for _, q := range s.queues {
		q.close()
	}
	late := time.AfterFunc(s.DrainTimeout, s.cut)
	s.work.Wait()
	late.Stop()
	s.cut()
}

// read takes events from the partition until ctx ends or Receive fails.
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

// take decodes events in order and admits those over the threshold. This is the hot
// path.
func (s *stream) take(events []telemetry.Event) {
	var n [telemetry.ReasonCount]int64
	over := int64(0)
	at := s.lastRead
	s.results = s.results[:0]
	for i := range events {
		e := &events[i]
		value, reason := s.Decoder.Decode(e)
		s.results = append(s.results, result{value, reason})
		n[reason]++
		switch {
		case reason == telemetry.ReasonOK && value >= s.Threshold:
			over++
			s.admit(at, e, value, nil)
		case reason > telemetry.ReasonNotTelemetry:
			s.malformedEvent(at, e, reason)
		}
		at = e.Position
	}
	s.lastRead = at
	s.advance(events[0].Sequence, at, events[len(events)-1].Enqueued, len(events))
	s.stats.read(&n, over)
	s.heard.add(events, s.results, time.Now())
}

// admit takes e's reading, which is over the threshold, to every receiver that wants it:
// it joins the device's delivery if there is one; else the window suppresses it if that
// is in force; else it starts a delivery. before is the position of the event before e.
// If a is not nil, admit returns the deliveries that the reading is part of, with ended
// set.
func (s *stream) admit(before telemetry.Position, e *telemetry.Event, value float64, a *arrival) (joined []*delivery) {
	r := reading{value: value, enqueued: micros(e.Enqueued), sequence: e.Sequence, arrival: a}
	s.mu.Lock()
	defer s.mu.Unlock()
	var held *entry
	for _, q := range s.queues {
		d := q.byDevice[e.Device]
		switch {
		case !q.to.wants(s.level):
			s.stats.Filtered.Add(1)
			continue
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
			joined = append(joined, d)
		}
	}
	return joined
}

// malformedEvent logs e and keeps it, if that is configured. before is the position of
// the event before e.
func (s *stream) malformedEvent(before telemetry.Position, e *telemetry.Event, reason telemetry.Reason) {
	if line := s.log.Check(zap.DebugLevel, "event without a reading"); line != nil {
		detail := zap.Skip()
		if e.Undecodable != "" {
			detail = zap.String("detail", e.Undecodable)
		}
		line.Write(zap.Int64("sequence", e.Sequence), zap.String("device", e.Device), zap.Stringer("reason", reason), detail)
	}
	if s.Malformed != nil {
		s.keepMalformed(before, *e, reason)
	}
}

// keepMalformed starts to keep a malformed event, which holds the watermark until it
// is kept. With too many of them under way the event is only counted. before is the
// position of the event before e.
func (s *stream) keepMalformed(before telemetry.Position, e telemetry.Event, reason telemetry.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.malformed >= maxMalformed {
		s.warn("too many malformed events are waiting to be kept; further ones are only counted", nil)
		return
	}
	s.malformed++
	e.Body, e.Properties = bytes.Clone(e.Body), telemetry.PropertiesOf(maps.Clone(e.Properties.All()))
	held := s.mark.admit(before, micros(e.Enqueued))
	held.pending = 1
	s.work.Go(func() {
		for n := 1; ; n++ {
			err := s.Malformed.KeepMalformed(s.send, telemetry.MalformedEvent{Partition: s.id, Reason: reason, Event: e})
			if err == nil {
				break
			}
			s.warn("cannot keep a malformed event; it stays unsettled", err)
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

// settle records that one more receiver has settled an event. The caller holds s.mu.
func (s *stream) settle(e *entry) {
	s.mark.settle(e)
	signal(s.room)
}

// advance records that events from sequence number first up to p have been settled or
// admitted.
func (s *stream) advance(first int64, p telemetry.Position, enqueued time.Time, events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mark.last == (telemetry.Position{}) {
		s.first = first
	}
	s.mark.read(p)
	s.readUntil = enqueued
	if s.sinceMark += events; s.sinceMark >= checkpointEvery {
		s.sinceMark = 0
		signal(s.progress)
	}
}

// warn logs what may affect every delivery at the same time, at most every 10 s.
func (s *stream) warn(msg string, err error) {
	now := time.Now().UnixNano()
	if last := s.warned.Load(); now-last > int64(10*time.Second) && s.warned.CompareAndSwap(last, now) {
		s.log.Warn(msg, zap.Error(err))
	}
}

// signal sends to c unless a signal is pending. It never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// full reports whether so many deliveries to one receiver are unsettled, dead letters
// included, that no event may be read.
func (s *stream) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.queues, func(q *queue) bool { return len(q.byDevice) >= s.maxWaiting+maxGivenUp })
}

// waitForRoom waits until s is not full. It returns ctx's error once ctx has ended.
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

// commit moves the checkpoint up to the watermark, by time and by number of events,
// until ctx ends.
func (s *stream) commit(ctx context.Context) {
	tick := time.NewTicker(s.CheckpointInterval)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
		case <-s.progress:
		case <-ctx.Done():
			return
		}
		err := s.checkpoint(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			s.log.Warn("checkpoint failed; retrying", zap.Error(err))
		}
		failing = err != nil
	}
}

// checkpoint writes the watermark as the checkpoint if it has moved. A lost partition
// is not an error.
func (s *stream) checkpoint(ctx context.Context) error {
	s.mu.Lock()
	p, committed := s.mark.position(), s.committed
	s.mu.Unlock()
	if p == committed || p == (telemetry.Position{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	if err := s.partition.Checkpoint(ctx, telemetry.Checkpoint{Position: p}); err != nil && !errors.Is(err, telemetry.ErrLost) {
		return fmt.Errorf("checkpoint partition %s at sequence %d: %w", s.id, p.Sequence, err)
	}
	s.mu.Lock()
	s.committed = p
	s.mu.Unlock()
	return nil
}

// covered reports whether the device's window is known to be in force at every
// receiver that wants its alerts. It counts the reading as suppressed for each receiver
// asked where it is.
func (s *stream) covered(device string) bool {
	for _, to := range s.receivers {
		if !to.wants(s.level) {
			continue
		}
		if !to.Gate.Recent(device) {
			return false
		}
		s.stats.Suppressed.Add(1)
	}
	return true
}

func (s *stream) state() PartitionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := PartitionState{
		Partition: s.id,
		First:     s.first,
		Read:      s.mark.last,
		ReadUntil: s.readUntil,
		Settled:   s.mark.position(),
		Committed: s.committed,
		Unsettled: s.mark.unsettled(),
		Oldest:    s.mark.oldest(),
	}
	for _, q := range s.queues {
		p.Delivering += len(q.byDevice)
	}
	return p
}
