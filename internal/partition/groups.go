package partition

import (
	"context"
	"slices"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/incident"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// maxGroups bounds the groups of a partition. Beyond it an alarm alerts by itself.
const maxGroups = ledger.MaxEnds

// A group is what an owner knows of a group of package incident: of its own members, of what the group's record has of
// them, and of what is due to receivers. Its members follow from the log, as alarms do; a notice of it is given once
// the record has what it says. It is guarded by register.mu.
type group struct {
	key     delivery.Key // About is the value that members share
	level   *level
	members int
	first   sensor.ID         // the first of them
	since   int64             // when its alarm began, in Unix µs
	opened  time.Time         // when it became one, by this machine's clock
	last    *delivery.Reading // of the member that ended last, whose More.Of it is

	stale   bool      // the record is to be written
	queued  bool      // it is in register.regrouped, or somebody sees what is to be written
	behind  bool      // a former owner was further: nothing could be written
	counted int       // how many members the record has
	written time.Time // when it was, by this machine's clock
	lacking bool      // the record lacks a change, before which lacks holds the watermark
	lacks   delivery.Hold
	heard   telemetry.Position // of the last event that ended a silence: the members are as of there, or as of the last event read

	incident string    // under which the record has the members; empty if it has none, or if that is not known
	began    time.Time // of that incident
	alert    *groupAlert
	due      *dueNotice      // the end of an incident. The ledger has it until every receiver has settled it and the record says so
	memory   *delivery.Alarm // until when each receiver needs no alert about members that breach again
}

// A groupAlert is one that is due, about the incident that a group's record will name.
type groupAlert struct {
	reading   delivery.Reading
	heard     int64 // see delivery.Notice.Heard
	raisedAt  int64 // see delivery.Notice.RaisedAt
	receivers uint32
	more      uint32        // others, of members that have breached since
	notice    *dueNotice    // nil until it was given
	hold      delivery.Hold // unless it is about a silence, which the ledger has
}

// endOf returns the end of an incident that n says.
func endOf(n *delivery.Notice) incident.End {
	return incident.End{Incident: n.Incident.About.ID, Overs: n.Incident.Overs}
}

// groupKey returns the key of notices about a value.
func (l *level) groupKey(value string) delivery.Key {
	return delivery.Key{About: sensor.Of(value), Topic: l.shared}
}

// of returns the group as its record names it.
func (g *group) of() incident.Group {
	return incident.Group{
		Rule:    g.level.rule.Name,
		Level:   g.level.Name,
		Silence: g.level.rule.Silence(),
		Per:     g.level.rule.Per,
		Value:   g.key.About.Device,
	}
}

// has reports whether n is what is due of g, which may be nil.
func (g *group) has(n *delivery.Notice) bool {
	return g != nil && (g.alert != nil && g.alert.notice.is(n) || g.due.is(n))
}

// about returns what is known here of the incident that the record names.
func (g *group) about() notify.Incident {
	return notify.Incident{ID: g.incident, Began: g.began, Members: g.members, First: g.first.String()}
}

// groupOf returns the group of a value, which it makes if there is none.
func (reg *register) groupOf(l *level, value string) *group {
	key := l.groupKey(value)
	g := reg.groups[key]
	if g == nil {
		g = &group{key: key, level: l}
		reg.groups[key] = g
	}

	return g
}

// mayJoin reports whether an alarm of l may be a member of the group of a value.
func (reg *register) mayJoin(l *level, value string) bool {
	return value != "" && len(value) <= incident.MaxValue && (len(reg.groups) < maxGroups || reg.groups[l.groupKey(value)] != nil)
}

// join counts the alarm of key, which began at a time, in Unix µs, among the members of a group, unless group is empty.
func (reg *register) join(key alarmKey, group string, since int64) {
	if group == "" {
		return
	}

	g := reg.groupOf(key.level, group)
	g.members++
	if g.members > 1 {
		return
	}

	g.first, g.since, g.opened = key.about, since, time.Now()
	g.memory = &delivery.Alarm{}
	reg.dropEnd(g)
	reg.rewrite(g)
}

// leave counts an alarm of l no more among the members of a group, unless group is empty.
func (reg *register) leave(l *level, group string) {
	if group == "" {
		return
	}

	g := reg.groupOf(l, group)
	g.members--
	if g.members > 0 {
		return
	}

	g.incident = ""
	if a := g.alert; a != nil { // it must not go out any more
		if a.notice != nil {
			reg.out.Withdraw(g.key, &a.notice.Notice)
		}
		reg.mark.held.Release(&a.hold)
		g.alert = nil
	}
	reg.rewrite(g)
}

// rewrite has the record of g written, and the watermark stay before what it lacks.
func (reg *register) rewrite(g *group) {
	if !g.lacking {
		reg.lack(g, placeOf(reg.mark.last))
	}

	reg.write(g)
}

// write has somebody write the record of g.
func (reg *register) write(g *group) {
	g.stale = true
	reg.queue(g)
}

// queue has somebody see what is to be written in the record of g, unless somebody does.
func (reg *register) queue(g *group) {
	if !g.queued {
		g.queued = true
		reg.regrouped = append(reg.regrouped, g)
	}

	signal(reg.regroups)
}

// lack has the watermark stay at before, because the record of g lacks the change by the event after it.
func (reg *register) lack(g *group, before delivery.Place) {
	g.lacking = true
	at := max(g.since, micros(reg.mark.last.Time)) // when that was, as far as the members say it
	if g.members == 0 && g.last != nil {
		at = max(g.last.Enqueued, micros(reg.mark.last.Time))
	}
	if at <= 0 { // nobody knows
		at = micros(reg.storeTime())
	}
	//planted:group-change-unheld skip
	reg.mark.held.Add(&g.lacks, before, at)
}

// alertGroup has people told of a member of a group that has reached its limit. What opens the group finds an empty memory:
// another owner may have sent the end of the incident that it is of.
func (reg *register) alertGroup(a *delivery.Alert) {
	g := reg.groups[a.Key]
	receivers := a.Receivers
	for i := range reg.evaluator.book.Receivers {
		if g.memory.Quiet(i) {
			receivers &^= 1 << i
		}
	}

	if receivers == 0 {
		return
	}

	rd := a.Reading
	rd.More = a.More()
	if reg.raise(g, groupAlert{reading: rd, receivers: receivers}) {
		reg.mark.held.Add(&g.alert.hold, a.Before, rd.Enqueued)
	}
}

// raise makes an alert due, and reports whether it was none before: else the one that is due serves, and who is not to get
// that gets another one after it.
func (reg *register) raise(g *group, a groupAlert) (isNew bool) {
	if g.alert != nil {
		g.alert.more |= a.receivers &^ g.alert.receivers
		return false
	}

	a.reading.More.Alarm = g.memory
	g.alert = &a
	reg.giveAlert(g)

	return true
}

// giveAlert gives the alert that is due of g, if there is one, once the record has the members that it is about.
func (reg *register) giveAlert(g *group) {
	a := g.alert
	if a == nil || a.notice != nil || g.incident == "" || !g.level.removed.IsZero() {
		return
	}

	a.notice = &dueNotice{Notice: delivery.Notice{
		Reading:  a.reading,
		Log:      reg.logName,
		Heard:    a.heard,
		RaisedAt: a.raisedAt,
		Incident: &delivery.Incident{About: g.about()},
	}}
	a.notice.becomeDue(a.receivers)
	reg.out.Give(g.key, &a.notice.Notice)
}

// dropEnd has the end that is due of g, if there is one, not go out any more.
func (reg *register) dropEnd(g *group) {
	if g.due == nil {
		return
	}

	reg.out.Withdraw(g.key, &g.due.Notice)
	g.due = nil
	reg.alarms.history.edited = true
}

// endGroup makes the end of an incident due, unless it is. Of a rule that tells nobody it is due to nobody.
func (reg *register) endGroup(g *group, end incident.End, began time.Time) {
	if g.due != nil && endOf(&g.due.Notice) == end {
		return
	}

	reg.dropEnd(g)
	last := g.last
	if last == nil { // another owner knew
		at := reg.mark.last
		last = &delivery.Reading{
			Limit:    g.level.rule.Silent.Seconds(), // of another rule nobody knows it
			Enqueued: micros(at.Time),
			Sequence: at.Sequence,
			More:     &delivery.More{Of: g.first},
		}
	}

	n := &dueNotice{Notice: delivery.Notice{
		Reading:  *last,
		Log:      reg.logName,
		Incident: &delivery.Incident{Over: true, Overs: end.Overs, About: notify.Incident{ID: end.Incident, Began: began}},
	}}
	if g.level.rule.Resolved {
		n.becomeDue(reg.evaluator.everybody())
	}

	g.due = n
	reg.alarms.history.edited = true
	reg.giveEnd(g)
	reg.queue(g) // if nobody is to hear of it
}

// giveEnd gives the end that is due of g, if there is one, unless it must wait.
func (reg *register) giveEnd(g *group) {
	if g.due != nil && !reg.behind {
		reg.out.Give(g.key, &g.due.Notice)
	}
}

// settleGroup notes that every receiver has settled n, which was due of a group. Members that have breached since, and
// whom other receivers want to hear of, alert then.
func (reg *register) settleGroup(key delivery.Key, n *delivery.Notice) {
	g := reg.groups[key]
	switch {
	case g == nil:
	case g.alert != nil && g.alert.notice.is(n):
		a := g.alert
		if a.more != 0 {
			a.receivers, a.more, a.notice = a.more, 0, nil
			reg.giveAlert(g)
			return
		}

		reg.mark.held.Release(&a.hold)
		g.alert = nil
	case g.due.is(n):
		reg.queue(g)
	}
}

// nextGroup returns a group whose record is to be written, nil if there is none. It is the caller's until writeGroup
// says that nothing is to be written any more.
func (reg *register) nextGroup() *group {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if len(reg.regrouped) == 0 {
		return nil
	}

	g := reg.regrouped[0]
	reg.regrouped[0] = nil
	reg.regrouped = reg.regrouped[1:]

	return g
}

// writeGroup writes in the record of g what is to be written now: its members, or that everybody knows of its end. It reports
// false if that is nothing; then whatever waited for the record is given.
func (reg *register) writeGroup(ctx context.Context, records Incidents, g *group) (any bool, err error) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	switch {
	case g.stale:
		return true, reg.writeMembers(ctx, records, g)
	case g.due != nil && g.due.Settled():
		due := g.due
		reg.mu.Unlock()
		err = records.Close(ctx, g.of(), endOf(&due.Notice))
		reg.mu.Lock()
		if err == nil && g.due == due {
			g.due = nil
			reg.alarms.history.edited = true
		}

		return true, err
	}

	g.queued = false
	reg.giveAlert(g)
	if g.members == 0 && g.alert == nil && g.due == nil && !g.behind {
		delete(reg.groups, g.key)
	}

	return false, nil
}

