package partition

import (
	"crypto/sha256"
	"encoding/base64"
	"math"
	"slices"
	"sync"
	"time"

	"alertworker/internal/absence"
	"alertworker/internal/delivery"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A register takes the events of one partition, in their order. It has the alarms, as of the last event read, and says to
// out what receivers are to get.
//
// It is safe for concurrent use, but for take. Its lock is held while something is decided, and while out is called.
type register struct {
	evaluator *Evaluator
	id        string
	logName   string                                  // of the partition: see logName
	out       Outgoing                                // who brings notices to receivers
	changed   func(key alarmKey, was, is rules.State) // is called with each alarm that changes; may be nil
	crowded   func(device, rule string)               // is called for alerts without state, because of maxSensors
	// unread is called with each event without a reading that should have one, and with the position before it
	unread func(before telemetry.Position, e *telemetry.Event, reason telemetry.Reason)

	batch      sync.Mutex // held while a batch is taken; taken before the locks of unheard and of register
	message    *Message   // that is read
	unreadable unreadables
	unheard    *absence.Watch

	last lastOwner // changes before the first event is read

	mu        sync.Mutex
	mark      watermark
	alarms    *alarms
	behind    bool             // what the hub held at the take-over has not been read: no recovery starts
	levels    []*level         // those that are configured, and then those that were and had alarms at the take-over
	removals  []removal        // by operators, of which the stores do not know yet
	unsaved   []unsavedSilence // silences that the ledger in the store does not hold yet
	groups    map[delivery.Key]*group
	regrouped []*group           // whose records are to be written
	regroups  chan struct{}      // signals that there are some
	first     int64              // sequence number of the first event read
	readUntil time.Time          // when the last event read was enqueued
	committed telemetry.Position // the last checkpoint; it is written by one goroutine

	alert  delivery.Alert   // that out is given, reused
	alerts []delivery.Alert // without out: see Message.Alerts
}

// A lastOwner is where the partition's last owner was when its ledger was taken over, as that and the checkpoint say. It is
// zero if there was no take-over.
type lastOwner struct {
	until       time.Time          // the take-over
	untilStore  time.Time          // the same, by the clock of the ledger's store
	mayHaveRead int64              // it may have read what the hub took before, in Unix µs: it may go on for a while
	settled     telemetry.Position // events up to here were settled: the ledger says so
	replayed    telemetry.Position // events up to here are read only to know which devices send
}

// newRegister returns one without alarms. out, and whom watch watches, are set before the first event.
func newRegister(ev *Evaluator, id, logName string, maxChanges int) *register {
	return &register{
		evaluator: ev,
		id:        id,
		logName:   logName,
		crowded:   func(string, string) {},
		unread:    func(telemetry.Position, *telemetry.Event, telemetry.Reason) {},
		message:   ev.NewMessage(),

		unreadable: unreadables{},

		levels:   slices.Clone(ev.levels),
		alarms:   newAlarms(maxChanges),
		groups:   map[delivery.Key]*group{},
		regroups: make(chan struct{}, 1),
	}
}

// Outgoing brings notices to receivers: see delivery.Outbox.
type Outgoing interface {
	Alert(*delivery.Alert)
	Give(delivery.Key, *delivery.Notice)
	Withdraw(delivery.Key, *delivery.Notice)
}

// logName returns a short name for the log of one partition of one generation of a hub: that of the generation, and
// the partition. Sequence numbers are compared within one log.
func logName(generation, partition string) string {
	sum := sha256.Sum256([]byte(generation))
	return base64.RawURLEncoding.EncodeToString(sum[:9]) + "/" + partition
}

// level returns one of reg.levels; nil if there is none.
func (reg *register) level(id levelID) *level {
	for _, l := range reg.levels {
		if l.id == id {
			return l
		}
	}

	return nil
}

// alarmOf returns the key of the alarm that a notice which was due says something of. The caller holds reg.mu.
func (reg *register) alarmOf(key delivery.Key) alarmKey {
	for _, l := range reg.levels {
		if l.own == key.Topic {
			return alarmKey{key.About, l}
		}
	}

	return alarmKey{}
}

// isDue reports whether n is what is due of key.
func (reg *register) isDue(key delivery.Key, n *delivery.Notice) bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if key.Topic.Incidents {
		return reg.groups[key].has(n)
	}
	k := reg.alarms.byKey[reg.alarmOf(key)]
	return k.due.is(n) && !k.joins()
}

// become makes next of the alarm of key. Its history is told by the caller, who holds reg.mu.
func (reg *register) become(key alarmKey, next alarm) {
	was := reg.alarms.byKey[key]
	reg.alarms.set(key, next)
	if left, joined := was.member(), next.member(); left != joined {
		reg.leave(key.level, left)
		reg.join(key, joined, next.Since.Hub)
	}

	switch isOpen := next.Phase == rules.Open; {
	case isOpen == (was.Phase == rules.Open):
	case isOpen:
		key.level.stats.Opened.Add(1)
	default:
		key.level.stats.Cleared.Add(1)
	}

	if reg.changed != nil {
		reg.changed(key, was.State, next.State)
	}

	if next.due == was.due && next.joins() == was.joins() {
		return
	}

	if was.due != nil {
		reg.out.Withdraw(key.notices(), &was.due.Notice)
	}

	reg.give(key)
}

