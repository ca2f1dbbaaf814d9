package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/humanize"
	"alertworker/internal/muting"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

// Statuses of a device, the keys of verdicts.
const (
	whyWaiting     = "waiting"
	whyDeadLetter  = "dead_letter"
	whyWindow      = "window"
	whySending     = "sending"
	whyUnknown     = "unknown"
	whyPending     = "pending"
	whyOpen        = "open"
	whyUndecodable = "undecodable"
	whyNoAlarm     = "no_alarm"
	whySilent      = "silent"
	whyNotSeen     = "not_seen"
)

// A verdict is what a status means, and what is to be done about it; todo is empty if nothing is.
type verdict struct{ says, todo string }

var verdicts = map[string]verdict{
	whyWaiting:     {"a message about it waits to be delivered", ""},
	whyDeadLetter:  {"a receiver did not accept its last alert", "Fix the receiver, then run `alertworker deadletters replay ID`, unless the alert is only in the log."},
	whyWindow:      {"an alert was sent, and its window is in force", ""},
	whySending:     {"a replica is sending an alert, or died while it did: then another one sends it after its claim", ""},
	whyUnknown:     {"the throttle store does not respond", "Run `alertworker check`."},
	whyPending:     {"it reaches a limit, but not for long enough yet", ""},
	whyOpen:        {"its alarm is open", ""},
	whyUndecodable: {"its last messages cannot be read", "Change what it sends, or the rules: `alertworker check` lists the fields of messages."},
	whyNoAlarm:     {"it has no alarm", "Run `alertworker why DEVICE --last 2h` to see what it sent, and what that reaches."},
	whySilent:      {"it is silent", "See whether it is on and connected."},
	whyNotSeen:     {"it is not known", "Check the id (its case matters), or look further back with --last."},
}

// findings are what is known of a device.
type findings struct {
	asked    sensor.ID // what they are of: a sensor, or a device with all of its sensors
	now      time.Time
	set      *rules.Set
	state    partition.DeviceState
	ended    []pastDelivery // deliveries, the latest first
	gates    []gateState
	silences []muting.Mute // in force, that may be about the device

	incidents []incidentOf // that alarms are part of
	missing   []string     // clauses: what could not be looked up
	hub       Readings     // what the hub has of the device, if it was asked

	// devices of which messages count for rules about silence, of those partitions that were asked for this one
	known   int
	similar string // a device that is known, and whose name differs from this one's in nothing but case
	// what the device shares alerts by, empty if nothing, by the names of rules of which it is known
	shared map[string]string
}

// A gateState is what the store knows of the device's window at one receiver, for one level of a rule.
type gateState struct {
	Receiver string `json:"receiver"`
	Rule     string `json:"rule"`
	Level    string `json:"level,omitempty"`
	Sensor   string `json:"sensor,omitempty"` // of the device; empty: the window is the device's own
	// such as site=berlin: the window of all devices with that; empty if it is the device's own
	Shared string `json:"shared,omitempty"`
	throttle.State
	Suppressed int64  `json:"suppressed"`      // readings that this replica kept quiet since the device's last alert
	Error      string `json:"error,omitempty"` // why that is not known

	gate Gate
	of   sensor.ID // the key of the window: that of the device or sensor, or what shares it
	rule *rules.Rule
}

// A subject is what alerts are about that replace one another at a receiver.
type subject struct {
	receiver, rule, level string
	of                    sensor.ID
}

// delivered returns when the receiver took the device's last alert, to within a few seconds; zero if
// the store does not know.
func (g gateState) delivered() time.Time {
	switch {
	case g.Incident != "":
		return g.Sent
	case g.Quiet.IsZero():
		return time.Time{}
	case g.Quiet.After(g.Claimed):
		return g.Claimed
	}

	return g.Quiet.Add(-g.rule.Window) // the last claim failed: it was the one before
}

// isUndelivered reports whether there is a dead letter, and its receiver has not since taken another alert in place of the
// last one: from this replica, from another one, or by a replay.
func (f findings) isUndelivered() bool {
	i := slices.IndexFunc(f.ended, func(e pastDelivery) bool { return e.Reason != "" })
	if i < 0 {
		return false
	}

	l := &f.ended[i]
	of := subject{l.Receiver, l.Rule, l.Level, l.window()}
	tookAnother := slices.ContainsFunc(f.ended[:i], func(e pastDelivery) bool {
		return of == subject{e.Receiver, e.Rule, e.Level, e.window()}
	}) || slices.ContainsFunc(f.gates, func(g gateState) bool {
		return of == subject{g.Receiver, g.Rule, g.Level, g.of} && g.delivered().After(l.At)
	})

	return !tookAnother
}

