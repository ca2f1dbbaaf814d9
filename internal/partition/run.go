package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/telemetry"
)

// New returns the stream of p, which belongs to this replica until ctx ends. It is to be run, once.
func New(ctx context.Context, c Config, p telemetry.Partition) *Stream {
	resumed, _ := p.Resumed()
	return newStream(ctx, c, p, logName(resumed.Generation, p.ID()))
}

// Run processes the partition until the context of New ends or the partition fails. When it returns, none of its
// goroutines runs: attempts under way get DrainTimeout from that end, and then the time to settle. What is settled by
// then is checkpointed, if this replica still owns the partition.
func (s *Stream) Run() error {
	resumed, _ := s.partition.Resumed()
	begun := !s.config.Evaluator.stateful && resumed.Ledger == "" || s.takeOver()
	var err error
	if begun {
		s.work.Go(func() { s.commit(s.ctx) })
		s.work.Go(s.writeIncidents)
		//planted:overdue-ends-unsent skip
		s.work.Go(s.endOverdue)
		if s.config.Evaluator.stateful && s.config.Dispatcher.Forgets() {
			s.work.Go(s.refresh)
		}

		err = s.read(s.ctx)
	}

	s.stop(err)
	s.drain()
	//planted:checkpoint-of-the-lost if !begun
	if errors.Is(context.Cause(s.ctx), telemetry.ErrLost) || !begun {
		return nil // the next owner continues from our last checkpoint
	}

	last, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), lastTimeout)
	defer cancel()
	if commitErr := s.checkpoint(last, true, true); commitErr != nil {
		err = errors.Join(err, commitErr)
	}

	return err
}

// read takes events from the partition until ctx ends or Receive fails.
func (s *Stream) read(ctx context.Context) error {
	for ctx.Err() == nil {
		//planted:reads-when-full for false
		for s.full() {
			select {
			case <-s.room:
			case <-ctx.Done():
				return nil
			}
		}

		events, err := s.partition.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read partition %s: %w", s.reader.register.id, err)
		}

		s.reader.take(events)
		s.reader.register.mu.Lock()
		behind := s.reader.register.behind
		s.reader.register.mu.Unlock()
		if behind {
			signal(s.caughtUp)
		}

		if s.sinceMark += len(events); s.sinceMark >= checkpointEvery {
			s.sinceMark = 0
			signal(s.progress)
		}
	}

	return nil
}

// full reports whether so many deliveries to one receiver are unsettled, dead letters
// included, or the ledger is so far behind, that no event may be read.
func (s *Stream) full() bool {
	s.reader.register.mu.Lock()
	behind := s.reader.register.alarms.history.full()
	s.reader.register.mu.Unlock()
	return behind || s.box.Full()
}

// logUnread logs an event without a reading.
func (s *Stream) logUnread(_ telemetry.Position, e *telemetry.Event, reason telemetry.Reason) {
	line := s.log.Check(zap.DebugLevel, "event without a reading")
	if line == nil {
		return
	}

	detail := zap.Skip()
	if e.Undecodable != "" {
		detail = zap.String("detail", e.Undecodable)
	}

	line.Write(zap.Int64("sequence", e.Sequence), zap.String("device", e.Device), zap.Stringer("reason", reason), detail)
}

// drain ends s.ctx, drops the deliveries that wait and waits for the attempts under way, which
// it cancels after DrainTimeout. Nothing may be admitted any more.
func (s *Stream) drain() {
	s.stop(nil)
	s.box.Close()
	late := time.AfterFunc(s.config.DrainTimeout, s.cut)
	s.box.Wait()
	s.work.Wait()
	late.Stop()
	s.cut()
}