// writeMembers writes how many members g has, as of the last event read, and notes what the record says then. The caller
// holds reg.mu, which is released while the record is written.
func (reg *register) writeMembers(ctx context.Context, records Incidents, g *group) error {
	place := placeOf(reg.mark.last) // up to there the record has what there is
	at := incident.Position{Log: reg.logName, Sequence: -1}
	if read := later(g.heard, reg.mark.last); read.Offset != "" { // up to there the members are known
		at = incident.Position{Log: logName(read.Generation, reg.id), Sequence: read.Sequence}
	}

	e := incident.Entry{Members: g.members, First: g.first.String(), Since: fromMicros(g.since), Position: at}
	//planted:taken-over-incident-ends if g.written.IsZero() && g.alert != nil && g.alert.notice == nil && g.level.rule.Silence() { e.Members = 0 }
	g.stale = false
	reg.mu.Unlock()
	result, err := records.Sync(ctx, g.of(), reg.id, e)
	reg.mu.Lock()
	if err != nil { // it may have been written, or not
		g.stale = true
		return err
	}

	g.lacking = false
	reg.mark.held.Release(&g.lacks)
	g.counted, g.written, g.behind = e.Members, time.Now(), result.Behind
	if g.stale { // it says nothing of what has changed since
		reg.lack(g, place)
		return nil
	}

	switch {
	case e.Members > 0:
		if g.alert != nil && g.alert.notice != nil && g.incident != result.Incident {
			reg.out.Withdraw(g.key, &g.alert.notice.Notice)
			g.alert.notice = nil
		}

		g.incident, g.began = result.Incident, result.Began

	case result.End != incident.End{}:
		reg.endGroup(g, result.End, result.Began)

	default: // the ledger may say that the record was to be written
		reg.alarms.history.edited = true
	}

	return nil
}

