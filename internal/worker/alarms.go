package worker

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"alertworker/internal/ledger"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// maxAlarms bounds the alarms of a partition, pending and open, and besides them the
// resolved that are owed.
const maxAlarms = ledger.MaxAlarms / 2

// maxChanges bounds the changes that the ledger may be behind.
const maxChanges = 2 * ledger.MaxAlarms

// alarms are those of one partition, as of the last event read. They are guarded by
// stream.mu, but for mayHave.
type alarms struct {
	byDevice map[string]*deviceAlarms
	counts   map[*level]*[3]int // by the index of what is counted
	total    [3]int

	seed    maphash.Seed
	devices atomic.Int32             // len(byDevice)
	filter  [filterSize]atomic.Int32 // devices by a hash, so that one without alarms is known without a lock
	history history
}

const filterSize = 4096

// What alarms count.
const (
	pendingAlarms = iota
	openAlarms
	owedAlarms
)

// deviceAlarms are the alarms of one device.
type deviceAlarms struct {
	alarms []alarm // of different levels
}

// An alarm is one level of one device that is not normal, or owes a resolved.
type alarm struct {
	level *level
	kept
}

// kept is what the ledger keeps of an alarm. It is zero if there is no alarm.
type kept struct {
	rules.State
	limit float64 // unless it is normal: what the reading that opened it, or made it pending, reached
	value float64 // of that reading
	owed  *owed   // nil if nothing is owed
}

// owed is the resolved of a reading that cleared an alarm.
type owed struct {
	reading
	receivers uint32 // that have not settled it, a bit for each; guarded by stream.mu
}

func newAlarms(changes int) *alarms {
	return &alarms{
		byDevice: map[string]*deviceAlarms{}, counts: map[*level]*[3]int{}, seed: maphash.MakeSeed(),
		history: history{kept: map[alarmKey]kept{}, bound: changes},
	}
}

// mayHave reports whether device may have an alarm. It takes no lock: one goroutine alone
// reads the partition, so no alarm of its devices opens meanwhile.
func (a *alarms) mayHave(device string) bool {
	return a.devices.Load() > 0 && a.filter[a.slot(device)].Load() > 0
}

func (a *alarms) slot(device string) uint64 {
	return maphash.String(a.seed, device) % filterSize
}

// room reports whether one more alarm, of device, may be kept.
func (a *alarms) room(device string) bool {
	return a.total[pendingAlarms]+a.total[openAlarms] < maxAlarms && len(device) <= ledger.MaxDevice
}

// of returns device's alarm at l, a zero one if there is none.
func (a *alarms) of(device string, l *level) kept {
	if d := a.byDevice[device]; d != nil {
		for i := range d.alarms {
			if d.alarms[i].level == l {
				return d.alarms[i].kept
			}
		}
	}
	return kept{}
}

// set replaces device's alarm at l.
func (a *alarms) set(device string, l *level, k kept) {
	d := a.byDevice[device]
	if d == nil {
		if k == (kept{}) {
			return
		}
		d = &deviceAlarms{}
		a.byDevice[device] = d
		a.devices.Add(1)
		a.filter[a.slot(device)].Add(1)
	}
	at := -1
	for i := range d.alarms {
		if d.alarms[i].level == l {
			at = i
		}
	}
	if at >= 0 {
		a.count(l, d.alarms[at].kept, -1)
	}
	a.count(l, k, 1)
	switch {
	case at < 0 && k != (kept{}):
		d.alarms = append(d.alarms, alarm{l, k})
	case at >= 0 && k != (kept{}):
		d.alarms[at].kept = k
	case at >= 0:
		d.alarms[at] = d.alarms[len(d.alarms)-1]
		d.alarms = d.alarms[:len(d.alarms)-1]
	}
	if len(d.alarms) == 0 {
		delete(a.byDevice, device)
		a.devices.Add(-1)
		a.filter[a.slot(device)].Add(-1)
	}
}

func (a *alarms) count(l *level, k kept, n int) {
	of := a.counts[l]
	if of == nil {
		of = new([3]int)
		a.counts[l] = of
	}
	add := func(what int) {
		of[what] += n
		a.total[what] += n
	}
	switch k.Phase {
	case rules.Pending:
		add(pendingAlarms)
	case rules.Open:
		add(openAlarms)
	}
	if k.owed != nil {
		add(owedAlarms)
	}
}

// An alarmKey names one level of one device.
type alarmKey struct {
	device string
	level  *level
}

// A history is how alarms came to be what they are: as they were at the position of the
// ledger, and what has changed since. The ledger is written for the watermark, which the
// changes are ahead of while an alert is not settled.
//
// What happens between two places where the watermark may stop becomes one segment, in
// which an alarm that changes often is one change.
type history struct {
	kept     map[alarmKey]kept  // alarms as they were at position, and at every later one up to the first segment
	position telemetry.Position // of the ledger in the store
	segments []*segment
	changes  int // in all segments
	bound    int // of changes; beyond it segments are merged

	unwritten *telemetry.Position // before the first change in kept that the ledger in the store does not have; nil if there is none
	edits     int                 // counts what was changed in kept itself; see settle
	written   int                 // edits that are in the ledger in the store
}

