package delivery

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

const (
	// RefreshEvery is how often open alarms are posted again to a receiver that forgets.
	RefreshEvery = 3 * time.Minute

	refreshTimeout = 5 * time.Second // of each of its steps

	// RefreshLasts is how long after its owner was asked an alarm may still be posted again. A recovery by the next owner
	// waits for that.
	RefreshLasts = 2*refreshTimeout + 2*time.Second
)

// errDown says that a receiver or the throttle store seems to be down.
var errDown = errors.New("the receiver or the throttle store seems to be down")

// An OpenAlarm is one whose level is open and not muted, as far as its owner knows.
type OpenAlarm struct {
	Key     Key
	Reading Reading // that opened it
	Wanted  uint32  // by these receivers, a bit for each

	Incident *Incident // that the alarm, or several, is of; else nil
}

// Forgets reports whether a receiver forgets what it was sent, so that Refresh is to be called.
func (dp *Dispatcher) Forgets() bool {
	return slices.ContainsFunc(dp.receivers, func(r *receiver) bool { return r.to.Limits.Forgets })
}

// Refresh posts open alarms again to each receiver that forgets: the last alert that it took. That is no alert: it is
// not claimed, recorded or counted. It goes while there is nothing else to send, and not while the receiver seems to be
// down. may returns why an alarm must not be posted now, nil if it is open still and its owner is the owner; may
// is asked when nothing else can be sent about the alarm any more until the post has ended. Refresh returns by the time
// ctx ends, or an attempt that was under way then.
func (o *Outbox) Refresh(ctx context.Context, open []OpenAlarm, may func(context.Context, Key) error) {
	for i, q := range o.queues {
		if !q.to.to.Limits.Forgets {
			continue
		}

		var wanted []OpenAlarm
		keys := map[Key]bool{}
		for _, a := range open {
			if a.Wanted&(1<<i) != 0 {
				wanted = append(wanted, a)
				keys[a.Key] = true
			}
		}

		o.mu.Lock()
		maps.DeleteFunc(q.taken, func(key Key, _ notify.Alert) bool { return !keys[key] })
		o.mu.Unlock()
		for batch := range slices.Chunk(wanted, max(q.to.to.Limits.Batch, 1)) {
			if err := q.refresh(ctx, batch, may); err != nil {
				o.account.Logger.Debug("open alarms are not posted again for now", zap.String("receiver", q.to.to.Name), zap.Error(err))
				break
			}
		}
	}
}

// refresh posts some open alarms again, in one message.
func (q *queue) refresh(ctx context.Context, open []OpenAlarm, may func(context.Context, Key) error) error {
	r, box := q.to, q.box
	began, err := r.reserve(ctx)
	if err != nil {
		return err
	}

	// From here on readings join these deliveries, and what becomes due waits for their end: no recovery is overtaken.
	var held []*delivery
	box.mu.Lock()
	for _, a := range open {
		if q.deliveries[a.Key] == nil && q.later[a.Key] == nil {
			n := &Notice{Part: throttle.Silence, Incident: a.Incident} // which is no recovery
			d := &delivery{q: q, subject: a.Key, head: a.Reading, notice: n}
			q.deliveries[a.Key] = d
			held = append(held, d)
		}
	}
	box.mu.Unlock()

	var alerts []notify.Alert
	var mu sync.Mutex
	asking, cancel := context.WithTimeout(ctx, refreshTimeout)
	inParallel(len(held), func(i int) {
		a, ok := held[i].lastTaken(asking)
		if !ok || may(asking, held[i].subject) != nil {
			return
		}

		a.Refresh = true
		a.Sent = time.Time{}
		if now, known := r.storeTime(); known {
			a.Sent = fromMicros(now)
		}
		mu.Lock()
		defer mu.Unlock()
		alerts = append(alerts, a)
	})
	cancel()

	//planted:posted-after-recovery box.mu.Lock()
	//planted:posted-after-recovery for _, d := range held { d.replace(nil, OutcomeUnsettled) }
	//planted:posted-after-recovery held = nil
	//planted:posted-after-recovery box.mu.Unlock()
	//planted:posted-after-recovery r.release(began, false, nil)
	//planted:posted-after-recovery time.Sleep(10 * time.Second)
	//planted:posted-after-recovery began, _ = r.reserve(ctx)
	if len(alerts) > 0 {
		post, cancel := context.WithTimeout(box.sending, refreshTimeout)
		err = r.to.Notifier.Notify(post, alerts...)
		cancel()
	}

	r.release(began, len(alerts) > 0, err)

	if err != nil && !notify.AsError(err).Untaken { // it may still be on its way
		backoff.Sleep(box.sending, refreshTimeout)
	}

	box.mu.Lock()
	defer box.mu.Unlock()
	for _, d := range held {
		d.replace(nil, OutcomeUnsettled)
	}

	return err
}

// lastTaken returns the last alert about d's alarm that the receiver took, if no recovery was tried since; false if there
// is none. Of an alert that another owner sent, the gate's record says whether there was one.
func (d *delivery) lastTaken(ctx context.Context) (notify.Alert, bool) {
	q := d.q
	q.box.mu.Lock()
	a, known := q.taken[d.subject]
	q.box.mu.Unlock()
	if known {
		return a, true
	}

	s, err := d.gate().Inspect(ctx, d.subject.About)
	if err != nil || !s.Notified || s.Unresolved || s.Phase == throttle.Sending {
		return notify.Alert{}, false
	}

	if i := d.notice.Incident; i != nil && s.Incident != i.About.ID {
		return notify.Alert{}, false
	}

	id := cmp.Or(s.AlertID, d.request(&d.head).ID)
	a = d.compose(throttle.Grant{ID: id, Token: s.Token, Now: s.Now})

	return a, true
}

// reserve waits until a message may go and nothing else would, and takes its place. It returns when that was. An error
// says that it is of no use to wait.
func (r *receiver) reserve(ctx context.Context) (began time.Duration, err error) {
	for {
		r.mu.Lock()
		now := r.dispatcher.now()
		o, down := r.outage()
		down = down || r.probed()
		isFree := !down && r.messages < r.pace.Places(r.places) && r.pace.Next() <= now && r.next(now) == nil
		if isFree {
			r.messages++
			r.pace.Begin(now)
		}
		r.mu.Unlock()

		switch {
		case down:
			return 0, cmp.Or(o.last, errDown)
		case isFree:
			return now, nil
		case !backoff.Sleep(ctx, time.Second):
			return 0, context.Cause(ctx)
		}
	}
}

// release gives back the place of a message that went at began, if it was sent, with this answer.
func (r *receiver) release(began time.Duration, sent bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.messages--

	now, failure := r.dispatcher.now(), notify.AsError(err)
	switch {
	case !sent:
		r.pace.Cancel()
	case err == nil || failure.Refused:
		r.pace.Taken(now)
	case failure.Limited:
		r.pace.Refused(now, began, failure.RetryAfter)
	}

	r.dispatch()
}
