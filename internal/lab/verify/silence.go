package verify

import (
	"math"
	"sort"
	"strings"
	"time"
)

const (
	rounding   = time.Millisecond // of deadlines
	wholeNames = "partition/"     // begin what alerts have for a device if they are about all of a partition
)

// silence reports whether r is about silence.
func (r *Rule) silence() bool { return r.Silent > 0 }

// hear has the silences of a device follow r. Each is recorded when the device is heard again, and the last one by
// silences.
func (l *Log) hear(rule *Rule, r Reading) {
	if r.ByHub {
		return
	}

	t := l.track(alarm{r.Device, rule.Name, ""})
	if begun, ok := rule.fallsSilent(t.heard); ok && r.At.After(begun.At) {
		t.events = append(
			t.events,
			begun,
			event{Reading: Reading{Device: r.Device, At: r.At, Partition: r.Partition, Sequence: r.Sequence}, clears: true},
		)
	}

	t.heard = r
	t.allowed = t.allowed || r.Properties[rule.Quiet] != ""
	if n := len(t.times); n > 1 && r.At.Sub(t.times[n-2]) < rule.Silent/thinned {
		t.times = t.times[:n-1]
	}

	t.times = append(t.times, r.At)
}

const (
	thinned     = 8 // two times at which a device was heard are close if they are less than this part of the silence apart
	darkDevices = 20
)

// A fleet is the devices of one partition, as a rule about silence knows them. If a deadline is over and fewer than
// a quarter of the others, at least darkDevices, were heard lately, no silence is about one of them, but about the
// partition.
type fleet struct {
	silent  time.Duration
	devices []*track
}

// fleets returns them by the name that alerts have for the partition.
func (l *Log) fleets() map[alarm]*fleet {
	all := make(map[alarm]*fleet)
	for a, t := range l.tracks {
		if r := l.rule(a.rule); r != nil && r.silence() {
			of := alarm{wholeNames + t.heard.Partition, a.rule, a.level}
			if all[of] == nil {
				all[of] = &fleet{silent: r.Silent}
			}
			all[of].devices = append(all[of].devices, t)
		}
	}

	return all
}

// heard returns how many devices were, from a time to another.
func (f *fleet) heard(from, to time.Time) (n int) {
	for _, t := range f.devices {
		i := sort.Search(len(t.times), func(i int) bool { return !t.times[i].Before(from) })
		if i < len(t.times) && !t.times[i].After(to) {
			n++
		}
	}

	return n
}

// mayBeDark reports whether a worker may find the partition dark at some time.
func (f *fleet) mayBeDark(from, to time.Time) bool {
	for step := f.silent / 4; len(f.devices) > darkDevices && !from.After(to); from = from.Add(step) {
		if f.heard(from.Add(-step), from)*4 < len(f.devices)-1 { // those are recent until the next step
			return true
		}
	}

	return false
}

// isDark reports whether a worker must find it dark, whenever it does what follows from a deadline, until a time.
func (f *fleet) isDark(deadline, until time.Time) bool {
	known := 0 // that are not overdue then
	for _, t := range f.devices {
		i := sort.Search(len(t.times), func(i int) bool { return t.times[i].After(deadline) })
		if i > 0 && !t.allowed && t.times[i-1].After(deadline.Add(-f.silent)) {
			known++
		}
	}

	return known >= darkDevices && f.heard(deadline.Add(-f.silent/2-f.silent/thinned), until)*4 < known
}

// fallsSilent returns the silence that begins if nothing comes after a device was heard, at its deadline. A quiet
// device need not be heard.
func (r *Rule) fallsSilent(heard Reading) (begun event, ok bool) {
	deadline := heard.At.Add(r.Silent)
	text := heard.Properties[r.Quiet]
	if until, err := time.Parse(time.RFC3339, text); err == nil {
		deadline = later(deadline, until)
	}

	at := Reading{
		Device:      heard.Device,
		Temperature: math.NaN(),
		At:          deadline,
		Partition:   heard.Partition,
		Sequence:    heard.Sequence,
	}
	return event{Reading: at, opens: true}, !heard.At.IsZero() && (r.Quiet == "" || text != "true")
}

