package worker

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// A rule is one of Config.Rules as the worker uses it.
type rule struct {
	*rules.Rule
	reads    rules.Reads // of what the decoder finds
	levels   []*level    // the highest first
	stateful bool
	override bool    // whether a level has one
	mildest  float64 // limit, if no level has an override
}

// A level is one of a rule's as the worker uses it: what alarms, deliveries and gates are
// for.
type level struct {
	*rules.Level
	rule *rule
	// since then it is not configured any more, but had an alarm, by the clock of the ledger's store. Else zero
	removed time.Time
	own     *target // what alerts about a device go by
	shared  *target // what those about a value of the rule's Per go by; nil if it has none
	index   uint8   // in Worker.levels; 0 unless it is configured
	below   int     // how many levels of its rule are higher
	stats   *LevelStats
}

// newRules returns what c's rules are to the worker: those about readings, those about silence, and the levels of
// both in the order of Config.
func newRules(c *Config, stats []LevelStats) (readings, silences []*rule, levels []*level) {
	_, fields := c.Rules.Fields()
	for i := range c.Rules.Rules {
		r := &rule{Rule: &c.Rules.Rules[i], reads: fields[i]}
		r.stateful, r.mildest = r.Stateful(), r.Levels[0].Limit
		for j := range r.Levels {
			l := newLevel(c, r, &r.Levels[j], &stats[len(levels)])
			l.index, l.below = uint8(len(levels)), len(r.Levels)-1-j
			r.override = r.override || l.Override != "" || l.ClearOverride != ""
			r.levels = append([]*level{l}, r.levels...)
			levels = append(levels, l)
		}
		if r.Silence() {
			silences = append(silences, r)
		} else {
			readings = append(readings, r)
		}
	}
	return readings, silences, levels
}

// A target is what the alerts of a level go by that are about devices, or those about what devices share. What one
// of the two is about never meets what the other is about, whatever their names.
type target struct {
	level  *level
	shared bool
	gates  []*throttle.Gate // one for each receiver
	suffix string           // of the source of its alerts and of their ids
}

func newLevel(c *Config, r *rule, l *rules.Level, stats *LevelStats) *level {
	made := &level{Level: l, rule: r, stats: stats}
	made.own = newTarget(c, made, r.Alone())
	if r.Per != "" {
		made.shared = newTarget(c, made, r.Rule)
	}
	return made
}

// newTarget returns the target of l, a level of r, whose Per counts.
func newTarget(c *Config, l *level, r *rules.Rule) *target {
	t := &target{level: l, shared: r.Per != "", suffix: suffix(r, l.Name)}
	if r.Silence() {
		t.suffix += "/silent"
	}
	for _, to := range c.Receivers {
		t.gates = append(t.gates, to.Gate(r, l.Level))
	}
	return t
}

// suffix tells the ids and sources of a level's alerts from those of all others. The rule
// temperature with its one limit has none.
func suffix(r *rules.Rule, level string) string {
	if r.Name == rules.DefaultName && level == "" && r.Per == "" {
		return ""
	}
	s := strings.TrimSuffix("/"+r.Name+"/"+level, "/")
	if r.Per != "" {
		s += "/by-" + url.PathEscape(r.Per)
	}
	return s
}

// mayMatter reports whether e, whose device has this hash and in which the decoder found found, may matter to a rule:
// a value reaches a limit, or the device has an alarm. It notes limits of the device's own in o, unless that is nil.
// This is the hot path: it takes no lock and allocates nothing.
func (s *stream) mayMatter(e *telemetry.Event, hash uint64, found []telemetry.Found, o *observation) bool {
	reached := false
	for _, r := range s.rules {
		f := &found[r.reads.Field]
		switch {
		case f.Reason != telemetry.ReasonOK:
		case len(r.reads.Only) > 0 && !r.applies(e, found):
			if r.Breaching(f.Value, r.mildest) {
				o.decided(Excluded, r.levels[len(r.levels)-1], f.Value, r.mildest, false, "")
			}
		case r.override: // each of them, because it counts
			reached = s.overridden(e, r, f.Value, o) || reached
		case r.Breaching(f.Value, r.mildest):
			reached = true
		}
	}
	return reached || s.alarms != nil && s.alarms.mayHave(hash)
}

// applies reports whether r's conditions hold for e.
func (r *rule) applies(e *telemetry.Event, found []telemetry.Found) bool {
	return r.Applies(found, r.reads.Only, e.Properties)
}

// overridden reports whether value reaches a limit of r, which has overrides, for e's device. It counts
// what e has for them.
func (s *stream) overridden(e *telemetry.Event, r *rule, value float64, o *observation) (reached bool) {
	for _, l := range r.levels {
		limit, kind := l.LimitFor(e.Properties)
		if l.Override != "" {
			s.stats.Override[kind].Add(1)
		}
		if l.Override != "" && kind == rules.OverrideUsed {
			o.decided(NoLimit, l, value, limit, true, "")
		}
		if l.ClearOverride != "" {
			_, kind := l.clearFor(e, limit)
			s.stats.Override[kind].Add(1)
		}
		reached = reached || r.Breaching(value, limit)
	}
	return reached
}

