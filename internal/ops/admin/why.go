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

// What keeps a device from being alerted about.
const (
	whyWaiting     = "waiting"         // an alert is being delivered, or waits
	whyDeadLetter  = "dead_letter"     // its last alert became a dead letter
	whyWindow      = "window"          // hot, and a window is in force
	whySending     = "sending"         // hot, and another replica has a claim
	whyDelivered   = "delivered"       // hot, and an alert that was delivered covers the reading
	whyUnknown     = "unknown"         // hot, and the store does not respond
	whyQuiet       = "quiet"           // hot, and its message or a silence mutes it
	whyUnwanted    = "unwanted"        // hot, and no receiver gets such alerts
	whyInhibited   = "inhibited"       // over a limit, and a higher level of the rule is open
	whyPending     = "pending"         // over a limit, but not for long enough
	whyOpen        = "open"            // not over the limit, but not normal again either
	whyOutdated    = "outdated"        // its alarm has seen a reading that was taken later
	whyExcluded    = "excluded"        // over the limit of a rule that does not look at it
	whyBelow       = "below_threshold" // its last reading reaches no limit
	whyUndecodable = "undecodable"     // its last event has no reading
	whyNoAlarm     = "no_alarm"        // of a sensor; its last reading is not remembered
	whySilent      = "silent"          // it has not been heard for as long as a rule says
	whyNotSeen     = "not_seen"        // nothing was read of it, as far as is remembered
)

