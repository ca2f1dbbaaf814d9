package delivery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

// A Topic is what notices are about, of many devices: one level of a rule, by device or by what devices share. What
// one topic is about never meets what another is about, whatever their names. It does not change.
type Topic struct {
	Rank   int  // how many levels of its rule are higher: their alerts come first
	Shared bool // it is about what devices share
	// its notices are about incidents, which have an end, and are given: see Notice.Incident. It is Shared
	Incidents bool
	Gates     []Gate       // one for each receiver
	Suffix    string       // of the ids of its notices
	Message   notify.Alert // what all of its messages say. WillResolve says that its alarms have recoveries
	Silence   bool         // it is about devices that have fallen silent, and limits are in seconds
	// Repeat is how long after an alert an open Alarm is sent again; 0: when the window is over; the longest: never.
	Repeat time.Duration
	Words  []string // what the values 1, 2, … of readings mean; none: values are numbers

	Sent, Recovered *atomic.Int64 // alerts and recoveries that a receiver took
}

// A Gate decides, for one receiver, about the notices of a topic, and remembers windows in force. It is safe for
// concurrent use.
type Gate interface {
	// those of a throttle.Gate

	Claim(context.Context, throttle.Request) (*throttle.Claim, throttle.Result, error)
	Settle(context.Context, *throttle.Claim, throttle.Answer) (throttle.Result, error)
	Confirm(context.Context, throttle.Result) error
	GiveUp(context.Context, throttle.Request) error
	Inspect(ctx context.Context, about sensor.ID) (throttle.State, error)
	Remember() time.Duration

	// Recent reports whether the window of a device or sensor is known to be in force, without asking anybody, and counts one more
	// suppressed reading if so. It allocates nothing.
	Recent(sensor.ID) bool
	// RecentSince is Recent for a window that began at since or later.
	RecentSince(of sensor.ID, since time.Time) bool
	// RecentShared is Recent for the window of a value, which device shares with others: devices are counted, each once.
	RecentShared(value, device string) bool
	// Suppressed counts n more suppressed readings of a device or sensor, and SuppressedShared one more device.
	Suppressed(of sensor.ID, n int64)
	SuppressedShared(value, device string)
	// Count returns what was counted for a device or sensor, or a value, since the last alert about it.
	Count(about sensor.ID) int64
	// Refused has this replica remember a window that began at a time: only a recovery may come within it.
	Refused(about sensor.ID, at time.Time)
}

// A Key says what a notice is about.
type Key struct {
	About sensor.ID // the device or sensor, or as if it were a device, the value that devices share
	Topic *Topic
}

// A Reading is one that a rule notifies about, or that cleared an alarm. A waiting delivery holds two, so it is small.
type Reading struct {
	Value    float64
	Limit    float64 // that it reached, or has cleared
	Enqueued int64   // when the hub took it, in Unix µs
	Sequence int64
	Element  int   // of the message of that number: a message may have several readings
	Taken    int64 // when the device took it, by its own clock, in Unix µs; 0 if that is not known, or not trusted
	// when the first of the readings that reached the limit was taken, by the device's clock if Device is, else by the
	// hub's, in Unix µs; 0 if the rule has no state
	Since int64
	More  *More // nil if there is nothing more
}

// before reports whether r comes before other in their log.
func (r *Reading) before(other *Reading) bool {
	if r.Sequence != other.Sequence {
		return r.Sequence < other.Sequence
	}
	return r.Element < other.Element
}

// An Alarm is an open one of a topic that has a Repeat, or of an incident. It is safe for concurrent use.
type Alarm struct {
	OpenedBy int64 // the sequence number of the reading that opened it
	Element  int   // of that reading

	mu       sync.Mutex
	remindAt []time.Time // nothing is due about it before, by receiver
}

// Quiet reports whether nothing is due about a, which may be nil, to a receiver. Both clocks must say so, as of a
// window.
func (a *Alarm) Quiet(receiver int) bool {
	now, due := time.Now(), a.dueAt(receiver)
	return now.Before(due) && now.Round(0).Before(due.Round(0))
}

// dueAt returns when something is due about a to a receiver; zero if that has not been set.
func (a *Alarm) dueAt(receiver int) (at time.Time) {
	if a == nil {
		return at
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	if receiver < len(a.remindAt) {
		at = a.remindAt[receiver]
	}

	return at
}

// wait sets when something is due about a to a receiver.
func (a *Alarm) wait(receiver int, due time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.remindAt) <= receiver {
		a.remindAt = append(a.remindAt, time.Time{})
	}
	a.remindAt[receiver] = due
}