// clearFor returns what ends an alarm of l for e's device, whose limit is limit, and what e has for its override.
func (l *level) clearFor(e *telemetry.Event, limit float64) (float64, rules.Override) {
	if l.ClearOverride == "" {
		return l.rule.ClearOf(l.Level, limit), rules.OverrideAbsent
	}
	return l.rule.ClearFor(l.Level, e.Properties.Get(l.ClearOverride), limit)
}

// evaluate takes e through every rule: it changes the device's alarms, and takes the reading to
// the receivers where a level notifies them. before is the position of the event before e. It
// reports whether e reaches a limit, and completes o, unless that is nil. If a is not nil the reading
// came through an Intake: then no rule has state, and joined are the deliveries that the reading is part
// of, with ended set.
func (s *stream) evaluate(
	before telemetry.Position,
	e *telemetry.Event,
	found []telemetry.Found,
	o *observation,
	a *arrival,
) (over bool, joined []*delivery) {
	v := evaluation{stream: s, before: before, event: e, seen: o, arrival: a, at: rules.Moment{Hub: micros(e.Enqueued)}}
	var dated rules.DeviceTime
	if s.Clock != nil {
		v.at.Device, dated = s.Clock.Read(e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetAgain(e.Device, before, e.Sequence)
	for _, r := range s.rules {
		if f := &found[r.reads.Field]; f.Reason == telemetry.ReasonOK && r.applies(e, found) {
			v.apply(r, f.Value)
		}
	}
	if v.backward {
		dated = rules.TimeBackward
	}
	if s.Clock != nil {
		s.stats.Times[dated].Add(1)
	}
	return v.over, v.joined
}

// An evaluation takes one event through the rules. The stream's lock is held.
type evaluation struct {
	*stream
	before  telemetry.Position
	event   *telemetry.Event
	seen    *observation
	arrival *arrival
	at      rules.Moment

	over     bool
	shared   string // what the device shares the alerts by that were decided about last; empty if nothing
	backward bool   // the device's clock is behind the beginning of its alarm
	joined   []*delivery
}

// apply takes the event's value through one rule.
func (v *evaluation) apply(r *rule, value float64) {
	inhibited := false // by a higher level that is open
	exposed := false   // because a higher level has just ended
	for _, l := range r.levels {
		limit, kind := l.LimitFor(v.event.Properties)
		rd := reading{
			value:    value,
			enqueued: v.at.Hub,
			sequence: v.event.Sequence,
			device:   v.at.Device,
			limit:    limit,
			arrival:  v.arrival,
		}
		breaching := r.Breaching(value, rd.limit)
		if breaching {
			v.over = true
			l.stats.Over.Add(1)
		}
		open := breaching
		turned := false
		late := false
		if r.stateful && v.arrival == nil {
			late = v.alarms.of[alarmKey{v.event.Device, l}].exposed
			open, turned = v.step(l, &rd)
		}
		decision := NoLimit
		v.shared = ""
		switch {
		case open && (breaching || exposed || late) && !inhibited:
			decision = v.notify(l, rd, turned)
		case breaching && open:
			decision = Inhibited
		case breaching:
			decision = StaysPending
		case open:
			decision = StaysOpen
		}
		if decision != NoLimit {
			v.seen.decided(decision, l, value, limit, l.Override != "" && kind == rules.OverrideUsed, v.shared)
		}
		inhibited = inhibited || open
		exposed = exposed || turned && !open
	}
}

// step takes l's alarm of the device through the reading, and sets when they began. It reports
// whether l is open after it, and whether it has opened or ended.
func (v *evaluation) step(l *level, rd *reading) (open, turned bool) {
	key, a := alarmKey{v.event.Device, l}, v.alarms
	was := a.of[key]
	clear, _ := l.clearFor(v.event, rd.limit)
	next := kept{State: l.rule.Next(l.Level, was.State, rd.value, rd.limit, clear, v.at), due: was.due}
	switch {
	case next.Phase == rules.Normal:
	case was == (kept{}) && !a.room(key.device):
		v.stats.Untracked.Add(1)
		return true, false // there is no room for its state: better too early than never
	case was.Phase == next.Phase:
		next.value, next.limit = was.value, was.limit
	default:
		next.value, next.limit = rd.value, rd.limit
	}
	open = next.Phase == rules.Open
	turned = open != (was.Phase == rules.Open)
	v.date(rd, cmp.Or(next.Since, was.Since))
	switch {
	case next == was:
		return open, false
	case turned && open:
		next.due = nil
	case turned:
		r := *rd
		r.limit, r.more = clear, v.more(l.own)
		next.due = v.recovery(l, v.logName, throttle.Event, r)
	}
	a.history.change(key, next, v.before, v.event.Position)
	v.become(key, next)
	return open, turned
}

// date sets when rd and the first reading of its alarm, at since, were taken, both by one clock.
func (v *evaluation) date(rd *reading, since rules.Moment) {
	if since == (rules.Moment{}) {
		return
	}
	v.backward = v.backward || v.at.Backward(since)
	var at int64
	if at, rd.since = v.at.By(since); at != v.at.Device {
		rd.device = 0
	}
}

// recovery returns the notice that an alarm of l has ended, with the reading r or a part of its place in a log; nil
// if nobody wants it, or there is no room for it.
func (s *stream) recovery(l *level, log string, part throttle.Part, r reading) *dueNotice {
	receivers := s.wanting(l)
	switch {
	case !l.rule.Resolved || receivers == 0:
		return nil
	case s.alarms.total[dueRecoveries] >= maxAlarms:
		s.stats.Untracked.Add(1)
		return nil
	}
	return &dueNotice{reading: r, log: log, part: part, receivers: receivers}
}

// wanting returns the receivers that want alerts of l, a bit for each.
func (s *stream) wanting(l *level) (receivers uint32) {
	for _, q := range s.queues {
		if q.to.Filters.Cover(l.rule.Name, l.Name) { // the gate knows which of them were alerted
			receivers |= q.to.bit()
		}
	}
	return receivers
}

// notify takes a reading to every receiver that wants alerts of l: it joins the delivery of the
// device and level if there is one; else the window suppresses it if that is known to be in force. If it
// opened an alarm, only a window that began since the take-over counts: within another one a former owner may have
// sent a recovery, after an operator ended it. Otherwise it starts a delivery. It returns Notified, or why nobody is.
func (v *evaluation) notify(l *level, rd reading, opened bool) Decision {
	device := v.event.Device
	if v.Rules.Quiet != "" && v.arrival == nil && rules.Quiet(v.event.Properties.Get(v.Rules.Quiet), v.event.Enqueued) {
		v.stats.Quieted.Add(1)
		return Muted
	}
	if v.silenced(device, l.rule.Name, v.event.Enqueued, v.property) {
		v.stats.Quieted.Add(1)
		return Silenced
	}
	before, key := placeOf(v.before), v.key(l)
	shown, decision := false, Unwanted
	for i, q := range v.queues {
		if !q.to.Filters.Want(l.rule.Name, l.Name, v.property) {
			v.stats.Filtered.Add(1)
			continue
		}
		decision = Notified
		d := q.deliveries[key]
		if v.backtest != nil {
			v.backtest.alert(q, device, key, rd)
			continue
		}
		if d == nil && key.recent(i, device, opened, v.since) {
			v.stats.Suppressed.Add(1)
			continue
		}
		if !shown {
			rd.more, shown = v.more(key.target), true
		}
		switch {
		case d != nil:
			q.join(d, rd, before)
			v.stats.Suppressed.Add(1)
		case v.arrival == nil || !v.arrival.busy:
			d = q.begin(key, rd, nil)
			d.reminder = l.rule.stateful && !opened && v.arrival == nil
			q.hold(d, rd, before)
			q.getReady(d)
		}
		if v.arrival != nil {
			if d != nil && d.ended == nil {
				d.ended = make(chan struct{})
			}
			v.joined = append(v.joined, d)
		}
	}
	return decision
}

// silenced reports whether people have silenced a rule's alerts about a device at a time: see rules.Mute. It
// allocates nothing.
func (s *stream) silenced(device, rule string, at time.Time, property func(name string) string) bool {
	if s.Mutes == nil {
		return false
	}
	mutes := s.Mutes()
	for i := range mutes {
		if mutes[i].Matches(device, rule, at, property) {
			return true
		}
	}
	return false
}

// key returns what an alert of l is about: the event's device, or what that shares its alerts by.
func (v *evaluation) key(l *level) deliveryKey {
	if l.rule.Per == "" {
		return deliveryKey{v.event.Device, l.own}
	}
	v.shared = rules.Shared(v.event.Properties.Get(l.rule.Per))
	if v.shared == "" {
		v.stats.Unshared.Add(1)
		return deliveryKey{v.event.Device, l.own}
	}
	return deliveryKey{v.shared, l.shared}
}

// recent reports whether a window is known to be in force at a receiver that covers a reading of device, which has
// opened an alarm or not. since is the take-over.
func (k deliveryKey) recent(receiver int, device string, opened bool, since time.Time) bool {
	g := k.gates[receiver]
	switch {
	case k.shared: // no recovery was ever sent
		return g.RecentShared(k.about, device)
	case opened:
		return g.RecentSince(k.about, since)
	}
	return g.Recent(k.about)
}

// more returns the event's properties that messages of t show, and the device if devices share these; nil if that is
// nothing.
func (v *evaluation) more(t *target) *more {
	var m more
	for _, name := range v.Rules.Show {
		if text := v.property(name); text != "" {
			m.shown = m.shown.With(name, text)
		}
	}
	if t.shared {
		m.device = v.event.Device
	}
	if m == (more{}) {
		return nil
	}
	return &m
}

// property returns the text of one of the event's properties, "" if it has none.
func (v *evaluation) property(name string) string {
	p := v.event.Properties.Get(name)
	if p.IsNull() {
		return ""
	}
	return p.String()
}
