package worker_test

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// The judge is docs/promise.md and docs/rules.md once more, written down without the worker and without package
// rules: what devices have sent, what people did and what the rules were says what receivers may and must hear.

// A state is what a partition's log says of one level of one device after an event.
type state struct {
	phase string    // normal, pending or open; unsure, if that depends on when an owner died
	since time.Time // of the first reading that reached the limit; zero if it is normal, or not known
	own   time.Time // of the same, by the device's clock; zero if it has none
	shown time.Time // of the same, by the clock by which the event was compared
	tells string    // whether receivers are told about this event: yes or maybe; empty: no
	owed  int64     // the event that ended the last alarm, if none has opened since; 0: none, -1: not known
	over  time.Time // when that alarm had begun
}

// A subject is one level of a rule.
type subject struct{ rule, level string }

func (s subject) String() string { return strings.TrimSpace(s.rule + " " + s.level) }

// in returns the rule and the level of s in a version of the rules; nil if it has none.
func (w *world) in(version int, s subject) (*rules.Rule, *rules.Level) {
	for i := range w.versions[version] {
		r := &w.versions[version][i]
		for j := range r.Levels {
			if r.Name == s.rule && r.Levels[j].Name == s.level {
				return r, &r.Levels[j]
			}
		}
	}
	return nil, nil
}

// subjects returns those of all versions.
func (w *world) subjects() (all []subject) {
	for _, version := range w.versions {
		for _, r := range version {
			for _, l := range r.Levels {
				if s := (subject{r.Name, l.Name}); !slices.Contains(all, s) {
					all = append(all, s)
				}
			}
		}
	}
	return all
}

// ever returns the rule and the level of s in the first version that has it. A rule's window, per and resolved are the
// same in all.
func (w *world) ever(s subject) (*rules.Rule, *rules.Level) {
	for version := range w.versions {
		if r, l := w.in(version, s); r != nil {
			return r, l
		}
	}
	panic("no such rule")
}

// steady reports whether s is the same in all versions, and has state.
func (w *world) steady(s subject) bool {
	first, _ := w.ever(s)
	for version := range w.versions {
		if r, _ := w.in(version, s); r == nil || !reflect.DeepEqual(r, first) {
			return false
		}
	}
	return first.Stateful()
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
	if m.fate != readable && m.fate != byHTTP || m.value == 0 {
		return 0, false
	}
	return m.value, len(r.Only) == 0 || m.mode == "run"
}

// limits returns the limit of a level for a device, and beyond what its alarm ends.
func limits(l *rules.Level, m reading) (limit, clear float64) {
	limit = l.Limit
	if l.Override != "" && m.limit != 0 && m.fate != byHTTP {
		limit = m.limit
	}
	return limit, limit - (l.Limit - l.Clear)
}

// above returns the next higher level of s; false if it is the highest.
func (w *world) above(s subject) (subject, bool) {
	return subject{s.rule, "critical"}, s.level == "warning"
}

// removedAfter is for how long a rule has to be missing until it counts as removed, and about how long that takes.
const removedAfter, removing = 10 * time.Minute, time.Minute

// A story is what a log says of one level of one device.
type story struct {
	states []state // after each event; the first is that before all events
	reign  int     // that has decided about the last event
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
		now := told.states[i]
		now.tells = ""
		at := log.reignAt(int64(i + 1))
		for ; told.reign < at; told.reign++ {
			now = w.missing(log, s, now, told.reign)
		}
		if r, _ := w.in(log.reigns[at].version, s); r == nil {
			now = w.missing(log, s, now, at)
		} else if log.readings[i].device == device {
			now = w.after(log, i, s, now)
		}
		told.states = append(told.states, now)
	}
	return told.states
}

// forgetStories has stories be told anew: who has decided about which event, or what people did, has changed.
func (w *world) forgetStories() { w.stories = nil }

// after returns the state of a level after the event i, which is its device's, and in whose reign there is the level.
func (w *world) after(log *hubLog, i int, s subject, now state) state {
	version, m, e := log.reigns[log.reignAt(int64(i+1))].version, log.readings[i], log.events[i]
	r, l := w.in(version, s)
	value, looks := looksAt(r, m)
	if !looks {
		return now
	}
	now = now.next(r, l, value, m, e)
	if up, ok := w.above(s); ok {
		higher := w.follow(log, up, m.device)
		_, configured := w.in(version, up)
		switch {
		case configured != nil:
			now = now.below(higher[i], higher[i+1])
		case now.phase == "open" && now.tells == "" && higher[i].phase != "normal": // it ends in these minutes, or has ended
			now.tells = "maybe"
		}
	}
	if log.reigns[log.reignAt(e.Sequence)].rivaled || w.overlaps() && !w.steady(s) { // another owner may have settled it
		now.tells = least(now.tells, "maybe")
	}
	if now.tells != "" {
		now.tells = least(now.tells, w.speaks(r.Name, m.device, m, e.Enqueued))
	}
	return now
}