// More is what few readings have.
type More struct {
	Shown notify.Shown
	// the reading is from a message that is damaged
	Damaged bool
	Of      sensor.ID // what the reading is of, if that is not what its notice is about
	Alarm   *Alarm    // that is open; nil unless its topic has a Repeat
	Arrival *Arrival  // how it came, unless it came from the hub
}

// An Arrival is what else is known of a reading that did not come from the hub.
type Arrival struct {
	At time.Time // when it came; its monotonic clock gives the reading's age
	ID string    // replaces the sequence number in the alert's id, unless empty
}

// more returns what there is more of r.
func (r *Reading) more() More {
	if r.More == nil {
		return More{}
	}
	return *r.More
}

// A Notice is one that its owner keeps until every receiver has settled it: a recovery, which says that a device is
// normal again by the reading that cleared its alarm, a silence, or an alert or the end of an incident.
type Notice struct {
	Reading Reading
	Log     string        // that numbered the reading: see Account.Log
	Part    throttle.Part // of a reading's place: a silence comes after it

	// in Unix µs: of a silence, when its alarm opened; of a recovery, since when it is due, if not since its reading
	RaisedAt int64

	// of a silence: when the hub took the last event that counts; earlier than Since if events may be missing after it
	Heard int64
	// of a silence, if events may have been missed since its alarm opened: what is known now, which messages say, and by which it
	// is given up. Its id and windows go by the reading all the same
	Anew *Silence

	Forgotten bool   // of a recovery: nothing is expected of the device any more
	Excluded  string // of a recovery, unless it is empty: why the rule does not look at the device any more

	Outage   *notify.Outage // of a silence of the whole hub
	Incident *Incident      // of a topic with Incidents; else nil

	Letter *Letter // a dead letter that is sent again, whatever else n says; else nil

	left      atomic.Uint32 // receivers that have not settled it, a bit for each
	withdrawn bool          // it is not due any more; guarded by Outbox.mu
}

// A Silence is when nothing came of a device: from Since until its deadline, in Unix µs.
type Silence struct{ Since, Deadline int64 }

// An Incident is what a Notice says of one: that it runs, or that it is over.
type Incident struct {
	Over  bool
	Overs int             // then: how often it was over, with this time
	About notify.Incident // as it is when the notice becomes due; its ID never changes
}

// SetReceivers says to which receivers n is due, a bit for each by its index. It is called before n is given to anybody.
func (n *Notice) SetReceivers(receivers uint32) { n.left.Store(receivers) }

// DueTo reports whether n is due to a receiver that has not settled it.
func (n *Notice) DueTo(receiver int) bool { return n.left.Load()&(1<<receiver) != 0 }

// Settle records that a receiver has settled n, and reports whether every one has now.
func (n *Notice) Settle(receiver int) (all bool) {
	bit := uint32(1) << receiver
	return n.left.And(^bit) == bit
}

// Settled reports whether every receiver has settled n.
func (n *Notice) Settled() bool { return n.left.Load() == 0 }

// A Letter is a dead letter that is sent again: its topic's Message, as that was kept, under the id of the request.
type Letter struct {
	Request throttle.Request // to the gate
	// Ended is called once, when its delivery has ended: with the gate's outcome, OutcomeDeadLetter or OutcomeUnsettled,
	// and why the last attempt failed, if it did. It must not block.
	Ended func(outcome string, err error)

	err error // for Ended
}

// Outcomes of a [Letter] that are not the gate's.
const (
	OutcomeDeadLetter = "dead_letter"
	OutcomeUnsettled  = "unsettled" // its owner ended first, or the outbox was closed
)

// Silent reports whether n, which may be nil, says that a device has not been heard.
func (n *Notice) Silent() bool { return n != nil && n.Part == throttle.Silence }

// recovers reports whether n, which may be nil, says that something is normal again.
func (n *Notice) recovers() bool {
	switch {
	case n == nil:
		return false
	case n.Letter != nil:
		return n.Letter.Request.Recovery
	case n.Incident != nil:
		return n.Incident.Over
	}

	return !n.Silent()
}

// An Alert takes a reading to receivers.
type Alert struct {
	Key         Key
	Reading     Reading
	Device      string    // that the reading is of
	Sensor      string    // of the device; empty: the reading is the device's own
	Before      Place     // of the event before the reading's
	Receivers   uint32    // that want it, a bit for each by its index
	Alarm       *Alarm    // that is open; nil unless its topic has a Repeat
	Opens       bool      // it opens an alarm
	WindowSince time.Time // if Opens, only a window counts that began since then
	Reminder    bool      // the device has been alerted before, in the same alarm
	// it is short of the limit of an alarm that has a Repeat: if it joins a delivery, or its alarm is quiet, nobody counts it
	Lingers bool
	Shown   notify.Shown // what messages show of the reading
	Damaged bool         // the reading is from a message that is damaged
	Arrival *Arrival     // how the reading came; nil: from the hub
}

