package worker_test

import (
	"slices"
	"time"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A story is what a partition's log says of one level of one device. It knows what devices have sent, which rules were
// in force for whoever decided about it, what people have muted and removed, and nothing that replicas did.

// A state is what a partition's log says of one level of one device after an event.
type state struct {
	phase  string    // normal, pending or open; unsure, if that depends on when an owner died
	since  time.Time // of the first reading that reached the limit; zero if it is normal, or not known
	own    time.Time // of the same, by the device's clock; zero if it has none
	shown  time.Time // of the same, by the clock by which the event was compared
	newest time.Time // when the last of its readings was taken, by the device's clock; zero if none has such a time
	clear  time.Time // while open: of the first of the last readings, if these are all clear
	clears time.Time // of the same, by the device's clock
	opened int64     // while open: the event that has opened it; 0: not known
	tells  string    // whether receivers are told about this event: yes or maybe; empty: no
	untold string    // while open: whether an alert was held back, by a higher level or because it was muted, and not told since
	owed   int64     // the event that ended the last alarm, if none has opened since; 0: none, -1: not known
	over   time.Time // when that alarm had begun
}

// A story is what a log says of one level of one device.
type story struct {
	states  []state // after each event; the first is that before all events
	between []state // before each event, or after what it has measured before
	reign   int     // that has decided about the last event
}

// A chapter names a story.
type chapter struct {
	log    *hubLog
	of     subject
	device string
}

// follow returns the state of a device's level after each event of a log; the first is that before all events. The
// caller holds w.mu, as in all that follows.
func (w *world) follow(log *hubLog, s subject, device string) []state {
	if w.stories == nil {
		w.stories = map[chapter]*story{}
	}
	told := w.stories[chapter{log, s, device}]
	if told == nil {
		told = &story{states: []state{{phase: "normal"}}}
		w.stories[chapter{log, s, device}] = told
	}
	for i := len(told.states) - 1; i < len(log.readings); i++ {
		now := w.removed(log, device, i, told.states[i])
		now.tells = ""
		at := log.reignAt(int64(i + 1))
		for ; told.reign < at; told.reign++ {
			now = w.missing(log, s, now, told.reign)
		}
		if r, _ := w.in(log.reigns[at].version, s); r == nil {
			now = w.missing(log, s, now, at)
		}
		between := now
		if r, _ := w.in(log.reigns[at].version, s); r != nil && log.readings[i].device == device {
			now, between = w.afterAll(log, i, s, now)
		}
		told.states, told.between = append(told.states, now), append(told.between, between)
	}
	return told.states
}

// afterAll returns the state after all that the event i has measured, and that after what it has measured before.
func (w *world) afterAll(log *hubLog, i int, s subject, now state) (is, between state) {
	m := log.readings[i]
	between = now
	var up, upNow, upBetween state
	if higher, ok := w.above(s); ok {
		states := w.follow(log, higher, m.device)
		up, upNow = states[i], states[i+1]
		upBetween = w.stories[chapter{log, higher, m.device}].between[i]
	}
	if first := m.first(); first != nil {
		between = w.after(log, i, *first, s, now, up, upBetween)
	} else {
		upBetween = up
	}
	is = w.after(log, i, m, s, between, upBetween, upNow)
	if m.first() != nil && is.tells == "" && between.tells != "" {
		is.tells, is.shown = between.tells, between.shown
		if is.phase != "open" {
			is.tells = least(is.tells, "maybe") // what has to be told may not be due any more
		}
	}
	return w.perhaps(log, i, now, is), between
}

// forgetStories has stories be told anew: who has decided about which event, or what people did, has changed.
func (w *world) forgetStories() { w.stories = nil }

// removed returns what becomes of a state after so many events, if people have removed the device then.
func (w *world) removed(log *hubLog, device string, events int, now state) state {
	for _, o := range w.operations {
		last, is := o.last[log]
		switch {
		case !is || o.device != device || last != int64(events) || now.phase == "normal":
		case o.unsure:
			now = now.doubted()
		default:
			now = state{phase: "normal", owed: -1}
		}
	}
	return now
}

// perhaps returns the state after the event i, which may be missing: then the state is still what it was.
func (w *world) perhaps(log *hubLog, i int, was, is state) state {
	if log.readings[i].fate != superseded {
		return is
	}
	tells := least(is.tells, "maybe")
	if is.phase == was.phase && is.since.Equal(was.since) && is.newest.Equal(was.newest) && is.clear.Equal(was.clear) {
		was.tells = tells
		if was.untold != is.untold {
			was.untold = "maybe"
		}
		return was
	}
	if was.newest.After(is.newest) {
		is.newest = was.newest
	}
	is = is.doubted()
	is.tells = tells
	return is
}

// doubted returns the state if it is not known any more, but for its newest reading, which may be older.
func (now state) doubted() state { return state{phase: "unsure", owed: -1, newest: now.newest} }

// after returns the state of a level after m of the event i, which is its device's, and in whose reign there is the level.
// With that the next higher level has gone from was to is.
func (w *world) after(log *hubLog, i int, m reading, s subject, now, was, is state) state {
	version, e := log.reigns[log.reignAt(int64(i+1))].version, log.events[i]
	r, l := w.in(version, s)
	value, looks := looksAt(r, m)
	switch {
	case value == 0: // the rule finds no reading
		return now
	case !looks:
		return now.excluded(r, m, e)
	}
	own := m.deviceTime(e.Enqueued)
	late := r.Stateful() && !own.IsZero() && own.Before(now.newest)
	if limit, _ := limits(r, l, m); m.damage != "" && value < limit { // it says nothing
		late = true
	}
	now = now.next(r, l, value, m, e)
	if now.phase != "open" || !r.Stateful() {
		now.untold = ""
	} else if now.tells == "" && !late {
		now.tells = now.untold
	}
	if up, ok := w.above(s); ok {
		_, configured := w.in(version, up)
		switch {
		case configured != nil:
			now = now.below(was, is, late)
		case now.phase == "open" && now.tells == "" && was.phase != "normal": // it ends in these minutes, or has ended
			now.tells = "maybe"
		}
	}
	if log.reigns[log.reignAt(e.Sequence)].rivaled || w.overlaps() && !w.steady(s) { // another owner may have settled it
		now.tells = least(now.tells, "maybe")
	}
	if now.tells != "" {
		due := now.tells
		now.tells = least(due, w.speaks(r, m.device, m, e.Enqueued))
		switch {
		case now.phase != "open" || !r.Stateful():
		case now.tells == "yes":
			now.untold = ""
		case now.tells == "maybe":
			now.untold = "maybe"
		default: // it is muted
			now.untold = due
		}
	}
	return now
}

// overlaps reports whether an owner may go on after another one has begun.
func (w *world) overlaps() bool {
	return slices.ContainsFunc(w.moves, func(m move) bool { return m.what == steal }) ||
		slices.ContainsFunc(w.faults, func(f fault) bool { return f.what == frozenBefore || f.what == frozenAfter })
}

// missing returns what becomes of the state now while an owner reigns whose rules may not have s. For ten minutes it
// leaves open alarms alone: another replica may have the rule.
func (w *world) missing(log *hubLog, s subject, now state, at int) state {
	if r, _ := w.in(log.reigns[at].version, s); r != nil || now.phase == "normal" {
		return now
	}
	until := time.Now()
	for i := at; i < len(log.reigns); i++ {
		if r, _ := w.in(log.reigns[i].version, s); r != nil {
			until = log.reigns[i].at
			break
		}
	}
	begin := at
	for begin > 0 {
		if r, _ := w.in(log.reigns[begin-1].version, s); r != nil {
			break
		}
		begin--
	}
	if rule, _ := w.ever(s); now.phase == "pending" || !rule.Stateful() || !now.clear.IsZero() ||
		until.Sub(log.reigns[begin].at) > removedAfter-removing {
		return now.doubted()
	}
	return now
}

// next returns the state after a reading of the device, which came as e.
func (now state) next(r *rules.Rule, l *rules.Level, value float64, m reading, e telemetry.Event) state {
	limit, clear := limits(r, l, m)
	hot, cool := value >= limit, value < clear
	at := e.Enqueued
	own := m.deviceTime(at)
	switch {
	case r.Stateful() && m.damage != "" && !hot: // it never calms
		return now
	case r.Stateful() && !own.IsZero() && own.Before(now.newest): // it was taken before one that has arrived
		if now.phase == "unsure" && hot {
			now.tells = "maybe"
		}
		return now
	case now.phase == "unsure" && cool && r.ClearedFor == 0:
		return state{phase: "normal", owed: -1}
	case now.phase == "unsure" && hot && l.For == 0 && own.IsZero() && !now.newest.IsZero(): // or the alarm has seen no time
		return state{phase: "unsure", owed: -1, newest: now.newest, tells: "yes"}
	case now.phase == "unsure" && hot && l.For == 0:
		return state{phase: "open", newest: own, tells: "yes"}
	case now.phase == "unsure":
		now = now.doubted()
		if own.After(now.newest) {
			now.newest = own
		}
		if hot {
			now.tells = "maybe"
		}
		return now
	case now.phase == "open" && cool && !now.settles(r, own, at):
		if now.clear.IsZero() {
			now.clear, now.clears = at, own
		}
	case now.phase == "open" && cool:
		if !r.Resolved {
			return state{phase: "normal"}
		}
		_, since := now.clock(own, at)
		return state{phase: "normal", owed: e.Sequence, over: since}
	case now.phase == "pending" && !hot:
		return state{phase: "normal", owed: now.owed, over: now.over}
	case now.phase == "normal" && hot:
		now.phase, now.since, now.own, now.newest = "pending", at, own, time.Time{}
	}
	if now.phase == "normal" {
		return now
	}
	if !cool {
		now.clear, now.clears = time.Time{}, time.Time{}
	}
	if own.After(now.newest) {
		now.newest = own
	}
	then, since := now.clock(own, at)
	now.shown = since
	if now.phase == "pending" && then.Sub(since) >= l.For {
		now.phase, now.owed, now.over, now.opened = "open", 0, time.Time{}, e.Sequence
	}
	if now.phase == "open" && (hot || r.Repeat > 0) {
		now.tells = "yes"
	}
	return now
}

// excluded returns the state after a reading of the device that a condition of the rule excludes: there is no alarm any
// more.
func (now state) excluded(r *rules.Rule, m reading, e telemetry.Event) state {
	own := m.deviceTime(e.Enqueued)
	_, since := now.clock(own, e.Enqueued)
	switch {
	case !r.Stateful(), now.phase == "normal", m.damage != "":
	case !own.IsZero() && own.Before(now.newest):
	case now.phase == "unsure":
		return state{phase: "normal", owed: -1}
	case now.phase == "open" && r.Resolved:
		return state{phase: "normal", owed: e.Sequence, over: since}
	case now.phase == "open":
		return state{phase: "normal"}
	default:
		return state{phase: "normal", owed: now.owed, over: now.over}
	}
	return now
}

// settles reports whether a clear reading ends an open alarm: whether all have been clear for long enough.
func (now state) settles(r *rules.Rule, own, at time.Time) bool {
	switch {
	case now.clear.IsZero():
		return r.ClearedFor == 0
	case !own.IsZero() && !now.clears.IsZero():
		return own.Sub(now.clears) >= r.ClearedFor
	}
	return at.Sub(now.clear) >= r.ClearedFor
}

// clock returns when an event was and when the alarm began, by one clock: the device's, if both have its time.
func (now state) clock(own, at time.Time) (then, since time.Time) {
	if !own.IsZero() && !now.own.IsZero() {
		return own, now.own
	}
	return at, now.since
}

// below returns the state of a level below one that has gone from was to is: receivers are told of the highest level
// that is open, and when it has ended, of the milder one that still is. The event is late if the alarm has seen one that
// was taken later: then that is said with the next one.
func (now state) below(was, is state, late bool) state {
	if now.phase != "open" {
		switch is.phase {
		case "open":
			now.tells = ""
		case "unsure":
			now.tells = least(now.tells, "maybe")
		}
		return now
	}
	switch unsure := was.phase == "unsure" || is.phase == "unsure"; {
	case is.phase == "open":
		now.tells, now.untold = "", "yes"
	case unsure && late:
		now.untold = "maybe"
	case unsure:
		now.tells = "maybe"
	case was.phase == "open" && late:
		now.untold = "yes"
	case was.phase == "open":
		now.tells = "yes"
	}
	return now
}

// least returns what is said less surely.
func least(a, b string) string {
	switch {
	case a == "" || b == "":
		return ""
	case a == "maybe" || b == "maybe":
		return "maybe"
	}
	return "yes"
}

// speaks reports whether a device's alerts are neither muted nor is the device quiet: yes, or maybe where a mute
// begins or ends.
func (w *world) speaks(r *rules.Rule, device string, m reading, at time.Time) string {
	if m.quiet > 0 && m.fate != byHTTP {
		return ""
	}
	for _, m := range w.muteTimes {
		if m.covers(r.Name, device, w.start, at, at) {
			return ""
		}
	}
	speaks := "yes"
	for _, o := range w.operations {
		if o.what != mute || o.device != device || o.rule != "" && o.rule != r.Name {
			continue
		}
		switch {
		case at.Before(o.at.Add(-2*second)) || at.After(o.until.Add(2*second)):
		case at.After(o.at.Add(2*second)) && at.Before(o.until.Add(-2*second)):
			return ""
		default:
			speaks = "maybe"
		}
	}
	return speaks
}

// reignAt returns which owner has decided about an event.
func (log *hubLog) reignAt(sequence int64) int {
	for i := len(log.reigns) - 1; i > 0; i-- {
		if log.reigns[i].from < sequence {
			return i
		}
	}
	return 0
}

// looksAt returns the value of a reading for a rule; false if the rule does not look at it.
func looksAt(r *rules.Rule, m reading) (float64, bool) {
	read := m.fate == readable || m.fate == superseded || m.fate == byHTTP
	if !read || m.value == 0 || !valid(r, m.value) {
		return 0, false
	}
	looks := len(r.Only) == 0 || m.mode == "run"
	if looks && r.Base() != "" && (m.base == 0 || m.fate == byHTTP) {
		return 0, false
	}
	return m.value, looks
}

// valid reports whether a rule looks at a value.
func valid(r *rules.Rule, value float64) bool {
	return r.Valid == nil || value >= r.Valid.From && value <= r.Valid.To
}

// limits returns the limit of a level for a device, and beyond what its alarm ends.
func limits(r *rules.Rule, l *rules.Level, m reading) (limit, clear float64) {
	limit = l.Limit
	if r.Base() != "" {
		limit += m.base
	}
	if own := l.LimitAt.Name == "maxTemp"; own && m.limit != 0 && m.fate != byHTTP {
		limit = m.limit
	}
	return limit, limit - (l.Limit - l.Clear)
}
