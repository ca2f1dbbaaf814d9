package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/muting"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// What keeps a device from being alerted about.
const (
	whyWaiting     = "waiting"         // an alert is being delivered, or waits
	whyDeadLetter  = "dead_letter"     // its last alert became a dead letter
	whyWindow      = "window"          // hot, and a window is in force
	whySending     = "sending"         // hot, and another replica has a claim
	whyDelivered   = "delivered"       // hot, and an alert that was delivered covers the reading
	whyUnknown     = "unknown"         // hot, and the store does not respond
	whyQuiet       = "quiet"           // hot, and its message mutes it
	whyUnwanted    = "unwanted"        // hot, and no receiver gets such alerts
	whyInhibited   = "inhibited"       // over a limit, and a higher level of the rule is open
	whyPending     = "pending"         // over a limit, but not for long enough
	whyOpen        = "open"            // not over the limit, but not normal again either
	whyBelow       = "below_threshold" // its last reading reaches no limit
	whyUndecodable = "undecodable"     // its last event has no reading
	whySilent      = "silent"          // it has not been heard for as long as a rule says
	whyNotSeen     = "not_seen"        // nothing was read of it, as far as is remembered
)

// findings are what is known of a device.
type findings struct {
	now   time.Time
	set   *rules.Set
	state worker.DeviceState
	ended []delivery // deliveries, the latest first
	gates []gateState

	event    string            // what the hub says of its last event, if it was asked
	shared   map[string]string // what the device shares the alerts of rules by, of which that is known, by their names
	silences []muting.Silence  // in force, that may be about the device

	searched                                    bool  // the ledgers of all partitions
	ledgerErr, rosterErr, letterErr, silenceErr error // why not all were
}

// An unsharedError says that a rule's windows are shared by the value of a property, which is not known.
type unsharedError struct{ per string }

func (e unsharedError) Error() string {
	return fmt.Sprintf("devices with the same %s share it, and which one this device has is known only to the replica that reads its partition, and to the hub (`alertworker why --last`)", e.per)
}