// More returns what there is more of a's reading, nil if there is nothing more. Few readings need it.
func (a *Alert) More() *More {
	m := More{Damaged: a.Damaged, Shown: a.Shown, Alarm: a.Alarm, Arrival: a.Arrival}
	of := sensor.ID{Device: a.Device, Name: a.Sensor}
	if a.Key.About != of || a.Key.Topic.Shared {
		m.Of = of
	}

	if m == (More{}) {
		return nil
	}

	return &m
}

// covered reports whether it is known that the reading needs no alert at a receiver: a window is in force, or an alert
// about the same alarm covers it. If it opens an alarm, only a window that began since a.WindowSince counts: within an
// earlier one, which only this replica knows because the receiver refused an alert, a former owner may have sent a recovery.
func (a *Alert) covered(receiver int) bool {
	g := a.Key.Topic.Gates[receiver]

	switch {
	case a.Alarm.Quiet(receiver):
		g.Suppressed(a.Key.About, 1)
		return true
	case a.Key.Topic.Shared: // no recovery was ever sent
		return g.RecentShared(a.Key.About.Device, a.Device)
	case a.Opens:
		return g.RecentSince(a.Key.About, a.WindowSince)
	}

	return g.Recent(a.Key.About)
}

// id returns the id of a notice about a reading: n, or an alert if that is nil. It is the same in every
// replica. The time distinguishes hubs of the same name, whose sequence numbers
// start again when the hub is recreated.
func (a Account) id(key Key, n *Notice, r *Reading) string {
	if n != nil && n.Incident != nil {
		return n.Incident.About.ID // the gate makes the end's of it
	}

	endedWithRule := n.recovers() && n.RaisedAt > 0 // its rule was removed: it is about the last event read
	id := a.IDs
	if came := r.more().Arrival; came != nil && came.ID != "" {
		id += came.ID
	} else {
		at := r.Enqueued
		if n != nil && n.Part != throttle.Event { // it is about an event, and not of its time
			at = r.Since
		}

		id += strconv.FormatInt(r.Sequence, 10)
		if r.Element > 0 && !endedWithRule {
			id += "." + strconv.Itoa(r.Element)
		}
		id += "/" + strconv.FormatInt(fromMicros(at).UnixMilli(), 10)
	}

	if key.About.Name != "" {
		id += "~" + idPart(key.About.Name) // the numbers before it have none
	}

	id += key.Topic.Suffix
	//planted:silences-share-id if endedWithRule
	//planted:ended-rules-share-id if key.Topic.Silence
	if key.Topic.Silence || endedWithRule { // several devices may be silent since one place, where events may be missing
		id += "/" + url.PathEscape(key.About.Device)
	}

	// A device may be silent again since the same place, if its rule comes back. Who finds the same end once more sends the id
	// that the gate's record has, for as long as that may have been taken.
	if n != nil && n.Part == throttle.End {
		//planted:ends-share-id id += "/end"; skip
		id += "/end/" + strconv.FormatInt(fromMicros(n.RaisedAt).UnixMilli(), 10)
	}

	if n.recovers() {
		id += "/resolved"
	}

	return id
}

// idPart returns a sensor's name as a part of an id, which says it if it is short.
func idPart(name string) string {
	const most = 128 // bytes
	part := url.PathEscape(name)
	if len(part) <= most {
		return part
	}

	sum := sha256.Sum256([]byte(name))
	return "!" + hex.EncodeToString(sum[:16]) // PathEscape leaves no !
}

// ofSensor returns how the source of a notice ends whose window is a sensor's.
func ofSensor(name string) string { return "/~" + idPart(name) }

// WindowOf is what the window of a notice is of: notify.Alert.Of, but the device if its sensor has no window of its own,
// because too many of its sensors have an alarm.
func WindowOf(a notify.Alert) sensor.ID {
	of := a.Of()
	if of.Name != "" && !strings.HasSuffix(a.Source, ofSensor(of.Name)) {
		of.Name = ""
	}

	return of
}

// request returns the request to the gate for a notice about one of d's readings.
func (d *delivery) request(about *Reading) throttle.Request {
	return d.q.box.account.Request(d.subject, d.notice, about)
}

