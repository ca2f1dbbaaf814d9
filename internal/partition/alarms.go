package partition

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync/atomic"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// maxAlarms bounds the alarms of a partition, with those that have ended and whose recovery is due. With so many a reading
// is decided as if its rule had no state.
const maxAlarms = ledger.MaxAlarms / 2

// maxSensors bounds the alarms, and recoveries that are due, of one level of a device. Beyond it none of a sensor is kept.
const maxSensors = 1024

// alarms are those of one partition, as of the last event read. They are guarded by
// register.mu, but for mayHave.
type alarms struct {
	byKey map[alarmKey]alarm      // none is zero. Changed by set alone
	keys  map[ofDevice][]alarmKey // of byKey, in the order in which they came

	// alarms by a hash of their device, whatever the sensor, so that one without alarms is known without a lock
	filter  [filterSize]atomic.Int32
	history history
}

const filterSize = 4096

// An alarmKey names one level of one device, or of one of its sensors.
type alarmKey struct {
	about sensor.ID
	level *level
}

// ofDevice is one level of a device, whatever the sensor.
type ofDevice struct {
	device string
	level  *level
}

func (k alarmKey) ofDevice() ofDevice { return ofDevice{k.about.Device, k.level} }

// notices returns the key of the notices about an alarm, unless devices share them.
func (k alarmKey) notices() delivery.Key { return delivery.Key{About: k.about, Topic: k.level.own} }

// An alarm is one level of one device that is not normal, or has a notice that is due. It is zero if there is
// none.
type alarm struct {
	rules.State
	// unless it is normal: what the reading that opened it, or made it pending, reached; of a silence in seconds
	limit float64
	value float64 // of that reading
	due   *dueNotice

	// Of an open one: its next reading alerts, whatever its value, unless something holds that back again: a higher level
	// that was open, or a mute, has held an alert back since the last one.
	alertNext bool
	// of an open one: receivers that may have been alerted since their last recovery, a bit for each. The gate knows of
	// those that were before this owner's time: then it is everybody
	alerted uint32
	// of an open one that is a member of an incident: the value that it shares with the others; else empty
	group string
	// of a silence that is to be a member: its alert, until the ledger in the store holds the silence
	unsaved *dueNotice

	// Of a silence: the place that it is about. Of another one that has sending: that of the reading that opened it.
	log      string
	sequence int64
	element  int             // of that reading
	sending  *delivery.Alarm // while it is open, if its rule says how often it is sent again
}

// member returns the value that k shares with other members of an incident; empty if it is none.
func (k alarm) member() string {
	if k.Phase != rules.Open || k.unsaved != nil {
		return ""
	}
	return k.group
}

// joins reports whether k is a member of an incident, or is to be: then its device is not normal. What is due is a recovery from
// before, and not given: the end of k has another one.
func (k alarm) joins() bool {
	//planted:member-is-normal return false
	return k.Phase == rules.Open && k.group != ""
}

// everybody is all receivers.
const everybody = math.MaxUint32

// sends returns k, which is open, of a rule that says how often it is sent again, as a reading with this number in a
// log, of this element, has opened it.
func (k alarm) sends(log string, sequence int64, element int) alarm {
	k.log = log
	k.sequence = sequence
	k.element = element
	k.sending = &delivery.Alarm{OpenedBy: sequence, Element: element}
	return k
}

// A dueNotice is one that the ledger holds, and not the watermark, until every receiver has settled it.
type dueNotice struct {
	delivery.Notice
	to    uint32 // receivers, a bit for each
	saved bool   // of a silence: the ledger in the store holds it; guarded by register.mu
}

// becomeDue says to which receivers n is due, a bit for each. It is called before n is given to anybody.
func (n *dueNotice) becomeDue(receivers uint32) {
	n.to = receivers
	n.SetReceivers(receivers)
}

// receivers returns those to which n, which may be nil, was due.
func (n *dueNotice) receivers() uint32 {
	if n == nil {
		return 0
	}
	return n.to
}

// is reports whether n, which may be nil, is the notice other.
func (n *dueNotice) is(other *delivery.Notice) bool { return n != nil && &n.Notice == other }

// silence reports whether n, which may be nil, says that a device has not been heard.
func (n *dueNotice) silence() bool { return n != nil && n.Silent() }

