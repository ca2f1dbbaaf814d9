package partition

import (
	"context"
	"slices"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/rules"
)

// refresh has open alarms posted again to receivers that forget, until s.ctx ends.
func (s *Stream) refresh() {
	tick := time.NewTicker(delivery.RefreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}

		ctx, cancel := context.WithTimeout(s.ctx, delivery.RefreshEvery)
		s.box.Refresh(ctx, s.register.openAlarms(), s.mayRefresh)
		cancel()
	}
}

// openAlarms returns the alarms that are open and not muted; none while it is not known what the hub held at the take-over.
func (reg *register) openAlarms() (all []delivery.OpenAlarm) {
	reg.mu.Lock()
	defer reg.mu.Unlock()

	//planted:open-not-posted-again if true
	if reg.behind {
		return nil
	}

	for key, k := range reg.alarms.byKey {
		if !reg.isRefreshed(key, k) {
			continue
		}

		opened := delivery.Reading{
			Value:    k.value,
			Limit:    k.limit,
			Enqueued: k.Since.Hub + key.level.rule.Silent.Microseconds(), // of a silence: when it should have been heard
			Sequence: k.sequence,
			Element:  k.element,
			Since:    k.Since.Hub,
		}
		all = append(all, delivery.OpenAlarm{Key: key.notices(), Reading: opened, Wanted: reg.evaluator.wanting(key.level)})
	}

	for _, g := range reg.groups {
		if g.incident == "" || !g.level.removed.IsZero() { // without members it has none
			continue
		}

		opened := delivery.Reading{Enqueued: g.since, Since: g.since, More: &delivery.More{Of: g.first}}
		all = append(all, delivery.OpenAlarm{
			Key:      g.key,
			Reading:  opened,
			Wanted:   reg.evaluator.wanting(g.level),
			Incident: &delivery.Incident{About: g.about()},
		})
	}

	return all
}

// isRefreshed reports whether the alarm k is open and not muted, and its rule is configured. Whether a mute that asks for
// properties of messages is in force shows at the last reading that it held back. The caller holds reg.mu.
func (reg *register) isRefreshed(key alarmKey, k alarm) bool {
	isHigherOpen := slices.ContainsFunc(key.level.rule.levels, func(l *level) bool {
		return l.place > key.level.place && reg.alarms.byKey[alarmKey{key.about, l}].Phase == rules.Open
	})
	held := k.alertNext && !isHigherOpen || k.member() != "" // a receiver is told of its incident
	if k.Phase != rules.Open || held || !key.level.removed.IsZero() {
		return false
	}

	return !reg.evaluator.muted(&rules.Subject{
		Device:   key.about.Device,
		Sensor:   key.about.Name,
		Rule:     key.level.rule.Name,
		Enqueued: reg.storeTime(),
	})
}

// mayRefresh returns why the alarm that a key is about must not be posted again, nil if it is still open, and the ledger
// says that this replica still owns the partition.
func (s *Stream) mayRefresh(ctx context.Context, key delivery.Key) error {
	s.register.mu.Lock()
	g := s.register.groups[key]
	about := s.register.alarmOf(key)
	isOpen := g != nil && g.members > 0 || about.level != nil && s.register.isRefreshed(about, s.register.alarms.byKey[about])
	s.register.mu.Unlock()

	if !isOpen {
		return errNotDue
	}

	return s.owner.owns(ctx)
}

// refreshing returns for how long a former owner may still be posting open alarms again: it did not know better when it
// asked the ledger. A recovery must not come before that.
func (s *Stream) refreshing() time.Duration {
	if !s.config.Dispatcher.Forgets() {
		return 0
	}
	return max(time.Until(s.register.last.until.Add(delivery.RefreshLasts)), 0)
}
