package verify

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	rounding   = time.Millisecond // of deadlines
	hubName    = "hub/telemetry"  // what messages have for a device if they are about the hub
	wholeNames = "partition/"     // begin the names of partitions' fleets
	telling    = "0"              // the partition that tells of the hub
)

var nan = math.NaN() // silences have no reading

// A silenceTrack is what is known of one device by a rule about silence.
type silenceTrack struct {
	heard    Reading     // the last that counts
	expected bool        // to be heard after that
	times    []time.Time // of those that count, but for those between two that are close
	allowed  bool        // the device was allowed to be silent at times
}

// hear has the silences of a device follow r. Each is recorded when the device is heard again, and the last one by
// silences.
func (l *Log) hear(rule *Rule, r Reading) {
	l.arrive(rule, r)
	if r.ByHub {
		return
	}

	t := l.track(alarm{device: r.Device, rule: rule.Name})
	says := rule.says(r)

	begun, ok := t.fallsSilent(rule)
	if ok && r.At.After(begun.At) {
		again := Reading{
			Device:    r.Device,
			At:        r.At,
			Partition: r.Partition,
			Sequence:  r.Sequence,
		}

		over := event{Reading: again, clears: true, excluded: says == excluded}
		t.events = append(t.events, begun, over)
	}

	t.heard = r
	if says != nothing {
		t.expected = says == expected
	}

	if r.Properties[rule.Quiet] != "" || !t.expected {
		t.allowed = true
	}

	n := len(t.times)
	if n > 1 && r.At.Sub(t.times[n-2]) < rule.Silent/thinned { // what is between two times that are close is left out
		t.times = t.times[:n-1]
	}

	t.times = append(t.times, r.At)
}

// fallsSilent returns the silence that begins if nothing comes after the device was heard, at its deadline. A quiet
// device need not be heard, nor one of which the rule expects nothing.
func (t *silenceTrack) fallsSilent(rule *Rule) (begun event, ok bool) {
	heard := t.heard
	if !t.expected || quiet(heard, rule.Quiet) {
		return event{}, false
	}

	at := Reading{
		Device:      heard.Device,
		Temperature: nan,
		At:          heard.At.Add(rule.Silent),
		Partition:   heard.Partition,
		Sequence:    heard.Sequence,
	}

	return event{Reading: at, opens: true}, true
}

// silences returns the silences of a device by a rule, and which of them need an alert: those that lasted until they
// must have been proven, before the records end, unless nothing came to the hub or to the device's partition f, or the
// device may be muted.
func (l *Log) silences(t *track, rule *Rule, rules Rules, hub, f *fleet) []event {
	events := slices.Clone(t.events)
	if begun, ok := t.fallsSilent(rule); ok && rules.cover(begun.At) {
		events = append(events, begun)
	}

	for n := range events {
		e := &events[n]
		if !e.opens {
			continue
		}

		end := rules.Until
		bound := cmp.Or(rules.Early, rules.Bound) + rules.Proof
		if n+1 < len(events) {
			end = events[n+1].At
			bound = rules.Bound + rules.Proof
		}

		e.needsAlert = l.isProven(rule, *e, end, bound, hub, f)
	}

	return events
}

// cover reports whether the records go on after a time.
func (rules Rules) cover(at time.Time) bool {
	return rules.Until.IsZero() || at.Before(rules.Until)
}

// isProven reports whether a silence, which lasts until an end, zero if there is none, needs an alert: see silences.
func (l *Log) isProven(rule *Rule, e event, end time.Time, bound time.Duration, hub, f *fleet) bool {
	from := e.At
	if hub.isMany() {
		var ok bool
		if from, ok = f.latest(hub, e.At, bound); !ok {
			return false
		}

		from = from.Add(rule.Silent) // a worker that could not ask the hub for long gives everybody that time once more
	}

	lasts := end.IsZero() || end.Sub(from) > bound
	if !lasts {
		return false
	}

	return !l.hushed(rule.Name, e, bound)
}

// silentEvent is event for a rule about silence.
func (j *judge) silentEvent(d Delivery) int {
	found := j.silenceAt(d.Deadline)
	if d.Recovery {
		found = j.endAt(d.Sequence)
	}

	if found < 0 || j.events[found].Partition != d.Partition {
		return -1
	}

	return found
}

// silenceAt returns the index of the silence that was not over at its deadline, -1 if there is none.
func (j *judge) silenceAt(deadline time.Time) (found int) {
	found = -1
	first := deadline.Add(-rounding)
	last := deadline.Add(rounding)

	for i, e := range j.events {
		switch {
		case e.opens && !e.At.After(last):
			found = i
		case e.clears && e.At.Before(first):
			found = -1
		}
	}

	return found
}