// silences returns the silences of a device by a rule, and which of them need an alert: those that lasted until they
// must have been proven, before the records end, unless the partition, whose fleet is f, may be dark.
func (t *track) silences(rule *Rule, rules Rules, f *fleet) []event {
	bound := rules.Bound + rules.Proof
	events := append([]event(nil), t.events...)
	if begun, ok := rule.fallsSilent(t.heard); ok && (rules.Until.IsZero() || begun.At.Before(rules.Until)) {
		events = append(events, begun)
	}

	for n := range events {
		e := &events[n]
		end := rules.Until
		bound := bound
		if n+1 < len(events) {
			end = events[n+1].At
		} else if rules.Early > 0 {
			bound = rules.Early + rules.Proof
		}

		e.needsAlert = e.opens && (end.IsZero() || end.Sub(e.At) > bound) && !f.mayBeDark(e.At, e.At.Add(bound))
	}

	return events
}

// silentEvent is event for a rule about silence. An alert is about the silence that was not over at its deadline; a
// recovery is about the end of one, or any later event until the device falls silent again.
func (j *judge) silentEvent(d Delivery) int {
	found := -1
	for i, e := range j.events {
		switch {
		case d.Recovery && e.clears && e.Sequence <= d.Sequence,
			!d.Recovery && e.opens && !e.At.After(d.Deadline.Add(rounding)):
			found = i
		case d.Recovery && e.opens && found == i-1 && e.Sequence < d.Sequence,
			!d.Recovery && e.clears && e.At.Before(d.Deadline.Add(-rounding)):
			found = -1
		}
	}

	if found >= 0 && j.events[found].Partition != d.Partition {
		return -1
	}

	return found
}

// aboutSilence checks that no silence was false: nothing came until the deadline, and nothing later but what is
// younger than a proof may be. An event may be named that was not the last one, if the deadline began anew after it.
func (j *judge) aboutSilence(deliveries []Delivery) {
	whole := strings.HasPrefix(j.device, wholeNames)
	for _, d := range deliveries {
		f := j.fleets[alarm{wholeNames + d.Partition, j.rule, j.level}]

		if !whole {
			j.aboutDeviceSilence(d, f)
			continue
		}

		if !d.Recovery && (f == nil || !f.mayBeDark(d.Deadline, d.At)) {
			j.wrong(d, "too many devices of the partition were heard")
		}
	}

	if !whole {
		j.aboutLateSilence()
	}
}

// aboutDeviceSilence checks one message about a device. f is its partition's fleet; nil: not known.
func (j *judge) aboutDeviceSilence(d Delivery, f *fleet) {
	i := j.event(d)
	switch {
	case d.Recovery && !j.recoveries:
		j.wrong(d, "the rule sends none")
	case d.Recovery && i < 0:
		j.wrong(d, "the device had not been silent")
	case d.Recovery:
	case f != nil && f.isDark(d.Deadline, d.At):
		j.wrong(d, "hardly any device of the partition was heard: that is one silence")
	case i < 0:
		j.wrong(d, "the device was heard within %v before %s", j.silent, clock(d.Deadline))
	case d.Sequence != j.events[i].Sequence && d.Deadline.Sub(j.events[i].At) <= rounding:
		j.wrong(d, "the device was last heard by sequence %d", j.events[i].Sequence)
	}
}

// aboutLateSilence checks that no silence was sent long after the device was heard again, nor again long after it was
// sent.
func (j *judge) aboutLateSilence() {
	fresh := min(max(j.silent/4, 30*time.Second), 5*time.Minute)
	told := map[int]time.Time{} // of each silence, when it was first told
	for _, d := range j.kept {
		i := j.event(d)
		if d.Recovery || i < 0 {
			continue
		}

		if again := i + 1; again < len(j.events) && d.At.Sub(j.events[again].At) > fresh+j.bound {
			j.wrong(d, "the device had been heard again for %v", d.At.Sub(j.events[again].At))
		}

		first, known := told[i]
		if !known {
			told[i] = d.At
			continue
		}

		if d.At.Sub(first) > j.window+j.Rules.Slack+j.bound {
			j.wrong(d, "it was told %v before", d.At.Sub(first))
		}
	}
}
