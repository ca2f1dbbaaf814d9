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
	whyDeadLetter:  {"a receiver did not accept its last alert", "Fix the receiver; the alert itself is only in the log."},
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

	window, repeat time.Duration
}

// delivered returns when the receiver took the device's last alert, to within a few seconds; zero if
// the store does not know.
func (g gateState) delivered() time.Time {
	switch {
	case g.Quiet.IsZero():
		return time.Time{}
	case g.Quiet.After(g.Claimed):
		return g.Claimed
	}

	return g.Quiet.Add(-g.window) // the last claim failed: it was the one before
}

// last returns the last delivery that is like that, nil if none is remembered.
func (f findings) last(is func(pastDelivery) bool) *pastDelivery {
	i := slices.IndexFunc(f.ended, is)
	if i < 0 {
		return nil
	}

	return &f.ended[i]
}

// taken returns the last alert, or recovery, that a receiver took.
func (f findings) taken(recovery bool) *pastDelivery {
	return f.last(func(e pastDelivery) bool { return e.Reason == "" && e.Resolved == recovery })
}

// letter returns the last dead letter.
func (f findings) letter() *pastDelivery {
	return f.last(func(e pastDelivery) bool { return e.Reason != "" })
}

// undelivered returns the last dead letter, unless its receiver has since taken another of the device and level.
func (f findings) undelivered() *pastDelivery {
	l := f.letter()
	if l == nil || f.last(l.isFollowedBy) != nil {
		return nil
	}

	tookAnother := func(g gateState) bool { return g.Receiver == l.Receiver && g.delivered().After(l.At) }
	if slices.ContainsFunc(f.of(l.Rule, l.Level, l.Sensor), tookAnother) {
		return nil // by another replica, or a replay
	}

	return l
}

// isFollowedBy reports whether e is a later one that the same receiver took, of the same level.
func (d pastDelivery) isFollowedBy(e pastDelivery) bool {
	isSameLevel := e.Rule == d.Rule && e.Level == d.Level && e.Sensor == d.Sensor
	return isSameLevel && e.Receiver == d.Receiver && e.Reason == "" && e.At.After(d.At)
}

// of returns the windows of one level of a rule, about one sensor or the device: or about what shares them.
func (f findings) of(rule, level, name string) []gateState {
	return slices.DeleteFunc(slices.Clone(f.gates), func(g gateState) bool {
		return g.Rule != rule || g.Level != level || g.Sensor != name && g.Shared == ""
	})
}

// status returns the status of the device. What is in the way of an alert comes first, then its alarms, which all replicas
// share, and then its windows.
func (f findings) status() string {
	alarm := f.worst()
	isOpen := alarm.Phase == rules.Open

	switch {
	case len(f.state.Deliveries) > 0:
		return whyWaiting
	case f.undelivered() != nil:
		return whyDeadLetter
	case isOpen && alarm.Silence:
		return whySilent
	case isOpen:
		return whyOpen
	case f.state.Unreadable != nil:
		return whyUndecodable
	case alarm.Phase == rules.Pending:
		return whyPending
	case !alarm.Due.IsZero():
		return whyWaiting
	case f.has(throttle.Sending):
		return whySending
	case f.has(throttle.Closed):
		return whyWindow
	case f.has(throttle.NotKnown):
		return whyUnknown
	case f.isUnknown():
		return whyNotSeen
	}

	return whyNoAlarm
}

// has reports whether one of the windows is in a phase.
func (f findings) has(phase throttle.Phase) bool {
	return slices.ContainsFunc(f.gates, func(g gateState) bool { return g.Phase == phase })
}

// worst returns the alarm that matters most, a zero one if there is none: one that is open, of silence first; one
// that is pending; one whose recovery is due.
func (f findings) worst() (worst partition.AlarmState) {
	for _, s := range f.state.Alarms {
		if rank(s) > rank(worst) {
			worst = s
		}
	}

	return worst
}

// rank is higher for an alarm that matters more.
func rank(s partition.AlarmState) int {
	n := 2 * int(s.Phase)
	isDue := s.Phase == rules.Normal && !s.Due.IsZero()
	if s.Silence || isDue {
		n++
	}

	return n
}

// verdict returns what the status means and what is to be done, with what only this device's findings say.
func (f findings) verdict(code string) verdict {
	v := verdicts[code]
	if letter := f.undelivered(); code == whyDeadLetter && letter.Letter != "" {
		v.todo = "Fix the receiver, then run `alertworker deadletters replay " + letter.Letter + "`."
	}

	switch {
	case code == whyNoAlarm && f.hub.last > 0:
		v.todo = ""
	case code == whyNotSeen && f.similar != "":
		v.todo = fmt.Sprintf("Did you mean %s?", f.similar)
	}

	return v
}

