package worker

import (
	"context"
	"slices"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

const (
	refreshAtOnce  = 100 // alarms in one message
	refreshTimeout = 10 * time.Second
)

// refreshes reports whether the receiver is sent the open alarms of l, which are about readings, again and again: it forgets them, they have a
// recovery, and which it got does not depend on what was in a message, which no alarm keeps.
func (q *queue) refreshes(l *level) bool {
	return q.to.Refresh != nil && l.rule.Resolved && l.removed.IsZero() && l.Silent == 0 && q.to.Filters.Want(l.rule.Name, l.Name, func(string) string { return "" })
}

// refresh sends receivers that forget, every notify.RefreshEvery, the alarms that are open and that they were
// notified of, until ctx ends. Such a message is no notice: it has no claim and no window, and if it fails the next
// one follows. It goes while nothing else is under way to the receiver, and after the ledger has said that this replica owns
// the partition. So no recovery overtakes it, but one of a new owner, if this replica hangs between the two: then the
// receiver ends the alert by itself some minutes later.
func (s *stream) refresh(ctx context.Context) {
	clock := time.NewTicker(notify.RefreshEvery)
	defer clock.Stop()
	notified := make([]map[alarmKey]int64, len(s.queues)) // since when the alarms are open that receivers were notified of
	for {
		select {
		case <-clock.C:
		case <-ctx.Done():
			return
		}
		for i, q := range s.queues {
			if q.to.Refresh != nil {
				notified[i] = q.refresh(ctx, notified[i])
			}
		}
	}
}

// refresh is one round, which returns what it knows in the end. known is from the round before.
func (q *queue) refresh(ctx context.Context, known map[alarmKey]int64) map[alarmKey]int64 {
	s := q.stream
	open := map[alarmKey]int64{}
	s.mu.Lock()
	for key, k := range s.alarms.of {
		if k.Phase == rules.Open && q.refreshes(key.level) {
			open[key] = k.Since.Hub
		}
	}
	s.mu.Unlock()
	var keys []alarmKey
	for key, since := range open {
		if known[key] != since && !q.notified(ctx, key) {
			delete(open, key) // such as while its device is quiet; it is asked about again
			continue
		}
		keys = append(keys, key)
	}
	for together := range slices.Chunk(keys, refreshAtOnce) {
		if !q.sendOpen(ctx, together) {
			break
		}
	}
	return open
}

// notified reports whether the throttle store says that the receiver got an alert of an alarm.
func (q *queue) notified(ctx context.Context, key alarmKey) bool {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	state, err := key.level.gates[q.to.index].Inspect(ctx, key.device)
	return err == nil && state.Notified && state.Phase != throttle.Sending
}

// sendOpen sends the alarms of keys that are open still, and have no delivery. It returns false if that cannot be done now.
func (q *queue) sendOpen(ctx context.Context, keys []alarmKey) bool {
	s := q.stream
	if !q.to.takePlace(ctx) {
		return false
	}
	began := q.to.worker.now()
	var failure *notify.Error
	asked := false
	defer func() { q.to.leavePlace(began, asked, failure) }()
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	if s.owns(ctx) != nil {
		return false
	}
	var alerts []notify.Alert
	s.mu.Lock()
	for _, key := range keys {
		k, words := s.alarms.of[key], len(key.level.rule.Is)
		if k.Phase == rules.Open && q.deliveries[key] == nil && (words == 0 || k.value >= 1 && int(k.value) <= words) { // words may have changed since
			d := &delivery{alarmKey: key, head: reading{value: k.value, limit: k.limit, enqueued: k.Since.Hub, since: k.Since.Hub}}
			alerts = append(alerts, q.alert(d, throttle.Grant{ID: s.alertID(d, d.head)}))
		}
	}
	s.mu.Unlock()
	if len(alerts) == 0 {
		return true
	}
	asked = true
	if err := q.to.Refresh(ctx, alerts); err != nil {
		failure = notify.AsError(err)
		s.warn("cannot tell a receiver which alarms are open; it is tried again", err)
	}
	return failure == nil
}

// takePlace waits until a refresh may go, and returns false if the receiver is down or ctx ends first. leavePlace must follow.
func (r *receiver) takePlace(ctx context.Context) bool {
	turn := make(chan struct{})
	r.mu.Lock()
	if r.probed() {
		r.mu.Unlock()
		return false
	}
	r.refreshes = append(r.refreshes, turn)
	r.dispatch()
	r.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.refreshes, turn); i >= 0 {
		r.refreshes = slices.Delete(r.refreshes, i, i+1)
		return false
	}
	r.messages-- // it came just now
	r.pace.Cancel()
	r.dispatch()
	return false
}

// admitRefresh lets a refresh go, in turn with notices.
func (r *receiver) admitRefresh(now time.Duration) {
	if len(r.refreshes) == 0 || r.messages >= r.places() || r.pace.Next(now) > now || r.refreshed && r.anyReady() && !r.probed() {
		r.refreshed = false
		return
	}
	close(r.refreshes[0])
	r.refreshes = r.refreshes[1:]
	r.messages++
	r.refreshed = true
	r.pace.Begin(now)
}

// leavePlace records the answer to a refresh that began at a time; asked, that there was one.
func (r *receiver) leavePlace(began time.Duration, asked bool, failure *notify.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages--
	switch now := r.worker.now(); {
	case !asked:
		r.pace.Cancel()
	case failure == nil:
		r.pace.Taken(now)
	case failure.Limited:
		r.pace.Refused(now, began, failure.RetryAfter)
	}
	r.dispatch()
}
