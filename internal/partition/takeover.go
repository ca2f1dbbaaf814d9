package partition

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/ledger"
	"alertworker/internal/telemetry"
)

// overlap is for how long after a take-over the former owner may still read, by the hub's clock, which may be off.
const overlap = time.Minute

// takeOver takes over the partition's ledger and starts from the alarms that it holds. It tries until it
// succeeds, and reports false if the stream ends before: a ledger that cannot be read
// is not an empty one.
func (s *Stream) takeOver() bool {
	for n := 1; ; n++ {
		l, content, err := s.config.Ledger(s.ctx, s.reader.register.id)
		if err == nil {
			err = s.reader.unheard.Load(s.ctx)
		}

		if err == nil {
			s.start(l, content)
			return true
		}

		if s.ctx.Err() != nil {
			return false
		}

		s.log.Debug("partition waiting: cannot take over its ledger", zap.Error(err)) // what lasts is in LedgerState
		s.ledgerAnswered(err)
		if !backoff.Sleep(s.ctx, backoff.Delay(n, minBackoff, maxBackoff)) {
			return false
		}
	}
}

// start begins with what the ledger l holds. Positions of another hub than the one that the checkpoint
// is of say nothing about it; alarms go on. If no rule has state, and none is removed, it leaves the ledger as it is.
func (s *Stream) start(l *ledger.Ledger, content ledger.Content) {
	if !s.config.Evaluator.stateful &&
		!slices.ContainsFunc(
			content.Levels,
			func(l ledger.Level) bool {
				return s.reader.register.level(l.Rule, l.Name, l.Silent > 0, l.Measured, l.Per) == nil
			},
		) {
		return
	}

	resumed, over := s.partition.Resumed()
	from, held := resumed.Position, content.Position
	if resumed.Offset == "" {
		from = telemetry.Position{} // it begins before the first event
	}

	known := resumed.Offset != "" && from.Generation == held.Generation
	passed := known && !from.NotAfter(held) && resumed.Ledger != l.ID() // without rules with state
	if known && from.NotAfter(held) {
		from = held // the last owner did not get to its checkpoint
	}

	reg := s.reader.register
	reg.mu.Lock()
	s.ledgers.Writes++
	s.ledgers.Err, s.ledgers.Since = nil, time.Time{}
	s.ledger = l
	s.reader.lastRead = from
	reg.last = lastOwner{
		until:       time.Now(),
		untilStore:  l.TakenOver(),
		mayHaveRead: micros(l.TakenOver().Add(overlap)),
		settled:     held,
		resumed:     from,
	}
	reg.alarms.history.position = held
	reg.behind = true

	if resumed.Offset != "" {
		reg.mark.read(from)
		reg.mark.flushed = from
	}

	switch {
	case passed:
		reg.last.settled = from // from now on the alarms are those of there
		reg.alarms.history.passed(from)
	case over:
		reg.last.settled = telemetry.Position{}
	}

	reg.forgotten = content.Forgotten
	reg.last.hadRead = reg.beyond(resumed.Generation, from, held)
	for _, saved := range content.Levels {
		reg.recall(saved)
	}

	for _, saved := range content.Alarms {
		reg.restore(saved, passed)
	}

	for _, saved := range content.Ends {
		reg.restoreEnd(saved)
	}

	reg.mu.Unlock()
	s.resumeSilences(from)

	s.work.Go(s.catchUp)
}

// catchUpWithin bounds how long recoveries wait for the new owner to read on.
const catchUpWithin = time.Minute

// catchUp starts the recoveries that are due once what the hub held at the take-over has been read: a device may
// be hot again. If the hub does not say what it held, or reading takes long, they start all the same.
func (s *Stream) catchUp() {
	ctx, cancel := context.WithTimeout(s.ctx, catchUpWithin)
	defer cancel()
	var last int64
	err := errors.New("not asked")
	for n := 1; err != nil && ctx.Err() == nil; n++ {
		if last, _, err = s.partition.Last(ctx); err != nil {
			s.log.Debug("the hub did not report how far behind the partition is", zap.Error(err))
			backoff.Sleep(ctx, backoff.Delay(n, minBackoff, maxBackoff))
		}
	}

	for ctx.Err() == nil && s.reader.register.lastSequence() < last {
		select {
		case <-s.caughtUp:
		case <-ctx.Done():
		}
	}

	if s.ctx.Err() == nil {
		s.reader.register.giveAll()
		s.adopt()
	}
}

// ledgerAnswered records whether the ledger could be read or written, for people.
func (s *Stream) ledgerAnswered(err error) {
	s.reader.register.mu.Lock()
	defer s.reader.register.mu.Unlock()

	if err == nil {
		s.ledgers.Err, s.ledgers.Since = nil, time.Time{}
		return
	}

	if s.ledgers.Err == nil {
		s.ledgers.Since = time.Now()
	}

	s.ledgers.Err = err
}
