package rules

import (
	"bytes"
	"math"
	"strconv"

	"alertworker/internal/telemetry"
)

// An Override is what a message has for a level's override.
type Override int

const (
	OverrideUsed Override = iota // a number
	// no such property, or the $twin. literal that IoT Hub leaves for a path that the twin does not have
	OverrideAbsent
	OverrideOther  // something that is no number
	OverrideBeyond // a clear beyond the limit of the same device, where an alarm would end while it lasts
)

func (o Override) String() string {
	return [...]string{"used", "absent", "not_a_number", "beyond_limit"}[o]
}

// Limit returns the number that replaces a level's limit for the device that sent p, the
// property that Level.Override names. A number is finite, and may be written as text, as IoT
// Hub writes all properties. Unless the Override is OverrideUsed there is none, and the number is 0.
func Limit(p telemetry.Property) (float64, Override) {
	f, ok := p.Number()

	if text, isText := p.Text(); isText {
		text = bytes.TrimSpace(text)
		if isNoTwin(text) {
			return 0, OverrideAbsent
		}

		f, ok = telemetry.ParseNumber(text)
	}

	switch {
	case p.IsNull():
		return 0, OverrideAbsent
	case !ok, math.IsNaN(f), math.IsInf(f, 0):
		return 0, OverrideOther
	}

	return f, OverrideUsed
}

// isNoTwin reports whether text is the literal that IoT Hub leaves for a path that the device's twin does not have.
func isNoTwin(text []byte) bool { return bytes.HasPrefix(text, []byte("$twin.")) }

// BaseFor returns the number that r's limits are counted from for a measurement, in which a decoder found what is in
// found. reads says where it is: see Cut. Unless the Override is OverrideUsed there is none, and r says nothing about
// the measurement. For a rule without Base it is 0.
func (r *Rule) BaseFor(found []telemetry.Found, reads *Reads) (float64, Override) {
	if r.Base == "" {
		return 0, OverrideUsed
	}

	switch f := &found[reads.Base]; f.Reason {
	case telemetry.ReasonOK:
		//planted:one-limit return 20, OverrideUsed
		return f.Value, OverrideUsed
	case telemetry.ReasonMissing, telemetry.ReasonNull, telemetry.ReasonMalformed: // in what is damaged it may be missing
		return 0, OverrideAbsent
	}

	return 0, OverrideOther
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

// LimitFor returns the limit of l for the device that sent a message with these properties, and what they have for
// Level.Override. Unless the Override is OverrideUsed, that is the level's own limit, counted from base: see BaseFor.
func (l *Level) LimitFor(base float64, properties telemetry.Properties) (float64, Override) {
	if l.Override == "" {
		return Counted(base, l.Limit), OverrideAbsent
	}

	limit, kind := Limit(properties.Get(l.Override))
	if kind != OverrideUsed {
		return Counted(base, l.Limit), kind
	}

	return limit, kind
}

// ClearFor returns the value beyond which an alarm of l ends for the device that sent p, the property that
// Level.ClearOverride names, and whose limit is limit. Unless the Override is OverrideUsed it is what ClearOf returns.
func (r *Rule) ClearFor(l *Level, p telemetry.Property, limit float64) (float64, Override) {
	clear, kind := Limit(p)
	if kind != OverrideUsed {
		return r.ClearOf(l, limit), kind
	}

	if clear != limit && r.Breaching(clear, limit) {
		return r.ClearOf(l, limit), OverrideBeyond
	}

	return clear, OverrideUsed
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
