// Package rules decides what is worth an alert: whether a reading reaches a level of a
// rule, for how long it has, and when it is normal again. It is pure: the state of a level
// follows from a device's readings, in the order in which the hub took them, and from
// nothing else.
//
// A [Rule] decides what is worth an alert; the gate of package throttle decides whether it
// is sent now.
package rules

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/telemetry"
)

// DefaultName is the name of the rule that TEMPERATURE_THRESHOLD and the like make.
const DefaultName = "temperature"

// MaxFor is the longest For of a level.
const MaxFor = 24 * time.Hour

// A Set is everything that a worker decides by. It is not changed once a worker has it.
type Set struct {
	Rules []Rule // at least one, of different names
	// Time says where a message has the time of its device: the name of an application property, or body: and
	// the path of a field. It is empty if conditions go by the hub's time: see Clock.
	Time string
	// Show are names of application properties that messages show, at most notify.MaxShown.
	Show []string
	// Mutes are when nobody wants to know.
	Mutes Mutes
}

// Names returns those of all rules.
func (s *Set) Names() (all []string) {
	for i := range s.Rules {
		all = append(all, s.Rules[i].Name)
	}

	return all
}

// Bounds of a rule about silence.
const (
	MinSilent     = time.Minute
	MaxSilent     = 7 * 24 * time.Hour
	DefaultForget = 7 * 24 * time.Hour // or twice Silent, if that is longer
)

// A Rule compares one field with one or more levels, or says how long a device may be silent.
type Rule struct {
	Name string // lower-case letters, digits and hyphens, at most 32
	// as telemetry.NewDecoder takes it, without spaces. Of a rule about silence it may be empty: then every message
	// counts, else those with a reading there
	Field string
	Below bool // readings at or below a limit are worth an alert; else those at or above it
	// not empty: readings are words, as telemetry.Field has them, and each of these is worth an alert. The one level has
	// the limit 1
	Is    []string
	Valid *telemetry.Range // readings outside are ignored; nil: all are valid
	Flags []Condition      // a reading is ignored if one of these has another value; not if it has none
	// where in a message measurements are, as telemetry.NewEach takes it, each of which the rule looks at; empty: a
	// message is one
	Each string
	// names that together say which of its device's sensors a measurement is of; at most MaxSensorNames. None: its device
	// has one. See SensorOf
	Sensor []string
	// the rule looks only at events for which all of these hold; of a rule about silence, it expects to hear from devices
	// of which the last event that says anything of this says that all do. See Expects
	Only   []Condition
	Levels []Level // at least one, the mildest first
	// how long readings must have been beyond the clear of a level for its alarm to end; 0: the first one counts
	ClearedFor time.Duration
	Window     time.Duration // the time without another alert of the device at this level
	// how long after an alert an alarm that is still open is sent again, or Never; 0: when the Window is over. Not of a
	// rule about silence
	Repeat   time.Duration
	Resolved bool // tell when a device is normal again
	// Silent, unless it is 0, is how long after its last message a device is silent. Such a rule is about silence: it
	// has one level, without a name or a limit.
	Silent time.Duration
	// of a rule about silence: after how much of it a device is not known any more, at least twice Silent
	Forget time.Duration
	// Per is a name by which devices share a value: those with the same one share an alert and its window, or have
	// incidents in common. It is empty if each has its own. Alarms are always a device's. See Shared and Grouped.
	Per string

	// For people, and empty if not given: what the rule is called, the unit of its readings, and a URL that says
	// what to do.
	Title, Unit, Runbook string
}

// Never is the Repeat of a rule that sends an alarm once.
const Never = time.Duration(math.MaxInt64)

// Grouped reports whether alarms of r whose devices share a value are members of an incident, which has an end. Else
// they share a window.
func (r *Rule) Grouped() bool { return r.Per != "" && (r.Resolved || r.Silence()) }

// SharedText returns a Subject.Text if all that is known is what the device shares with others by Per; nil without Per.
func (r *Rule) SharedText(value string) func(name string) string {
	if r.Per == "" {
		return nil
	}

	return func(name string) string {
		for per := range strings.SplitSeq(r.Per, ",") {
			if strings.EqualFold(per, name) {
				return value
			}
		}
		return ""
	}
}

// Alone returns r for devices that share no alerts: without Per.
func (r *Rule) Alone() *Rule {
	alone := *r
	alone.Per = ""
	return &alone
}

// A Level is a limit with a name.
type Level struct {
	Name  string  // like a rule's; empty if it is the rule's only one
	Limit float64 // see LimitAt
	// an alarm ends beyond it: below it, or above if the rule is Below. Limit, or on its other side. See ClearOf
	Clear float64
	For   time.Duration // how long readings must have reached the limit; 0: the first one counts
	// where a measurement has a number for Limit. If that is counted from it, so are the limits and clears of all levels
	LimitAt Reference
	ClearAt Reference // likewise for Clear, which is never counted from it
}

// Silence reports whether r is about silence.
func (r *Rule) Silence() bool { return r.Silent > 0 }

// Text shows a reading of r to people: the word that it is, or the number with its unit.
func (r *Rule) Text(value float64) string {
	switch {
	case len(r.Is) == 0:
		return strings.TrimSpace(humanize.Number(value) + " " + r.Unit)
	case value >= 1 && int(value) <= len(r.Is):
		return r.Is[int(value)-1]
	}

	return "another value"
}

// Base returns where a measurement has the number that r's limits and clears are counted from; empty if they are not.
func (r *Rule) Base() string {
	if len(r.Levels) == 0 {
		return ""
	}

	return r.Levels[0].LimitAt.Base()
}

