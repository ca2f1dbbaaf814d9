package delivery

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

// id returns the id of the notice that d would send about a reading. It is the same in every
// replica. The time distinguishes hubs of the same name, whose sequence numbers
// start again when the hub is recreated.
func (q *queue) id(d *delivery, r *Reading) string {
	if d.notice != nil && d.notice.Letter != nil {
		return d.notice.Letter.Request.ID
	}

	if d.notice != nil && d.notice.Incident != nil {
		return d.notice.Incident.id()
	}

	id := q.box.account.IDs + d.readingID(r)
	if d.subject.About.Name != "" {
		id += "~" + idPart(d.subject.About.Name) // the numbers before it have none
	}

	id += d.subject.Topic.Suffix
	//planted:silences-share-id if d.endedWithRule()
	//planted:ended-rules-share-id if d.subject.Topic.Silence
	if d.subject.Topic.Silence || d.endedWithRule() { // several devices may be silent since one place, where events may be missing
		id += "/" + url.PathEscape(d.subject.About.Device)
	}

	if d.notice != nil && d.notice.Part == throttle.End {
		id += "/end"
	}

	if d.recovers() {
		id += "/resolved"
	}

	return id
}

// id returns the id of the notice. Each end has its own, because receivers remember one for long, and an incident that
// goes on ends again.
func (i *Incident) id() string {
	switch {
	case !i.Over:
		return i.About.ID
	case i.Overs > 1:
		return i.About.ID + "/" + strconv.Itoa(i.Overs) + "/resolved"
	}

	return i.About.ID + "/resolved"
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

// readingID returns what a reading has in the id of d's notice.
func (d *delivery) readingID(r *Reading) string {
	if a := r.arrival(); a != nil && a.ID != "" {
		return a.ID
	}

	at := r.Enqueued
	if d.notice != nil && d.notice.Part != throttle.Event { // it is about an event, and not of its time
		at = r.Since
	}

	place := strconv.FormatInt(r.Sequence, 10)
	if r.Element > 0 && !d.endedWithRule() {
		place += "." + strconv.Itoa(r.Element)
	}

	return place + "/" + strconv.FormatInt(fromMicros(at).UnixMilli(), 10)
}

// endedWithRule reports whether d is the recovery of an alarm whose rule was removed: it is about the last event
// read.
func (d *delivery) endedWithRule() bool { return d.recovers() && d.notice.RaisedAt > 0 }

// request returns the request to the gate for a notice about one of d's readings.
func (q *queue) request(d *delivery, about *Reading) throttle.Request {
	r := Request(d.subject, d.notice, about, q.box.account.Log)
	r.ID = q.id(d, about)

	return r
}

// Request returns the request to the gate for a notice about a reading: for n, or for an alert if that is nil. log names
// what numbered the reading of an alert: see Account.Log. The request has no ID.
func Request(key Key, n *Notice, about *Reading, log string) throttle.Request {
	if n != nil && n.Letter != nil {
		return n.Letter.Request
	}

	r := throttle.Request{
		Device:   key.About.Device,
		Sensor:   key.About.Name,
		Enqueued: fromMicros(about.Enqueued),
		Log:      log,
		Sequence: about.Sequence,
		Element:  about.Element,
		Recovery: n.recovers(),
	}

	switch {
	case n != nil && n.Incident != nil:
		r.Log, r.Sequence, r.Element = "", 0, 0
		r.Incident = n.Incident.About.ID
		r.Repeat = key.Topic.Repeat
	case n != nil:
		r.Log, r.Part = n.Log, n.Part
		r.At = fromMicros0(n.RaisedAt)
		if r.Recovery {
			r.AsOf = fromMicros(n.normalAt())
		}
	case key.Topic.Shared: // it is about more than one log
		r.Log, r.Sequence, r.Element = "", 0, 0
	case about.alarm() != nil:
		//planted:open-alarm-sent-again if key.Topic.Repeat > 0 { skip }
		r.Repeat = key.Topic.Repeat
		r.OpenedBy, r.OpenedByElement = about.alarm().OpenedBy, about.alarm().Element
	}

	if a := about.arrival(); a != nil {
		r.Arrived = a.At
	}

	return r
}

// message returns the notice about d's head under g.
func (q *queue) message(d *delivery, g throttle.Grant) notify.Alert {
	if d.notice != nil && d.notice.Letter != nil {
		return d.notice.Letter.granted(g)
	}

	head := &d.head
	a := d.subject.Topic.Message
	a.ID = g.ID
	of := d.of(head)
	a.Device, a.Sensor = of.Device, of.Name
	if d.subject.About.Name != "" {
		a.Source += ofSensor(d.subject.About.Name) // receivers compare tokens of one source and device
	}

	a.Resolved = d.recovers()
	a.Temperature = head.Value
	a.Threshold = head.Limit
	a.Enqueued = fromMicros(head.Enqueued)
	a.DeviceTime = fromMicros0(head.Taken)
	a.Since = fromMicros0(head.Since)
	a.Partition = q.box.account.Name
	a.Sequence = head.Sequence
	a.Log = Request(d.subject, d.notice, head, q.box.account.Log).Log
	a.WillResolve = a.WillResolve && !a.Resolved && head.Since != 0 // else it has no alarm
	a.Remember = q.gate(d).Remember()
	a.Token = g.Token
	a.Expires = g.Expires
	a.Sent = g.Now
	a.Suppressed = q.gate(d).Count(d.subject.About)
	a.Test = notify.IsTest(a.Device)
	a.Ambiguous = g.Ambiguous

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

	if head.More != nil {
		a.Shown = head.More.Shown
		a.Damaged = head.More.Damaged
	}

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
	}

	if len(d.subject.Topic.Words) > 0 {
		a.Word = d.word(a.Resolved)
	}

	return a
}

// word returns the word that the head's value means. Of a recovery, and of an alarm that is open although the value is
// none of them, it is all that may have opened it.
func (d *delivery) word(resolved bool) string {
	i := int(d.head.Value) - 1
	if resolved || i < 0 || i >= len(d.subject.Topic.Words) {
		return strings.Join(d.subject.Topic.Words, " or ")
	}

	return d.subject.Topic.Words[i]
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// fromMicros0 is fromMicros, but the zero time for 0.
func fromMicros0(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return fromMicros(us)
}