// Request returns the request to the gate for a notice about a reading: for n, or for an alert if that is nil.
func (a Account) Request(key Key, n *Notice, about *Reading) throttle.Request {
	if n != nil && n.Letter != nil {
		return n.Letter.Request
	}

	r := throttle.Request{
		ID:       a.id(key, n, about),
		Device:   key.About.Device,
		Sensor:   key.About.Name,
		Enqueued: fromMicros(about.Enqueued),
		Log:      a.Log,
		Sequence: about.Sequence,
		Element:  about.Element,
		Recovery: n.recovers(),
	}

	switch {
	case n != nil && n.Incident != nil:
		r.Log, r.Sequence, r.Element = "", 0, 0
		r.Incident = n.Incident.About.ID
		r.Repeat = cmp.Or(key.Topic.Repeat, key.Topic.Message.Window)
	case n != nil:
		r.Log, r.Part = n.Log, n.Part
		r.At = fromMicros0(n.RaisedAt)
		// Among alerts of other logs it is at the latest time for which n's log says that its alarm is not open: of a device
		// that is not heard any more another one may know more since its alarm began; without its rule, none does.
		switch {
		case r.Recovery && n.Forgotten:
			r.AsOf = fromMicros(n.Reading.Since)
		case r.Recovery:
			r.AsOf = fromMicros(cmp.Or(n.RaisedAt, n.Reading.Enqueued))
		}
	case key.Topic.Shared: // it is about more than one log
		r.Log, r.Sequence, r.Element = "", 0, 0
	case about.more().Alarm != nil:
		//planted:open-alarm-sent-again if key.Topic.Repeat > 0 { skip }
		r.Repeat = key.Topic.Repeat
		r.OpenedBy, r.OpenedByElement = about.More.Alarm.OpenedBy, about.More.Alarm.Element
	}

	if came := about.more().Arrival; came != nil {
		r.Arrived = came.At
	}

	return r
}

// compose returns the notice about d's head under g.
func (d *delivery) compose(g throttle.Grant) notify.Alert {
	q := d.q
	a := d.subject.Topic.Message
	a.ID = g.ID
	a.Token = g.Token
	a.Expires = g.Expires
	a.Sent = g.Now
	a.Ambiguous = g.Ambiguous
	if d.notice != nil && d.notice.Letter != nil {
		return a
	}

	head := &d.head
	of := d.of(head)
	a.Device, a.Sensor = of.Device, of.Name
	if d.subject.About.Name != "" {
		a.Source += ofSensor(d.subject.About.Name) // receivers compare tokens of one source and device
	}

	a.Resolved = d.notice.recovers()
	a.Removed = a.Removed && a.Resolved // an outage of the hub is told for a removed rule, too
	a.Temperature = head.Value
	a.Threshold = head.Limit
	a.Enqueued = fromMicros(head.Enqueued)
	a.DeviceTime = fromMicros0(head.Taken)
	a.Since = fromMicros0(head.Since)
	a.Partition = q.box.account.Name
	a.Sequence = head.Sequence
	a.Log = d.request(head).Log
	a.WillResolve = a.WillResolve && !a.Resolved && head.Since != 0 // else it has no alarm
	a.Remember = d.gate().Remember()
	a.Suppressed = d.gate().Count(d.subject.About)
	a.Test = notify.IsTest(a.Device)

	if d.notice != nil {
		a.Forgotten = d.notice.Forgotten
		a.Excluded = d.notice.Excluded
		a.Outage = d.notice.Outage
		if d.notice.Incident != nil {
			about := d.notice.Incident.About
			a.Incident = &about
		}
	}

	//planted:recovery-remembered-shortly if false
	if a.Resolved { // one of unknown fate is sent again for as long
		a.Remember += q.to.dispatcher.config.GiveUp
	}

	a.Shown, a.Damaged = head.more().Shown, head.more().Damaged

	if d.subject.Topic.Shared { // then Suppressed are devices
		a.PerValue = d.subject.About.Device
	} else {
		a.Suppressed += int64(d.suppressed)
	}

	if d.subject.Topic.Incidents { // it says how many they are
		a.Suppressed = 0
	}

	if d.subject.Topic.Silence {
		a.Silent = time.Duration(head.Limit * float64(time.Second))
		a.Threshold = 0
		a.LastHeard = fromMicros0(d.notice.Heard)
		if anew := d.notice.Anew; anew != nil {
			a.Since, a.Enqueued = fromMicros(anew.Since), fromMicros(anew.Deadline)
		}
	}

	if words := d.subject.Topic.Words; len(words) > 0 {
		// Of a recovery, and of an alarm that is open although the value is none of them, it is all that may have opened it.
		a.Word = strings.Join(words, " or ")
		if i := int(head.Value) - 1; !a.Resolved && i >= 0 && i < len(words) {
			a.Word = words[i]
		}
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