// endAt returns the index of the end of a silence that a message ended, or any later one until the device fell silent
// again; -1 if there is none.
func (j *judge) endAt(sequence int64) (found int) {
	found = -1
	for i, e := range j.events {
		switch {
		case e.clears && e.Sequence <= sequence:
			found = i
		case e.opens && found == i-1 && e.Sequence < sequence:
			found = -1
		}
	}

	return found
}

// aboutSilence checks that no silence was false: nothing came until the deadline, and nothing later but what is
// younger than a proof may be. An event may be named that was not the last one, if the deadline began anew after it.
func (j *judge) aboutSilence(deliveries []Delivery) {
	if j.device == hubName {
		j.aboutHub(deliveries)
		return
	}

	hub := j.fleets[whole(hubName, j.alarm)]
	for _, d := range deliveries {
		if d.Recovery {
			j.aboutHeard(d)
		} else {
			j.aboutFallen(d, hub, j.fleets[whole(wholeNames+d.Partition, j.alarm)])
		}
	}

	j.aboutLateSilence()
}

// aboutHub checks the messages about the hub: nothing came to it for as long as they say, and something has come since
// when they say that.
func (j *judge) aboutHub(deliveries []Delivery) {
	for _, d := range deliveries {
		i := j.event(d)
		switch {
		case !d.Recovery && !j.Rules.cover(d.Deadline): // the records have ended
		case i < 0 && d.Recovery:
			j.wrong(d, "nothing has come to the hub since")
		case i < 0:
			j.wrong(d, "something came to the hub within %v before %s", j.by.Silent, clock(d.Deadline))
		case !d.Recovery:
			j.aboutFresh(d, i)
		case d.At.Before(j.events[i].At):
			j.wrong(d, "nothing has come to the hub yet")
		}
	}
}

// aboutHeard checks one recovery of a device.
func (j *judge) aboutHeard(d Delivery) {
	if !j.by.Resolved {
		j.wrong(d, "the rule sends none")
		return
	}

	i := j.event(d)
	if i < 0 {
		j.wrong(d, "the device had not been silent")
		return
	}

	end := j.events[i]
	if d.Sequence == end.Sequence && d.Excluded != end.excluded {
		j.wrong(d, "the rule expects nothing more of the device: %v, and it says: %v", end.excluded, d.Excluded)
	}
}

// aboutFallen checks one alert about a device of the partition f of a hub.
func (j *judge) aboutFallen(d Delivery, hub, f *fleet) {
	i := j.event(d)
	// As its id says: devices have all of the time from a new log on, although the hub had had nothing for longer.
	beginsLog := strings.Contains(d.ID, "/-1/")

	switch {
	case !j.Rules.cover(d.Deadline): // the records have ended, and with them all devices
	case hub.isMany() && hub.isQuiet(d.Deadline, d.At):
		j.wrong(d, "nothing came to the hub from anybody: that is one silence")
	case f.isMany() && !beginsLog && f.missed(hub, d.Deadline):
		j.wrong(d, "nothing at all of the partition had come for %v: then every device has that time again", j.by.Silent)
	case j.muted(j.rule, d):
		j.wrong(d, "people have muted it since before its deadline")
	case i < 0:
		j.wrong(d, "the device was heard within %v before %s", j.by.Silent, clock(d.Deadline))
	case hub.isMany(), d.Deadline.Sub(j.events[i].At) > rounding: // the deadline may have begun anew, or has
	case d.Sequence != j.events[i].Sequence:
		j.wrong(d, "the device was last heard by sequence %d", j.events[i].Sequence)
	}
}

// aboutLateSilence checks that no silence was sent long after the device was heard again, nor again long after it was
// sent.
func (j *judge) aboutLateSilence() {
	told := map[int]time.Time{} // of each silence, when it was first told
	longest := j.window + j.Rules.Slack + j.bound

	for _, d := range j.kept {
		i := j.event(d)
		if d.Recovery || i < 0 {
			continue
		}

		j.aboutFresh(d, i)

		if _, known := told[i]; !known {
			told[i] = d.At
		}

		if since := d.At.Sub(told[i]); since > longest {
			j.wrong(d, "it was told %v before", since)
		}
	}
}

// aboutFresh checks that the alert d, about event i, was not sent long after the device was heard again.
func (j *judge) aboutFresh(d Delivery, i int) {
	if i+1 == len(j.events) {
		return
	}

	fresh := min(max(j.by.Silent/4, 30*time.Second), 5*time.Minute)
	next := j.events[i+1]

	again := d.At.Sub(next.At)
	if again > fresh+cmp.Or(j.Rules.UnderWay, j.bound) {
		j.wrong(d, "the device had been heard again for %v", again)
	}
}