// A gateState is what the store knows of the device's window at one receiver, for one level of a rule.
type gateState struct {
	Receiver string `json:"receiver"`
	Rule     string `json:"rule"`
	Level    string `json:"level,omitempty"`
	Shared   string `json:"shared,omitempty"` // such as site=berlin: the window of all devices with that; empty if it is the device's own
	throttle.State
	Error string `json:"error,omitempty"` // of err

	window time.Duration
	err    error
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

// alert returns the last alert that a receiver took, nil if none is remembered.
func (f findings) alert() *delivery {
	return f.last(func(e delivery) bool { return e.Reason == "" && !e.Resolved })
}

// resolved returns the last recovery that a receiver got, nil if none is remembered.
func (f findings) resolved() *delivery {
	return f.last(func(e delivery) bool { return e.Reason == "" && e.Resolved })
}

// letter returns the last dead letter, nil if none is remembered.
func (f findings) letter() *delivery { return f.last(func(e delivery) bool { return e.Reason != "" }) }

func (f findings) last(is func(delivery) bool) *delivery {
	if i := slices.IndexFunc(f.ended, is); i >= 0 {
		return &f.ended[i]
	}
	return nil
}

// about returns what is known of one level of a rule.
func (f findings) about(rule, level string) findings {
	f.ended = slices.DeleteFunc(slices.Clone(f.ended), func(e delivery) bool { return e.Rule != rule || e.Level != level })
	f.gates = slices.DeleteFunc(slices.Clone(f.gates), func(g gateState) bool { return g.Rule != rule || g.Level != level })
	return f
}

// undelivered returns the last dead letter, unless its receiver has since taken another of the device and level.
func (f findings) undelivered() *delivery {
	l := f.letter()
	if l == nil {
		return nil
	}
	of := f.about(l.Rule, l.Level)
	if of.last(func(e delivery) bool { return e.Reason == "" && e.Receiver == l.Receiver && e.At.After(l.At) }) != nil {
		return nil
	}
	for _, g := range of.gates {
		if g.Receiver == l.Receiver && g.delivered().After(l.At) {
			return nil // by another replica, or a replay
		}
	}
	return l
}

// delivered returns when the last alert was delivered, by anybody; zero if that is not known.
func (f findings) delivered() (at time.Time) {
	if t := f.alert(); t != nil {
		at = t.At
	}
	for _, g := range f.gates {
		if d := g.delivered(); d.After(at.Add(g.window / 2)) { // else it is the same one
			at = d
		}
	}
	return at
}

// quiet returns the end of the last window in force; zero if none is known to be.
func (f findings) quiet() (until time.Time) {
	for _, g := range f.gates {
		if g.err == nil && g.Phase == throttle.Closed && g.Until.After(until) {
			until = g.Until
		}
	}
	if t := f.alert(); t != nil && until.IsZero() && f.storeError() != nil && t.Until.After(f.now) {
		until = t.Until
	}
	return until
}

// claimed returns the end of a claim in force; zero if there is none.
func (f findings) claimed() (until time.Time) {
	for _, g := range f.gates {
		if g.err == nil && g.Phase == throttle.Sending {
			until = g.Until
		}
	}
	return until
}

func (f findings) storeError() error {
	for _, g := range f.gates {
		if g.err != nil && !errors.As(g.err, new(unsharedError)) {
			return g.err
		}
	}
	return nil
}

// why returns the status of the device and, in a sentence, why it has not been alerted about, and what is silenced.
func (f findings) why() (code, text string) {
	code, text = f.reason()
	for _, s := range f.silences {
		text += "; " + f.silenceText(s)
	}
	return code, text
}

// silenceText says what a silence means for the device, as part of a sentence.
func (f findings) silenceText(s muting.Silence) string {
	text := "its alerts"
	if s.Rule != "" {
		text += " of rule " + s.Rule
	}
	if s.Property != "" {
		text += fmt.Sprintf(" about messages with %s=%s", s.Property, s.Value)
	}
	return fmt.Sprintf("%s are silenced until %s by %s (%s)", text, f.until(s.Until), s.Who, s.Why)
}

// reason returns the status of the device and why it has not been alerted about. What is
// in the way of an alert comes first, then what the device sent last.
func (f findings) reason() (code, text string) {
	if len(f.state.Deliveries) > 0 {
		return whyWaiting, f.waiting()
	}
	if l := f.undelivered(); l != nil {
		return whyDeadLetter, f.deadLetter(l)
	}
	if i := slices.IndexFunc(f.state.Alarms, func(s worker.AlarmState) bool { return s.Silence && s.Phase == rules.Open }); i >= 0 {
		s := f.state.Alarms[i]
		return whySilent, fmt.Sprintf("It has not been heard since %s, for longer than %s%s%s", f.clock(s.Since), humanize.Span(time.Duration(s.Limit)*time.Second), which(s.Rule, s.Level), f.also())
	}
	h := f.state.Last
	switch {
	case h == nil:
		return f.unseen()
	case h.Undecodable != nil && (h.Reading == nil || h.Undecodable.Enqueued.After(h.Reading.Enqueued) || h.Undecodable.Sequence > h.Reading.Sequence):
		return whyUndecodable, fmt.Sprintf("Its last event, %s in partition %s (sequence %d), has no reading: %s%s",
			f.at(h.Undecodable.Enqueued), h.Partition, h.Undecodable.Sequence, h.Undecodable.Reason.Text(), f.also())
	case h.Reading == nil:
		return f.unseen()
	}
	return f.read(*h.Reading)
}

// level returns a level by its name; nil if it is not configured.
func (f findings) level(rule, name string) (*rules.Rule, *rules.Level) {
	for i := range f.set.Rules {
		r := &f.set.Rules[i]
		for j := range r.Levels {
			if r.Name == rule && r.Levels[j].Name == name {
				return r, &r.Levels[j]
			}
		}
	}
	return nil, nil
}

// alarm returns the device's alarm at a level, a zero one if there is none.
func (f findings) alarm(rule, level string) worker.AlarmState {
	for _, s := range f.state.Alarms {
		if s.Rule == rule && s.Level == level && s.Phase != rules.Normal {
			return s
		}
	}
	return worker.AlarmState{}
}

// higher returns the open alarm of a higher level of r than the one called level.
func (f findings) higher(r *rules.Rule, level string) worker.AlarmState {
	for _, l := range slices.Backward(r.Levels) {
		if l.Name == level {
			break
		}
		if s := f.alarm(r.Name, l.Name); s.Phase == rules.Open {
			return s
		}
	}
	return worker.AlarmState{}
}

// read is why for a device whose last event had the reading r, which is settled: from what the worker decided about it.
func (f findings) read(r worker.Reading) (code, text string) {
	reading := fmt.Sprintf("Its last reading, %s %s,", number(r.Value), f.at(r.Enqueued))
	rule, level := f.level(r.Rule, r.Level)
	if rule == nil {
		fields, of := f.set.Fields()
		var readers []*rules.Rule
		for i := range f.set.Rules {
			if !f.set.Rules[i].Silence() && fields[of[i].Field].Paths == fields[r.Field].Paths {
				readers = append(readers, &f.set.Rules[i])
			}
		}
		if len(readers) != 1 || len(readers[0].Levels) != 1 {
			return whyBelow, fmt.Sprintf("%s reaches no limit (%s)%s", reading, limits(readers), f.also())
		}
		rule, level = readers[0], &readers[0].Levels[0]
		r.Limit = level.Limit
	}
	limit, alarm := limitOf(rule, level, r), f.alarm(rule.Name, level.Name)
	below := "below"
	if rule.Below {
		below = "above"
	}
	switch r.Decision {
	case worker.Muted:
		return whyQuiet, fmt.Sprintf("%s reaches %s, but is muted: the property %s of its message keeps the device quiet", reading, limit, f.set.Quiet)
	case worker.Silenced:
		return whyQuiet, fmt.Sprintf("%s reaches %s, but alerts like this one were silenced", reading, limit)
	case worker.Unwanted:
		return whyUnwanted, fmt.Sprintf("%s reaches %s, but no receiver of NOTIFY_URLS gets alerts of this device, rule and level (level=, rule=, where=)", reading, limit)
	case worker.Notified:
		return f.about(rule.Name, level.Name).hot(r, limit)
	case worker.Inhibited:
		higher := f.higher(rule, level.Name)
		return whyInhibited, fmt.Sprintf("%s reaches %s, which sends no alert while the alarm of level %s is open, since %s", reading, limit, higher.Level, f.clock(higher.Since))
	case worker.StaysPending:
		return whyPending, fmt.Sprintf("%s reaches %s, as its readings have since %s, but not for %s yet: the first from %s on causes an alert",
			reading, limit, f.clock(alarm.Since), humanize.Span(level.For), f.clock(alarm.Since.Add(level.For)))
	case worker.StaysOpen:
		clear := number(rule.ClearOf(level, r.Limit))
		if level.ClearOverride != "" {
			clear += " (or its property " + level.ClearOverride + ")"
		}
		return whyOpen, fmt.Sprintf("%s is %s %s but not %s %s, so the alarm that has been open since %s goes on%s",
			reading, below, limit, below, clear, f.clock(alarm.Since), f.also())
	}
	return whyBelow, fmt.Sprintf("%s is %s %s%s", reading, below, limit, f.also())
}

// hot is why for a device whose last reading, r, reaches limit, which is all that f is about, and is settled.
func (f findings) hot(r worker.Reading, limit string) (code, text string) {
	alert := "an alert" + f.sharing()
	reading := fmt.Sprintf("Its last reading, %s %s, which reaches %s,", number(r.Value), f.at(r.Enqueued), limit)
	switch quiet, claimed, delivered := f.quiet(), f.claimed(), f.delivered(); {
	case !quiet.IsZero():
		return whyWindow, fmt.Sprintf("%s is suppressed: %s was delivered %s, and its window is in force until %s", reading, alert, f.at(delivered), f.until(quiet))
	case !claimed.IsZero():
		return whySending, fmt.Sprintf("%s is settled here, and another replica has a claim until %s: it is sending an alert, or it has died", reading, f.until(claimed))
	case f.storeError() != nil:
		return whyUnknown, fmt.Sprintf("%s is settled; more is not known, because the throttle store is not responding", reading)
	case !delivered.IsZero():
		return whyDelivered, fmt.Sprintf("%s is covered by the alert that was delivered %s; no window is in force, so the next one causes an alert", reading, f.at(delivered))
	}
	return whyDelivered, reading + " is settled; no window is in force, so the next one causes an alert"
}

// sharing says of which devices the alerts are that all of f is about, if not of this one alone.
func (f findings) sharing() string {
	for _, g := range f.gates {
		if g.Shared != "" {
			return " about a device with " + g.Shared
		}
	}
	return ""
}

// until says when t is, a time to come by the store's clock.
func (f findings) until(t time.Time) string {
	now := f.now
	for _, g := range f.gates {
		if !g.Now.IsZero() {
			now = g.Now
		}
	}
	return fmt.Sprintf("%s (another %s)", f.clock(t), humanize.Span(max(0, t.Sub(now))))
}

func (f findings) waiting() string {
	first := f.state.Deliveries[0] // the oldest alert; if there is none, the oldest resolved
	for _, d := range f.state.Deliveries {
		if first.Recovery && !d.Recovery || first.Recovery == d.Recovery && d.Since.Before(first.Since) {
			first = d
		}
	}
	var parts []string
	for _, d := range f.state.Deliveries {
		part := d.String()
		if claimed := f.about(d.Rule, d.Level).claimed(); d.For == worker.WaitClaim && !claimed.IsZero() {
			part += "; the claim ends at the latest at " + f.until(claimed)
		}
		if !d.Until.IsZero() {
			part += "; the next attempt is due " + until(d.Until.Sub(f.now))
		}
		parts = append(parts, part)
	}
	what := "An alert%s about %s has been waiting"
	if first.Recovery {
		what = "The recovery%s, at %s, has been waiting to be sent"
	}
	return fmt.Sprintf(what+" since %s: %s", which(first.Rule, first.Level), number(first.Value), f.clock(first.Since), strings.Join(parts, "; "))
}

func (f findings) deadLetter(l *delivery) string {
	where := "it is only in the log"
	if l.Letter != "" {
		where = "`alertworker deadletters replay " + l.Letter + "` sends it again"
	}
	what := "The alert%s about %s %s became"
	if l.Resolved {
		what = "The recovery%s, with %s %s, became"
	}
	return fmt.Sprintf(what+" a dead letter of receiver %s %s: %s; %s",
		which(l.Rule, l.Level), number(l.Temperature), f.at(l.Enqueued), l.Receiver, f.at(l.At), l.Reason, where)
}

// unseen is why for a device of which no reading is known here: from its alarms, which all replicas share.
func (f findings) unseen() (code, text string) {
	var due worker.AlarmState
	for _, phase := range []rules.Phase{rules.Open, rules.Pending} {
		for _, s := range slices.Backward(f.state.Alarms) { // higher levels are later
			if due.Due.IsZero() {
				due = s
			}
			limit, last := "the limit of "+number(s.Limit)+which(s.Rule, s.Level), time.Duration(0)
			if rule, level := f.level(s.Rule, s.Level); rule != nil {
				limit, last = limitOf(rule, level, worker.Reading{Limit: s.Limit, Own: level.Override != "" && s.Limit != level.Limit}), level.For
			}
			switch {
			case s.Phase != phase:
			case phase == rules.Open:
				return whyOpen, fmt.Sprintf("Its alarm has been open since %s: %s reached %s%s", f.clock(s.Since), number(s.Value), limit, f.also())
			default:
				return whyPending, fmt.Sprintf("Its readings have reached %s since %s, but not for %s yet: the first from %s on causes an alert",
					limit, f.clock(s.Since), humanize.Span(last), f.clock(s.Since.Add(last)))
			}
		}
	}
	if !due.Due.IsZero() {
		return whyWaiting, fmt.Sprintf("It has been normal again since %s, and the recovery%s waits, mostly for the window to end%s", f.clock(due.Due), which(due.Rule, due.Level), f.also())
	}
	return whyNotSeen, f.notSeen() + f.also()
}

// notSeen says where nothing is known of the device.
func (f findings) notSeen() string {
	nowhere := ""
	switch {
	case f.ledgerErr != nil:
		nowhere = fmt.Sprintf("; the alarms of other partitions cannot be read: %v", f.ledgerErr)
	case f.searched:
		nowhere = "; no partition has an alarm of it"
	}
	switch {
	case f.event != "":
		return "Its last event was " + f.event
	case len(f.state.Partitions) == 0:
		return "Its last reading is known only to the replica that reads its partition, and to the hub (`alertworker why --last`)" + nowhere
	}
	partitions := "partition " + f.state.Partitions[0]
	if len(f.state.Partitions) > 1 {
		partitions = "partitions " + humanize.And(f.state.Partitions)
	}
	return fmt.Sprintf("This replica has seen nothing of the device since %s; it reads %s, and another replica may know more%s", f.clock(f.state.Since), partitions, nowhere)
}

// also says what else is known of the device's alerts, as the end of a sentence.
func (f findings) also() string {
	of, name := f.latest()
	alert := "its last alert" + name
	if sharing := of.sharing(); sharing != "" {
		alert = "the last alert" + sharing + name
	}
	switch quiet, claimed, delivered := of.quiet(), of.claimed(), of.delivered(); {
	case !quiet.IsZero():
		return fmt.Sprintf("; %s was delivered %s, and its window is in force until %s", alert, f.at(delivered), f.until(quiet))
	case !claimed.IsZero():
		return fmt.Sprintf("; a replica has a claim%s until %s: it is sending an alert, or it has died", name, f.until(claimed))
	case delivered.IsZero():
		return ""
	default:
		text := fmt.Sprintf("; %s was delivered %s", alert, f.at(delivered))
		if r := of.resolved(); r != nil && r.At.After(delivered) {
			text += ", and the receiver got a recovery " + f.at(r.At)
		}
		return text
	}
}

// latest returns what is known of the level about which a notice was sent last, or is being sent, and its name for a sentence.
func (f findings) latest() (of findings, name string) {
	var at time.Time
	for _, r := range f.set.Rules {
		for _, l := range r.Levels {
			one := f.about(r.Name, l.Name)
			last := one.delivered()
			if c := one.claimed(); c.After(last) { // it ends later than now
				last = c
			}
			if last.After(at) {
				of, name, at = one, which(r.Name, l.Name), last
			}
		}
	}
	return of, name
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
	layout := "15:04:05 UTC"
	if t.UTC().Format(time.DateOnly) != f.now.UTC().Format(time.DateOnly) {
		layout = "2006-01-02 15:04:05 UTC"
	}
	return t.UTC().Format(layout)
}