// HasReferences reports whether measurements say anything of r's limits.
func (r *Rule) HasReferences() bool {
	return slices.ContainsFunc(r.Levels, func(l Level) bool { return l.LimitAt.Name+l.ClearAt.Name != "" })
}

// LimitText shows the limit of a level of r to people, as rules write it.
func (r *Rule) LimitText(l *Level) string { return l.LimitAt.Text(l.Limit, r.Text) }

// ClearText is LimitText for the clear.
func (r *Rule) ClearText(l *Level) string {
	if l.LimitAt.Plus {
		return l.LimitAt.Text(l.Clear, r.Text)
	}

	return l.ClearAt.Text(l.Clear, r.Text)
}

// HeardBy names what counts as a sign of life for r, if it is about silence: rules with the same have it in common.
func (r *Rule) HeardBy() string {
	text := r.Field
	if r.Valid != nil {
		text = fmt.Sprintf("%s from %v to %v", r.Field, r.Valid.From, r.Valid.To)
	}

	for _, c := range r.Flags {
		text += fmt.Sprintf(" and %s is %q", c.Name, c.Values)
	}

	if r.Each != "" {
		text += fmt.Sprintf(" in each %s", r.Each)
	}

	if len(r.Sensor) > 0 {
		text += fmt.Sprintf(" of %q", r.Sensor)
	}

	return text
}

// Measured tells r from a rule that takes messages apart otherwise, in 8 characters: what one knows of a measurement says
// nothing of those of another. It is empty if r has neither Each nor Sensor.
func (r *Rule) Measured() string {
	if r.Each == "" && len(r.Sensor) == 0 {
		return ""
	}

	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", r.Each, r.Sensor))

	return base64.RawURLEncoding.EncodeToString(sum[:6])
}

// ExpectedBy names which devices r expects to hear from, if it is about silence; empty: all.
func (r *Rule) ExpectedBy() string {
	var only []string
	for _, c := range r.Only {
		only = append(only, fmt.Sprintf("%s is %q", c.Name, c.Values))
	}

	return strings.Join(only, " and ")
}

// ExpectsAllOf reports whether r expects to hear from all devices that a rule does whose ExpectedBy is expected.
func (r *Rule) ExpectsAllOf(expected string) bool {
	theirs, ok := conditionsOf(expected)
	for _, mine := range r.Only {
		isOther := func(value string) bool { return !mine.hasText(value) }
		ok = ok && slices.ContainsFunc(theirs, func(c Condition) bool {
			return c.Name == mine.Name && !slices.ContainsFunc(c.Values, isOther)
		})
	}

	return ok
}

// conditionsOf is the inverse of ExpectedBy.
func conditionsOf(expected string) (all []Condition, ok bool) {
	for rest := expected; rest != ""; {
		var c Condition
		if c.Name, rest, ok = strings.Cut(rest, " is ["); !ok {
			return nil, false
		}

		for {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				break
			}

			value, _ := strconv.Unquote(quoted) // a prefix that is quoted can be
			c.Values = append(c.Values, value)
			rest = strings.TrimPrefix(rest[len(quoted):], " ")
		}

		if rest, ok = strings.CutPrefix(rest, "]"); !ok {
			return nil, false
		}

		all = append(all, c)
		rest = strings.TrimPrefix(rest, " and ")
	}

	return all, true
}

// Stateful reports whether r's alarms follow from more than one reading, so that they must be
// kept: it is about silence, has a duration or a clear of its own, says how often an alarm is sent, or tells when a
// device is normal again.
func (r *Rule) Stateful() bool {
	return r.Silence() ||
		r.Resolved ||
		r.Repeat > 0 ||
		r.ClearedFor > 0 ||
		slices.ContainsFunc(r.Levels, func(l Level) bool { return l.For > 0 || l.Clear != l.Limit || l.ClearAt.Name != "" })
}

// Stateful reports whether any rule of s is.
func (s *Set) Stateful() bool {
	return slices.ContainsFunc(s.Rules, func(r Rule) bool { return r.Stateful() })
}

// Threshold returns the set of one rule with one limit, of readings at or above it.
func Threshold(field string, limit float64, window time.Duration) Set {
	return Set{
		Rules: []Rule{{
			Name:   DefaultName,
			Field:  field,
			Window: window,
			Levels: []Level{{Limit: limit, Clear: limit}},
		}},
	}
}

// A Condition is that an event has one of some values.
type Condition struct {
	// Name is looked up as telemetry.Measurements say.
	Name   string
	Values []string // at least one; compared as the words of a telemetry.Field are
}

// Holds reports whether a measurement has one of a condition's values. found is what it has at its name.
func Holds(found telemetry.Found) bool { return found.Reason == telemetry.ReasonOK && found.Value > 0 }

// hasText reports whether text is one of c's values, in any case.
func (c *Condition) hasText(text string) bool {
	return slices.ContainsFunc(c.Values, func(value string) bool { return strings.EqualFold(text, value) })
}

// Expects says whether r, which is about silence, expects to hear from the device of such a measurement. because is the
// first condition that says no, nil if none does, and all reports whether all say yes: one of which the measurement has
// nothing says neither, and an event that is damaged never says no.
func (r *Rule) Expects(found []telemetry.Found, reads *Reads) (because *Condition, all bool) {
	all = true
	for i := range r.Only {
		switch f := found[reads.Only[i]]; {
		case Holds(f):
		//planted:damaged-expects-nothing case false
		case f.Damaged:
			all = false // it never ends anything
		case f.Reason == telemetry.ReasonOK && (r.Each == "" || f.Around):
			return &r.Only[i], false
		default:
			all = false
		}
	}

	return nil, all
}