// recount has records written that a former owner was further with, and that have had another number of members for a
// window.
func (reg *register) recount() {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, g := range reg.groups {
		isOld := g.members != g.counted && time.Since(g.written) > g.level.rule.Window
		if g.behind || g.members > 0 && isOld { // that there are none is being written: then its end is due
			reg.write(g)
		}
	}
}

// addEnds adds the ends that are due to what the ledger has to hold, and their levels: the next owner may not have them. Of a
// group without members whose record does not say so yet nobody knows whether its incident is over: its end has no incident.
func (reg *register) addEnds(to *ledger.Content) {
	for _, g := range reg.groups {
		//planted:group-end-unsaved if true
		if g.due == nil && !(g.members == 0 && (g.lacking || g.behind)) {
			continue
		}

		l := g.level
		end := ledger.End{
			Rule:     l.rule.Name,
			Level:    l.Name,
			Measured: l.id.measured,
			Per:      l.id.per,
			Silence:  l.rule.Silence(),
			Value:    ledger.Text(g.key.About.Device),
		}

		n := &delivery.Notice{Log: reg.logName}
		if g.last != nil {
			n.Reading = *g.last
		}
		if g.due != nil {
			n = &g.due.Notice
			end.Incident = n.Incident.About.ID
			end.Began = n.Incident.About.Began
			end.Overs = n.Incident.Overs
		}

		end.Reading = savedReading(n)
		if more := n.Reading.More; more != nil {
			end.Device, end.Sensor = ledger.Text(more.Of.Device), ledger.Text(more.Of.Name)
		}

		to.Ends = append(to.Ends, end)

		if !slices.ContainsFunc(to.Levels, func(other ledger.Level) bool { return idOf(&other) == l.id }) {
			to.Levels = append(to.Levels, l.content())
		}
	}
}

