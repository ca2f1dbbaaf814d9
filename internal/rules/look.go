package rules

import "alertworker/internal/telemetry"

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
	c.Limit, c.HasLimit = l.Rule.limitIn(i, found, reads)
	c.Clear, c.HasClear = l.Rule.clearIn(i, found, reads, c.Limit)
	c.Own = c.HasLimit == OverrideUsed && !l.Rule.Levels[i].LimitAt.Plus
	c.Reached = l.Rule.Breaching(l.Value, c.Limit)

	return c
}