// A segment is a run of changes.
type segment struct {
	before  telemetry.Position // the position before the event of the first
	last    int64              // sequence number of the event of the last
	after   *entry             // the last unsettled event before or at the first; nil if there was none
	batch   int64              // in which the first came
	changes map[alarmKey]kept
}

// change records that the alarm of key became k with the event of a sequence number,
// which comes after the position before. newest is the last unsettled event.
func (h *history) change(key alarmKey, k kept, before telemetry.Position, sequence int64, newest *entry, batch int64) {
	var s *segment
	if n := len(h.segments); n > 0 {
		s = h.segments[n-1]
	}
	if upTo(before, h.position) {
		before = h.position // before the first event that is read there is none, or one that the last owner had settled
	}
	if s == nil || s.after != newest || newest == nil && s.batch != batch {
		s = &segment{before: before, after: newest, batch: batch, changes: map[alarmKey]kept{}}
		h.segments = append(h.segments, s)
	}
	n := len(s.changes)
	s.changes[key], s.last = k, max(s.last, sequence)
	if h.changes += len(s.changes) - n; h.changes > h.bound {
		h.merge()
	}
}

// merge makes one segment of each two, so that the ledger can be written for fewer positions.
func (h *history) merge() {
	merged := h.segments[:0]
	h.changes = 0
	for i := 0; i < len(h.segments); i += 2 {
		s := h.segments[i]
		if i+1 < len(h.segments) {
			next := h.segments[i+1]
			for key, k := range next.changes {
				s.changes[key] = k
			}
			s.last, s.after, s.batch = next.last, next.after, next.batch
		}
		h.changes += len(s.changes)
		merged = append(merged, s)
	}
	clear(h.segments[len(merged):])
	h.segments = merged
}

// settle removes the resolved o, which every receiver has settled, if the alarm of key has it. What has not
// been reached loses it then.
func (h *history) settle(key alarmKey, o *owed) {
	if k, ok := h.kept[key]; ok && k.owed == o {
		k.owed = nil
		h.keep(key, k)
		h.edits++
	}
}

func (h *history) keep(key alarmKey, k kept) {
	if k == (kept{}) {
		delete(h.kept, key)
	} else {
		h.kept[key] = k
	}
}

// reach applies the changes up to the watermark w and returns the latest position, not after
// w, at which kept is exact.
func (h *history) reach(w telemetry.Position) telemetry.Position {
	n := 0
	for n < len(h.segments) && h.segments[n].last <= w.Sequence {
		s := h.segments[n]
		if h.unwritten == nil {
			h.unwritten = &s.before
		}
		for key, k := range s.changes {
			if k.owed != nil && k.owed.receivers == 0 {
				k.owed = nil
			}
			h.keep(key, k)
		}
		h.changes -= len(s.changes)
		n++
	}
	clear(h.segments[:n])
	h.segments = h.segments[n:]
	return h.limit(w)
}

// limit returns w, or the position before the first segment if that is not after w.
func (h *history) limit(w telemetry.Position) telemetry.Position {
	if len(h.segments) > 0 && h.segments[0].before.Sequence < w.Sequence {
		return h.segments[0].before
	}
	return w
}

// safe returns the latest position, not after w, that the checkpoint may have without
// passing a change that the ledger in the store does not hold.
func (h *history) safe(w telemetry.Position) telemetry.Position {
	if h.unwritten != nil && h.unwritten.Sequence < w.Sequence {
		return *h.unwritten
	}
	return h.limit(w)
}

// behind reports whether the ledger in the store lacks something that kept has.
func (h *history) behind() bool { return h.unwritten != nil || h.edits != h.written }

// content returns what the ledger has to hold at p.
func (h *history) content(p telemetry.Position) ledger.Content {
	c := ledger.Content{Position: p, Alarms: make([]ledger.Alarm, 0, len(h.kept))}
	for key, k := range h.kept {
		a := ledger.Alarm{Device: key.device, Rule: key.level.rule.Name, Level: key.level.Name, Resolved: key.level.rule.Resolved}
		if k.Phase != rules.Normal {
			a.Open, a.Since, a.Value, a.Limit = k.Phase == rules.Open, fromMicros(k.Since), k.value, k.limit
		}
		if o := k.owed; o != nil {
			a.Owed = &ledger.Reading{Sequence: o.sequence, Enqueued: fromMicros(o.enqueued), Value: o.value, Limit: o.limit}
			if o.since != 0 {
				a.Owed.Since = fromMicros(o.since)
			}
		}
		c.Alarms = append(c.Alarms, a)
	}
	return c
}

// wrote records that the store's ledger holds kept as it was at p, when edits was e.
func (h *history) wrote(p telemetry.Position, e int) {
	h.position, h.unwritten, h.written = p, nil, e
}

// micros0 is t in Unix µs, 0 for a zero t.
func micros0(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return micros(t)
}
