package worker_test

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"alertworker/internal/rules"
)

// The judge is docs/promise.md and docs/rules.md once more, written down without the worker and without package
// rules: what devices have sent, what people did and what the rules were says what receivers may and must hear. Here is
// what its parts have in common; each says what it knows:
//
//   - world_story_test.go: what the logs say
//   - world_ledger_test.go: what replicas keep of that
//   - world_alerts_test.go: what receivers hear about readings
//   - world_silence_test.go: what they hear about silent devices
//   - world_incidents_test.go: about sites whose devices are silent
//   - world_absence_test.go: and about silent sensors
//   - world_letters_test.go: what is given up

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

// above returns the next higher level of s; false if it is the highest.
func (w *world) above(s subject) (subject, bool) {
	return subject{s.rule, "critical"}, s.level == "warning"
}

// removedAfter is how long after a take-over no replica has a rule any more that the owner has not, and removing about how
// long it then takes until its alarms have ended.
const removedAfter, removing = 10 * time.Minute, time.Minute

// blur notes that from now on the log alone does not say what is true of a device: people remove it, or its messages
// may be missing. The caller holds w.mu.
func (w *world) blur(device string) {
	if w.isClear(device, time.Now()) {
		w.unclear[device] = time.Now()
	}
}

// isClear reports whether the log said all of a device at a time.
func (w *world) isClear(device string, at time.Time) bool {
	since, unclear := w.unclear[device]
	return !unclear || at.Before(since)
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
			switch r, _ := w.ever(s); {
			case r.Silence() && w.watches:
				w.judgeSensorSilence(in, s)
			case r.Silence():
				w.judgeSilence(in, s)
			default:
				w.judgeAlerts(in, s)
			}
		}
	}
	for _, in := range w.inboxes {
		w.idsNameOneThing(in)
		w.repeatsCount(in)
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
		isOther := a.matter() != b.matter() || a.Resolved != b.Resolved
		if a.Incident == nil || b.Incident == nil {
			isOther = isOther || a.Log != b.Log || a.Sequence != b.Sequence
		} else { // members of any partition may tell of it
			isOther = isOther || a.Incident.ID != b.Incident.ID
		}
		if has && a.Partition != "http" && !a.Ambiguous && !b.Ambiguous && isOther {
			w.violated("I: %s has the id %s for two things: %s and %s", in.name, a.ID, tell(a.Alert), tell(b.Alert))
		}
		// One that was sent before it and comes late is told by its token, and its window may have been over.
		late := has && a.Token < b.Token
		soon := has && !late && a.at.Before(b.at.Add(a.Window)) &&
			!b.at.After(b.Expires) // its sender's claim was over, so nobody knew of it any more
		if soon && a.Partition != "http" && !a.Ambiguous && !b.Ambiguous && !a.replayed {
			w.violated("I: %s hears %s twice, and neither says that it may be a repeat", in.name, tell(a.Alert))
		}
		known[id] = a
	}
}

// repeatsCount: a receiver that has forgotten what it got, which no replica can see, takes for news what this one has
// dropped. Each of that counts as a send that may be a second delivery, or the one before it does, or one of both came
// after the end of its claim.
func (w *world) repeatsCount(in *inbox) {
	for i, a := range in.all {
		isFirst := !slices.ContainsFunc(in.all[:i], func(b arrival) bool { return b.Source == a.Source && b.ID == a.ID })
		mayBeLate := slices.ContainsFunc(w.faults, func(f fault) bool { return f.call == callSend })
		overtaken := a.Resolved && isFirst && mayBeLate // an alert was sent meanwhile, and this comes for the first time
		counted := !a.dropped || a.replayed || a.Partition == "http" || a.Ambiguous || overtaken || a.at.After(a.Expires)
		for _, b := range in.all[:i] {
			before := b.Source == a.Source && b.About() == a.About() && (b.ID == a.ID || b.Token > a.Token)
			counted = counted || before && (b.Ambiguous || b.replayed || b.at.After(b.Expires))
		}
		if !counted {
			w.violated("I: %s drops %s, and no send says that it may be a repeat", in.name, tell(a.Alert))
		}
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

// wants reports whether a receiver gets alerts of s about a reading, by the filters of some version or of all.
func (in *inbox) wants(s subject, m reading) (some, all bool) {
	property := func(name string) string {
		if name == "site" && m.fate != byHTTP {
			return m.site
		}
		return ""
	}
	first, then := in.filtersIn(0).Want(s.rule, s.level, property), in.filtersIn(1).Want(s.rule, s.level, property)
	return first || then, first && then
}

// orderly reports whether nothing fails, and owners follow each other in good order.
func (w *world) orderly() bool {
	return len(w.faults) == 0 && !slices.ContainsFunc(w.moves, func(m move) bool {
		return m.what != mute &&
			m.what != forget
	}) &&
		!slices.ContainsFunc(w.readings, func(r reading) bool { return r.lag > 0 })
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
