package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/telemetry"
)

// A stream is the state of one partition while this replica owns it, or of
// what comes in by other ways (see Intake).
type stream struct {
	*Worker
	id        string
	partition telemetry.Partition // nil for an Intake
	log       *zap.Logger
	slots     chan struct{}  // this partition's share of the worker's
	room      chan struct{}  // signals that something was settled
	progress  chan struct{}  // signals that much was settled
	work      sync.WaitGroup // flights and the committer
	lastRead  telemetry.Position

	// send is for sends: it goes on when the partition ends, until cut.
	send context.Context
	cut  context.CancelFunc

	mu        sync.Mutex
	mark      watermark
	flights   []map[string]*flight // by receiver, then device
	sinceMark int                  // events since progress was signalled
	readUntil time.Time            // when the last event read was enqueued
	committed telemetry.Position   // written by whoever calls checkpoint, one at a time
}

// newStream returns the stream id. Its sends outlive ctx until drain cuts them.
func newStream(ctx context.Context, w *Worker, id string) *stream {
	s := &stream{
		Worker:   w,
		id:       id,
		log:      w.Log.With(zap.String("partition", id)),
		slots:    make(chan struct{}, perPartition),
		room:     make(chan struct{}, 1),
		progress: make(chan struct{}, 1),
		flights:  make([]map[string]*flight, len(w.receivers)),
	}
	s.send, s.cut = context.WithCancel(context.WithoutCancel(ctx))
	for i := range s.flights {
		s.flights[i] = map[string]*flight{}
	}
	return s
}

// drain waits for the flights to end, which their context has told to, and cuts
// what is still being sent after DrainTimeout.
func (s *stream) drain() {
	late := time.AfterFunc(s.DrainTimeout, s.cut)
	s.work.Wait()
	late.Stop()
	s.cut()
}

// A reading over the threshold.
type reading struct {
	device   string
	value    float64
	enqueued time.Time
	sequence int64
	id       string       // of the alert, where it is not the sequence that names it
	told     *atomic.Bool // if not nil, set once an alert about this very reading was taken
}

// admit hands a reading over the threshold, the one after position before, to
// every receiver: to the device's flight if there is one, else to its open
// window, else to a new flight, which waits no longer than ctx. It returns these
// flights if somebody waits for the reading (told).
func (s *stream) admit(ctx context.Context, before telemetry.Position, r reading) (in []*flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e *entry
	for i, to := range s.receivers {
		if f := s.flights[i][r.device]; f != nil {
			f.join(r)
			s.stats.Suppressed.Add(1)
			if r.told != nil {
				in = append(in, f)
			}
			continue
		}
		if to.Gate.Recent(r.device) {
			s.stats.Suppressed.Add(1)
			continue
		}
		if e == nil {
			e = s.mark.admit(before, r.enqueued)
		}
		e.pending++
		f := &flight{stream: s, to: to, among: s.flights[i], entry: e, head: r, seen: -1, ended: make(chan struct{})}
		s.flights[i][r.device] = f
		s.work.Go(func() { f.fly(ctx) })
		if r.told != nil {
			in = append(in, f)
		}
	}
	return in
}

// keepMalformed has an event kept, the one after position before, which holds
// the watermark meanwhile.
func (s *stream) keepMalformed(ctx context.Context, before telemetry.Position, e telemetry.Event, reason telemetry.Reason) {
	e.Body, e.Properties = bytes.Clone(e.Body), maps.Clone(e.Properties)
	s.mu.Lock()
	held := s.mark.admit(before, e.Enqueued)
	held.pending = 1
	s.mu.Unlock()
	s.work.Go(func() {
		for n := 1; ; n++ {
			err := s.Malformed.KeepMalformed(s.send, telemetry.MalformedEvent{Partition: s.id, Reason: reason, Event: e})
			if err == nil {
				break
			}
			s.warn("an event that cannot be decoded cannot be kept; it stays unsettled", err)
			if !sleep(ctx, backoff(n)) {
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.settle(held)
	})
}

// settle says that one of those who settle an event has. The caller holds s.mu.
func (s *stream) settle(e *entry) {
	e.pending--
	s.mark.settle()
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

// full reports whether too much is unsettled to take more.
func (s *stream) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mark.unsettled) >= maxUnsettled
}

// waitForRoom pauses reading while too much is unsettled. It fails when ctx ends.
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
