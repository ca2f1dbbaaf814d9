package delivery

import (
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

// A Topic is what notices are about, of many devices: one level of a rule, by device or by what devices share. What
// one topic is about never meets what another is about, whatever their names. It does not change.
type Topic struct {
	Rank    int              // how many levels of its rule are higher: their alerts come first
	Shared  bool             // it is about what devices share
	Gates   []*throttle.Gate // one for each receiver
	Suffix  string           // of the ids of its notices
	Message notify.Alert     // what all of its messages say. WillResolve says that its alarms have recoveries
	Silence bool             // it is about devices that have fallen silent, and limits are in seconds
	Words   []string         // what the values 1, 2, … of readings mean; none: values are numbers

	Sent, Recovered *atomic.Int64 // alerts and recoveries that a receiver took
}

// A Key says what a notice is about.
type Key struct {
	About string // the device, or the value that devices share
	*Topic
}

// A Reading is one that a rule notifies about, or that cleared an alarm. A waiting delivery holds two, so it is small.
type Reading struct {
	Value    float64
	Limit    float64 // that it reached, or has cleared
	Enqueued int64   // when the hub took it, in Unix µs
	Sequence int64
	Device   int64 // when the device took it, by its own clock, in Unix µs; 0 if that is not known, or not trusted
	// when the first of the readings that reached the limit was taken, by the device's clock if Device is, else by the
	// hub's, in Unix µs; 0 if the rule has no state
	Since int64
	More  *More // nil if there is nothing more
}

// More is what few readings have.
type More struct {
	Shown  notify.Shown
	Device string // that has sent the reading, if its notice is about what devices share
	*Arrival
}

// An Arrival is what else is known of a reading that did not come from the hub, and what became of it.
type Arrival struct {
	At      time.Time                         // when it came; its monotonic clock gives the reading's age
	ID      string                            // replaces the sequence number in the alert's id, unless empty
	Alerted atomic.Bool                       // an alert about this reading was taken
	Letter  atomic.Pointer[notify.DeadLetter] // that of an alert about this reading, once it is kept
}

// arrival returns what is known of how r came, nil if it came from the hub.
func (r *Reading) arrival() *Arrival {
	if r.More == nil {
		return nil
	}
	return r.More.Arrival
}

// A Notice is one that its owner keeps until every receiver has settled it: a recovery, which says that a device is
// normal again by the reading that cleared its alarm, or a silence.
type Notice struct {
	Reading
	Log  string        // that numbered the reading: see Account.Log
	Part throttle.Part // of a reading's place: a silence comes after it

	// in Unix µs: of a silence, when its alarm was; else since when it is due, if that is not its reading's time
	Opened int64

	// of a silence: when the hub took the last event that counts; earlier than Since if events may be missing after it
	Heard int64

	Forgotten bool // of a recovery: nothing is expected of the device any more

	left      atomic.Uint32 // receivers that have not settled it, a bit for each
	withdrawn bool          // it is not due any more; guarded by Outbox.mu
}

// Due says to which receivers n is due, a bit for each by its index. It is called before n is given to anybody.
func (n *Notice) Due(receivers uint32) { n.left.Store(receivers) }

// DueTo reports whether n is due to a receiver that has not settled it.
func (n *Notice) DueTo(receiver int) bool { return n.left.Load()&(1<<receiver) != 0 }

// Settle records that a receiver has settled n, and reports whether every one has now.
func (n *Notice) Settle(receiver int) (all bool) {
	bit := uint32(1) << receiver
	return n.left.And(^bit) == bit
}

// Settled reports whether every receiver has settled n.
func (n *Notice) Settled() bool { return n.left.Load() == 0 }

// Silent reports whether n, which may be nil, says that a device has not been heard.
func (n *Notice) Silent() bool { return n != nil && n.Part == throttle.Silence }

// recovers reports whether d says that a device is normal again.
func (d *delivery) recovers() bool { return d.due != nil && !d.due.Silent() }

// device returns the device of one of d's readings.
func (d *delivery) device(r *Reading) string {
	if d.Shared {
		return r.More.Device
	}
	return d.About
}

// id returns the id of the notice that d would send about a reading. It is the same in every
// replica. The time distinguishes hubs of the same name, whose sequence numbers
// start again when the hub is recreated.
func (q *queue) id(d *delivery, r *Reading) string {
	at := r.Enqueued
	if d.due != nil && d.due.Part != throttle.Event { // it is about an event, and not of its time
		at = r.Since
	}

	id := q.box.IDs
	if a := r.arrival(); a != nil && a.ID != "" {
		id += a.ID
	} else {
		id += strconv.FormatInt(r.Sequence, 10) + "/" + strconv.FormatInt(fromMicros(at).UnixMilli(), 10)
	}
	id += d.Suffix

	ended := d.recovers() && d.due.Opened > 0 // its rule was removed: it is about the last event read
	if d.Silence || ended {                   // several devices may be silent since one place, where events may be missing
		id += "/" + url.PathEscape(d.About)
	}
	if d.due != nil && d.due.Part == throttle.End {
		id += "/end"
	}
	if d.recovers() {
		id += "/resolved"
	}
	return id
}

// request returns the request to the gate for a notice about one of d's readings.
func (q *queue) request(d *delivery, about *Reading) throttle.Request {
	r := throttle.Request{
		Device:   d.About,
		ID:       q.id(d, about),
		Enqueued: fromMicros(about.Enqueued),
		Sequence: about.Sequence,
		Recovery: d.recovers(),
	}
	switch {
	case d.due != nil:
		r.Log, r.Part = d.due.Log, d.due.Part
	case d.Shared:
		r.Sequence = 0 // those of other devices and partitions say nothing about it
	default:
		r.Log = q.box.Log
	}
	if a := about.arrival(); a != nil {
		r.Arrived = a.At
	}
	return r
}

// message returns the notice about d's head under g.
func (q *queue) message(d *delivery, g throttle.Grant) notify.Alert {
	head := &d.head
	a := d.Message
	a.ID = g.ID
	a.Device = d.device(head)
	a.Resolved = d.recovers()
	a.Temperature = head.Value
	a.Threshold = head.Limit
	a.Enqueued = fromMicros(head.Enqueued)
	a.DeviceTime = fromMicros0(head.Device)
	a.Since = fromMicros0(head.Since)
	a.Partition = q.box.Name
	a.Sequence = head.Sequence
	a.Log = q.request(d, head).Log
	a.WillResolve = a.WillResolve && !a.Resolved && head.Since != 0 // else it has no alarm
	a.Remember = q.gate(d).Remember()
	a.Token = g.Token
	a.Expires = g.Expires
	a.Suppressed = g.Suppressed + int64(d.suppressed)
	a.Test = notify.IsTest(a.Device)
	a.Ambiguous = g.Ambiguous

	a.Forgotten = d.due != nil && d.due.Forgotten
	if a.Resolved { // one of unknown fate is sent again for as long
		a.Remember += q.to.GiveUp
	}
	if head.More != nil {
		a.Shown = head.More.Shown
	}
	if d.Shared {
		a.PerValue = d.About
		a.Suppressed = g.Suppressed // these are devices
	}
	if d.Silence {
		a.Silent = time.Duration(head.Limit * float64(time.Second))
		a.Threshold = 0
		a.LastHeard = fromMicros0(d.due.Heard)
	}
	switch {
	case len(d.Words) == 0:
	case a.Resolved:
		a.Word = strings.Join(d.Words, " or ")
	default:
		a.Word = d.Words[int(head.Value)-1]
	}
	return a
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// fromMicros0 is fromMicros, but the zero time for 0.
func fromMicros0(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return fromMicros(us)
}
