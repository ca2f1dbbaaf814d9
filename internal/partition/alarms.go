package partition

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
)

// maxAlarms bounds the alarms of a partition, pending and open, and besides them the
// recoveries that are due.
const maxAlarms = ledger.MaxAlarms / 2

// maxSensors bounds the sensors of one device that have an alarm, or a recovery that is due, of one level.
const maxSensors = 1024

// alarms are those of one partition, as of the last event read. They are guarded by
// register.mu, but for mayHave.
type alarms struct {
	byKey  map[alarmKey]alarm // none is zero. Changed by set alone
	counts map[*level]*[4]int // by the index of what is counted
	total  [4]int

	sensors map[ofDevice]int // how many of byKey are of sensors with a name

	some atomic.Int32 // len(byKey)
	// alarms by a hash of their device, whatever the sensor, so that one without alarms is known without a lock
	filter  [filterSize]atomic.Int32
	history history
}

const filterSize = 4096

// What alarms count.
const (
	pendingAlarms = iota
	openAlarms
	dueRecoveries
	dueSilences
)

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

// everybody is all receivers.
const everybody = math.MaxUint32

// opened returns k, an alarm of l, once a reading with this number in a log, of this element, has opened it. Whoever has not heard of the
// recovery that was due gets the next one.
func (k alarm) opened(l *level, log string, sequence int64, element int) alarm {
	k.alerted = k.due.receivers()
	k.due = nil
	if l.rule.Repeat > 0 {
		k = k.sends(log, sequence, element)
	}

	return k
}

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
// store holds it, or while its rule is missing, because then nobody knows who is heard.
func (n *dueNotice) waits(l *level) bool {
	//planted:renamed-rule-silence-sent if n.saved { return false }
	return n.silence() && (!n.saved || !l.removed.IsZero())
}

func newAlarms(changes int) *alarms {
	return &alarms{
		byKey:   map[alarmKey]alarm{},
		counts:  map[*level]*[4]int{},
		sensors: map[ofDevice]int{},
		history: history{alarms: map[alarmKey]alarm{}, bound: changes},
	}
}

// mayHave reports whether the device with this hash may have an alarm. It takes no lock: one goroutine alone
// reads the partition, so no alarm of its devices opens meanwhile.
func (a *alarms) mayHave(hash uint64) bool {
	return a.some.Load() > 0 && a.filter[hash%filterSize].Load() > 0
}

// crowded reports whether so many sensors of key's device have an alarm of its level that none of another one is kept.
func (a *alarms) crowded(key alarmKey) bool {
	return key.about.Name != "" && a.sensors[ofDevice{key.about.Device, key.level}] >= maxSensors
}

// room reports whether one more alarm may be kept.
func (a *alarms) room() bool {
	return a.total[pendingAlarms]+a.total[openAlarms] < maxAlarms
}

// sensorsOf returns a sensor, or a device and those of its sensors that have an alarm, in the order of their names.
func (a *alarms) sensorsOf(of sensor.ID) []sensor.ID {
	all := []sensor.ID{of}
	hasSensors := false
	for other := range a.sensors {
		hasSensors = hasSensors || other.device == of.Device
	}

	if of.Name != "" || !hasSensors {
		return all
	}

	for key := range a.byKey {
		if of.Covers(key.about) {
			all = append(all, key.about)
		}
	}

	slices.SortFunc(all, func(a, b sensor.ID) int { return strings.Compare(a.Name, b.Name) })

	return slices.Compact(all)
}

// set replaces the alarm of key.
func (a *alarms) set(key alarmKey, k alarm) {
	was, had := a.byKey[key]
	a.count(key.level, was, -1)
	a.count(key.level, k, 1)
	n := int32(0)

	switch has := k != (alarm{}); {
	case has:
		a.byKey[key] = k
		if !had {
			n = 1
		}

	case had:
		delete(a.byKey, key)
		n = -1
	}

	if n != 0 {
		a.some.Add(n)
		a.filter[roster.Hash(key.about.Device)%filterSize].Add(n)
		if of := (ofDevice{key.about.Device, key.level}); key.about.Name != "" {
			if a.sensors[of] += int(n); a.sensors[of] == 0 {
				delete(a.sensors, of)
			}
		}
	}
}

func (a *alarms) count(l *level, k alarm, n int) {
	counts := a.counts[l]
	if counts == nil {
		counts = new([4]int)
		a.counts[l] = counts
	}

	add := func(what int) {
		counts[what] += n
		a.total[what] += n
	}

	switch k.Phase {
	case rules.Pending:
		add(pendingAlarms)
	case rules.Open:
		add(openAlarms)
	}

	switch {
	case k.due.silence():
		add(dueSilences)
	case k.due != nil:
		add(dueRecoveries)
	}
}
