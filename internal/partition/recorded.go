package partition

import (
	"context"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// Recorded is a partition of a recording: its events go through the rules and alarms, and what is due to an [Outgoing].
// It has no ledger and no checkpoint. It is for one goroutine.
type Recorded struct{ stream *Stream }

// A Change is an alarm that has become another.
type Change struct {
	Device  string
	Rule    string
	Level   string
	Was, Is rules.State
}

// NewRecorded returns a partition of a recording, of one generation of a hub. changed is told of alarms.
func NewRecorded(c Config, id, generation string, changed func(Change)) *Recorded {
	s := newStream(context.Background(), c, id, logName(generation, id))
	s.cut()
	s.alarms = newAlarms(0)
	s.watcher = func(key alarmKey, was, is rules.State) {
		changed(Change{Device: key.device, Rule: key.level.rule.Name, Level: key.level.Name, Was: was, Is: is})
	}

	return &Recorded{s}
}

// Deliver says who brings notices to receivers. It is called once, before Take.
func (r *Recorded) Deliver(out Outgoing) { r.stream.out = out }

// ID returns the partition's.
func (r *Recorded) ID() string { return r.stream.id }

// Log returns what the throttle store calls the partition.
func (r *Recorded) Log() string { return r.stream.logName }

// Take takes the next events.
func (r *Recorded) Take(events []telemetry.Event) { r.stream.take(events) }

// Watch opens the alarms of devices that have fallen silent by now, as if the hub had just said that nothing more has
// come. elsewhere says when other partitions have heard devices: see roster.File.Elsewhere. It returns when others may
// have fallen silent, in Unix ms. A rule has to be about silence.
func (r *Recorded) Watch(now time.Time, elsewhere func([]roster.Asked) map[roster.Asked]int64) (next int64) {
	s := r.stream
	w := s.unheard
	w.ProveAll(now)
	if q := w.Look(now, false); len(q.Elsewhere) > 0 {
		w.Answer(elsewhere(q.Elsewhere), 0)
		w.Look(now, false)
	}

	s.mu.Lock()
	s.saved(s.opened)
	s.opened = nil
	s.mu.Unlock()
	s.handOver()

	return w.Next(now.UnixMilli())
}

// LastOf returns when the partition has heard a device last, in Unix ms; 0 if never. A rule has to be about silence.
func (r *Recorded) LastOf(a roster.Asked) (last int64) {
	r.stream.unheard.View(func(o *roster.Roster) { last = o.LastOf(a.Device, a.Hears) })
	return last
}

// IsDue reports whether n is what is due of key.
func (r *Recorded) IsDue(key delivery.Key, n *delivery.Notice) bool { return r.stream.isDue(key, n) }

// Settled says that every receiver has settled n.
func (r *Recorded) Settled(key delivery.Key, n *delivery.Notice) { r.stream.Settled(key, n) }
