package rules

import (
	"math"
	"strconv"

	"alertworker/internal/telemetry"
)

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

// limitIn returns the limit of r's i-th level for a measurement that HasLimits, and what that has for LimitAt. Unless the
// Override is OverrideUsed, it is the level's own.
func (r *Rule) limitIn(i int, found []telemetry.Found, reads *Reads) (limit float64, has Override) {
	l := &r.Levels[i]
	own, has := numberAt(found, reads.Limits[i])
	switch {
	case has != OverrideUsed:
		return l.Limit, has
	case l.LimitAt.Plus:
		//planted:one-limit own = 20
		return Counted(own, l.Limit), has
	}

	return own, has
}

// clearIn returns the value beyond which an alarm of r's i-th level ends for such a measurement, whose limit is limit, and
// what that has for ClearAt. Unless the Override is OverrideUsed, it is what ClearOf returns.
func (r *Rule) clearIn(i int, found []telemetry.Found, reads *Reads, limit float64) (clear float64, has Override) {
	clear, has = numberAt(found, reads.Clears[i])
	if has == OverrideUsed && clear != limit && r.Breaching(clear, limit) {
		has = OverrideBeyond
	}

	if has != OverrideUsed {
		clear = r.ClearOf(&r.Levels[i], limit)
	}

	return clear, has
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