// overlaps reports whether an owner may go on after another one has begun.
func (w *world) overlaps() bool {
	return slices.ContainsFunc(w.moves, func(m move) bool { return m.what == steal }) ||
		slices.ContainsFunc(w.faults, func(f fault) bool { return f.what == frozenBefore || f.what == frozenAfter })
}

// missing returns what becomes of the state now while an owner reigns whose rules may not have s. For ten minutes it
// leaves open alarms alone.
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
	if rule, _ := w.ever(s); now.phase == "pending" || !rule.Stateful() ||
		until.Sub(log.reigns[begin].at) > removedAfter-removing {
		return state{phase: "unsure", owed: -1}
	}
	return now
}

// next returns the state after a reading of the device, which came as e.
func (now state) next(r *rules.Rule, l *rules.Level, value float64, m reading, e telemetry.Event) state {
	limit, clear := limits(l, m)
	hot, cool := value >= limit, value < clear
	at := e.Enqueued
	own := m.deviceTime(at)
	switch {
	case now.phase == "unsure" && cool:
		return state{phase: "normal", owed: -1}
	case now.phase == "unsure" && hot && l.For == 0:
		return state{phase: "open", tells: "yes"}
	case now.phase == "unsure":
		return state{phase: "unsure", owed: -1, tells: map[bool]string{true: "maybe"}[hot]}
	case now.phase == "open" && cool:
		if !r.Resolved {
			return state{phase: "normal"}
		}
		_, since := now.clock(own, at)
		return state{phase: "normal", owed: e.Sequence, over: since}
	case now.phase == "pending" && !hot:
		return state{phase: "normal", owed: now.owed, over: now.over}
	case now.phase == "normal" && hot:
		now.phase, now.since, now.own = "pending", at, own
	}
	then, since := now.clock(own, at)
	now.shown = since
	if now.phase == "pending" && then.Sub(since) >= l.For {
		now.phase, now.owed, now.over = "open", 0, time.Time{}
	}
	if now.phase == "open" && hot {
		now.tells = "yes"
	}
	return now
}

// clock returns when an event was and when the alarm began, by one clock: the device's, if it has not run backward.
func (now state) clock(own, at time.Time) (then, since time.Time) {
	if !own.IsZero() && !now.own.IsZero() && !own.Before(now.own) {
		return own, now.own
	}
	return at, now.since
}

