package partition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/silence"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

const (
	askHubLimit       = 10 * time.Second
	askElsewhereLimit = 20 * time.Second // no checkpoint is written meanwhile
)

// newWatch returns what knows who has fallen silent in s's partition, nil if no rule is about silence.
func newWatch(s *Stream) *silence.Watch {
	if len(s.silences) == 0 {
		return nil
	}

	watched := make([]silence.Rule, len(s.silences))
	for i, r := range s.silences {
		watched[i] = silence.Rule{
			Column: roster.Column{Rule: r.Name, Hears: r.HeardBy(), Limit: r.Silent},
			Field:  r.reads.Field,
			Forget: r.Forget,
		}
	}

	return silence.New(watched, silenceAlarms{s}, notify.Partition(s.id), s.Roster(s.id), s.log)
}

// millis is t in ms, rounded up like micros.
func millis(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// hear tells s.unheard of e, the next event. It is called between Lock and Unlock of that.
func (s *Stream) hear(e *telemetry.Event, hash uint64, reason telemetry.Reason) {
	quiet := int64(0)
	if s.Rules.Quiet != "" {
		quiet = quietUntil(e.Properties.Get(s.Rules.Quiet))
	}

	counts := e.Device != "" && reason != telemetry.ReasonNotTelemetry && !notify.IsTest(e.Device)
	if !s.unheard.Hear(e, hash, s.found, counts, quiet) {
		s.Counters.Unwatched.Add(1)
	}
}

// quietUntil is rules.QuietUntil in Unix ms, 0 if it is zero.
func quietUntil(p telemetry.Property) int64 {
	until := rules.QuietUntil(p)
	switch {
	case until.IsZero():
		return 0
	case !until.Before(rules.Forever):
		return math.MaxInt64
	}

	return millis(until)
}

// watch opens and ends the alarms of devices that have fallen silent, and asks what has to be known for that.
func (s *Stream) watch() {
	w := s.unheard
	if w == nil {
		return
	}
	defer s.handOver()
	s.mu.Lock()
	waiting := s.alarms.total[dueSilences] > 0
	s.mu.Unlock()
	for {
		q := w.Look(time.Now(), waiting)
		if q.Hub {
			s.work.Go(func() { w.Prove(s.askHub()) })
		}

		if len(q.Elsewhere) == 0 {
			return
		}

		heard, others := s.askElsewhere(q.Elsewhere)
		w.Answer(heard, others)
		if heard == nil {
			return
		}
	}
}

// askHub asks the hub for its last event, so that silence can be proven when nothing comes; nil if there is no answer.
func (s *Stream) askHub() *silence.Proof {
	ctx, cancel := context.WithTimeoutCause(s.ctx, askHubLimit, fmt.Errorf("no answer within %v", askHubLimit))
	defer cancel()
	p := silence.Proof{At: time.Now()}
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

	return &p
}

// askElsewhere asks the rosters of other partitions when they have heard devices: see silence.Watch.Answer.
func (s *Stream) askElsewhere(asked []roster.Asked) (heard map[roster.Asked]int64, others int) {
	ctx, cancel := context.WithTimeoutCause(s.ctx, askElsewhereLimit, fmt.Errorf("no answer within %v", askElsewhereLimit))
	defer cancel()
	heard, others, err := s.Roster(s.id).Elsewhere(ctx, asked)
	if err != nil {
		s.warn("cannot read which devices other partitions have heard; alerts about silent devices wait", err)
		return nil, 1
	}

	return heard, others
}

// proven reports whether it is still certain that nothing came until the deadline of the silence n. It
// never is for a rule that is not configured any more: nobody hears for it.
func (s *Stream) proven(key delivery.Key, n *delivery.Notice) bool {
	if s.unheard == nil || key.Message.Removed {
		return false
	}
	limit := time.Duration(n.Limit * float64(time.Second))
	return s.unheard.Proven(limit, n.Enqueued/1000)
}

// silenceAlarms makes alarms of what a silence.Watch says.
type silenceAlarms struct{ *Stream }

func (s silenceAlarms) level(rule int) *level { return s.silences[rule].levels[0] }

// Fell implements silence.Alarms. The alarm opens at once, whatever the watermark.
func (s silenceAlarms) Fell(rule int, fell silence.Silence) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, r := s.level(rule), s.silences[rule]
	if s.muted(fell.Device, r.Name, time.UnixMilli(fell.Proven), func(string) string { return "" }) {
		return false // it opens when that is over, if it lasts
	}

	if !s.alarms.room(fell.Device) {
		s.Counters.Untracked.Add(1)
		return false
	}

	key := alarmKey{fell.Device, l}
	k := alarm{
		State:    rules.State{Phase: rules.Open, Since: rules.Moment{Hub: fell.Since.Time * 1000}},
		limit:    r.Silent.Seconds(),
		log:      s.logName,
		sequence: fell.Since.Sequence,
	}

	if receivers := s.wanting(l); receivers != 0 {
		k.due = &dueNotice{Notice: delivery.Notice{
			Log:    k.log,
			Part:   throttle.Silence,
			Opened: fell.Proven * 1000,
			Heard:  fell.Heard * 1000,
			Reading: delivery.Reading{
				Limit:    k.limit,
				Enqueued: fell.Deadline * 1000,
				Sequence: k.sequence,
				Since:    k.Since.Hub,
			},
		}}
		k.due.Due(receivers)
		s.opened = append(s.opened, opened{key, k.due})
	}

	s.change(key, k)

	return true
}