// waits reports whether n, of the level l, must wait before there is a delivery: a silence until the ledger in the
// store holds it, or while its rule is missing, because then nobody knows who is heard. Of the hub that is known.
func (n *dueNotice) waits(l *level) bool {
	//planted:renamed-rule-silence-sent if n.saved { return false }
	return n.silence() && (!n.saved || !l.removed.IsZero() && n.Outage == nil)
}

func newAlarms(changes int) *alarms {
	return &alarms{
		byKey:   map[alarmKey]alarm{},
		keys:    map[ofDevice][]alarmKey{},
		history: history{alarms: map[alarmKey]alarm{}, bound: changes},
	}
}

// mayHave reports whether the device with this hash may have an alarm. It takes no lock: one goroutine alone
// reads the partition, so no alarm of its devices opens meanwhile.
func (a *alarms) mayHave(hash uint64) bool {
	return a.filter[hash%filterSize].Load() > 0
}

// crowded reports whether so many sensors of key's device have an alarm of its level that none of another one is kept.
func (a *alarms) crowded(key alarmKey) bool {
	return key.about.Name != "" && len(a.keys[key.ofDevice()]) >= maxSensors
}

// room reports whether one more alarm may be kept.
func (a *alarms) room() bool { return len(a.byKey) < maxAlarms }

// keysOf returns the keys of the alarms of a sensor, or of a device with all of its sensors, in the order of these levels,
// and by the names of the sensors.
func (a *alarms) keysOf(of sensor.ID, levels []*level) (all []alarmKey) {
	for _, l := range levels {
		before := len(all)
		for _, key := range a.keys[ofDevice{of.Device, l}] {
			if of.Covers(key.about) {
				all = append(all, key)
			}
		}

		slices.SortFunc(all[before:], func(a, b alarmKey) int { return cmp.Compare(a.about.Name, b.about.Name) })
	}

	return all
}

// set replaces the alarm of key.
func (a *alarms) set(key alarmKey, k alarm) {
	before := len(a.byKey)
	a.byKey[key] = k
	if k == (alarm{}) {
		delete(a.byKey, key)
	}

	n := len(a.byKey) - before
	if n == 0 {
		return
	}

	a.filter[roster.Hash(key.about.Device)%filterSize].Add(int32(n))
	of := key.ofDevice()
	if n > 0 {
		a.keys[of] = append(a.keys[of], key)
		return
	}

	a.keys[of] = slices.DeleteFunc(a.keys[of], func(other alarmKey) bool { return other == key })
	if len(a.keys[of]) == 0 {
		delete(a.keys, of)
	}
}

// MaxChanges bounds the changes that the ledger may be behind. Beyond it reading pauses.
const MaxChanges = 2 * ledger.MaxAlarms

// A history is how alarms came to be what they are: as they were at the position of the
// ledger, and what has changed since. While an alert is unsettled the watermark stays
// behind the changes, and the ledger must not pass the watermark.
//
// Each checkpoint tick seals a segment: the changes since the tick before, in which an alarm that
// changes often counts once. The ledger moves from the end of one segment to the end of another.
type history struct {
	alarms   map[alarmKey]alarm // alarms as they were at position
	position telemetry.Position // of the ledger in the store
	edited   bool               // alarms have what the ledger in the store does not

	segments []*segment // what came after position
	sealed   bool       // the last segment grows no more
	changes  int        // in all segments
	bound    int        // of changes
}

// A segment is a run of changes.
type segment struct {
	before  telemetry.Position // of the event before the first change: the checkpoint may go as far
	last    telemetry.Position // of the event of the last change: the ledger may stand here
	changes map[alarmKey]alarm
}

// change records that the alarm of key became k with the event at a position, which follows the
// position before. Segments never move back: a change that would come before the last one comes with it.
func (h *history) change(key alarmKey, k alarm, before, at telemetry.Position) {
	if n := len(h.segments); n > 0 {
		before = later(before, h.segments[n-1].before)
		//planted:late-mark if later(at, h.segments[n-1].last) != at { skip }
		at = later(at, h.segments[n-1].last)
	}

	if len(h.segments) == 0 || h.sealed {
		h.segments = append(h.segments, &segment{before: before, changes: map[alarmKey]alarm{}})
		h.sealed = false
	}

	s := h.segments[len(h.segments)-1]
	n := len(s.changes)
	s.changes[key], s.last = k, at
	h.changes += len(s.changes) - n
}

