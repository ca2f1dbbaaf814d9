package worker

import (
	"sync/atomic"

	"alertworker/internal/ledger"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

// maxAlarms bounds the alarms of a partition, pending and open, and besides them the
// recoveries that are due.
const maxAlarms = ledger.MaxAlarms / 2

// alarms are those of one partition, as of the last event read. They are guarded by
// stream.mu, but for mayHave.
type alarms struct {
	byDevice map[string]*deviceAlarms
	counts   map[*level]*[4]int // by the index of what is counted
	total    [4]int

	devices atomic.Int32             // len(byDevice)
	filter  [filterSize]atomic.Int32 // devices by a hash, so that one without alarms is known without a lock
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

// deviceAlarms are the alarms of one device.
type deviceAlarms struct {
	alarms []alarm // of different levels
}

// An alarm is one level of one device that is not normal, or has a recovery that is due.
type alarm struct {
	level *level
	kept
}

// kept is what the ledger keeps of an alarm. It is zero if there is no alarm.
type kept struct {
	rules.State
	limit float64 // unless it is normal: what the reading that opened it, or made it pending, reached; of a silence in seconds
	value float64 // of that reading
	due   *dueNotice

	// Of a silence: the place that it is about.
	log      string
	sequence int64
}

// A dueNotice is one that the ledger holds, and not the watermark, until every receiver has settled it: a
// recovery, which says that a device is normal again by the reading that cleared its alarm, or a silence.
type dueNotice struct {
	reading
	log       string        // that numbered the reading: see logName
	part      throttle.Part // of a reading's place: a silence comes after it
	receivers uint32        // that have not settled it, a bit for each; guarded by stream.mu

	// Of a silence.
	opened int64 // when its alarm was, in Unix µs
	heard  int64 // when the hub took the last event that counts; earlier than since if events may be missing after it
	kept   bool  // the ledger in the store holds it; guarded by stream.mu

	forgotten bool // of a recovery: the device has been silent for so long that it is not known any more
}

// silence reports whether n, which may be nil, says that a device has not been heard.
func (n *dueNotice) silence() bool { return n != nil && n.part == throttle.Silence }

func newAlarms(changes int) *alarms {
	return &alarms{
		byDevice: map[string]*deviceAlarms{}, counts: map[*level]*[4]int{},
		history: history{kept: map[alarmKey]kept{}, bound: changes},
	}
}

// mayHave reports whether the device with this hash may have an alarm. It takes no lock: one goroutine alone
// reads the partition, so no alarm of its devices opens meanwhile.
func (a *alarms) mayHave(hash uint64) bool {
	return a.devices.Load() > 0 && a.filter[hash%filterSize].Load() > 0
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
		a.filter[roster.Hash(device)%filterSize].Add(1)
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
		a.filter[roster.Hash(device)%filterSize].Add(-1)
	}
}

func (a *alarms) count(l *level, k kept, n int) {
	of := a.counts[l]
	if of == nil {
		of = new([4]int)
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
	switch {
	case k.due.silence():
		add(dueSilences)
	case k.due != nil:
		add(dueRecoveries)
	}
}

// An alarmKey names one level of one device.
type alarmKey struct {
	device string
	level  *level
}