// give has the notice that is due of key, if there is one, go to its receivers, unless it must wait. The caller holds
// reg.mu.
func (reg *register) give(key alarmKey) {
	k := reg.alarms.byKey[key]
	//planted:due-before-caught-up if k.due != nil
	if k.due != nil && !k.joins() && !reg.behind && !k.due.waits(key.level) {
		reg.out.Give(key.notices(), &k.due.Notice)
	}
}

// An unsavedSilence is one that the ledger in the store does not hold yet.
type unsavedSilence struct {
	key alarmKey
	due *dueNotice
}

// saved starts the deliveries of silences that the ledger in the store now holds. The caller holds reg.mu.
func (reg *register) saved(silences []unsavedSilence) {
	for _, o := range silences {
		o.due.saved = true
		switch k := reg.alarms.byKey[o.key]; {
		case k.due == o.due:
			reg.give(o.key)
		case k.unsaved == o.due:
			k.unsaved = nil
			reg.alarms.history.keep(o.key, k)
			reg.become(o.key, k)
			rd := o.due.Reading
			rd.More = &delivery.More{Of: o.key.about}
			reg.raise(reg.groupOf(o.key.level, k.group), groupAlert{
				reading:   rd,
				heard:     o.due.Heard,
				raisedAt:  o.due.RaisedAt,
				receivers: o.due.to,
			})
		}
	}
}

// change is become for another reason than an event, or whatever the watermark. The caller holds reg.mu.
func (reg *register) change(key alarmKey, next alarm) {
	reg.alarms.history.replace(key, next)
	reg.become(key, next)
}

// recovery returns n, which says that the alarm of key, which was open, has ended; nil if nobody was alerted. Who was alerted
// gets it, whatever receivers ask for now.
func (reg *register) recovery(key alarmKey, was alarm, n *dueNotice) *dueNotice {
	if was.group != "" { // people are told of the incident's end, and whoever was to hear of the device itself of that
		more := delivery.More{Of: key.about}
		if n.Reading.More != nil {
			more.Shown = n.Reading.More.Shown
		}
		if g := reg.groups[key.level.groupKey(was.group)]; g != nil {
			n.Reading.More = &more
			g.last = &n.Reading
		}
		if was.due == nil {
			return nil
		}
		n.becomeDue(was.due.receivers())
		return n
	}

	receivers := was.alerted & reg.evaluator.everybody()
	//planted:recovery-by-filter receivers = reg.evaluator.wanting(key.level)
	if !key.level.rule.Resolved || receivers == 0 {
		return nil
	}

	n.becomeDue(receivers)

	return n
}

// settle notes that every receiver has settled n, which was due of key.
func (reg *register) settle(key delivery.Key, n *delivery.Notice) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if key.Topic.Incidents {
		reg.settleGroup(key, n)
		return
	}

	about := reg.alarmOf(key)
	if k := reg.alarms.byKey[about]; k.due.is(n) {
		k.due = nil
		reg.alarms.set(about, k)
	}

	reg.alarms.history.settle(about, n)
}

// storeTime is the time by the clock of the ledger's store, about.
func (reg *register) storeTime() time.Time {
	return reg.last.untilStore.Add(time.Since(reg.last.until))
}

// A watermark is what a partition's reader says of the position up to which everything is settled.
type watermark struct {
	held delivery.Holds // events that hold it, but for those of deliveries
	// the last event that was read, or where reading begins: what is read again does not move it back. Its alerts, if it has
	// any, hold the watermark themselves, or are settled
	last telemetry.Position
}

const none = math.MinInt64

func placeOf(p telemetry.Position) delivery.Place {
	at := delivery.Place{Sequence: p.Sequence, Offset: p.Offset, Time: none}
	if p.Offset == "" {
		at.Sequence = none
	}

	if !p.Time.IsZero() {
		at.Time = p.Time.UnixNano()
	}

	return at
}

// position returns the last position up to which everything is settled, unless a delivery holds it. It never
// moves back, unless an event before it comes to hold it.
func (w *watermark) position() telemetry.Position {
	if w.held.Len() == 0 {
		return w.last
	}
	before, _ := w.held.First()
	return w.before(before)
}

// before returns where the watermark is before a place, if nothing else holds it.
func (w *watermark) before(place delivery.Place) telemetry.Position {
	if w.last.Offset == "" || place.Sequence >= w.last.Sequence {
		return w.last
	}

	if place.Offset == "" {
		return telemetry.Position{}
	}

	p := telemetry.Position{Generation: w.last.Generation, Sequence: place.Sequence, Offset: place.Offset}
	if place.Time != none {
		p.Time = time.Unix(0, place.Time).UTC()
	}

	return p
}

// Pauses after failures in a row grow between these.
const (
	minBackoff = time.Second
	maxBackoff = time.Minute
)

// micros is t in µs, rounded up: rounding makes no reading older, and the hub counts in ms.
func micros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

// micros0 is micros, but 0 for a zero t.
func micros0(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return micros(t)
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// fromMicros0 is fromMicros, but the zero time for 0.
func fromMicros0(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return fromMicros(us)
}

// millis is t in ms, rounded up like micros.
func millis(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }
