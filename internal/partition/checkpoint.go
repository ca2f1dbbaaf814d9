package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/ledger"
	"alertworker/internal/telemetry"
)

// commit moves the checkpoint up to the watermark, by time and by number of events,
// until ctx ends.
func (s *Stream) commit(ctx context.Context) {
	tick := time.NewTicker(s.config.CheckpointInterval)
	defer tick.Stop()
	failing := false
	for {
		due := false

		select {
		case <-tick.C:
			due = true
			s.register.endRemoved()
			s.register.recount()
			s.watch()

		case <-s.progress:

		case <-s.hurry:
			due = true
			s.watch()

		case <-ctx.Done():
			return
		}

		err := s.checkpoint(ctx, due, false)
		if err != nil && ctx.Err() == nil && !failing {
			s.log.Warn("checkpoint failed; retrying", zap.Error(err))
		}

		failing = err != nil
	}
}

// checkpoint writes the watermark as the checkpoint if it has moved; before that the roster if it is time for that, or the
// last time, and if ledger is true, the ledger if alarms have changed: a ledger that has dropped the end of a silence needs a
// roster that has forgotten the device. A lost partition is not an error.
func (s *Stream) checkpoint(ctx context.Context, ledger, last bool) error {
	s.register.mu.Lock()
	removals := len(s.register.removals)
	s.register.mu.Unlock()
	saved, err := s.writeRoster(ctx, last)
	//planted:forgotten-is-silent-again if false
	if err != nil {
		return err
	}

	if ledger {
		switch err := s.writeLedger(ctx); {
		case errors.Is(err, telemetry.ErrLost):
			return nil
		case err != nil:
			return err
		}
	}

	if saved {
		s.register.savedRemovals(removals)
	}

	c := telemetry.Checkpoint{Position: s.settled()}
	s.register.mu.Lock()
	//planted:checkpoint-at-last-read c.Position = s.register.mark.last
	committed := s.register.committed
	//planted:checkpoint-before-ledger skip
	c.Position = s.register.alarms.history.safe(c.Position)
	if s.config.Evaluator.stateful || !s.register.alarms.history.empty() {
		c.Ledger = s.ledger.ID()
	}

	s.register.mu.Unlock()
	p := c.Position
	if p == committed || p == (telemetry.Position{}) {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	if err := s.partition.Checkpoint(ctx, c); err != nil && !errors.Is(err, telemetry.ErrLost) {
		return fmt.Errorf("checkpoint partition %s at sequence %d: %w", s.register.id, p.Sequence, err)
	}

	s.register.mu.Lock()
	s.register.committed = p
	s.register.mu.Unlock()

	return nil
}

// settled returns the watermark.
func (s *Stream) settled() telemetry.Position {
	s.register.mu.Lock()
	mark, at := s.register.mark, s.register.mark.position()
	s.register.mu.Unlock()
	// What was read up to mark.last is settled, or holds the watermark here.
	if n, before, _ := s.box.Unsettled(); n > 0 {
		if held := mark.before(before); held.Offset == "" || held.NotAfter(at) {
			return held
		}
	}

	return at
}

// writeLedger writes the alarms as they were at the last position that the watermark has passed and that the
// ledger may have, if they have changed since the last write.
func (s *Stream) writeLedger(ctx context.Context) error {
	settled := s.settled()
	s.register.mu.Lock()
	h := &s.register.alarms.history
	at, behind := h.reach(settled)
	h.seal()

	if !behind {
		s.register.mu.Unlock()
		return nil
	}

	content, silences := h.content(at), s.register.unsaved
	s.register.addEnds(&content)
	h.edited, s.register.unsaved = false, nil
	s.register.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	err := s.ledger.Write(ctx, content)
	if errors.Is(err, ledger.ErrLost) {
		s.log.Info("another replica has taken over the partition's ledger; the partition is lost")
		s.lose()
		return telemetry.ErrLost
	}

	s.ledgerAnswered(err)
	s.register.mu.Lock()
	defer s.register.mu.Unlock()

	if err != nil {
		//planted:failed-ledger-forgets-change skip
		h.edited, s.register.unsaved = true, append(silences, s.register.unsaved...)
		return err
	}

	h.wrote(at)
	s.register.saved(silences)
	s.ledgers.Writes++
	signal(s.room)

	return nil
}

// ledgerAnswered records whether the ledger could be read or written, for people.
func (s *Stream) ledgerAnswered(err error) {
	s.register.mu.Lock()
	defer s.register.mu.Unlock()

	if err == nil {
		s.ledgers.Err, s.ledgers.Since = nil, time.Time{}
		return
	}

	if s.ledgers.Err == nil {
		s.ledgers.Since = time.Now()
	}

	s.ledgers.Err = err
}