// below returns the state of a level below one that has gone from was to is: receivers are told of the highest level
// that is open, and when it has ended, of the milder one that still is.
func (now state) below(was, is state) state {
	ended := was.phase == "open" && is.phase != "open"
	switch {
	case is.phase == "open":
		now.tells = ""
	case was.phase == "unsure" || is.phase == "unsure":
		if now.phase == "open" {
			now.tells = "maybe"
		}
	case now.phase == "open" && ended:
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
func (w *world) speaks(rule, device string, m reading, at time.Time) string {
	if m.quiet > 0 && m.fate != byHTTP {
		return ""
	}
	speaks := "yes"
	for _, o := range w.operations {
		if o.what != mute || o.device != device || o.rule != "" && o.rule != rule {
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

// judgeLedger checks that a ledger which was just written holds what the log says.
func (w *world) judgeLedger(log *hubLog) {
	at := log.kept.Position.Sequence
	w.eachAlarm(func(s subject, device string) {
		got, want := alarmOf(log.kept, s, device), w.follow(log, s, device)[at]
		if !got.is(want) {
			w.violated("P4: the ledger of %s at %d has %s %s %s since %v, the log says %s since %v", log.id, at, device, s,
				got.phase, got.since, want.phase, want.since)
		}
		if got.owed != 0 && (got.owed != want.owed || !got.over.Equal(want.over)) {
			w.violated("P4: the ledger of %s at %d owes %s %s the recovery of %d, the log says %d", log.id, at, device, s,
				got.owed, want.owed)
		}
	})
	if log.checkpoint.Ledger != "" {
		w.judgeCheckpoint(log)
	}
}

// judgeCheckpoint checks that whoever starts now, from the later of the ledger and the checkpoint, starts with what
// the log says.
func (w *world) judgeCheckpoint(log *hubLog) {
	from, at := log.kept.Position.Sequence, log.checkpoint.Sequence
	if at <= from {
		return
	}
	w.eachAlarm(func(s subject, device string) {
		got, want := alarmOf(log.kept, s, device), w.follow(log, s, device)[at]
		if !got.is(want) || want.owed > from && got.owed != want.owed {
			w.violated("P4: the checkpoint of %s at %d passes a change of %s %s that the ledger at %d does not hold", log.id,
				at, device, s, from)
		}
	})
}

// eachAlarm calls do for every device and level about readings that has been in all versions.
func (w *world) eachAlarm(do func(s subject, device string)) {
	for _, s := range w.subjects() {
		if r, _ := w.ever(s); r.Silence() || !w.steady(s) {
			continue
		}
		for _, device := range w.devices {
			do(s, device)
		}
	}
}

func (now state) is(want state) bool {
	return now.phase == want.phase && now.since.Equal(want.since) && now.own.Equal(want.own)
}

// alarmOf returns what a ledger has of a device's level.
func alarmOf(c ledger.Content, s subject, device string) (f state) {
	f.phase = "normal"
	for _, a := range c.Alarms {
		if string(a.Device) != device || a.Rule != s.rule || a.Level != s.level {
			continue
		}
		switch {
		case a.Open:
			f.phase = "open"
		case !a.Since.IsZero():
			f.phase = "pending"
		}
		f.since, f.own = a.Since, a.DeviceSince
		if a.Due != nil {
			f.owed, f.over = a.Due.Sequence, a.Due.Since
		}
	}
	return f
}

// judgeRecovery checks that a recovery which is being sent is not about a device that is hot again by what the hub
// held when the owner took over.
func (p *process) judgeRecovery(a notify.Alert) {
	i := slices.IndexFunc(p.logs, func(l *hubLog) bool { return l.id == a.Partition })
	s := subject{a.Rule, a.Level}
	if i < 0 || p.owners[i] == nil || !a.Resolved || a.Silent > 0 || a.Removed || !p.steady(s) {
		return
	}
	o := p.owners[i]
	if int64(o.held) <= a.Sequence || time.Since(o.began) > 50*second {
		return
	}
	if p.follow(o.log, s, a.Device)[o.held].phase == "open" {
		p.violated("P2: the recovery of %s %s of %d is sent, and it is open after what the hub held at the take-over, %d",
			a.Device, s, a.Sequence, o.held)
	}
}

// judge checks the end.
func (w *world) judge() {
	w.forgetStories()
	for _, log := range w.logs {
		if n := log.readable(); log.checkpoint.Sequence < n {
			w.violated("G2: the checkpoint of %s ends at %d of %d", log.id, log.checkpoint.Sequence, n)
		}
	}
	for _, s := range w.subjects() {
		for _, in := range w.inboxes {
			if r, _ := w.ever(s); r.Silence() {
				w.judgeSilence(in, s)
			} else {
				w.judgeAlerts(in, s)
			}
		}
	}
	for _, in := range w.inboxes {
		w.idsNameOneThing(in)
	}
	for _, d := range w.dead {
		w.judgeLetter(d)
	}
}

// idsNameOneThing: a receiver may drop what has an id that it knows. So no two alerts or recoveries have the same,
// unless one stands for the other, whose fate was not known, or the sender of a reading by HTTP gave it the same id.
func (w *world) idsNameOneThing(in *inbox) {
	known := map[string]arrival{}
	for _, a := range in.all {
		id := a.Source + " " + a.ID
		b, has := known[id]
		if has && a.Partition != "http" && !a.Ambiguous && !b.Ambiguous && (a.matter() != b.matter() ||
			a.Resolved != b.Resolved ||
			a.Log != b.Log || a.Sequence != b.Sequence) {
			w.violated("I: %s has the id %s for two things: %s and %s", in.name, a.ID, tell(a.Alert), tell(b.Alert))
		}
		known[id] = a
	}
}

// readable returns the number of the last event that can be read.
func (log *hubLog) readable() int64 {
	for i := len(log.readings); i > 0; i-- {
		if log.readings[i-1].fate != expired {
			return int64(i)
		}
	}
	return 0
}

// A told is a reading that a receiver has to be told about.
type told struct {
	device   string
	log      *hubLog // nil: it came by HTTP
	sequence int64
	at       time.Time
	sure     bool
	state
}

// A matter is what alerts of a subject share a window by: a device, or the value of a property.
type matter struct {
	name   string
	shared bool
}

func (a arrival) matter() matter {
	if a.PerValue != "" {
		return matter{a.PerValue, true}
	}
	return matter{a.Device, false}
}

func matterOf(r *rules.Rule, m reading) matter {
	if r.Per != "" && m.site != "" && m.fate != byHTTP {
		return matter{m.site, true}
	}
	return matter{m.device, false}
}

// wants reports whether a receiver gets alerts of s about a reading.
func (in *inbox) wants(s subject, m reading) bool {
	return in.filters.Want(s.rule, s.level, func(name string) string {
		if name == "site" && m.fate != byHTTP {
			return m.site
		}
		return ""
	})
}

// tells returns what a receiver has to be told of s, by what it is about.
func (w *world) tells(in *inbox, s subject) map[matter][]told {
	all := map[matter][]told{}
	rule, _ := w.ever(s)
	for _, log := range w.logs {
		for _, device := range w.devices {
			states := w.follow(log, s, device)
			for i, m := range log.readings {
				if f := states[i+1]; m.device == device && f.tells != "" && in.wants(s, m) {
					of := matterOf(rule, m)
					all[of] = append(all[of], told{device, log, int64(i + 1), log.events[i].Enqueued, f.tells == "yes", f})
				}
			}
		}
	}
	for _, m := range w.posted {
		r, l := w.in(m.version, s)
		if r == nil || !in.wants(s, m.reading) || w.speaks(s.rule, m.device, m.reading, m.at) != "yes" {
			continue
		}
		value, looks := looksAt(r, m.reading)
		if up, ok := w.above(s); ok {
			if _, critical := w.in(m.version, up); critical != nil && value >= critical.Limit {
				continue
			}
		}
		if looks && value >= l.Limit {
			of := matterOf(rule, m.reading)
			all[of] = append(all[of], told{device: m.device, at: m.at, sure: true})
		}
	}
	return all
}

// heard returns what a receiver got of s, by what it is about.
func (in *inbox) heard(s subject, silence bool) map[matter][]arrival {
	all := map[matter][]arrival{}
	for _, a := range in.all {
		if a.Rule == s.rule && a.Level == s.level && (a.Silent > 0) == silence {
			all[a.matter()] = append(all[a.matter()], a)
		}
	}
	return all
}

// judgeAlerts checks what a receiver heard about the readings of s.
func (w *world) judgeAlerts(in *inbox, s subject) {
	tells, heard := w.tells(in, s), in.heard(s, false)
	matters := map[matter]bool{}
	for of := range tells {
		matters[of] = true
	}
	for of := range heard {
		matters[of] = true
	}
	for of := range matters {
		w.onceInAWindow(in, s, of, heard[of])
		w.nothingInvented(in, s, of, heard[of])
		w.nothingLost(in, s, of, tells[of], heard[of])
		w.replaysAreSilent(in, s, of, heard[of])
		if r, _ := w.ever(s); of.shared {
			w.devicesAreCounted(in, s, of, tells[of], heard[of])
		} else if r.Resolved {
			w.lastWordIsTrue(in, s, of, tells[of], heard[of])
		}
	}
}

// onceInAWindow: a receiver gets at most one alert per device within the window. No recovery comes within the window,
// and none comes twice.
func (w *world) onceInAWindow(in *inbox, s subject, of matter, heard []arrival) {
	rule, _ := w.ever(s)
	var alert, last *arrival
	for i := range heard {
		a := &heard[i]
		if a.dropped {
			continue
		}
		late := alert != nil && alert.at.After(alert.Expires) // exception d
		if alert != nil && a.at.Before(alert.at.Add(rule.Window)) && !late && !w.reopened(in, of, alert.at, a.at) {
			w.violated("P1: %s hears of %s %s again %v after an alert (recovery: %v, replay: %v)", in.name, of.name, s,
				a.at.Sub(alert.at), a.Resolved, a.replayed)
		}
		if a.Resolved && last != nil && last.Resolved && !w.interrupted(in, s, of, last.at, a.at) {
			w.violated("P3: %s hears two recoveries of %s %s, of %d and %d, without an alert between them", in.name, of.name,
				s, last.Sequence, a.Sequence)
		}
		if last = a; !a.Resolved {
			alert = a
		}
	}
}

// reopened reports whether people have ended the window of a matter at a receiver between two times.
func (w *world) reopened(in *inbox, of matter, from, to time.Time) bool {
	return slices.ContainsFunc(w.operations, func(o operation) bool {
		return o.what == reopen && w.inboxes[o.receiver] == in && o.device == of.name && !o.at.Before(from) && !o.at.After(to)
	})
}

// interrupted reports whether an alert that nobody heard may have come between two recoveries: its key was claimed,
// and then it was given up, or the device was heard before the silence was sent again.
func (w *world) interrupted(in *inbox, s subject, of matter, from, to time.Time) bool {
	if rule, _ := w.ever(s); rule.Silence() && !w.orderly() {
		return true
	}
	return to.Sub(from) >= w.giveUp || slices.ContainsFunc(w.dead, func(d keptLetter) bool {
		return d.isOf(in, s, of) && !d.Alert.Resolved
	})
}

func (d keptLetter) isOf(in *inbox, s subject, of matter) bool {
	return d.Receiver == in.name && d.Alert.Rule == s.rule && d.Alert.Level == s.level &&
		arrival{Alert: d.Alert}.matter() == of
}

// nothingInvented: every alert is about a reading that people are to be told of, and every recovery about one that
// ended an alarm.
func (w *world) nothingInvented(in *inbox, s subject, of matter, heard []arrival) {
	for _, a := range heard {
		i := slices.IndexFunc(w.logs, func(l *hubLog) bool { return l.id == a.Partition })
		if i < 0 || a.Removed || !w.steady(s) {
			continue
		}
		f := w.follow(w.logs[i], s, a.Device)[a.Sequence]
		switch {
		case a.Resolved && (f.owed != a.Sequence || !f.over.Equal(a.Since)):
			w.violated("P4: %s hears a recovery of %s %s of %d since %v, the log has none: %+v", in.name, of.name, s,
				a.Sequence, a.Since, f)
		case !a.Resolved && (f.tells == "" || !f.shown.Equal(a.Since)):
			w.violated("P4: %s hears an alert of %s %s of %d since %v, the log has none: %+v", in.name, of.name, s,
				a.Sequence, a.Since, f)
		}
	}
}

// nothingLost: every reading that people are to be told of is covered by a delivery, or kept as a dead letter.
func (w *world) nothingLost(in *inbox, s subject, of matter, tells []told, heard []arrival) {
	rule, _ := w.ever(s)
	for _, t := range tells {
		settled := !t.sure
		for _, a := range heard {
			switch {
			case a.Resolved:
				settled = settled || t.log != nil && a.Partition == t.log.id && a.Sequence >= t.sequence
			case w.orderly() && t.log != nil && a.Enqueued.After(t.at.Add(5*second)): // it came too late for that reading
			default:
				settled = settled || t.at.Before(a.heard.Add(rule.Window+w.slack()))
			}
		}
		for _, d := range w.dead {
			if d.isOf(in, s, of) && !d.Alert.Resolved {
				settled = settled || !t.at.After(d.Alert.Enqueued) || d.refused() && t.at.Before(d.at.Add(rule.Window))
			}
		}
		if !settled {
			w.violated("G2: nothing settles the reading %d of %s at %v for %s: %s %s", t.sequence, t.device,
				t.at.Sub(w.start), in.name, of.name, s)
		}
	}
}

func (d keptLetter) refused() bool { return strings.HasPrefix(d.Reason, "refused") }

// orderly reports whether nothing fails, and owners follow each other in good order.
func (w *world) orderly() bool {
	return len(w.faults) == 0 && !slices.ContainsFunc(w.moves, func(m move) bool {
		return m.what != mute &&
			m.what != forget
	}) &&
		!slices.ContainsFunc(w.readings, func(r reading) bool { return r.lag > 0 })
}

// slack is by how much a window may end late: one that is recorded late still counts until its claim, and a
// window, would be over.
func (w *world) slack() time.Duration {
	for _, f := range w.faults {
		if f.call == callExtend || f.what == frozenBefore || f.what == frozenAfter {
			return throttle.ClaimTTL(sendTimeout)
		}
	}
	return 0
}

// replaysAreSilent: a reading that the hub took before the end of the last recorded window is settled, however late
// it is read.
func (w *world) replaysAreSilent(in *inbox, s subject, of matter, heard []arrival) {
	rule, _ := w.ever(s)
	if w.mayMissRecords() {
		return
	}
	for i, b := range heard {
		if b.Resolved || !b.answered || b.Partition == "http" {
			continue
		}
		for _, a := range heard[i+1:] {
			if a.Resolved || a.replayed || a.Partition == "http" || w.reopened(in, of, b.at, a.at) {
				break
			}
			if a.ID != b.ID && a.Enqueued.Before(b.heard.Add(rule.Window)) {
				w.violated("R3: %s hears of %s %s of %d, which was taken within the window of the alert of %d", in.name, of.name,
					s, a.Sequence, b.Sequence)
			}
		}
	}
}

// mayMissRecords reports whether a window may not have been recorded.
func (w *world) mayMissRecords() bool {
	return len(w.faults) > 0 || slices.ContainsFunc(w.moves, func(m move) bool { return m.what == storeDown })
}

// devicesAreCounted: the next alert of a site counts the devices whose readings were suppressed.
func (w *world) devicesAreCounted(in *inbox, s subject, of matter, tells []told, heard []arrival) {
	if !w.orderly() || len(w.moves) > 0 || len(w.logs) > 1 || len(w.posted) > 0 || in.refuses != "" ||
		in.limits.Rate.Every > 0 {
		return
	}
	slices.SortFunc(tells, func(a, b told) int { return int(a.sequence - b.sequence) })
	for i, a := range heard {
		if i == 0 || a.Resolved {
			continue
		}
		var devices []string
		for _, t := range tells {
			if t.sequence > heard[i-1].Sequence && t.sequence < a.Sequence && !slices.Contains(devices, t.device) {
				devices = append(devices, t.device)
			}
		}
		if a.Suppressed < int64(len(devices)) {
			w.violated("C: %s hears of %d at %s, which counts %d devices; %v were suppressed", in.name, a.Sequence, of.name,
				a.Suppressed, devices)
		}
	}
}

// lastWordIsTrue: who was alerted hears once that a device is normal again, and what people heard last is true.
func (w *world) lastWordIsTrue(in *inbox, s subject, of matter, tells []told, heard []arrival) {
	replayed := slices.ContainsFunc(heard, func(a arrival) bool { return a.replayed }) // the alarm may have ended
	if replayed || w.scattered(of.name) {
		return
	}
	last := lastWord(heard)
	log := w.logs[w.home(of.name)]
	states := w.follow(log, s, of.name)
	end := states[len(states)-1]
	if r, _ := w.in(len(w.versions)-1, s); r == nil {
		end = state{phase: "normal"}
	}
	due := end.phase == "open" && w.exposed(in, log, s, of.name)
	for _, t := range tells {
		if t.log == log && t.sure && end.phase == "open" && w.openSince(states, t.sequence) && !w.deadAt(in, s, of, t) {
			due = true
		}
	}
	// An owner with other rules may have sent it, and not recorded it: see docs/rules.md, What can go wrong.
	others := last != nil && !w.steady(s) && states[last.Sequence].tells != "yes"
	recoveryDied := slices.ContainsFunc(w.dead, func(d keptLetter) bool { return d.isOf(in, s, of) && d.Alert.Resolved })
	switch {
	case end.phase == "open" && due && (last == nil || last.Resolved):
		w.violated("P2: %s %s is open, and that is not what %s heard last", of.name, s, in.name)
	case end.phase == "normal" && last != nil && !last.Resolved && !recoveryDied && !others:
		w.violated("P2: %s %s is not open, and %s heard an alert last", of.name, s, in.name)
	}
}

// exposed reports whether a milder level is open to the end, a higher one that inhibited it was removed, and the
// device has sent a reading since.
func (w *world) exposed(in *inbox, log *hubLog, s subject, device string) bool {
	up, ok := w.above(s)
	if !ok || len(in.filters) > 0 || len(w.operations) > 0 || slices.ContainsFunc(w.readings,
		func(r reading) bool { return r.quiet > 0 }) {
		return false
	}
	first := len(log.reigns) // from which on the higher one is missing
	for ; first > 0; first-- {
		if _, l := w.in(log.reigns[first-1].version, up); l != nil {
			break
		}
	}
	if first == len(log.reigns) || first == 0 {
		return false
	}
	after := log.reigns[first].at.Add(removedAfter + removing)
	read := slices.ContainsFunc(log.events, func(e telemetry.Event) bool {
		m := log.readings[e.Sequence-1]
		return e.Device == device && m.value != 0 && m.fate == readable && m.mode == "run" && e.Enqueued.After(after)
	})
	last := 0 // event that somebody decided about who had it
	for last < len(log.events) && log.reignAt(int64(last+1)) < first {
		last++
	}
	return read && w.follow(log, up, device)[last].phase == "open" && w.openSince(w.follow(log, s, device), int64(last)) &&
		len(w.dead) == 0
}

// openSince reports whether an alarm has been open from an event to the end.
func (w *world) openSince(states []state, sequence int64) bool {
	return !slices.ContainsFunc(states[sequence:], func(f state) bool { return f.phase != "open" })
}

// deadAt reports whether a dead letter stands for a reading.
func (w *world) deadAt(in *inbox, s subject, of matter, t told) bool {
	rule, _ := w.ever(s)
	return slices.ContainsFunc(w.dead, func(d keptLetter) bool {
		return d.isOf(in, s, of) && !d.Alert.Resolved && (!t.at.After(d.Alert.Enqueued) || d.refused() &&
			t.at.Before(d.at.Add(rule.Window)))
	})
}

// scattered reports whether a device has sent to two places: what it is in one says nothing about the other.
func (w *world) scattered(device string) bool {
	return slices.ContainsFunc(w.readings, func(r reading) bool {
		return r.device == device && (r.fate == byHTTP || r.partition != w.home(device))
	})
}

// judgeLetter checks that an alert was given up for a reason, and not too early: once in a window, as far as a
// replica knows, if the receiver refuses what is said of a device.
func (w *world) judgeLetter(d keptLetter) {
	s, of := subject{d.Alert.Rule, d.Alert.Level}, arrival{Alert: d.Alert}.matter()
	rule, _ := w.ever(s)
	for _, other := range w.dead {
		again := other.Receiver == d.Receiver && (subject{other.Alert.Rule, other.Alert.Level}) == s &&
			arrival{Alert: other.Alert}.matter() == of && other.Alert.Device == d.Alert.Device &&
			other.Alert.Replica == d.Alert.Replica && other.Alert.Partition == d.Alert.Partition && other.Alert.ID != d.Alert.ID
		if again && !rule.Silence() && !rule.Resolved && d.refused() && other.refused() && !d.Alert.Resolved &&
			!other.Alert.Resolved &&
			other.at.After(d.at) && other.at.Before(d.at.Add(rule.Window)) {
			w.violated("D1: %s %s is a dead letter again %v after one that was refused", of.name, s, other.at.Sub(d.at))
		}
	}
	if !strings.HasPrefix(d.Reason, "not taken within") {
		return
	}
	since := d.Alert.Enqueued
	if d.Alert.Removed { // it could be sent only after the rule had been removed
		for _, log := range w.logs {
			for _, r := range log.reigns {
				if _, l := w.in(r.version, s); l == nil && log.id == d.Alert.Partition {
					since = r.at.Add(removedAfter)
					break
				}
			}
		}
	}
	if age := d.at.Sub(since); age < w.giveUp-second {
		w.violated("D2: %s was given up after %v as not taken within %v", tell(d.Alert), age, w.giveUp)
	}
}

// judgeSilence checks what a receiver heard about devices that are silent: none of it is false, and none is missing.
func (w *world) judgeSilence(in *inbox, s subject) {
	heard := in.heard(s, true)
	for of, arrivals := range heard {
		w.onceInAWindow(in, s, of, arrivals)
		for _, a := range arrivals {
			if !a.Resolved && !strings.HasPrefix(a.Device, "partition/") {
				w.silenceIsTrue(in, s, a)
			}
		}
	}
	for _, device := range w.devices {
		whole := matter{notify.Partition(w.logs[w.home(device)].id), false}
		dark := lastWord(heard[whole])
		told := dark != nil && !dark.Resolved || slices.ContainsFunc(w.dead, func(d keptLetter) bool {
			return d.isOf(in, s,
				whole)
		})
		w.silenceIsNotLost(in, s, device, heard[matter{device, false}], told)
	}
}

// lastWord returns what a receiver heard last, and did not drop; nil if that is nothing.
func lastWord(heard []arrival) (last *arrival) {
	for i := range heard {
		if !heard[i].dropped {
			last = &heard[i]
		}
	}
	return last
}

// counts reports whether a message is a sign of life for a rule.
func counts(r *rules.Rule, m reading) bool {
	return m.fate != byHTTP && (r.Field == "" || m.value != 0 && m.fate != undecodable)
}

// freshness and margin are how old a proof that nothing came may be.
const freshness, margin = 30 * second, 5 * second

// silenceIsTrue: nothing came for as long as the alert says, and nothing that could have been known when it was sent.
func (w *world) silenceIsTrue(in *inbox, s subject, a arrival) {
	rule, _ := w.ever(s)
	claimed := a.Expires.Add(-throttle.ClaimTTL(sendTimeout))
	for _, log := range w.logs {
		for i, m := range log.readings {
			at := log.events[i].Enqueued
			if m.device != a.Device || !counts(rule, m) || log.id != a.Partition && !w.knownElsewhere(s, m, at, claimed) {
				continue
			}
			if m.fate == expired && !at.Before(a.Since.Add(a.Silent)) { // before that it was silent
				continue
			}
			if at.After(a.Enqueued.Add(-a.Silent)) && !at.After(a.Enqueued) {
				w.violated("S1: %s hears that %s is silent (%s) from %v to %v, and it sent %s/%d at %v", in.name, a.Device, s,
					a.Enqueued.Add(-a.Silent).Sub(w.start), a.Enqueued.Sub(w.start), log.id, i+1, at.Sub(w.start))
			}
			if at.After(a.Enqueued) && at.Before(claimed.Add(-freshness-margin)) && m.fate != expired {
				w.violated("S1: %s hears that %s is silent (%s) under a claim of %v, and it sent %s/%d at %v", in.name, a.Device, s,
					claimed.Sub(w.start), log.id, i+1, at.Sub(w.start))
			}
			if quiet := at.Add(m.quiet); m.quiet > 0 && m.fate == readable && log.id == a.Partition &&
				int64(i+1) == a.Sequence && a.Enqueued.Before(quiet.Truncate(time.Millisecond)) {
				w.violated("S1: %s hears that %s is silent (%s) at %v, and it was to be quiet until %v", in.name, a.Device, s,
					a.Enqueued.Sub(w.start), quiet.Sub(w.start))
			}
		}
	}
	if !slices.ContainsFunc(w.versions, func(set []rules.Rule) bool { return w.lasts(set, s) == a.Silent }) {
		w.violated("S1: %s hears that %s is silent (%s) after %v", in.name, a.Device, s, a.Silent)
	}
	for _, o := range w.operations {
		if o.what == forget && o.device == a.Device && a.at.After(o.at.Add(30*second)) && w.stays(o, rule, a.Device) {
			w.violated("S1: %s hears that %s is silent (%s) at %v, and it was removed at %v", in.name, a.Device, s,
				a.at.Sub(w.start), o.at.Sub(w.start))
		}
	}
}

// knownElsewhere reports whether the owner of another partition knows of a message when a device is claimed to be
// silent: rosters are written every minute, and read every half.
func (w *world) knownElsewhere(s subject, m reading, at, claimed time.Time) bool {
	return w.orderly() && w.steady(s) && m.fate != expired && at.Before(claimed.Add(-2*time.Minute-freshness-margin))
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
// first time.
func (w *world) stays(o operation, r *rules.Rule, device string) bool {
	for _, log := range w.logs {
		for i, m := range log.readings {
			if m.device == device && counts(r, m) && (log.events[i].Enqueued.Add(m.lag).After(o.at.Add(-second)) ||
				log.movedBack) {
				return false
			}
		}
	}
	return true
}

// silenceIsNotLost: at the end, what a receiver heard last of a device is whether it is silent. If the partition is
// dark, one alert stands for all of its devices.
func (w *world) silenceIsNotLost(in *inbox, s subject, device string, heard []arrival, dark bool) {
	last := lastWord(heard)
	dead := slices.ContainsFunc(w.dead, func(d keptLetter) bool { return d.isOf(in, s, matter{device, false}) })
	rule, _ := w.in(len(w.versions)-1, s)
	if rule == nil {
		if r, _ := w.ever(s); r.Resolved && last != nil && !last.Resolved && !dead {
			w.violated("S3: %s was removed, and %s heard last that %s is silent", s, in.name, device)
		}
		return
	}
	message, at := w.lastOf(rule, device)
	silent := time.Since(at)
	switch removed, forgotten := w.wasForgotten(rule, device, at); {
	case at.IsZero() || dead || !w.lasting(w.logs[w.home(device)], s, device):
	case silent < rule.Silent || forgotten || silent > rule.Forget+10*time.Minute:
		if rule.Resolved && last != nil && !last.Resolved && (silent < 15*second || forgotten || silent > rule.Forget) &&
			!w.scattered(device) {
			w.violated("S3: %s heard last that %s is silent (%s) since %v, and that is over", in.name, device, s, last.Sequence)
		}
	case dark || removed:
	case silent < rule.Forget-10*time.Minute && time.Since(w.expectedAnew(device,
		at)) > 3*rule.Silent+rule.Window+3*time.Minute &&
		in.filters.Cover(s.rule, s.level) && !w.excused(s, device, message, at):
		if last == nil || last.Resolved {
			w.violated("S2: %s is silent (%s) since %v, and %s did not hear that last", device, s, at.Sub(w.start), in.name)
		}
	}
}

// lastOf returns the last message of a device that counts and can be read, and when it came; a zero time if there is
// none.
func (w *world) lastOf(r *rules.Rule, device string) (last reading, at time.Time) {
	for _, log := range w.logs {
		for i, m := range log.readings {
			if e := log.events[i]; m.device == device && m.fate != expired && counts(r, m) && e.Enqueued.After(at) {
				last, at = m, e.Enqueued
			}
		}
	}
	return last, at
}

// expectedAnew returns from when on a device is expected to send something: its last message, or the end of the last
// gap in its partition, if that is later.
func (w *world) expectedAnew(device string, at time.Time) time.Time {
	log, lost := w.logs[w.home(device)], false
	for i, m := range log.readings {
		if e := log.events[i]; (m.fate == expired || lost) && e.Enqueued.After(at) {
			at = e.Enqueued
		}
		lost = m.fate == expired
	}
	if last := log.reigns[len(log.reigns)-1].at; len(w.versions) > 1 && last.After(at) {
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
		if m.device == device && r == nil { // it may never have heard the device
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
			removed, stays = true, stays || w.stays(o, r, device)
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
	return quiet || muted
}
