package partition

import (
	"context"
	"math"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// Recorded is a partition of a recording: its events go through the rules and alarms, and what is due to an [Outgoing].
// It has no ledger and no checkpoint. It is for one goroutine.
type Recorded struct{ register *register }

// A Change is an alarm that has become another.
type Change struct {
	Device  string
	Sensor  string
	Rule    string
	Level   string
	Was, Is rules.State
}

// NewRecorded returns a partition of a recording, of one generation of a hub. changed is called with each alarm that changes.
func NewRecorded(ev *Evaluator, id, generation string, changed func(Change)) *Recorded {
	watched := func(key alarmKey, was, is rules.State) {
		changed(Change{
			Device: key.about.Device,
			Sensor: key.about.Name,
			Rule:   key.level.rule.Name,
			Level:  key.level.Name,
			Was:    was,
			Is:     is,
		})
	}

	reg := newRegister(ev, id, logName(generation, id), 0)
	reg.changed = watched
	reg.watch(nil, zap.NewNop())
	return &Recorded{reg}
}

// Deliver says who brings notices to receivers. It is called once, before Take.
func (r *Recorded) Deliver(out Outgoing) { r.register.out = out }

// ID returns the partition's.
func (r *Recorded) ID() string { return r.register.id }

// Log returns what the throttle store calls the partition.
func (r *Recorded) Log() string { return r.register.logName }

// Take takes the next events.
func (r *Recorded) Take(events []telemetry.Event) { r.register.take(events) }

// Watch opens the alarms of devices that have fallen silent by now, as if the hub of all these partitions had just said
// that nothing more has come. It returns when more devices may have fallen silent, in Unix ms.
func Watch(now time.Time, all []*Recorded) (next int64) {
	newest := int64(0)
	expected := make([]roster.Expected, len(all))
	for i, r := range all {
		var last int64
		last, expected[i] = r.register.unheard.Known()
		newest = max(newest, last)
	}

	next = math.MaxInt64
	for i, r := range all {
		var others roster.Expected
		for j, e := range expected {
			if j != i {
				others = others.And(e)
			}
		}

		r.register.unheard.ProveAll(now, newest, others)
		next = min(next, r.watch(now))
	}

	return next
}

// watch is Watch for one partition.
func (r *Recorded) watch(now time.Time) (next int64) {
	r.register.unheard.Look(now, false)

	r.register.mu.Lock()
	r.register.saved(r.register.unsaved)
	r.register.unsaved = nil
	r.register.mu.Unlock()

	return r.register.unheard.Next(now.UnixMilli())
}

// IsDue reports whether n is what is due of key.
func (r *Recorded) IsDue(key delivery.Key, n *delivery.Notice) bool { return r.register.isDue(key, n) }

// WriteIncidents writes the records of groups whose members have changed, and gives what waits for that.
func (r *Recorded) WriteIncidents(records Incidents) {
	for g := r.register.nextGroup(); g != nil; g = r.register.nextGroup() {
		for w, any := r.register.takeGroup(g); any; w, any = r.register.takeGroup(g) {
			_ = r.register.writeGroup(context.Background(), records, w) // in memory
		}

	}
}

// Settled says that every receiver has settled n.
func (r *Recorded) Settled(key delivery.Key, n *delivery.Notice) { r.register.settle(key, n) }
