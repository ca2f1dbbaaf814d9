package rules

import (
	"math"
	"strconv"

	"alertworker/internal/telemetry"
)

// A Look is how a rule looks at one measurement. All who evaluate rules begin with it: partitions, the HTTP trigger,
// backtests, and what people ask.
type Look struct {
	Rule *Rule
	// Found is what the measurement has for the rule's field. For a rule that counts every message it has no value.
	telemetry.Found
	// HasLimits is what the measurement has for what the rule's limits are counted from: OverrideUsed if they are not
	// counted.
	HasLimits Override
	// Excluded is the condition for which the rule does not look at the measurement; nil if there is none.
	Excluded *Condition
	// Leaves: the rule looks at other measurements instead, so that this one says nothing.
	Leaves bool
}

// Look returns how r, which has a Field, looks at a measurement in which a decoder found what is in found; reads says
// where it is: see Cut. It allocates nothing.
func (r *Rule) Look(found []telemetry.Found, reads *Reads) (l Look) {
	l.Rule, l.Found = r, found[reads.Field]
	l.judge(found, reads)

	return l
}

// judge sets whether the rule looks at the measurement, and whether that has its limits.
func (l *Look) judge(found []telemetry.Found, reads *Reads) {
	var says bool
	l.Excluded, says = l.Rule.Excludes(found, reads)
	l.Leaves = l.Excluded != nil && !says
	l.HasLimits = l.Rule.HasLimits(found, reads)
}

// Counts reports whether the measurement has a reading that the rule's levels compare.
func (l *Look) Counts() bool {
	return l.Reason == telemetry.ReasonOK && l.Excluded == nil && l.HasLimits == OverrideUsed
}

// A Comparison is what one level says about a reading, whatever came before it.
type Comparison struct {
	Limit, Clear       float64  // that count for the device
	HasLimit, HasClear Override // what its measurement has for Level.LimitAt and ClearAt
	Own                bool     // the limit is the device's own
	Reached            bool
}

// Compare compares the reading, which counts, with the i-th level of the rule. found and reads are those of Look.
func (l *Look) Compare(i int, found []telemetry.Found, reads *Reads) (c Comparison) {
	level := &l.Rule.Levels[i]
	var number float64
	number, c.HasLimit = numberAt(found, reads.Limits[i])
	switch {
	case c.HasLimit != OverrideUsed:
		c.Limit = level.Limit
	case level.LimitAt.Plus:
		//planted:one-limit number = 20
		c.Limit = Counted(number, level.Limit)
	default:
		c.Limit = number
		c.Own = true
	}

	c.Clear, c.HasClear = numberAt(found, reads.Clears[i])
	if c.HasClear == OverrideUsed && c.Clear != c.Limit && l.Rule.Breaching(c.Clear, c.Limit) {
		c.HasClear = OverrideBeyond
	}

	if c.HasClear != OverrideUsed {
		c.Clear = l.Rule.ClearOf(level, c.Limit)
	}

	c.Reached = l.Rule.Breaching(l.Value, c.Limit)

	return c
}

// A Reference is where a measurement has a number for a limit.
type Reference struct {
	Name string // as a Condition's; empty: nowhere, the limit is what it is
	// the limit is added to that number, and a measurement without it has no limit: setpoint + 5. Else that number stands
	// in place of the limit: maxTemp or 80
	Plus bool
}

// Text shows a limit with this Reference, whose number is shown by text, as people write it in rules.
func (ref Reference) Text(number float64, text func(float64) string) string {
	switch {
	case ref.Name == "":
		return text(number)
	case !ref.Plus:
		return ref.Name + " or " + text(number)
	case number < 0:
		return ref.Name + " - " + text(-number)
	}

	return ref.Name + " + " + text(number)
}

// An Override is what a measurement has for a Reference.
type Override int

const (
	OverrideUsed   Override = iota // a number
	OverrideAbsent                 // nothing
	OverrideOther                  // something that is no number
	OverrideBeyond                 // a clear beyond the limit of the same device, where an alarm would end while it lasts
)

func (o Override) String() string {
	return [...]string{"used", "absent", "not_a_number", "beyond_limit"}[o]
}

// numberAt returns the number of a field that a decoder found, whose index is -1 if there is none. Unless the Override is
// OverrideUsed the number is 0.
func numberAt(found []telemetry.Found, i int) (float64, Override) {
	if i < 0 {
		return 0, OverrideAbsent
	}

	switch f := &found[i]; f.Reason {
	case telemetry.ReasonOK:
		return f.Value, OverrideUsed
	case telemetry.ReasonMissing, telemetry.ReasonNull, telemetry.ReasonMalformed: // in what is damaged it may be missing
		return 0, OverrideAbsent
	}

	return 0, OverrideOther
}

// HasLimits says whether a measurement, in which a decoder found what is in found, has the number that r's limits are
// counted from. Unless it is OverrideUsed, as for a rule without such a number, r says nothing about the measurement.
func (r *Rule) HasLimits(found []telemetry.Found, reads *Reads) Override {
	if r.Base() == "" {
		return OverrideUsed
	}

	_, has := numberAt(found, reads.Limits[0])

	return has
}

// Counted returns the sum of base and distance, as it would be written: 1.1 + 2.2 is 3.3. It has as many decimals as
// are certain, of both together 15 digits.
func Counted(base, distance float64) float64 {
	const digits = 15 // that a float64 has at least
	const exact = 22  // decimals: 10 to this is a float64

	sum := base + distance
	decimals := digits - 1 - math.Floor(math.Log10(max(math.Abs(base), math.Abs(distance))))

	switch {
	case base == 0 || distance == 0, !(decimals > 0 && decimals < 300): // not a number is neither
		return sum
	case decimals <= exact:
		scale := math.Pow10(int(decimals))
		return math.Round(sum*scale) / scale
	}

	sum, _ = strconv.ParseFloat(strconv.FormatFloat(sum, 'f', int(decimals), 64), 64) // it wrote a number

	return sum
}

// maxShared is as long as a device's ID may be, in bytes.
const maxShared = 256

// Shared returns what devices share their alerts by: what a measurement has at the name Rule.Per. It is empty if that is
// too long.
func Shared(text string) string {
	if len(text) > maxShared {
		return ""
	}
	return text
}
