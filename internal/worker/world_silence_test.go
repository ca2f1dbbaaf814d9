package worker_test

import (
	"reflect"
	"slices"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

// What receivers hear about silent devices, judged by when devices have sent something, and by what may be missing.

// judgeSilence checks what a receiver heard about devices that are silent: none of it is false, and none is missing.
func (w *world) judgeSilence(in *inbox, s subject) {
	heard := in.heard(s)
	for of, arrivals := range heard {
		w.onceInAWindow(in, s, of, arrivals)
		for _, a := range arrivals {
			if !a.Resolved && a.Device != notify.Hub {
				w.silenceIsTrue(in, s, a)
			}
			if !a.Resolved && a.Device == notify.Hub {
				w.outageIsTrue(in, s, a)
			}
			if of.shared {
				w.incidentIsTrue(in, s, a)
			}
		}
	}
	w.judgeIncidents(in, s, heard)
	for _, device := range w.devices {
		w.silenceIsNotLost(in, s, device, heard[matter{device, false}])
	}
	w.outageIsNotLost(in, s, heard[matter{notify.Hub, false}])
}

// newest returns when the hub took its last event.
func (w *world) newest() (at time.Time) {
	for _, log := range w.logs {
		for i, m := range log.readings {
			if e := log.events[i]; m.fate != byHTTP && e.Enqueued.After(at) {
				at = e.Enqueued
			}
		}
	}
	return at
}

// outageIsTrue: nothing came to the hub for as long as the alert says, and nothing that could have been known when it
// was sent. Two devices at least had sent something before.
func (w *world) outageIsTrue(in *inbox, s subject, a arrival) {
	claimed := a.Expires.Add(-throttle.ClaimTTL(sendTimeout))
	proven := claimed.Add(-freshness(a.Silent) - margin)
	devices := map[string]bool{}
	for _, log := range w.logs {
		for i, m := range log.readings {
			at := log.events[i].Enqueued
			switch {
			case m.fate == byHTTP:
			case at.After(a.Since) && (!at.After(a.Enqueued) || at.Before(proven)):
				w.violated("S1: %s hears under a claim of %v that nothing has come (%s) since %v, and %s/%d came at %v", in.name,
					claimed.Sub(w.start), s, a.Since.Sub(w.start), log.id, i+1, at.Sub(w.start))
			case !at.After(a.Since):
				devices[log.id+"/"+m.device] = true // in two partitions it is two
			}
		}
	}
	if w.elsewhere || len(devices) < 2 || a.Outage == nil || a.Outage.Devices < 2 {
		w.violated("S1: %s hears that nothing comes (%s), %+v, with %d devices (elsewhere: %v)", in.name, s, a.Outage,
			len(devices), w.elsewhere)
	}
}

// outageIsNotLost: at the end, what a receiver heard last of the hub is whether anything comes to it. If several devices
// are silent because nothing does, it has heard that by one of the rules, or that is a dead letter.
func (w *world) outageIsNotLost(in *inbox, s subject, heard []arrival) {
	ofHub := matter{notify.Hub, false}
	dead := slices.ContainsFunc(w.dead, func(d keptLetter) bool { return d.isOf(in, s, ofHub) })
	rule, _ := w.in(len(w.versions)-1, s)
	if dead || rule == nil || !w.lasting(w.logs[0], s, "") {
		return
	}
	newest := w.newest()
	if last := lastWord(heard); rule.Resolved && last != nil && !last.Resolved && last.Since.Before(newest) &&
		!w.outagesAreOne(in, s, rule, heard, newest) {
		w.violated("S3: %s heard last that nothing has come (%s) since %v, and something came at %v", in.name, s,
			last.Since.Sub(w.start), newest.Sub(w.start))
	}
	silent, waits := 0, time.Since(newest)
	for _, device := range w.devices {
		message, from, at := w.lastOf(rule, device)
		home := w.logs[w.home(device)]
		removed, forgotten := w.wasForgotten(rule, device, at)
		known := !at.IsZero() && w.isInRoster(from, rule, device) && w.isExpected(home, rule, device, time.Now()) == yes && w.lasting(home, s, device) &&
			w.lasting(from, s, device)
		if known && !removed && !forgotten && time.Since(at) < rule.Forget-10*time.Minute && !w.excused(s, device, message, at) {
			silent++
		}
	}
	if w.elsewhere || silent < 2 || waits < 3*rule.Silent+rule.Window+3*time.Minute ||
		!in.filtersIn(0).Cover(s.rule, s.level) || !in.filtersIn(1).Cover(s.rule, s.level) {
		return
	}
	// One message is enough, whichever rule it is by, and so is one dead letter about this outage.
	if !slices.ContainsFunc(w.subjects(), func(other subject) bool {
		last := lastWord(in.heard(other)[ofHub])
		return last != nil && !last.Resolved || slices.ContainsFunc(w.dead, func(d keptLetter) bool {
			return d.isOf(in, other, ofHub) && !d.Alert.Resolved && !d.Alert.Since.Before(newest)
		})
	}) {
		w.violated("S2: nothing has come to the hub (%s) since %v, and %s did not hear that last", s, newest.Sub(w.start), in.name)
	}
}

// outagesAreOne reports whether nothing has come to the hub for a rule's time again, since the newest event, and that was
// so before the window of an alert about an earlier outage was over. As of a device that is silent again within the
// window, the receiver hears of neither the end between nor the next: what it heard last is true. Nor does one that does
// not ask for the rule any more.
func (w *world) outagesAreOne(in *inbox, s subject, r *rules.Rule, heard []arrival, newest time.Time) bool {
	deadline := newest.Add(r.Silent)
	covered := !in.filtersIn(1).Cover(s.rule, s.level) || slices.ContainsFunc(heard, func(a arrival) bool {
		return !a.Resolved && deadline.Before(a.heard.Add(r.Window+3*second))
	})
	devices := map[string]bool{} // those whose silence the hub's is
	for _, log := range w.logs {
		for _, m := range log.readings {
			if m.fate != byHTTP {
				devices[log.id+"/"+m.device] = true // in two partitions it is two
			}
		}
	}
	return covered && len(devices) > 1 && !w.elsewhere && time.Since(deadline) > freshness(r.Silent)
}

// counts reports whether a message is a sign of life for a rule.
func counts(r *rules.Rule, m reading) bool {
	return m.fate != byHTTP && (r.Field == "" || m.value != 0 && m.fate != undecodable && valid(r, m.value))
}

// freshness is how old a proof that nothing came may be: a quarter of what is silent, from 30 s to 5 min.
func freshness(silent time.Duration) time.Duration {
	return min(max(silent/4, 30*second), 5*time.Minute)
}

// margin is by how much a claim may come later than its proof says.
const margin = 5 * second

// silenceIsTrue: nothing came for as long as the alert says, and nothing that could have been known when it was sent.
func (w *world) silenceIsTrue(in *inbox, s subject, a arrival) {
	rule, _ := w.ever(s)
	claimed := a.Expires.Add(-throttle.ClaimTTL(sendTimeout))
	proven := claimed.Add(-freshness(a.Silent) - margin)
	for _, log := range w.logs {
		for i, m := range log.readings {
			at := log.events[i].Enqueued
			if m.device != a.Device || !counts(rule, m) || log.id != a.Partition {
				continue
			}
			if m.fate == superseded && log.replaced(i, a.at) {
				continue
			}
			if m.fate == expired && !at.Before(a.Since.Add(a.Silent)) { // before that it was silent
				continue
			}
			if at.After(a.Enqueued.Add(-a.Silent)) && !at.After(a.Enqueued) {
				w.violated("S1: %s hears that %s is silent (%s) from %v to %v, and it sent %s/%d at %v", in.name, a.Device, s,
					a.Enqueued.Add(-a.Silent).Sub(w.start), a.Enqueued.Sub(w.start), log.id, i+1, at.Sub(w.start))
			}
			if at.After(a.Enqueued) && at.Before(proven) && m.fate != expired && a.PerValue == "" { // others may be of its incident
				w.violated("S1: %s hears that %s is silent (%s) under a claim of %v, and it sent %s/%d at %v", in.name, a.Device, s,
					claimed.Sub(w.start), log.id, i+1, at.Sub(w.start))
			}
			if quiet := at.Add(m.quiet); m.quiet > 0 && m.fate == readable && log.id == a.Partition && w.rosterDown == 0 &&
				int64(i+1) == a.Sequence && a.PerValue == "" && w.isHeard(log, i, rule) && a.Enqueued.Before(quiet.Truncate(time.Millisecond)) {
				w.violated("S1: %s hears that %s is silent (%s) at %v, and it was to be quiet until %v", in.name, a.Device, s,
					a.Enqueued.Sub(w.start), quiet.Sub(w.start))
			}
		}
	}
	if quiet := claimed.Sub(w.lastBefore(claimed)); quiet > claimed.Sub(a.Enqueued)+a.Silent/2 && w.isFleet(rule, s, a) {
		w.violated("S1: %s hears that %s is silent (%s) at %v, and nothing had come to the hub for %v", in.name, a.Device, s,
			a.at.Sub(w.start), quiet)
	}
	home := slices.IndexFunc(w.logs, func(log *hubLog) bool { return log.id == a.Partition })
	// What was heard since the roster was refused, the next owner does not know.
	if w.rosterDown == 0 && w.isExpected(w.logs[home], rule, a.Device, a.Enqueued) == no {
		w.violated("S1: %s hears that %s is silent (%s), and nothing is expected of it", in.name, a.Device, s)
	}
	if !slices.ContainsFunc(w.versions, func(set []rules.Rule) bool { return w.lasts(set, s) == a.Silent }) {
		w.violated("S1: %s hears that %s is silent (%s) after %v", in.name, a.Device, s, a.Silent)
	}
	for _, m := range w.muteTimes {
		if m.covers(s.rule, a.Device, w.start, a.Enqueued, a.at) {
			w.violated("S1: %s hears that %s is silent (%s) at %v, when nobody wants to know", in.name, a.Device, s,
				a.at.Sub(w.start))
		}
	}
	for _, o := range w.operations {
		if o.what == forget && !o.unsure && o.device == a.Device && claimed.After(o.at.Add(30*second)) && w.stays(o, rule, a.Device) &&
			a.PerValue == "" {
			w.violated("S1: %s hears that %s is silent (%s) under a claim of %v, and it was removed at %v", in.name, a.Device, s,
				claimed.Sub(w.start), o.at.Sub(w.start))
		}
	}
}

// Whether a rule expects to hear from a device.
const (
	yes   = "yes"
	no    = "no"
	maybe = "maybe"
)

// isExpected says whether a rule expects to hear from a device in a partition at a time, by what that has said of itself. What
// it said before people removed it, or before it was silent for so long that it was forgotten, is not known any more.
func (w *world) isExpected(log *hubLog, r *rules.Rule, device string, at time.Time) string {
	if len(r.Only) == 0 {
		return yes
	}
	next := at
	for i := len(log.readings) - 1; i >= 0; i-- {
		m, e := log.readings[i], log.events[i]
		if m.device != device || e.Enqueued.After(at) || !counts(r, m) {
			continue
		}
		removed := slices.ContainsFunc(w.operations, func(o operation) bool {
			return o.what == forget && o.device == device && !o.at.Before(e.Enqueued) && !o.at.After(next)
		})
		if removed || next.Sub(e.Enqueued) > r.Forget {
			return maybe
		}
		next = e.Enqueued
		switch {
		case m.fate == expired || m.fate == superseded || !w.isHeard(log, i, r):
			return maybe
		case m.fate == undecodable || m.value == 0: // it says nothing
		case m.mode == "run":
			return yes
		case m.damage != "": // it never says that nothing is expected
		default:
			return no
		}
	}
	return no
}

// lastBefore returns when something came to the hub last before a time.
func (w *world) lastBefore(at time.Time) (last time.Time) {
	if w.elsewhere {
		return at
	}
	for _, log := range w.logs {
		for i, m := range log.readings {
			if e := log.events[i].Enqueued; m.fate != byHTTP && e.After(last) && !e.After(at) {
				last = e
			}
		}
	}
	return last
}

// isFleet reports whether a rule expects to hear from several devices from when one was silent on until the world ends, and
// rosters said so by then.
func (w *world) isFleet(r *rules.Rule, s subject, a arrival) bool {
	n := 0
	for _, device := range w.devices {
		home := w.logs[w.home(device)]
		removed := slices.ContainsFunc(w.operations, func(o operation) bool { return o.what == forget && o.device == device })
		first, is := home.firstOf(r, device, a.Since)
		isKnown := slices.ContainsFunc(home.rosters, func(at time.Time) bool { return at.After(first) && !at.After(a.Enqueued) })
		if !removed && is && isKnown && len(r.Only) == 0 && w.lasting(home, s, device) {
			n++
		}
	}
	return n > 1 && r.Forget > time.Hour
}

// firstOf returns when the first ten messages of the log had one that counts for a rule and can be read, of a device, and
// came by a time; false if there is none.
func (log *hubLog) firstOf(r *rules.Rule, device string, at time.Time) (came time.Time, is bool) {
	for i := range min(10, len(log.readings)) {
		if m := log.readings[i]; m.device == device && m.fate == readable && m.lag == 0 && counts(r, m) && !log.events[i].Enqueued.After(at) {
			return log.events[i].Enqueued, true
		}
	}
	return time.Time{}, false
}

// replaced reports whether a message may not have been there any more at a time, because its device had sent another.
func (log *hubLog) replaced(i int, at time.Time) bool {
	for later := i + 1; later < len(log.readings); later++ {
		if log.readings[later].device == log.readings[i].device && !log.events[later].Enqueued.After(at) {
			return true
		}
	}
	return false
}

// isHeard reports whether whoever decided about a message had a rule that hears the same as r.
func (w *world) isHeard(log *hubLog, i int, r *rules.Rule) bool {
	by := log.reigns[log.reignAt(int64(i+1))]
	return slices.ContainsFunc(w.versions[by.version], func(other rules.Rule) bool {
		return other.Silence() && other.HeardBy() == r.HeardBy()
	})
}

// lasts returns how long a device may be silent by a set of rules; 0 if it has no such rule.
func (w *world) lasts(set []rules.Rule, s subject) time.Duration {
	for _, r := range set {
		if r.Name == s.rule {
			return r.Silent
		}
	}
	return 0
}

// stays reports whether a device that people have removed stays so: nothing of it is read since, again or for the
// first time, and whoever removed it had the rule. That was asked of every partition to which it had sent something.
func (w *world) stays(o operation, r *rules.Rule, device string) bool {
	for log := range o.last {
		by := 0 // who removed it
		for i := range log.reigns {
			if !log.reigns[i].at.After(o.at) {
				by = i
			}
		}
		if w.lasts(w.versions[log.reigns[by].version], subject{rule: r.Name}) == 0 {
			return false
		}
	}
	for _, log := range w.logs {
		_, asked := o.last[log]
		for i, m := range log.readings {
			if m.device == device && counts(r, m) && (!asked || log.movedBack ||
				log.events[i].Enqueued.Add(m.lag).After(o.at.Add(-second))) {
				return false
			}
		}
	}
	return true
}

// silenceIsNotLost: at the end, what a receiver heard last of a device is whether it is silent, unless nothing came to
// the hub at all.
func (w *world) silenceIsNotLost(in *inbox, s subject, device string, heard []arrival) {
	last := lastWord(heard)
	dead := slices.ContainsFunc(w.dead, func(d keptLetter) bool { return d.isOf(in, s, matter{device, false}) })
	rule, _ := w.in(len(w.versions)-1, s)
	if rule == nil {
		if r, _ := w.ever(s); r.Resolved && last != nil && !last.Resolved && !dead {
			w.violated("S3: %s was removed, and %s heard last that %s is silent", s, in.name, device)
		}
		return
	}
	message, _, at := w.lastOf(rule, device)
	silent := time.Since(at)
	expected := w.isExpected(w.logs[w.home(device)], rule, device, time.Now())
	if expected == no && silent > rule.Window+3*time.Minute && rule.Resolved && last != nil && !last.Resolved && !dead &&
		!w.scattered(device) && w.lasting(w.logs[w.home(device)], s, device) {
		w.violated("S3: %s heard last that %s is silent (%s), and nothing is expected of it", in.name, device, s)
	}
	forget := max(rule.Forget, 2*rule.Silent+10*time.Minute) // whatever forget is, there is time to tell of it first
	isGone := time.Since(w.expectedAnew(device, w.allowedUntil(s, device, at))) > forget+10*time.Minute
	switch _, forgotten := w.wasForgotten(rule, device, at); {
	case at.IsZero() || dead || !w.lasting(w.logs[w.home(device)], s, device):
	case silent < rule.Silent || forgotten || isGone:
		if rule.Resolved && last != nil && !last.Resolved && !w.scattered(device) {
			w.violated("S3: %s heard last that %s is silent (%s) since %v, and that is over", in.name, device, s, last.Sequence)
		}
	case (last == nil || last.Resolved) && sharedBy(rule, message) == "" && w.isToBeHeard(in, s, rule, device):
		w.violated("S2: %s is silent (%s) since %v, and %s did not hear that last", device, s, at.Sub(w.start), in.name)
	}
}

// allowedUntil returns until when nobody wanted to know whether a device is silent, which was heard at a time last: that time, or a
// later one.
func (w *world) allowedUntil(s subject, device string, at time.Time) time.Time {
	for _, m := range w.muteTimes {
		if end := w.start.Add(m.at + m.for_); m.isAbout(s.rule, device) && end.After(at) {
			at = end
		}
	}
	for _, o := range w.operations {
		if o.what == mute && o.device == device && o.until.After(at) {
			at = o.until
		}
	}
	return at
}

// isToBeHeard reports whether a receiver must have heard at the end that a device is silent, itself or its site.
func (w *world) isToBeHeard(in *inbox, s subject, rule *rules.Rule, device string) bool {
	message, from, at := w.lastOf(rule, device)
	home, silent := w.logs[w.home(device)], time.Since(at)
	removed, _ := w.wasForgotten(rule, device, at)
	return !at.IsZero() && w.elsewhere && !removed && (w.isInRoster(from, rule, device) || !w.takenOver(from.id, at, time.Now())) && w.isExpected(home, rule, device, time.Now()) == yes &&
		w.lasting(home, s, device) && w.lasting(from, s, device) && silent < rule.Forget-10*time.Minute &&
		time.Since(w.expectedAnew(device, at)) > 3*rule.Silent+rule.Window+3*time.Minute &&
		in.filtersIn(0).Cover(s.rule, s.level) && in.filtersIn(1).Cover(s.rule, s.level) && !w.excused(s, device, message, at)
}

// isInRoster reports whether the roster in the store knows of a device, and what it shares, if rosters are not written any more.
func (w *world) isInRoster(log *hubLog, r *rules.Rule, device string) (is bool) {
	if w.rosterDown == 0 {
		return true
	}
	for i, m := range log.readings {
		isWritten := len(log.rosters) > 0 && log.events[i].Enqueued.Add(m.lag).Before(log.rosters[len(log.rosters)-1])
		if m.device == device && m.fate == readable && counts(r, m) {
			is = isWritten && w.isHeard(log, i, r) || is && r.Per == ""
		}
	}
	return is
}

// lastOf returns the last message of a device that counts and can be read, from which log, and when it came; a zero time if
// there is none.
func (w *world) lastOf(r *rules.Rule, device string) (last reading, from *hubLog, at time.Time) {
	for _, log := range w.logs {
		for i, m := range log.readings {
			missing := m.fate == expired || m.fate == superseded
			if e := log.events[i]; m.device == device && !missing && counts(r, m) && !e.Enqueued.Before(at) {
				last, from, at = m, log, e.Enqueued
			}
		}
	}
	return last, from, at
}

// expectedAnew returns from when on a device is expected to send something: its last message, or the end of the last
// gap in its partition, if that is later.
func (w *world) expectedAnew(device string, at time.Time) time.Time {
	log, lost := w.logs[w.home(device)], false
	for i, m := range log.readings {
		perhaps := m.fate == expired || m.fate == superseded && m.device == device && m.value != 0
		if e := log.events[i]; (perhaps || lost) && e.Enqueued.After(at) {
			at = e.Enqueued
		}
		lost = m.fate == expired
	}
	if last := log.reigns[len(log.reigns)-1].at; (len(w.versions) > 1 || w.rosterDown > 0) && last.After(at) {
		return last
	}
	return at
}

// lasting reports whether a rule about silence never changed, and was never missing for so long that it counts as
// removed.
func (w *world) lasting(log *hubLog, s subject, device string) bool {
	first, _ := w.ever(s)
	for i, m := range log.readings {
		r, _ := w.in(log.reigns[log.reignAt(int64(i+1))].version, s)
		without := false // somebody else heard it, or may have: no roster had it, or none has what is heard of it once more
		for at, other := range log.reigns[:len(log.reigns)-1] {
			has, _ := w.in(other.version, s)
			reads := int64(i) >= other.from && i < other.owner.next && log.events[i].Enqueued.Before(log.reigns[at+1].at)
			without = without || has == nil && (int64(i) >= other.hears && int64(i) < other.from || reads)
		}
		if m.device == device && (r == nil || without) { // whoever has the rule may never have heard the device
			return false
		}
	}
	for version := range w.versions {
		if r, _ := w.in(version, s); r != nil && !reflect.DeepEqual(r, first) {
			return false
		}
	}
	since := time.Time{} // from when on it is missing
	for _, r := range log.reigns {
		rule, _ := w.in(r.version, s)
		switch {
		case rule == nil && since.IsZero():
			since = r.at
		case rule == nil:
		case !since.IsZero() && r.at.Sub(since) > removedAfter-removing:
			return false
		default:
			since = time.Time{}
		}
	}
	return since.IsZero()
}

// wasForgotten reports whether people have removed a device since its last message, and whether it must stay so.
func (w *world) wasForgotten(r *rules.Rule, device string, at time.Time) (removed, stays bool) {
	for _, o := range w.operations {
		if o.what == forget && o.device == device && !o.at.Before(at) {
			removed, stays = true, stays || !o.unsure && w.stays(o, r, device)
		}
	}
	return removed, stays
}

// excused reports whether a silence need not be heard at the end: the device is quiet, or alerts were muted lately.
func (w *world) excused(s subject, device string, m reading, at time.Time) bool {
	quiet := m.quiet > 0 && m.fate == readable && time.Since(at.Add(m.quiet)) < 6*time.Minute
	muted := slices.ContainsFunc(w.operations, func(o operation) bool {
		return o.what == mute && o.device == device && time.Since(o.until) < 6*time.Minute
	})
	for _, m := range w.muteTimes {
		muted = muted || time.Since(w.start.Add(m.at+m.for_)) < 6*time.Minute
	}
	return quiet || muted
}