// findings are what is known of a device.
type findings struct {
	asked    sensor.ID // what they are of: a sensor, or a device with all of its sensors
	now      time.Time
	set      *rules.Set
	state    partition.DeviceState
	ended    []pastDelivery // deliveries, the latest first
	gates    []gateState
	silences []muting.Mute // in force, that may be about the device
	missing  []string      // clauses: what could not be looked up

	event  string        // what the hub says of its last event, if it was asked
	muted  string        // by what its last event mutes it, likewise; empty if it does not
	looked time.Duration // how far back the hub was asked; 0 if it was not
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

// window returns the window that was claimed last: of the level about which a notice was due to the last reading, if
// one was, in which case one that is not known will do; nil if there is none.
func (f findings) window() *gateState {
	gates := f.gates
	known := true
	if r := f.lastReading(); r != nil && r.Decision == partition.Notified {
		gates = f.of(r.Rule, r.Level, r.Sensor)
		known = false
	}

	if len(gates) == 0 {
		return nil
	}

	last := slices.MaxFunc(gates, func(x, y gateState) int { return x.Claimed.Compare(y.Claimed) })
	if last.Claimed.IsZero() && (known || last.Error == "") {
		return nil
	}

	return &last
}

// lastReading returns the last reading of the device that is remembered; nil if there is none.
func (f findings) lastReading() *partition.Reading {
	if f.state.Last == nil {
		return nil
	}

	r := f.state.Last.Reading
	if r != nil && f.asked.Name != "" && f.asked.Name != r.Sensor {
		return nil
	}

	return r
}

// undecodable returns the device's last event if that has no reading; nil if it has one, or is not remembered.
func (f findings) undecodable() *partition.Undecodable {
	if f.state.Last == nil || f.state.Last.Undecodable == nil {
		return nil
	}

	u, r := f.state.Last.Undecodable, f.state.Last.Reading
	if r != nil && !u.Enqueued.After(r.Enqueued) && u.Sequence <= r.Sequence {
		return nil
	}

	return u
}

// why returns the status of the device and, in a sentence, why it has not been alerted about, what is silenced, and
// what is not known.
func (f findings) why() (code, text string) {
	code, text = f.reason()
	parts := []string{text}
	if f.muted != "" {
		parts = append(parts, "its last message mutes it: "+f.muted)
	}

	u := f.undecodable()
	if u != nil && u.Since.Before(u.Enqueued) && !u.Since.IsZero() {
		parts = append(parts, "nothing could be read of it since "+f.clock(u.Since))
	}

	if r := f.lastReading(); r != nil && r.Damaged != "" && u == nil {
		parts = append(parts, r.Damaged)
	}

	if g := f.window(); g != nil {
		parts = append(parts, f.windowText(*g))
	}

	for _, s := range f.silences {
		parts = append(parts, f.silenceText(s))
	}

	return code, strings.Join(append(parts, f.missing...), "; ")
}

// reason returns the status of the device and why it has not been alerted about. What is
// in the way of an alert comes first, then what the device sent last, and then its alarms, which all replicas share.
func (f findings) reason() (code, text string) {
	if len(f.state.Deliveries) > 0 {
		return whyWaiting, f.waiting()
	}

	if l := f.undelivered(); l != nil {
		return whyDeadLetter, f.deadLetter(l)
	}

	alarm := f.worst()
	switch {
	case alarm.Phase == rules.Open && alarm.Silence:
		return whySilent, "Its " + f.alarmText(alarm)
	case alarm.Phase == rules.Open && alarm.Sensor != "": // the last reading may be another sensor's
		return whyOpen, "Its " + f.alarmText(alarm)
	}

	if u := f.undecodable(); u != nil {
		return whyUndecodable, fmt.Sprintf(
			"Its last event, %s in partition %s (sequence %d), has no reading: %s",
			f.at(u.Enqueued),
			f.state.Last.Partition,
			u.Sequence,
			cmp.Or(u.Damage, u.Reason.Text()),
		)
	}

	if r := f.lastReading(); r != nil {
		return f.read(*r)
	}

	if alarm.Phase != rules.Normal || !alarm.Due.IsZero() {
		return whyAlarm(alarm.Phase), "Its " + f.alarmText(alarm)
	}

	if f.asked.Name != "" && f.state.Last != nil {
		return whyNoAlarm, fmt.Sprintf(
			"It has no alarm; the last event of %s was read %s",
			f.asked.Device,
			f.at(f.state.Last.At),
		)
	}

	return whyNotSeen, f.notSeen()
}

// whyAlarm returns the status of a device with an alarm in a phase; if that is over, its recovery is due.
func whyAlarm(phase rules.Phase) (code string) {
	switch phase {
	case rules.Open:
		return whyOpen
	case rules.Pending:
		return whyPending
	}

	return whyWaiting
}

// notSeen says why nothing is known of what the device sent last.
func (f findings) notSeen() string {
	switch {
	case f.event != "":
		return "Its last event was " + f.event

	case f.looked > 0, (f.isUnheard() || f.similar != "") && !f.claimed():
		return f.notKnown()

	case len(f.state.Partitions) > 0:
		return fmt.Sprintf(
			"This replica has seen nothing of the device since %s, and another one may know more",
			f.clock(f.state.Since),
		)
	}

	return "Its last reading is known only to the replica that reads its partition, and to the hub " +
		"(`alertworker why --last`)"
}

// isUnheard reports whether messages of other devices have counted for rules about silence, but none of this one. That
// one may send all the same: what cannot be read does not count for a rule with a field.
func (f findings) isUnheard() bool { return f.known > 0 && !f.state.WasHeard() }

// resembles notes a device that is known, if its name differs from the device's in nothing but case.
func (f *findings) resembles(device string) {
	if device != f.asked.Device && strings.EqualFold(device, f.asked.Device) {
		f.similar = device
	}
}

// claimed reports whether anybody has sent something about the device.
func (f findings) claimed() bool {
	return slices.ContainsFunc(f.gates, func(g gateState) bool { return !g.Claimed.IsZero() || g.Error != "" })
}

// notKnown says that a device is not known, and what may be the reason.
func (f findings) notKnown() string {
	text := "It is not known"
	if f.looked > 0 {
		text = "The hub has no event of it from the last " + humanize.Span(f.looked)
	}

	if f.isUnheard() {
		text += fmt.Sprintf("; for rules about silence no message of it has counted, but those of %s", humanize.Count(f.known, "other device"))
	}

	if f.similar != "" {
		return text + fmt.Sprintf("; did you mean %s?", f.similar)
	}

	return text + ": check the id (its case matters), or look further back"
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

// read is why for a device whose last event had the reading r, which is settled: from what the worker decided about it.
func (f findings) read(r partition.Reading) (code, text string) {
	rule, level := level(f.set, r.Rule, r.Level)
	if rule == nil {
		return whyBelow, fmt.Sprintf("Its last reading, %s %s, reaches no limit", f.found(r), f.at(r.Enqueued))
	}

	text = fmt.Sprintf("Its last reading, %s %s, ", rule.Text(r.Value), f.at(r.Enqueued))
	if r.Sensor != "" && r.Sensor != f.asked.Name {
		text = fmt.Sprintf("Its last reading, %s of sensor %s %s, ", rule.Text(r.Value), r.Sensor, f.at(r.Enqueued))
	}

	limit := text + reaches(false, rule, level, r.Limit, r.Own) + which(r.Rule, r.Level)
	below := text + reaches(true, rule, level, r.Limit, r.Own) + which(r.Rule, r.Level)
	alarm, told := f.alarmOf(r)

	switch r.Decision {
	case partition.Excluded:
		return whyExcluded, fmt.Sprintf("%s, but the rule looks only at messages with %s", limit, only(rule))

	case partition.NoBase:
		return whyBelow, fmt.Sprintf(
			"%sis compared with nothing by the rule %s: its message has no number at %s",
			text,
			rule.Name,
			rule.Base(),
		)

	case partition.Muted:
		return whyQuiet, limit + ", but was muted: by its message, a mute time of the rules, or a silence"

	case partition.Unwanted:
		return whyUnwanted, limit + ", but no receiver of NOTIFY_URLS gets alerts of this device, rule and level (level=, " +
			"rule=, where=)"

	case partition.Inhibited:
		return whyInhibited, limit + ", which sends no alert while the alarm of a higher level is open"

	case partition.Outdated:
		return whyOutdated, text + "is older than one that its alarm has seen, so it changes nothing" + alarm

	case partition.StaysPending:
		return whyPending, limit + ", but not for long enough yet" + alarm

	case partition.StaysOpen:
		if r.Damaged != "" {
			return whyOpen, below + ", but its message is damaged, which ends no alarm" + alarm
		}
		return whyOpen, below + staysOpen(rule, level, r) + alarm

	case partition.Notified:
		return hot(f.of(r.Rule, r.Level, r.Sensor)), limit + ", and is settled" + told
	}

	return whyBelow, below
}

// alarmOf returns clauses about the alarm that r is about: its state, and to whom it need not be sent again. Both are
// empty if there is none.
func (f findings) alarmOf(r partition.Reading) (state, told string) {
	for _, s := range f.state.Alarms {
		if s.Rule == r.Rule && s.Level == r.Level && s.Sensor == r.Sensor {
			state = ": its " + f.alarmText(s)
			told = f.toldText(s)
		}
	}

	return state, told
}

// staysOpen says why a reading below the limit does not end its alarm.
func staysOpen(rule *rules.Rule, level *rules.Level, r partition.Reading) string {
	end := rule.ClearOf(level, r.Limit)
	clear := rule.Text(end)
	if name := level.ClearAt.Name; name != "" {
		clear += " (or its " + name + ")"
	}

	side := "below"
	if rule.Below {
		side = "above"
	}

	if rule.ClearedFor > 0 && rule.Cleared(r.Value, end) {
		lasts := humanize.Span(rule.ClearedFor)
		return fmt.Sprintf(", and is %s %s, but has not been for %s yet", side, clear, lasts)
	}

	return fmt.Sprintf(", but is not %s %s either", side, clear)
}

// found shows a reading that reaches no limit.
func (f findings) found(r partition.Reading) string {
	if rule := f.set.Reading(r.Field); rule != nil {
		return rule.Text(r.Value)
	}

	return number(r.Value)
}

// hot returns the status of a device whose last reading reaches the limit that gates are about, and is settled.
func hot(gates []gateState) (code string) {
	phases := map[throttle.Phase]bool{}
	for _, g := range gates {
		phases[g.Phase] = true
	}

	switch {
	case phases[throttle.Closed]:
		return whyWindow
	case phases[throttle.Sending]:
		return whySending
	case phases[throttle.NotKnown]:
		return whyUnknown
	}

	return whyDelivered
}

// waiting says what the deliveries wait for.
func (f findings) waiting() string {
	var parts []string
	for _, d := range f.state.Deliveries {
		what := "An alert%s about %s"
		if d.Recovery {
			what = "The recovery%s, at %s,"
		}

		what = f.sensorText(d.Sensor) + what
		part := fmt.Sprintf(
			what+" has been waiting since %s: %s",
			which(d.Rule, d.Level),
			reading(f.set, d.Rule, d.Value),
			f.clock(d.Since),
			f.conditionText(d.Waits),
		)

		parts = append(parts, part)
	}

	return strings.Join(parts, ". ")
}

// sensorText is in front of what is said of a sensor, if somebody asks about its whole device.
func (f findings) sensorText(name string) string {
	if name == "" || name == f.asked.Name {
		return ""
	}
	return "Sensor " + strings.ReplaceAll(name, "%", "%%") + ": "
}

// conditionText says what a delivery waits for, and for how long it has.
func (f findings) conditionText(c delivery.Condition) string {
	if c.For == delivery.WaitRepeat {
		return f.repeatCondition(c)
	}

	text := c.Text + ", for " + humanize.Span(max(time.Second, f.now.Sub(c.Since)))
	if !c.Next.IsZero() {
		text += "; the next attempt is due " + until(c.Next.Sub(f.now))
	}

	return text
}

// repeatCondition says what an alarm that was sent waits for.
func (f findings) repeatCondition(c delivery.Condition) string {
	text := c.Text + "; it was sent " + f.at(c.Since)
	if !c.Next.IsZero() {
		text += ", and is due again " + until(c.Next.Sub(f.now))
	}

	return text
}

// The following return lines about one thing each, which WriteText writes and why has as parts of its sentence.

// silenceText says what a silence means for the device.
func (f findings) silenceText(s muting.Mute) string {
	text, until := "its alerts", "until "+f.until(s.Until)
	if s.Sensor != "" && f.asked.Name == "" {
		text = "alerts of its sensor " + s.Sensor
	}

	if s.Rule != "" {
		text += " of rule " + s.Rule
	}

	if s.Property != "" {
		text += fmt.Sprintf(" about messages with %s=%s", s.Property, s.Value)
	}

	return fmt.Sprintf("%s are silenced %s by %s (%s)", text, until, s.Who, s.Why)
}

// deadLetter says what became a dead letter, why, and how it is sent again.
func (f findings) deadLetter(l *pastDelivery) string {
	where := "it is only in the log"
	if l.Letter != "" {
		where = "`alertworker deadletters replay " + l.Letter + "` sends it again"
	}

	what := "The alert%s about %s %s became"
	if l.Resolved {
		what = "The recovery%s, with %s %s, became"
	}

	what = f.sensorText(l.Sensor) + what
	return fmt.Sprintf(
		what+" a dead letter of receiver %s %s: %s; %s",
		which(l.Rule, l.Level),
		reading(f.set, l.Rule, l.Temperature),
		f.at(l.Enqueued),
		l.Receiver,
		f.at(l.At),
		l.Reason,
		where,
	)
}

// alarmText says what state an alarm is in.
func (f findings) alarmText(s partition.AlarmState) string {
	text := "alarm" + which(s.Rule, s.Level) + f.phaseText(s)
	if s.Sensor != "" && s.Sensor != f.asked.Name {
		text = "sensor " + s.Sensor + ": its " + text
	}

	_, level := level(f.set, s.Rule, s.Level)

	if s.Phase == rules.Pending && level != nil {
		text += fmt.Sprintf("; the first reading over it from %s on causes an alert", f.clock(s.Since.Add(level.For)))
	}

	text += f.toldText(s)

	if !s.Due.IsZero() {
		text += fmt.Sprintf("; a recovery has been due since %s, and waits, mostly for the window to end", f.clock(s.Due))
	}

	return text
}

// phaseText says in which phase an alarm is, since when, and why.
func (f findings) phaseText(s partition.AlarmState) string {
	switch {
	case s.Phase == rules.Normal:
		return " is over"

	case s.Silence:
		missing := "the device has not been heard"
		if s.Sensor != "" {
			missing = "the sensor has not been heard"
		}

		if rule, _ := level(f.set, s.Rule, s.Level); rule != nil && rule.Field != "" { // it may send other messages
			missing = "no " + strings.ReplaceAll(rule.Field, ",", " or ") + " of the device has been read"
		}

		return fmt.Sprintf(
			" is open: %s since %s, for longer than %s",
			missing,
			f.clock(s.Since),
			humanize.Span(time.Duration(s.Limit)*time.Second),
		)
	}

	text := fmt.Sprintf(" has been %s since %s", s.Phase, f.clock(s.Since))
	if !s.Arrived.IsZero() {
		text += fmt.Sprintf(" by its own clock (it arrived at %s)", f.clock(s.Arrived))
	}

	rule, level := level(f.set, s.Rule, s.Level)
	own := level != nil && level.LimitAt.Name != "" && !level.LimitAt.Plus && s.Limit != level.Limit

	return text + ", when " + reached(rule, level, s, own)
}

// toldText says to whom an alarm need not be sent again yet.
func (f findings) toldText(s partition.AlarmState) (text string) {
	for _, c := range s.Waits {
		text += "; " + f.conditionText(c)
	}

	return text
}

// reached says what opened an alarm. own says that the limit is the device's own.
func reached(
	rule *rules.Rule,
	level *rules.Level,
	s partition.AlarmState,
	own bool,
) string {
	switch {
	case rule == nil:
		return fmt.Sprintf("%s reached the limit of %s", number(s.Value), number(s.Limit))
	case len(rule.Is) > 0:
		return "it was " + rule.Text(s.Value)
	}

	return rule.Text(s.Value) + strings.Replace(reaches(false, rule, level, s.Limit, own), "reaches", " reached", 1)
}

// windowText says what the store knows of a window.
func (f findings) windowText(g gateState) string {
	text := "receiver " + g.Receiver + which(g.Rule, g.Level)
	if g.Sensor != "" && g.Sensor != f.asked.Name {
		text += ", sensor " + g.Sensor
	}

	if g.Shared != "" {
		text += ", shared by devices with " + g.Shared
	}

	return text + ": " + f.windowState(g)
}

// windowState says what state a window is in.
func (f findings) windowState(g gateState) string {
	by := cmp.Or(g.Replica, "a replica")
	message := "a message"
	if g.Recovery {
		message = "a recovery"
	}

	switch delivered := g.delivered(); {
	case g.Error != "":
		return "not known: " + g.Error

	case g.Phase == throttle.Sending:
		return fmt.Sprintf(
			"%s has been sending since %s, or has died: it has a claim until %s",
			by,
			f.clock(g.Claimed),
			f.until(g.Until),
		)

	case g.Phase == throttle.Closed:
		return fmt.Sprintf(
			"%s delivered an alert %s; the window is in force until %s",
			by,
			f.at(delivered),
			f.until(g.Until),
		)

	case g.Claimed.IsZero():
		return "no alert is recorded"

	case g.Unresolved:
		return fmt.Sprintf(
			"%s sent %s %s, and it is not known whether it was accepted; no window is in force",
			by,
			message,
			f.at(g.Claimed),
		)

	case delivered.IsZero():
		return fmt.Sprintf("%s last sent %s %s; no window is in force", by, message, f.at(g.Claimed))

	default:
		return fmt.Sprintf("an alert was delivered %s; its window is over%s", f.at(delivered), f.repeatText(g))
	}
}

// repeatText says when an alarm that was sent is sent again, if that is not as soon as its window is over.
func (f findings) repeatText(g gateState) string {
	switch {
	case g.repeat == 0 || g.Sent.IsZero():
		return ""
	case g.repeat == rules.Never:
		return ", and its alarm is sent once (repeat: never)"
	}

	return ", and its alarm is sent again, while it is open, from " + f.clock(g.Sent.Add(g.repeat)) + " on"
}

// until says when t is, a time to come by the store's clock.
func (f findings) until(t time.Time) string {
	left := max(0, t.Sub(f.storeNow()))
	return fmt.Sprintf("%s (another %s)", f.clock(t), humanize.Span(left))
}

// storeNow returns the time by the store's clock, or by ours if no gate says it.
func (f findings) storeNow() time.Time {
	now := f.now
	for _, g := range f.gates {
		if !g.Now.IsZero() {
			now = g.Now
		}
	}

	return now
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
