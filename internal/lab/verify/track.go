package verify

import (
	"math"
	"slices"
	"time"
)

// An alarm is one level of one device, or of one of its sensors.
type alarm struct{ device, sensor, rule, level string }

// A track is what became of one alarm. It goes through normal, pending and open.
type track struct {
	pending bool
	open    bool
	since   moment    // if it is pending: of the first reading that reached the limit
	cleared moment    // if it is open: of the first of the last readings that are all beyond the clear; zero: none
	newest  time.Time // if it is pending or open: when its last reading was taken, by the device's clock
	// if it is open: muted if an alert was held back, by a higher level or because people want none, and nobody was alerted
	// since; unsure if that may be; else heardOf
	held   hush
	events []event

	silenceTrack
}

// An event is a reading that did something to an alarm.
type event struct {
	Reading
	opens      bool   // the alarm
	needsAlert bool   // it needs an alert, or a window in force
	mayAlert   bool   // it may have one, and need not
	clears     bool   // it ends the alarm
	excluded   bool   // a condition of the rule does not hold for it
	shared     string // what the device shares its alerts by; empty: it has its own
}

// track returns what became of a, from now on.
func (l *Log) track(a alarm) *track {
	t := l.tracks[a]
	if t != nil {
		return t
	}

	t = &track{}
	l.tracks[a] = t

	return t
}

// keep adds what happened to an alarm. One of which there is nothing to know is forgotten.
func (l *Log) keep(a alarm, t *track, e event) {
	matters := slices.Contains([]bool{e.opens, e.needsAlert, e.mayAlert, e.clears}, true)
	switch {
	case matters:
		t.events = append(t.events, e)
	case len(t.events) == 0 && t.idle():
		delete(l.tracks, a)
	}
}

// follow has every alarm of the device follow the reading, and reports whether it reaches
// a limit of a rule by which the device is not quiet, and of one by which it is.
func (l *Log) follow(r Reading) (over, quieted bool) {
	for i := range l.rules {
		rule := &l.rules[i]
		if isSensors := r.Sensor != ""; isSensors != rule.Sensor {
			continue
		}

		if rule.silence() {
			l.hear(rule, r)
			continue
		}

		if math.IsNaN(r.Temperature) {
			continue
		}

		if !l.followRule(rule, r) {
			continue
		}

		if quiet(r, rule.Quiet) {
			quieted = true
		} else {
			over = true
		}
	}

	return over, quieted
}

// followRule has the device's alarms of a rule follow the reading, and reports whether it reaches a limit.
func (l *Log) followRule(rule *Rule, r Reading) (reached bool) {
	switch rule.looks(r) {
	case leaves:
		return false
	case excludes:
		l.exclude(rule, r)
		return false
	}

	base, ok := rule.base(r)
	if !ok {
		return false
	}

	var above higher // the highest comes first
	for n := range slices.Backward(rule.Levels) {
		level := &rule.Levels[n]
		v := rule.compare(level, base, r)
		reached = reached || v.breaching
		l.followLevel(rule, level, r, v, &above)
	}

	return reached
}

// higher is what became of the levels above one, which is not sent while one of them is open.
type higher struct{ open, ended bool }

// followLevel has one of the device's alarms follow the reading.
func (l *Log) followLevel(rule *Rule, level *Level, r Reading, v verdict, above *higher) {
	a := alarm{
		device: r.Device,
		sensor: r.Sensor,
		rule:   rule.Name,
		level:  level.Name,
	}

	if l.tracks[a] == nil && !v.breaching {
		return // as nearly always
	}

	t := l.track(a)
	// it is late, or damaged and calm, which nobody believes: it changes nothing, and says nothing
	isVoid := rule.stateful() && (t.outdates(r) || r.Damaged && !v.breaching)
	e := t.change(r, func() {
		if !isVoid {
			t.step(rule, level, r, v)
		}
	})

	e.shared = shared(r, rule.Per)

	if rule.stateful() && t.open && (above.open || above.ended) {
		t.held = muted
	}

	says := t.open && !above.open && !isVoid
	if says && (v.breaching || t.held != heardOf) {
		hush := l.hush(rule.Name, r)
		if quiet(r, rule.Quiet) {
			hush = muted
		}

		e.needsAlert = hush == heardOf && (v.breaching || t.held == muted)
		e.mayAlert = hush != muted
		if rule.stateful() {
			t.held = hush
		}
	}

	// it may be sent again
	e.mayAlert = e.mayAlert || says && rule.Repeat > 0

	above.open = above.open || t.open
	above.ended = above.ended || e.clears
	l.keep(a, t, e)
}

// exclude ends the device's alarms of a rule that does not look at it any more.
func (l *Log) exclude(rule *Rule, r Reading) {
	for _, level := range rule.Levels {
		a := alarm{
			device: r.Device,
			sensor: r.Sensor,
			rule:   rule.Name,
			level:  level.Name,
		}

		t := l.tracks[a]
		if t == nil || t.outdates(r) || rule.stateful() && r.Damaged {
			continue
		}

		e := t.change(r, t.reset)
		e.excluded = true
		e.shared = shared(r, rule.Per)
		l.keep(a, t, e)
	}
}

// change has by make of an alarm what the reading r says, and returns that.
func (t *track) change(r Reading, by func()) event {
	was := t.open
	by()
	r.Own = nil
	r.Fields = nil
	r.Properties = nil

	return event{Reading: r, opens: !was && t.open, clears: was && !t.open}
}

// idle reports whether an alarm is normal.
func (t *track) idle() bool { return !t.open && !t.pending }

// outdates reports whether the alarm has seen a reading that was taken after r, by the device's clock.
func (t *track) outdates(r Reading) bool {
	taken := r.moment().device
	return !t.idle() && !taken.IsZero() && taken.Before(t.newest)
}

// step takes an alarm through a reading.
func (t *track) step(rule *Rule, level *Level, r Reading, v verdict) {
	now := r.moment()
	switch {
	case t.open && !v.cleared:
		t.cleared = moment{}

	case t.open: // it ends so long after the first one beyond the clear, if all since then were
		if t.cleared.hub.IsZero() {
			t.cleared = now
		}

		if now.after(t.cleared) >= rule.ClearFor {
			t.reset()
		}

	case !v.breaching:
		t.reset()

	default: // it opens so long after the first one that reached the limit, if all since then did
		if !t.pending {
			t.reset()
			t.since = now
		}

		t.open = now.after(t.since) >= level.For
		t.pending = !t.open
	}

	if now.device.After(t.newest) {
		t.newest = now.device
	}
}

// reset makes an alarm normal.
func (t *track) reset() {
	t.pending = false
	t.open = false
	t.held = heardOf
	t.since = moment{}
	t.cleared = moment{}
	t.newest = time.Time{}
}
