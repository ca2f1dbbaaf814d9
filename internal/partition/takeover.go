package partition

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// takeOver takes over the partition's ledger and starts from the alarms that it holds. It tries until it
// succeeds, and reports false if the stream ends before: a ledger that cannot be read
// is not an empty one.
func (s *Stream) takeOver() bool {
	for n := 1; ; n++ {
		l, content, err := s.Ledger(s.ctx, s.id)
		if err == nil && s.unheard != nil {
			err = s.unheard.Load(s.ctx)
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
	if !s.stateful &&
		!slices.ContainsFunc(
			content.Levels,
			func(l ledger.Level) bool { return s.level(l.Rule, l.Name, l.Silent > 0) == nil },
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

	s.mu.Lock()
	s.ledgers.Writes++
	s.ledgers.Err, s.ledgers.Since = nil, time.Time{}
	a := newAlarms(s.MaxChanges)
	s.ledger = l
	s.alarms = a
	s.skip = held
	s.lastRead = from
	s.begun = from
	s.since = time.Now()
	a.history.position = held
	s.behind = true

	if resumed.Offset != "" {
		s.mark.read(from)
		s.mark.told = from
	}

	switch {
	case passed:
		s.skip = from // from now on the alarms are those of there
		a.history.passed(from)
	case over:
		s.skip = telemetry.Position{}
	}

	s.forgotten = content.Forgotten
	s.rereading = s.beyond(from, held)
	for _, saved := range content.Levels {
		s.recall(saved)
	}

	for _, saved := range content.Alarms {
		s.restore(saved, passed)
	}

	s.mu.Unlock()
	if s.unheard != nil {
		s.resumeSilences(from)
	}

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
	defer s.handOver()
	s.mu.Lock()
	defer s.mu.Unlock()

	for ctx.Err() == nil && s.mark.last.Sequence < last {
		s.mu.Unlock()
		select {
		case <-s.caughtUp:
		case <-ctx.Done():
		}

		s.mu.Lock()
	}

	s.behind = false
	if s.ctx.Err() != nil {
		return
	}

	for key := range s.alarms.byKey {
		s.give(key)
	}
}

// become makes next of the alarm of key. Its history is told by the caller, who holds s.mu.
func (s *Stream) become(key alarmKey, next alarm) {
	was := s.alarms.byKey[key]
	s.alarms.set(key, next)
	switch open := next.Phase == rules.Open; {
	case open == (was.Phase == rules.Open):
	case open:
		key.level.stats.Opened.Add(1)
	default:
		key.level.stats.Cleared.Add(1)
	}

	if s.watcher != nil {
		s.watcher(key, was.State, next.State)
	}

	if next.due == was.due {
		return
	}

	if was.due != nil {
		s.told = append(s.told, order{key: key.notices(), withdraw: &was.due.Notice})
	}

	s.give(key)
}

// give has the notice that is due of key, if there is one, go to its receivers, unless it must wait. The caller holds
// s.mu.
func (s *Stream) give(key alarmKey) {
	due := s.alarms.byKey[key].due
	if due != nil && !s.behind && !due.waits(key.level) {
		s.told = append(s.told, order{key: key.notices(), give: &due.Notice})
	}
}

// change is become for another reason than an event, or whatever the watermark. The caller holds s.mu.
func (s *Stream) change(key alarmKey, next alarm) {
	s.alarms.history.replace(key, next)
	s.become(key, next)
}

// restore makes an alarm of what the ledger holds. passed says that the checkpoint has passed
// events after it that no rule with state has seen. The caller holds s.mu.
func (s *Stream) restore(from ledger.Alarm, passed bool) {
	l := s.level(from.Rule, from.Level, from.Silence)
	if l == nil { // a ledger names the levels of all of its alarms
		return
	}

	k := alarm{
		State: rules.State{
			Since:  rules.Moment{Hub: micros0(from.Since), Device: micros0(from.DeviceSince)},
			Newest: micros0(from.DeviceNewest),
		},
		value:    float64(from.Value),
		limit:    float64(from.Limit),
		exposed:  from.Exposed,
		log:      from.Log,
		sequence: from.Sequence,
	}

	switch {
	case from.Since.IsZero():
	case from.Open:
		k.Phase = rules.Open
	default:
		k.Phase = rules.Pending
	}

	if r := from.Due; r != nil {
		k.due = &dueNotice{
			saved: true,
			Notice: delivery.Notice{
				Log:       r.Log,
				Part:      throttle.Part(r.Part),
				Opened:    micros0(r.Opened),
				Heard:     micros0(r.Heard),
				Forgotten: r.Forgotten,
				Excluded:  string(r.Excluded),
				Reading: delivery.Reading{
					Value:    float64(r.Value),
					Limit:    float64(r.Limit),
					Enqueued: micros(r.Enqueued),
					Sequence: r.Sequence,
					Device:   micros0(r.DeviceTime),
					Since:    micros0(r.Since),
				},
			},
		}
		k.due.Due(s.wanting(l))
	}

	was := k

	switch {
	case k.Phase == rules.Pending && (passed || !l.removed.IsZero()): // nobody can know whether it lasted
		k.State = rules.State{}
	case l.removed.IsZero() && !l.rule.stateful:
		k.State = rules.State{}
	}

	if k.due != nil && (k.due.Settled() || !k.due.silence() && !l.rule.Resolved) {
		k.due = nil
	}

	if k.Phase == rules.Normal {
		k = alarm{due: k.due}
	}

	key := alarmKey{string(from.Device), l}
	s.alarms.set(key, k)
	s.alarms.history.keep(key, k)
	if k != was {
		s.alarms.history.edited = true
	}
}

// removedAfter is for how long owners have to be without a rule until it counts as removed. During a rollout the
// partition may go on to a replica that has it.
const removedAfter = 10 * time.Minute

// endRemoved ends the alarms of levels that are removed, once it is sure that they are: nothing else ever would.
func (s *Stream) endRemoved() {
	defer s.handOver()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.removed) == 0 { // there may be no ledger
		return
	}

	now := s.ledger.Opened().Add(time.Since(s.since))
	over := func(l *level) bool {
		n := s.alarms.counts[l]
		return n != nil && n[openAlarms] > 0 && now.Sub(l.removed) >= removedAfter
	}
	if !slices.ContainsFunc(s.removed, over) {
		return
	}

	for key, k := range s.alarms.byKey {
		if l := key.level; !l.removed.IsZero() && k.Phase == rules.Open && over(l) {
			s.end(key, micros(now), false)
		}
	}
}

// end ends an open alarm otherwise than by an event of its device: its rule or level was removed or renamed, or nothing
// is expected of the device any more, which is then forgotten. Whoever was alerted gets a recovery, which is due from
// now on, in Unix µs. Milder levels that are still open alert about the device's next reading. The caller holds s.mu.
func (s *Stream) end(key alarmKey, now int64, forgotten bool) {
	was := s.alarms.byKey[key]
	s.change(key, s.ended(key, now, forgotten))

	if !key.level.rule.Silence() {
		s.expose(key, was.limit)
	}
}

// ended returns what end leaves of the open alarm of key. The caller holds s.mu.
func (s *Stream) ended(key alarmKey, now int64, forgotten bool) alarm {
	due := s.endOf(key.level, s.alarms.byKey[key], now)
	if due != nil {
		due.Forgotten = forgotten
	}

	return alarm{due: due}
}

// expose has the milder levels of the rule of key, whose alarm has ended, alert about the device's next reading, if
// they are open. limit was that of the alarm. The caller holds s.mu.
func (s *Stream) expose(key alarmKey, limit float64) {
	for _, l := range s.levels {
		same := l.rule.Name == key.level.rule.Name && !l.rule.Silence()
		if !same || limit == l.Limit || !l.rule.Breaching(limit, l.Limit) {
			continue
		}

		milder := alarmKey{key.device, l}
		k := s.alarms.byKey[milder]
		if k.Phase != rules.Open {
			continue
		}

		k.exposed = true
		s.alarms.set(milder, k)
		s.alarms.history.expose(milder)
	}
}

// endOf returns the recovery of an alarm that end ends, nil if there is none: about the end of a silence, or about the
// last event read, so that no alert was about a later one.
func (s *Stream) endOf(l *level, was alarm, now int64) *dueNotice {
	if l.rule.Silence() {
		return s.recovery(l, was.log, throttle.End, delivery.Reading{
			Limit:    was.limit,
			Enqueued: now,
			Sequence: was.sequence,
			Since:    was.Since.Hub,
		})
	}

	last := s.mark.last
	if last == (telemetry.Position{}) {
		last = s.alarms.history.position
	}

	due := s.recovery(l, logName(last.Generation, s.id), throttle.Event, delivery.Reading{
		Value:    was.value,
		Limit:    was.limit,
		Enqueued: micros(last.Time),
		Sequence: last.Sequence,
		Since:    was.Since.Hub,
	})
	if due != nil {
		due.Opened = now
	}

	return due
}

// level returns a level by its name and kind: one that is configured, or of s.removed; else nil.
func (s *Stream) level(rule, name string, silence bool) *level {
	for _, all := range [][]*level{s.levels, s.removed} {
		for _, l := range all {
			if l.rule.Name == rule && l.Name == name && l.rule.Silence() == silence {
				return l
			}
		}
	}

	return nil
}

// recall notes what the ledger has of a level: of one that is not configured any more,
// how it was, and since when it is missing.
func (s *Stream) recall(from ledger.Level) {
	if s.level(from.Rule, from.Name, from.Silent > 0) != nil {
		s.alarms.history.edited = s.alarms.history.edited || !from.Removed.IsZero() // it is back
		return
	}

	if from.Removed.IsZero() {
		from.Removed, s.alarms.history.edited = s.ledger.Opened(), true
	}

	r := &rules.Rule{
		Name:     from.Rule,
		Field:    from.Field,
		Below:    from.Below,
		Is:       from.Is,
		Window:   from.Window,
		Resolved: from.Resolved,
		Title:    from.Title,
		Unit:     from.Unit,
		Runbook:  from.Runbook,
		Silent:   from.Silent,
		Levels:   []rules.Level{{Name: from.Name}},
	}
	l := &level{Level: &r.Levels[0], rule: &rule{Rule: r}, removed: from.Removed, stats: &LevelCounters{}}
	l.target(&s.Rulebook)
	s.removed = append(s.removed, l)
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
	defer s.handOver()
	s.mu.Lock()
	defer s.mu.Unlock()

	if err != nil {
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

// ledgerAnswered records whether the ledger could be read or written, for people.
func (s *Stream) ledgerAnswered(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err == nil {
		s.ledgers.Err, s.ledgers.Since = nil, time.Time{}
		return
	}

	if s.ledgers.Err == nil {
		s.ledgers.Since = time.Now()
	}

	s.ledgers.Err = err
}
