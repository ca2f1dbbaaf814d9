package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/ledger"
	"alertworker/internal/telemetry"
)

// commit moves the checkpoint up to the watermark, by time and by number of events,
// until ctx ends.
func (s *Stream) commit(ctx context.Context) {
	tick := time.NewTicker(s.CheckpointInterval)
	defer tick.Stop()
	failing := false
	for {
		due := false

		select {
		case <-tick.C:
			due = true
			s.endRemoved()
			s.endReread()
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

// checkpoint writes the watermark as the checkpoint if it has moved; before that, if
// ledger is true, the ledger if alarms have changed, and the roster if it is time for that, or the last
// time. A lost partition is not an error.
func (s *Stream) checkpoint(ctx context.Context, ledger, last bool) error {
	if ledger {
		switch err := s.writeLedger(ctx); {
		case errors.Is(err, telemetry.ErrLost):
			return nil
		case err != nil:
			return err
		}
	}

	if err := s.writeRoster(ctx, last); err != nil {
		return err
	}

	c := telemetry.Checkpoint{Position: s.settled()}
	s.mu.Lock()
	//planted:checkpoint-at-last-read c.Position = s.mark.last
	committed := s.committed
	//planted:checkpoint-before-ledger skip
	c.Position = s.alarms.history.safe(c.Position)
	if s.stateful || !s.alarms.history.empty() {
		c.Ledger = s.ledger.ID()
	}

	s.mu.Unlock()
	p := c.Position
	if p == committed || p == (telemetry.Position{}) {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	if err := s.partition.Checkpoint(ctx, c); err != nil && !errors.Is(err, telemetry.ErrLost) {
		return fmt.Errorf("checkpoint partition %s at sequence %d: %w", s.id, p.Sequence, err)
	}

	s.mu.Lock()
	s.committed = p
	s.mu.Unlock()

	return nil
}

// settled returns the watermark.
func (s *Stream) settled() telemetry.Position {
	s.mu.Lock()
	mark, at := s.mark, s.mark.position()
	s.mu.Unlock()
	// What was read up to mark.last has been flushed: it is settled, or holds the watermark here.
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
	s.mu.Lock()
	h := &s.alarms.history
	at, behind := h.reach(settled)
	h.seal()

	if !behind {
		s.mu.Unlock()
		return nil
	}

	content, silences := h.content(at), s.opened
	content.Forgotten = slices.Clone(s.forgotten)
	forgetting := len(s.forgetting)
	h.edited, s.opened = false, nil
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	err := s.ledger.Write(ctx, content)
	if errors.Is(err, ledger.ErrLost) {
		s.log.Info("another replica has taken over the partition's ledger; the partition is lost")
		s.lose()
		return telemetry.ErrLost
	}

	s.ledgerAnswered(err)
	defer s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()

	if err != nil {
		//planted:failed-ledger-forgets-change skip
		h.edited, s.opened = true, append(silences, s.opened...)
		return err
	}

	for _, f := range s.forgetting[:forgetting] {
		close(f.saved)
	}

	s.forgetting = slices.Clone(s.forgetting[forgetting:])
	h.wrote(at)
	s.saved(silences)
	s.ledgers.Writes++
	signal(s.room)

	return nil
}