// restoreEnd makes an end due that the ledger has, unless the group has members. The caller holds reg.mu, and has restored
// all alarms.
func (reg *register) restoreEnd(from ledger.End) {
	l := reg.level(levelID{from.Rule, from.Level, from.Silence, from.Measured, from.Per})
	if l == nil || l.id.per == "" {
		return
	}

	g := reg.groupOf(l, string(from.Value))
	if g.members > 0 {
		reg.alarms.history.edited = true
		return
	}

	r := rememberedNotice(&from.Reading).Reading
	r.More = &delivery.More{Of: sensor.ID{Device: string(from.Device), Name: string(from.Sensor)}}
	if r.Enqueued > 0 { // else nobody knew which one ended last
		g.last = &r
	}
	//planted:left-group-unwritten if false
	if from.Incident == "" {
		reg.rewrite(g)
		return
	}

	reg.endGroup(g, incident.End{Incident: from.Incident, Overs: from.Overs}, from.Began)
}

// restoreSilence has people told again of a silence in the ledger that is a member of an incident: the gate knows whether
// they were.
func (reg *register) restoreSilence(key alarmKey, k alarm) {
	if k.member() == "" || !key.level.rule.Silence() {
		return
	}

	reg.raise(reg.groupOf(key.level, k.group), groupAlert{
		heard:     k.Since.Hub,
		raisedAt:  reg.noticedAt(0), // the ledger does not say when
		receivers: reg.evaluator.wanting(key.level),
		reading: delivery.Reading{
			Limit:    k.limit,
			Enqueued: k.Since.Hub + int64(k.limit*1e6),
			Sequence: k.sequence,
			Since:    k.Since.Hub,
			More:     &delivery.More{Of: key.about},
		},
	})
}