// status returns the status of the device. What is in the way of an alert comes first, then its alarms, which all replicas
// share, and then its windows.
func (f findings) status() string {
	var isSilent, isDue bool
	alarms := map[rules.Phase]bool{}
	for _, s := range f.state.Alarms {
		alarms[s.Phase] = true
		isSilent = isSilent || s.Silence && s.Phase == rules.Open
		isDue = isDue || !s.Due.IsZero()
	}

	windows := map[throttle.Phase]bool{}
	isKnown := len(f.state.Heard) > 0 || len(f.ended)+f.hub.events > 0
	for _, g := range f.gates {
		windows[g.Phase] = true
		isKnown = isKnown || !g.Claimed.IsZero()
	}

	for _, may := range []struct {
		is     bool
		status string
	}{
		{len(f.state.Deliveries) > 0, whyWaiting},
		{f.isUndelivered(), whyDeadLetter},
		{isSilent, whySilent},
		{alarms[rules.Open], whyOpen},
		{f.state.Unreadable != nil, whyUndecodable},
		{alarms[rules.Pending], whyPending},
		{isDue, whyWaiting},
		{windows[throttle.Sending], whySending},
		{windows[throttle.Closed], whyWindow},
		{windows[throttle.NotKnown], whyUnknown},
		{!isKnown && (f.hub.last > 0 || f.known > 0 || f.similar != ""), whyNotSeen},
	} {
		if may.is {
			return may.status
		}
	}

	return whyNoAlarm
}

// why returns the status of the device and, for people, what it means, a line for each fact that is known, and what is to
// be done.
func (f findings) why() (code string, lines []string) {
	code = f.status()
	v := verdicts[code]
	switch {
	case code == whyNoAlarm && f.hub.last > 0:
		v.todo = ""
	case code == whyNotSeen && f.similar != "":
		v.todo = fmt.Sprintf("Did you mean %s?", f.similar)
	}

	lines = append([]string{f.asked.String() + ": " + v.says}, f.facts()...)
	if v.todo != "" {
		lines = append(lines, v.todo)
	}

	return code, lines
}

// facts are lines: what each is about has its name in front.
type facts []string

// add adds one, about something if that is not empty.
func (all *facts) add(name, about, text string) {
	if about != "" {
		about += ": "
	}
	*all = append(*all, fmt.Sprintf("  %-8s %s%s", name, about, text))
}

// maxFacts is how many are shown: a device may have a thousand sensors, and as many dead letters.
const maxFacts = 60

// facts returns what is known, in the order of an event's way. Windows of which nothing is recorded are not there.
func (f findings) facts() (all facts) {
	if u := f.state.Unreadable; u != nil {
		all.add("event", "", fmt.Sprintf("%s, partition %s: %s; nothing could be read since %s",
			f.at(u.Last), u.Partition, cmp.Or(u.Damage, u.Reason.Text()), f.clock(u.Since)))
	}

	f.addHub(&all)
	f.addHeard(&all)
	for _, text := range f.missing {
		all.add("unknown", "", text)
	}

	for _, s := range f.state.Alarms {
		all.add("alarm", f.subject("", s.Rule, s.Level, s.Sensor), f.alarmText(s)+" (partition "+s.Partition+")")
		for _, c := range s.Waits {
			all.add("repeat", f.subject("", s.Rule, s.Level, s.Sensor), f.conditionText(c))
		}
	}

	for _, i := range f.incidents {
		all.add("incident", f.subject("", i.Rule, i.Level, i.alarm.Sensor), f.incidentText(i))
	}

	for _, s := range f.silences {
		all.add("muted", s.ID, fmt.Sprintf("%s until %s, by %s: %s", s, f.until(s.Until, f.now), s.Who, s.Why))
	}

	for _, d := range f.state.Deliveries {
		what := "alert about "
		if d.Recovery {
			what = "recovery at "
		}
		all.add("waits", f.subject(d.Receiver, d.Rule, d.Level, d.Sensor), fmt.Sprintf("%s%s, since %s: %s",
			what, ruleOf(f.set, d.Rule).Text(d.Value), f.clock(d.Since), f.conditionText(d.Waits)))
	}

	isNone := func(g gateState) bool { return g.Claimed.IsZero() && g.Error == "" }
	recorded := slices.DeleteFunc(slices.Clone(f.gates), isNone)
	if len(recorded) < min(len(f.gates), 1) {
		all.add("window", "", "none is recorded")
	}

	for _, g := range recorded {
		all.add("window", f.subject(g.Receiver, g.Rule, g.Level, g.Sensor, g.Shared), f.windowText(g))
	}

	for _, e := range f.ended {
		if e.Reason != "" {
			all.add("letter", f.subject(e.Receiver, e.Rule, e.Level, e.Sensor), fmt.Sprintf("%s; enqueued %s, became a dead letter %s, %s: %s",
				e.Text, f.at(e.Enqueued), f.at(e.At), cmp.Or(e.Letter, "only in the log"), e.Reason))
		}
	}

	if more := len(all) - maxFacts; more > 0 {
		all = all[:maxFacts]
		all.add("more", "", humanize.Count(more, "fact")+": ask for one sensor, or see `alertworker deadletters list`")
	}

	return all
}

// subject names what a fact is about: a receiver, a level of a rule, and a sensor if that is not the one that was asked
// for, each if there is one.
func (f findings) subject(receiver, rule, level, name string, more ...string) string {
	if name == f.asked.Name {
		name = ""
	}

	parts := append([]string{receiver, about(rule, level), name}, more...)
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " · ")
}

