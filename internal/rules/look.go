package rules

import "alertworker/internal/telemetry"

// A Look is how a rule looks at one measurement. All who evaluate rules begin with it: partitions, the HTTP trigger,
// backtests, and what people ask.
type Look struct {
	Rule *Rule
	// Found is what the measurement has for the rule's field. For a rule that counts every message it has no value.
	telemetry.Found
	// Base is what the rule's limits are counted from, and HasBase whether the measurement has it: OverrideUsed if the rule
	// has no Base.
	Base    float64
	HasBase Override
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

// judge sets whether the rule looks at the measurement, and what its limits are counted from.
func (l *Look) judge(found []telemetry.Found, reads *Reads) {
	var says bool
	l.Excluded, says = l.Rule.Excludes(found, reads)
	l.Leaves = l.Excluded != nil && !says
	l.Base, l.HasBase = l.Rule.BaseFor(found, reads)
}

// Counts reports whether the measurement has a reading that the rule's levels compare.
func (l *Look) Counts() bool {
	return l.Reason == telemetry.ReasonOK && l.Excluded == nil && l.HasBase == OverrideUsed
}

// A Comparison is what one level says about a reading, whatever came before it.
type Comparison struct {
	Limit    float64  // that counts for the device
	Override Override // what its message has for Level.Override
	Own      bool     // the limit is the device's own
	Reached  bool
}

// Compare compares the reading, which counts, with a level of the rule, for the device that sent a message with these
// properties.
func (l *Look) Compare(level *Level, properties telemetry.Properties) (c Comparison) {
	c.Limit, c.Override = level.LimitFor(l.Base, properties)
	c.Own = level.Override != "" && c.Override == OverrideUsed
	c.Reached = l.Rule.Breaching(l.Value, c.Limit)

	return c
}
