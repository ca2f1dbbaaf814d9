package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/absence"
	"alertworker/internal/ledger"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

const (
	askHubLimit = 10 * time.Second
)

// watch opens and ends the alarms of devices that have fallen silent, and asks what has to be known for that.
func (s *Stream) watch() {
	w := s.reader.unheard
	defer s.reader.register.flush()
	s.reader.register.mu.Lock()
	waiting := s.reader.register.alarms.total[dueSilences] > 0
	s.reader.register.mu.Unlock()
	q := w.Look(time.Now(), waiting)
	if q.Hub {
		s.work.Go(func() {
			w.Prove(s.askHub(q))
			signal(s.hurry)
		})
	}
}

// askHub asks the hub for its last event, so that silence can be proven when nothing comes; nil if there is no answer.
func (s *Stream) askHub(q absence.Questions) *absence.Proof {
	ctx, cancel := context.WithTimeoutCause(s.ctx, askHubLimit, fmt.Errorf("no answer within %v", askHubLimit))
	defer cancel()
	p := absence.Proof{At: time.Now()}
	store, err := s.ledger.Now(ctx)
	if err == nil {
		p.Until = min(p.At.UnixMilli(), store.UnixMilli())
		p.Sequence, p.Enqueued, err = s.partition.Last(ctx)
	}

	if errors.Is(err, ledger.ErrLost) {
		s.lose()
	}

	if err != nil {
		s.log.Debug("the hub did not report the partition's last event", zap.Error(err))
		return nil
	}

	s.askAll(ctx, q, &p)

	return &p
}

// askAll adds to p whether anything comes to the hub. Without an answer silences wait.
func (s *Stream) askAll(ctx context.Context, q absence.Questions, p *absence.Proof) {
	if p.Enqueued.After(q.Enough) {
		p.Newest = millis(p.Enqueued)
		return
	}

	newest, asked, err := s.partition.Newest(ctx, q.Enough)
	if err != nil {
		s.log.Debug("the hub did not report when it took its newest event", zap.Error(err))
		return
	}

	if !newest.IsZero() {
		p.Newest = millis(newest)
	}

	p.NewestUntil = p.Until - max(0, p.At.Sub(asked)).Milliseconds()
	if !q.Others {
		return
	}

	others, err := s.config.Roster(s.reader.register.id).Others(ctx)
	if err != nil {
		s.warn("cannot read how many devices are expected in other partitions; alerts about the whole hub wait", err)
		return
	}

	p.Others = &others
}

// resumeSilences goes on with the silences of the ledger, and the events after start. It is called before any are read.
func (s *Stream) resumeSilences(start telemetry.Position) {
	var open []absence.Open
	s.reader.register.mu.Lock()
	for key, k := range s.reader.register.alarms.byKey {
		rule := slices.Index(s.config.Evaluator.silences, key.level.rule)
		if k.Phase != rules.Open || rule < 0 {
			continue
		}

		since := roster.Place{Sequence: -1, Time: k.Since.Hub / 1000}
		if k.log == s.reader.register.logName {
			since.Sequence = k.sequence
		}

		open = append(open, absence.Open{Rule: rule, Of: key.about, Since: since})
	}

	removed := s.reader.register.removedDevices()
	s.reader.register.mu.Unlock()

	from, ended := s.reader.unheard.Begin(start, open, removed)
	if from != start {
		s.reader.lastRead, s.reader.register.last.replayed = from, start
		s.partition.Rewind(from)
	}
	defer s.reader.register.flush()
	s.reader.register.mu.Lock()
	defer s.reader.register.mu.Unlock()

	for _, e := range ended {
		key := alarmKey{e.Of, s.config.Evaluator.silences[e.Rule].levels[0]}
		at := telemetry.Position{Sequence: e.At.Sequence, Time: time.UnixMilli(e.At.Time)}
		next := alarm{due: s.reader.register.recovered(key.level, s.reader.register.alarms.byKey[key], at)}
		if next.due != nil && e.Excluded {
			next.due.Excluded = "a condition of the rule does not hold" // a roster does not know which
		}
		s.reader.register.change(key, next)
	}
}

// writeRoster writes the roster, if it is time for that, or if this is the last time. That it fails holds nothing up,
// but that there is one.
func (s *Stream) writeRoster(ctx context.Context, last bool) error {
	saved := s.reader.unheard.Save(ctx, last)
	// a silence may have been opened, and notified, by another owner whose take-over overlapped ours, and nothing else
	// asks
	if saved.Wrote && !last {
		s.owner.ask()
	}

	switch {
	case saved.Err == nil:
	case saved.Needed:
		return saved.Err
	default:
		s.warn("cannot write the roster of devices; trying again in a minute", saved.Err)
	}

	return nil
}