// why returns the status of the device and, for people, what it means, a line for each fact that is known, and what is to
// be done.
func (f findings) why() (code string, lines []string) {
	code = f.status()
	v := f.verdict(code)
	lines = []string{f.asked.String() + ": " + v.says}
	lines = append(lines, f.facts()...)
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
	f.addUnreadable(&all)
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
		all.add("muted", s.ID, f.silenceText(s))
	}

	for _, d := range f.state.Deliveries {
		all.add("waits", f.subject(d.Receiver, d.Rule, d.Level, d.Sensor), f.deliveryText(d))
	}

	isNone := func(g gateState) bool { return g.Claimed.IsZero() && g.Quiet.IsZero() && g.Error == "" }
	recorded := slices.DeleteFunc(slices.Clone(f.gates), isNone)
	if len(recorded) < min(len(f.gates), 1) {
		all.add("window", "", "none is recorded")
	}

	for _, g := range recorded {
		all.add("window", f.subject(g.Receiver, g.Rule, g.Level, g.Sensor, g.Shared), f.windowText(g))
	}

	for _, e := range f.ended {
		if e.Reason != "" {
			all.add("letter", f.subject(e.Receiver, e.Rule, e.Level, e.Sensor), f.letterText(e))
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

// addUnreadable adds why the last messages of the device cannot be read, if they cannot.
func (f findings) addUnreadable(all *facts) {
	u := f.state.Unreadable
	if u == nil {
		return
	}

	text := fmt.Sprintf("%s, partition %s: %s", f.at(u.Last), u.Partition, cmp.Or(u.Damage, u.Reason.Text()))
	if u.Since.Before(u.Last) {
		text += "; nothing could be read since " + f.clock(u.Since)
	}
	all.add("event", "", text)
}

// addHub adds what the hub has of the device, the latest first, if it was asked.
func (f findings) addHub(all *facts) {
	if f.hub.last == 0 {
		return
	}

	text := humanize.Count(f.hub.events, "event") + " of it from the last " + humanize.Span(f.hub.last)
	if f.hub.events > len(f.hub.lines) {
		text += fmt.Sprintf(", the latest %d:", len(f.hub.lines))
	}

	all.add("hub", "", text)
	for _, line := range slices.Backward(f.hub.lines) {
		all.add("event", "", line)
	}

	if f.hub.muted != "" {
		all.add("muted", "", "by its last message: "+f.hub.muted)
	}
}

// addHeard adds when rules about silence heard the device last, and from when on it is silent.
func (f findings) addHeard(all *facts) {
	if f.isUnheard() {
		all.add("silence", "", "no message of it has counted, but those of "+humanize.Count(f.known, "other device"))
	}

	for _, h := range f.state.Heard {
		text := fmt.Sprintf("heard %s in partition %s", f.at(h.At), h.Partition)
		if !h.AsOf.IsZero() {
			text += ", as of " + f.clock(h.AsOf)
		}

		switch rule, _ := level(f.set, h.Rule, ""); {
		case h.Excluded && rule != nil:
			text += "; nothing is expected of it: not " + only(rule)
		case !h.Deadline.IsZero():
			text += "; silent from " + f.clock(h.Deadline)
		}

		all.add("silence", f.subject("", h.Rule, "", h.Sensor), text)
	}
}

// isUnheard reports whether messages of other devices have counted for rules about silence, but none of this one. That
// one may send all the same: what cannot be read does not count for a rule with a field.
func (f findings) isUnheard() bool {
	return f.known > 0 && !f.state.WasHeard() && f.state.Unreadable == nil && len(f.state.Alarms) == 0
}

// isUnknown reports whether others are known, and nothing of this device.
func (f findings) isUnknown() bool {
	isClaimed := func(g gateState) bool { return !g.Claimed.IsZero() || g.Error != "" } // or it is not known
	isKnown := f.state.WasHeard() || f.state.Unreadable != nil || len(f.state.Alarms)+len(f.ended)+f.hub.events > 0
	isKnown = isKnown || slices.ContainsFunc(f.gates, isClaimed)

	return !isKnown && (f.hub.last > 0 || f.known > 0 || f.similar != "")
}

// resembles notes a device that is known, if its name differs from the device's in nothing but case.
func (f *findings) resembles(device string) {
	if device != f.asked.Device && strings.EqualFold(device, f.asked.Device) {
		f.similar = device
	}
}

// alarmText says how an alarm is, since when, and by what.
func (f findings) alarmText(s partition.AlarmState) string {
	rule, level := level(f.set, s.Rule, s.Level)
	text := "over"

	switch {
	case s.Phase == rules.Normal:
	case s.Silence:
		missing := "nothing counted"
		if rule != nil && rule.Field != "" { // it may send other messages
			missing = "no " + strings.ReplaceAll(rule.Field, ",", " or ") + " was read"
		}

		lasts := humanize.Span(time.Duration(s.Limit) * time.Second)
		text = fmt.Sprintf("open: %s since %s, for longer than %s", missing, f.clock(s.Since), lasts)

	default:
		text = fmt.Sprintf("%s since %s, by %s", s.Phase, f.clock(s.Since), textOf(rule, s.Value))
		if rule == nil || len(rule.Is) == 0 {
			own := level != nil && level.LimitAt.Name != "" && !level.LimitAt.Plus && s.Limit != level.Limit
			text += ", which " + reaches(false, rule, level, s.Limit, own)
		}

		if !s.Arrived.IsZero() {
			text += "; it arrived at " + f.clock(s.Arrived)
		}
	}

	if s.Phase == rules.Pending && level != nil {
		text += "; an alert is due from " + f.clock(s.Since.Add(level.For))
	}

	if !s.Due.IsZero() {
		text += "; a recovery is due since " + f.clock(s.Due) + ", mostly after the window"
	}

	return text
}

// valueText shows a value of a level of a rule, which may not be configured any more.
func (f findings) valueText(rule, name string, value float64) string {
	r, _ := level(f.set, rule, name)
	return textOf(r, value)
}

// deliveryText says what is delivered, and what that waits for.
func (f findings) deliveryText(d delivery.State) string {
	what := "alert about"
	if d.Recovery {
		what = "recovery at"
	}

	return fmt.Sprintf("%s %s, since %s: %s", what, f.valueText(d.Rule, d.Level, d.Value), f.clock(d.Since), f.conditionText(d.Waits))
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

// silenceText says what a silence is about, until when, and who made it.
func (f findings) silenceText(s muting.Mute) string {
	return fmt.Sprintf("%s until %s, by %s: %s", s, f.until(s.Until), s.Who, s.Why)
}

// letterText says what became a dead letter, and why.
func (f findings) letterText(l pastDelivery) string {
	what := "alert about"
	if l.Resolved {
		what = "recovery at"
	}

	return fmt.Sprintf("%s %s %s became a dead letter %s, %s: %s", what, f.valueText(l.Rule, l.Level, l.Temperature),
		f.at(l.Enqueued), f.at(l.At), cmp.Or(l.Letter, "only in the log"), l.Reason)
}

// windowText says what the store knows of a window: its state, and what was sent last, when and by whom.
func (f findings) windowText(g gateState) string {
	text, delivered := "over", g.delivered()

	switch {
	case g.Error != "":
		return "not known: " + g.Error
	case g.Phase == throttle.Sending:
		return fmt.Sprintf("claimed by %s %s, until %s", cmp.Or(g.Replica, "a replica"), f.at(g.Claimed), f.until(g.Until))
	case g.Phase == throttle.Closed:
		text = "in force until " + f.until(g.Until)
	}

	if !delivered.IsZero() {
		text += "; an alert was delivered " + f.at(delivered)
	}

	if isOther := delivered.IsZero() || g.Unresolved; isOther {
		text += "; the last attempt" + map[bool]string{true: ", with a recovery,"}[g.Recovery] + " was " + f.at(g.Claimed)
	}

	text += " by " + cmp.Or(g.Replica, "a replica")
	if g.Unresolved {
		text += ", and it is not known whether it was accepted"
	}

	return text + f.repeatText(g)
}

// repeatText says when an alarm that was sent is sent again, if that is not as soon as its window is over.
func (f findings) repeatText(g gateState) string {
	switch {
	case g.repeat == 0 || g.Sent.IsZero():
		return ""
	case g.repeat == rules.Never:
		return "; sent once (repeat: never)"
	}

	return "; sent again, while the alarm is open, from " + f.clock(g.Sent.Add(g.repeat))
}

// until says when t is, a time to come by the store's clock.
func (f findings) until(t time.Time) string {
	now := f.now // ours, if no gate says the store's
	for _, g := range f.gates {
		if !g.Now.IsZero() {
			now = g.Now
		}
	}

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
