package partition

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/ledger"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// overlap is for how long after a take-over the former owner may still read, by the hub's clock, which may be off.
const overlap = time.Minute

// takeOver takes over the partition's ledger and starts from the alarms that it holds. It tries until it
// succeeds, and reports false if the stream ends before: a ledger that cannot be read
// is not an empty one.
func (s *Stream) takeOver() bool {
	for n := 1; ; n++ {
		l, content, err := s.config.Ledger(s.ctx, s.register.id)
		if err == nil {
			err = s.register.unheard.Load(s.ctx)
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
		!slices.ContainsFunc(content.Levels, func(l ledger.Level) bool { return s.register.level(idOf(&l)) == nil }) {
		return
	}

	resumed, over := s.partition.Resumed()
	from, held := telemetry.Position{}, content.Position // from: it begins before the first event
	passed := false                                      // without rules with state
	if resumed.Offset != "" {
		from = resumed.Position
		switch {
		case from.Generation != held.Generation:
		case from.NotAfter(held): // the last owner did not get to its checkpoint
			from = held
		default:
			passed = resumed.Ledger != l.ID()
		}
	}

	reg := s.register
	reg.mu.Lock()
	s.ledgers.Writes++
	s.ledgers.Err, s.ledgers.Since = nil, time.Time{}
	s.ledger = l
	reg.last = lastOwner{
		until:       time.Now(),
		untilStore:  l.TakenOver,
		mayHaveRead: micros(l.TakenOver.Add(overlap)),
		settled:     held,
	}
	reg.alarms.history.position = held
	reg.behind = true
	reg.mark.last = from

	switch {
	case passed:
		reg.last.settled = from // from now on the alarms are those of there
		reg.alarms.history.passed(from)
	case over:
		reg.last.settled = telemetry.Position{}
	}

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

// catchUpEvery is how often it looks whether that is done.
const catchUpEvery = 100 * time.Millisecond

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

	reg := s.register
	hasReadAll := func() bool {
		reg.mu.Lock()
		defer reg.mu.Unlock()
		return reg.mark.last.Sequence >= last
	}
	for !hasReadAll() && backoff.Sleep(ctx, catchUpEvery) {
	}

	if s.ctx.Err() != nil {
		return
	}

	reg.mu.Lock()
	reg.behind = false
	for key := range reg.alarms.byKey {
		reg.give(key)
	}
	for _, g := range reg.groups {
		reg.giveEnd(g)
	}
	reg.mu.Unlock()

	s.adopt()
}

// recall notes what the ledger has of a level: of one that is not configured any more,
// how it was, and since when it is missing.
func (reg *register) recall(from ledger.Level) {
	if reg.level(idOf(&from)) != nil {
		reg.alarms.history.edited = reg.alarms.history.edited || !from.Removed.IsZero() // it is back
		return
	}

	if from.Removed.IsZero() {
		from.Removed, reg.alarms.history.edited = reg.last.untilStore, true
	}

	r := &rules.Rule{
		Name:     from.Rule,
		Field:    from.Field,
		Below:    from.Below,
		Is:       from.Is,
		Window:   from.Window,
		Resolved: from.Resolved,
		Per:      from.Per,
		Title:    from.Title,
		Unit:     from.Unit,
		Runbook:  from.Runbook,
		Silent:   from.Silent,
		Levels:   []rules.Level{{Name: from.Name}},
	}
	l := &level{Level: &r.Levels[0], rule: &rule{Rule: r}, removed: from.Removed, stats: &LevelCounters{}}
	l.target(&reg.evaluator.book, from.Measured)
	reg.levels = append(reg.levels, l)
}

// restore makes an alarm of what the ledger holds. passed says that the checkpoint has passed
// events after it that no rule with state has seen. The caller holds reg.mu.
func (reg *register) restore(from ledger.Alarm, passed bool) {
	l := reg.level(levelID{from.Rule, from.Level, from.Silence, from.Measured, from.Per})
	if l == nil { // a ledger names the levels of all of its alarms
		return
	}

	k := remembered(from)
	//planted:takeover-forgets-clear if k.Cleared != (rules.Moment{}) { k.Cleared = rules.Moment{} }
	was := k
	if from.Due != nil {
		was.due = rememberedNotice(from.Due)
		receivers := reg.evaluator.everybody() // who was alerted, by whatever filters there were, the gate knows
		//planted:recovery-by-filter receivers = reg.evaluator.wanting(l)
		switch {
		case was.due.silence(): // an alert
			receivers = reg.evaluator.wanting(l)
		case !l.rule.Resolved:
			receivers = 0
		}

		if receivers != 0 {
			was.due.becomeDue(receivers)
			k.due = was.due
		}
	}

	unsure := passed || !l.removed.IsZero() // nobody can know whether what had begun lasted

	switch {
	case k.Phase == rules.Open && unsure:
		k.Cleared = rules.Moment{}
	case k.Phase == rules.Normal, k.Phase == rules.Pending && unsure, l.removed.IsZero() && !l.rule.stateful:
		k = alarm{due: k.due}
	}

	if k.Phase == rules.Open && l.rule.Repeat > 0 {
		k = reg.reopened(k)
		was.sending = k.sending
	}

	key := alarmKey{from.Of(), l}
	reg.alarms.set(key, k)
	reg.alarms.history.keep(key, k)
	reg.join(key, k.member(), k.Since.Hub)
	reg.restoreSilence(key, k)
	if k != was {
		reg.alarms.history.edited = true
	}
}

// reopened returns k, an alarm of the ledger that is open, as the reading that it names has opened it. If none of this log
// did, because the alarm comes from another one, or has opened while its rule had no repeat, it is open from where the ledger
// stands: what was sent up to there was about an earlier alarm, and what comes later about this one. In a log of which the
// ledger knows nothing that is the beginning.
func (reg *register) reopened(k alarm) alarm {
	//planted:takeover-forgets-opening if true
	if k.log != reg.logName {
		k.sequence, k.element = 0, 0
		if held := reg.alarms.history.position; held.Offset != "" && logName(held.Generation, reg.id) == reg.logName {
			k.sequence = held.Sequence + 1
		}
	}

	return k.sends(reg.logName, k.sequence, k.element)
}