// later returns the later of two positions of one log, of which any may be before the first event.
func later(p, q telemetry.Position) telemetry.Position {
	if p.Offset == "" || p.NotAfter(q) {
		return q
	}
	return p
}

// full reports whether no more may change until the ledger has moved.
func (h *history) full() bool { return h.changes >= h.bound }

// seal ends the segment that grows. With many changes all segments but the first become one. The
// first keeps its end, which the watermark passes sooner or later.
func (h *history) seal() {
	h.sealed = true
	if h.changes <= h.bound/2 || len(h.segments) < 3 {
		return
	}

	first, rest := h.segments[0], h.segments[1]
	for _, s := range h.segments[2:] {
		maps.Copy(rest.changes, s.changes)
		rest.last = s.last
	}

	clear(h.segments[2:])
	h.segments, h.changes = h.segments[:2], len(first.changes)+len(rest.changes)
}

// settle removes the notice n, which every receiver has settled, if the alarm of key has it. The
// segments lose it when they are reached.
func (h *history) settle(key alarmKey, n *delivery.Notice) {
	if k := h.alarms[key]; k.due.is(n) {
		k.due = nil
		h.edit(key, k)
	}
}

// edit changes an alarm for another reason than an event.
func (h *history) edit(key alarmKey, k alarm) {
	h.keep(key, k)
	h.edited = true
}

// replace changes an alarm, whatever has changed before it.
func (h *history) replace(key alarmKey, k alarm) {
	for _, s := range h.segments {
		n := len(s.changes)
		delete(s.changes, key)
		h.changes -= n - len(s.changes)
	}

	h.edit(key, k)
}

func (h *history) keep(key alarmKey, k alarm) {
	if k == (alarm{}) {
		delete(h.alarms, key)
	} else {
		h.alarms[key] = k
	}
}

// reach applies the segments that the watermark w has passed, and seals the rest. It returns the position at which alarms are
// exact then, and whether the ledger in the store lacks something that alarms have. A segment without changes stays in place
// of what was applied until that is written.
func (h *history) reach(w telemetry.Position) (at telemetry.Position, behind bool) {
	at = h.position
	//planted:ledger-ahead if len(h.segments) > 0 { w = h.segments[len(h.segments)-1].last }
	n := 0
	for ; n < len(h.segments) && h.segments[n].last.NotAfter(w); n++ {
		s := h.segments[n]
		for key, k := range s.changes {
			if k.due != nil && k.due.Settled() {
				k.due = nil
			}
			h.keep(key, k)
		}

		h.changes -= len(s.changes)
		at = s.last
	}

	if n > 0 {
		h.segments[n-1] = &segment{before: h.segments[0].before, last: at}
		clear(h.segments[:n-1])
		h.segments = h.segments[n-1:]
	}

	h.seal()

	return at, n > 0 || h.edited
}

// wrote records that the store's ledger holds what alarms were when reach returned at.
func (h *history) wrote(at telemetry.Position) {
	if len(h.segments) > 0 && h.segments[0].last == at {
		h.segments[0] = nil
		h.segments = h.segments[1:]
	}
	h.position = at
}

// passed records that alarms are those at p from now on, whatever the ledger's position.
func (h *history) passed(p telemetry.Position) {
	h.segments, h.sealed = []*segment{{last: p}}, true
}

// safe returns the latest position, not after w, that the checkpoint may have without
// passing a change that the ledger in the store does not hold. Nothing is before the first event.
func (h *history) safe(w telemetry.Position) telemetry.Position {
	//planted:checkpoint-passes-first if len(h.segments) == 0 || w.NotAfter(h.segments[0].before)
	if w.Offset == "" || len(h.segments) == 0 || w.NotAfter(h.segments[0].before) {
		return w
	}
	return h.segments[0].before
}

// empty reports whether there are no alarms, neither here nor in the ledger in the store.
func (h *history) empty() bool { return len(h.alarms)+len(h.segments) == 0 && !h.edited }