// Heard implements silence.Alarms.
func (s silenceAlarms) Heard(rule int, device string, before, at telemetry.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := alarmKey{device, s.level(rule)}
	next := alarm{due: s.recovered(key.level, s.alarms.byKey[key], at)}

	if at.NotAfter(s.skip) || at.NotAfter(s.replay) { // the ledger is further on, and yet has not heard it
		s.change(key, next)
		return
	}

	s.alarms.history.change(key, next, before, at)
	s.become(key, next)
}

// Lit implements silence.Alarms.
func (s silenceAlarms) Lit(rule int, at telemetry.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := alarmKey{notify.Partition(s.id), s.level(rule)}
	s.change(key, alarm{due: s.recovered(key.level, s.alarms.byKey[key], at)})
}

// Forgotten implements silence.Alarms.
func (s silenceAlarms) Forgotten(rule int, device string, proven int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(alarmKey{device, s.level(rule)}, proven*1000, true)
}

// Unwatched implements silence.Alarms.
func (s silenceAlarms) Unwatched() { s.Counters.Forgotten.Add(1) }

// recovered returns the recovery of the silence was, whose device was heard at a position; nil if there is none.
func (s *Stream) recovered(l *level, was alarm, at telemetry.Position) *dueNotice {
	about := delivery.Reading{
		Limit:    was.limit,
		Enqueued: micros(at.Time),
		Sequence: at.Sequence,
		Since:    was.Since.Hub,
	}
	return s.recovery(l, s.logName, throttle.Event, about)
}

// An opened silence is one that the ledger in the store does not hold yet.
type opened struct {
	key alarmKey
	due *dueNotice
}

// saved starts the deliveries of silences that the ledger in the store now holds. The caller holds s.mu.
func (s *Stream) saved(silences []opened) {
	for _, o := range silences {
		o.due.saved = true
		if s.alarms.byKey[o.key].due == o.due {
			s.give(o.key)
		}
	}
}

// resumeSilences goes on with the silences of the ledger, and the events after start. It is called before any are read.
func (s *Stream) resumeSilences(start telemetry.Position) {
	var open []silence.Open
	s.mu.Lock()
	for key, k := range s.alarms.byKey {
		rule := slices.Index(s.silences, key.level.rule)
		if k.Phase != rules.Open || rule < 0 {
			continue
		}

		since := roster.Place{Sequence: -1, Time: k.Since.Hub / 1000}
		if k.log == s.logName {
			since.Sequence = k.sequence
		}

		open = append(open, silence.Open{Rule: rule, Device: key.device, Since: since})
	}

	removed := s.removedDevices()
	s.mu.Unlock()

	from, ended := s.unheard.Begin(start, open, removed)
	if from != start {
		s.lastRead, s.replay = from, start
		s.partition.Rewind(from)
	}
	defer s.handOver()
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, e := range ended {
		key := alarmKey{e.Device, s.silences[e.Rule].levels[0]}
		at := telemetry.Position{Sequence: e.At.Sequence, Time: time.UnixMilli(e.At.Time)}
		s.change(key, alarm{due: s.recovered(key.level, s.alarms.byKey[key], at)})
	}
}

// writeRoster writes the roster, if it is time for that, or if this is the last time. That it fails holds nothing up,
// but that there is one.
func (s *Stream) writeRoster(ctx context.Context, last bool) error {
	if s.unheard == nil {
		return nil
	}

	saved := s.unheard.Save(ctx, last)
	// a silence may have been opened, and notified, by another owner whose take-over overlapped ours, and nothing else
	// asks
	if saved.Wrote && !last {
		s.mu.Lock()
		s.askOwner()
		s.mu.Unlock()
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
