package verify

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Rule is a rule of a worker, as it is configured.
type Rule struct {
	Name   string
	Sensor bool // it is about the sensors of devices
	Below  bool // readings at or below a limit are worth an alert; else those at or above it
	Levels []Level
	Base   string // what limits and clears are counted from: see Reading.Fields; empty: from 0
	// all must hold, or the rule does not look at the message; of a rule about silence, or it expects nothing of the
	// device until a message says otherwise
	Only     []Condition
	ClearFor time.Duration // how long readings must have been beyond the clear for an alarm to end
	Window   time.Duration // 0: that of Rules
	Repeat   time.Duration // how long after an alert an alarm that is still open is sent again; 0: after the window
	Resolved bool          // recoveries are sent
	Per      string        // the property by whose value devices share alerts; empty: each has its own
	Quiet    string        // the property that suppresses a device's alerts if it is "true"; empty: none
	// after how long a device is silent: the rule is about that, and has one level; 0: it is about limits
	Silent time.Duration
}

// Never is the Repeat of a rule whose alarms are sent once.
const Never = time.Duration(math.MaxInt64)

// A Level is a limit of a rule. The mildest comes first.
type Level struct {
	Name     string
	Limit    float64
	Clear    float64       // an alarm ends beyond it; if it is Limit, beyond the device's own limit
	Override string        // the property whose number replaces Limit; empty: none
	For      time.Duration // how long readings must have reached the limit
}

// A Condition is that a message has one of some words or numbers, in any case: see Reading.Fields.
type Condition struct {
	Name   string
	Values []string
}

// rule returns the rule of that name, an empty one if there is none.
func (l *Log) rule(name string) *Rule {
	i := slices.IndexFunc(l.rules, func(r Rule) bool { return r.Name == name })
	if i < 0 {
		return &Rule{}
	}

	return &l.rules[i]
}

// silence reports whether r is about silence.
func (rule *Rule) silence() bool { return rule.Silent > 0 }

// stateful reports whether alarms of the rule follow from more than one reading.
func (rule *Rule) stateful() bool {
	return rule.Resolved || max(rule.Repeat, rule.ClearFor) > 0 || slices.ContainsFunc(rule.Levels, func(level Level) bool {
		return level.For > 0 || level.Clear != level.Limit // it waits, or lasts
	})
}

// A regard is how a rule about limits looks at a message.
type regard int

const (
	looks    regard = iota
	excludes        // it does not, and what was open is over
	leaves          // it does not, but at others instead, so that this one says nothing
)

// looks says whether the rule looks at the message: its conditions hold for it. Of a measurement of several, one that goes
// by what is in it, or nowhere, chooses among them.
func (rule *Rule) looks(r Reading) regard {
	is := looks
	for _, c := range rule.Only {
		if c.holds(r) {
			continue
		}

		_, isOwn := r.Own[c.Name]
		if r.Own != nil && (isOwn || r.value(c.Name) == "") {
			return leaves
		}

		is = excludes
	}

	return is
}

// holds reports whether the message has one of the condition's values.
func (c Condition) holds(r Reading) bool {
	found := r.value(c.Name)

	return slices.ContainsFunc(c.Values, func(value string) bool { return same(found, value) })
}

// A claim is what a message says of whether a rule about silence expects to hear from its device.
type claim int

const (
	expected claim = iota
	excluded
	nothing // it says nothing of it
)

// says returns what the message says, by the rule's conditions: one that does not hold decides, and without its value
// the message says nothing, and a damaged one never says that nothing is expected.
func (rule *Rule) says(r Reading) claim {
	is := expected

	for _, c := range rule.Only {
		switch {
		case c.holds(r):
		case r.value(c.Name) != "" && !r.Damaged:
			return excluded
		default:
			is = nothing
		}
	}

	return is
}

// same compares words in any case, and numbers by what they are.
func same(a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}

	x, isNumber := parse(a)
	y, areNumbers := parse(b)

	return isNumber && areNumbers && x == y
}

// base returns the number that the rule's limits are counted from. Without one it says nothing about the message.
func (rule *Rule) base(r Reading) (base float64, ok bool) {
	if rule.Base == "" {
		return 0, true
	}
	return parse(r.value(rule.Base))
}

// A verdict is what a reading says of one level.
type verdict struct {
	breaching bool // it reaches the limit
	cleared   bool // it is beyond the clear
}

// compare compares the reading with the level's limit for the device, counted from base.
func (rule *Rule) compare(level *Level, base float64, r Reading) verdict {
	limit := sum(base, level.Limit)
	clear := sum(base, level.Clear)
	if own, ok := parse(r.Properties[level.Override]); ok {
		clear = sum(own, level.Clear-level.Limit) // it moves with the device's limit
		limit = own
	}

	if rule.Below {
		return verdict{r.Temperature <= limit, r.Temperature > clear}
	}

	return verdict{r.Temperature >= limit, r.Temperature < clear}
}

// sum adds as people do, who write decimals: 1.1 and 2.2 are 3.3.
func sum(a, b float64) float64 {
	const decimals = 1e9
	return math.Round((a+b)*decimals) / decimals
}

// parse returns the number that a text is. IoT Hub makes a text of a number, and leaves "$twin.…" where the twin has
// no such number.
func parse(text string) (number float64, ok bool) {
	if text == "" { // as nearly always: an error takes memory
		return 0, false
	}

	number, err := strconv.ParseFloat(text, 64)

	return number, err == nil && !math.IsNaN(number) && !math.IsInf(number, 0)
}