// addHub adds what the hub has of the device, the latest first, if it was asked.
func (f findings) addHub(all *facts) {
	if f.hub.last == 0 {
		return
	}

	all.add("hub", "", fmt.Sprintf("%s of it from the last %s, %d shown",
		humanize.Count(f.hub.events, "event"), humanize.Span(f.hub.last), len(f.hub.lines)))
	for _, line := range slices.Backward(f.hub.lines) {
		all.add("event", "", line)
	}
}

// addHeard adds when rules about silence heard the device last, and from when on it is silent.
func (f findings) addHeard(all *facts) {
	for _, h := range f.state.Heard {
		text := fmt.Sprintf("heard %s in partition %s", f.at(h.At), h.Partition)
		if !h.AsOf.IsZero() {
			text += ", as of " + f.clock(h.AsOf)
		}

		switch {
		case h.Excluded:
			rule := ruleOf(f.set, h.Rule)
			text += "; nothing is expected of it: not " + only(rule)
		case !h.Deadline.IsZero():
			text += "; silent from " + f.clock(h.Deadline)
		}

		all.add("silence", f.subject("", h.Rule, "", h.Sensor), text)
	}
}

// resembles notes a device that is known, if its name differs from the device's in nothing but case.
func (f *findings) resembles(device string) {
	if device != f.asked.Device && strings.EqualFold(device, f.asked.Device) {
		f.similar = device
	}
}

// alarmText says how an alarm is, since when, and by what.
func (f findings) alarmText(s partition.AlarmState) string {
	rule := ruleOf(f.set, s.Rule)
	text := fmt.Sprintf("%s since %s, by %s, limit %s", s.Phase, f.clock(s.Since), rule.Text(s.Value), limitText(rule, s.Limit))

	switch {
	case s.Phase == rules.Normal:
		text = "over"
	case s.Silence:
		field := cmp.Or(strings.ReplaceAll(rule.Field, ",", " or "), "message") // it may send others
		text = fmt.Sprintf("open since %s: no %s counted, limit %s", f.clock(s.Since), field, humanize.Span(time.Duration(s.Limit)*time.Second))
	case s.Phase == rules.Pending:
		if i := slices.IndexFunc(rule.Levels, func(l rules.Level) bool { return l.Name == s.Level }); i >= 0 {
			text += "; an alert is due from " + f.clock(s.Since.Add(rule.Levels[i].For))
		}
	}

	if !s.Arrived.IsZero() {
		text += "; it arrived at " + f.clock(s.Arrived)
	}

	if !s.Due.IsZero() {
		text += "; a recovery is due since " + f.clock(s.Due) + ", mostly after the window"
	}

	return text
}

// conditionText says what something waits for: a delivery for how long it has, an alarm that was sent since when.
func (f findings) conditionText(c delivery.Condition) string {
	text, due := c.Text+", for "+humanize.Span(max(time.Second, f.now.Sub(c.Since))), "the next attempt is due "
	if c.For == delivery.WaitRepeat {
		text, due = c.Text+"; sent "+f.at(c.Since), "due again "
	}

	if !c.Next.IsZero() {
		text += "; " + due + until(c.Next.Sub(f.now))
	}

	return text
}

// windowText says what the store knows of a window: its state, and what was sent last, when and by whom.
func (f findings) windowText(g gateState) string {
	text := "over"
	switch {
	case g.Error != "":
		return "not known: " + g.Error
	case g.Phase == throttle.Sending:
		return fmt.Sprintf("claimed by %s %s, until %s", cmp.Or(g.Replica, "a replica"), f.at(g.Claimed), f.until(g.Until, g.Now))
	case g.Phase == throttle.Closed:
		text = "in force until " + f.until(g.Until, g.Now)
	}

	delivered := g.delivered()
	if !delivered.IsZero() {
		text += "; an alert was delivered " + f.at(delivered)
	}

	if delivered.IsZero() || g.Unresolved {
		text += "; the last attempt was " + f.at(g.Claimed)
	}

	text += " by " + cmp.Or(g.Replica, "a replica")
	if g.Unresolved {
		text += ", and it is not known whether it was accepted"
	}

	return text
}

// until says when t is, a time to come by a clock that shows now.
func (f findings) until(t, now time.Time) string {
	return fmt.Sprintf("%s (another %s)", f.clock(t), humanize.Span(max(0, t.Sub(now))))
}

// at says when t was: the time, and how long ago.
func (f findings) at(t time.Time) string {
	ago := "just now"
	if d := f.now.Sub(t); d >= time.Second {
		ago = humanize.Span(d) + " ago"
	}
	return fmt.Sprintf("at %s (%s)", f.clock(t), ago)
}

// clock formats t, with its date unless that is today's.
func (f findings) clock(t time.Time) string {
	t = t.Round(time.Millisecond) // windows end a few µs before a full second
	t = t.In(f.now.Location())
	layout := "15:04:05 MST"
	if t.Format(time.DateOnly) != f.now.Format(time.DateOnly) {
		layout = "2006-01-02 15:04:05 MST"
	}

	return t.Format(layout)
}
