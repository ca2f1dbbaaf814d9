package worker_test

import (
	"context"
	"slices"
	"time"

	"alertworker/internal/muting"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
)

// What people do.

// An operation is what people did: see mute and forget.
type operation struct {
	move
	at, until time.Time

	// Of a device that was removed: the last event of each partition that was read then, and whether it may not be
	// removed.
	last   map[*hubLog]int64
	unsure bool
}

// operate has all that happens which is not about one partition.
func (w *world) operate() {
	for _, m := range w.moves {
		if m.what == handOver || m.what == kill || m.what == steal {
			continue
		}
		time.Sleep(time.Until(w.start.Add(m.at)))
		w.note("%s", m)
		switch m.what {
		case mute:
			w.mute(m)
		case forget:
			w.forget(m)
		case replay:
			w.replay(m)
		case receiverDown:
			w.mu.Lock()
			w.down[receiverDown+w.inboxes[m.receiver].name] = time.Now().Add(m.for_)
			w.mu.Unlock()
		default:
			w.mu.Lock()
			w.down[m.what] = time.Now().Add(m.for_)
			w.mu.Unlock()
		}
	}
}

// windowOf returns what a window of r is of: a device of the plan, or a site.
func (w *world) windowOf(r *rules.Rule, name string) sensor.ID {
	if r.Per != "" {
		return sensor.Of(name)
	}
	return w.id(name)
}

func (w *world) did(o operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.operations = append(w.operations, o)
	w.forgetStories()
}

// mute mutes alerts for a while, of which all replicas know at once. The answer to the first write is lost, and others
// mute something at the same time.
func (w *world) mute(m move) {
	lossy := m.deaf
	store := muting.Store{Name: "mutes", Records: records.Reliable(records.Around(w.silences.Records,
		func(ctx context.Context, op records.Op, _ string, call func(context.Context) error) error {
			err := call(ctx)
			if op != records.OpWrite || err != nil || !lossy {
				return err
			}
			lossy = false
			_, _ = w.silences.Add(ctx, muting.Mute{Device: "nobody", Why: "w", Who: "b"}, time.Hour)
			return errLost
		}))}
	at := time.Now()
	s, err := store.Add(w.ctx, muting.Mute{Device: w.id(m.device).Device, Sensor: w.id(m.device).Name, Rule: m.rule, Why: "w", Who: "a"}, time.Hour)
	if err != nil {
		return
	}
	w.learnMutes()
	w.work.Go(func() {
		select {
		case <-time.After(m.for_):
		case <-w.ctx.Done():
			return
		}
		_, err := store.End(w.ctx, s.ID, "ann")
		w.note("%s has ended: %v", m, err)
		w.learnMutes()
		w.did(operation{move: m, at: at, until: time.Now()})
	})
}

func (w *world) learnMutes() {
	mutes, err := w.silences.Mutes(context.WithoutCancel(w.ctx))
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.mutes = mutes
	}
}

// replay sends the dead letters of a receiver again, as `alertworker deadletters replay` does. Silences it does not
// send.
func (w *world) replay(m move) {
	w.mu.Lock()
	letters := slices.Clone(w.dead)
	w.mu.Unlock()
	in := w.inboxes[m.receiver]
	for i, letter := range letters {
		a := letter.Alert
		if letter.replayed || letter.Receiver != in.name || a.Silent > 0 {
			continue
		}
		rule, level := w.ever(subject{a.Rule, a.Level})
		if a.PerValue == "" {
			rule = rule.Alone()
		}
		of := w.windowOf(rule, a.About())
		request := throttle.Request{Device: of.Device, Sensor: of.Name, ID: a.ID, Arrived: time.Now().Add(time.Hour)}
		if a.Resolved {
			request = throttle.Request{Device: of.Device, Sensor: of.Name, ID: a.ID, Enqueued: a.Enqueued, Log: a.Log, Sequence: a.Sequence,
				Recovery: true}
		}
		_, _ = throttletest.Do(w.ctx, gateOf(w.leases, in.name, rule, level), request, func(_ context.Context,
			g throttle.Grant) throttle.Answer {
			w.mu.Lock()
			defer w.mu.Unlock()
			if g.ID != a.ID && !a.Resolved || a.Device == in.refuses || time.Now().Before(w.down[receiverDown+in.name]) {
				return throttle.NotTaken
			}
			a.ID, a.Token, a.Expires, a.Ambiguous, a.WillResolve = g.ID, g.Token, g.Expires, g.Ambiguous, false
			in.take(a)
			last := &in.all[len(in.all)-1]
			last.answered, last.replayed, w.dead[i].replayed = true, true, true
			w.noteLocked("people replay %s (dropped: %v)", tell(a), last.dropped)
			return throttle.Taken
		})
	}
}

// forget has the owners of all partitions that have heard of a device remove it, if they have read everything. After an
// error nobody knows whether it is removed.
func (w *world) forget(m move) {
	owners := w.ownersOf(m.device)
	for _, o := range owners {
		if o.thaw() != nil {
			return
		}
	}
	time.Sleep(time.Millisecond) // what was read is decided
	removed := operation{move: m, at: time.Now(), last: map[*hubLog]int64{}, unsure: w.overlaps()}
	w.mu.Lock()
	for _, o := range owners {
		if !o.hasReturned() { // else nobody reads it: people are to ask again
			removed.last[o.log] = int64(len(o.log.events))
		}
		removed.unsure = removed.unsure || o.log.movedBack
		if o != o.log.owner || o.next < len(o.log.events) {
			w.mu.Unlock()
			return
		}
	}
	w.blur(m.device) // what is read again may come out otherwise
	w.mu.Unlock()

	any := false
	for _, o := range owners {
		ctx, cancel := context.WithTimeout(w.ctx, 10*second)
		known, err := o.worker.Forget(ctx, w.id(m.device))
		cancel()
		w.note("%s of %s by %s: known %v, %v", m.what, m.device, o.name, known, err)
		any = any || known
		removed.unsure = removed.unsure || err != nil
	}
	if any {
		w.did(removed)
	}
}

// ownersOf returns the owners of the partitions to which a device has sent something; none if one of them has none.
func (w *world) ownersOf(device string) (owners []*owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, log := range w.logs {
		if !slices.ContainsFunc(log.readings, func(m reading) bool { return m.device == device }) {
			continue
		}
		if log.owner == nil {
			return nil
		}
		owners = append(owners, log.owner)
	}
	return owners
}
