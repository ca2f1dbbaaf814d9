package rules

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"alertworker/internal/telemetry"
)

// A Look is how a rule looks at one measurement. All who evaluate rules begin with it: partitions, the HTTP trigger,
// backtests, and what people ask.
type Look struct {
	Rule *Rule
	// Found is what the measurement has for the rule's field. For a rule that counts every message it has no value.
	telemetry.Found
	// HasLimits is what the measurement has for what the rule's limits are counted from: OverrideUsed if they are not
	// counted. Unless it is that, the rule says nothing about the measurement.
	HasLimits Override
	// Excluded is the first condition that does not hold, so that the rule does not look at the measurement; nil if all do.
	Excluded *Condition
	// Leaves: the rule looks at other measurements instead, so that this one says nothing.
	Leaves bool
}

// Look returns how r looks at a measurement in which a decoder found what is in found; reads says where it is: see Cut.
// It allocates nothing.
func (r *Rule) Look(found []telemetry.Found, reads *Reads) (l Look) {
	l.Rule = r
	if reads.Field >= 0 {
		l.Found = found[reads.Field]
	}

	for i := range r.Only {
		f := found[reads.Only[i]]
		if Holds(f) {
			continue
		}

		// A condition of what is in a measurement of several chooses among these.
		if r.Each != "" && !(f.Around && f.Reason == telemetry.ReasonOK) {
			l.Excluded = &r.Only[i]
			l.Leaves = true
			break
		}

		l.Excluded = cmp.Or(l.Excluded, &r.Only[i])
	}

	if r.Levels[0].LimitAt.Plus {
		_, l.HasLimits = numberAt(found, reads.Limits[0])
	}

	return l
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
	if c.HasClear == OverrideUsed && l.Rule.Cleared(c.Limit, c.Clear) {
		c.HasClear = OverrideBeyond
	}

	if c.HasClear != OverrideUsed {
		c.Clear = level.ClearOf(c.Limit)
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

// Base returns where the number is that the limit is counted from; empty if it is not.
func (ref Reference) Base() string {
	if !ref.Plus {
		return ""
	}
	return ref.Name
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

// A Moment is when a reading was taken by two clocks, in Unix µs.
type Moment struct {
	Hub    int64 // when the hub took it
	Device int64 // when the device did, by its own clock; 0 if that is not known, or not trusted
}

// Time returns the device's time if that is known, else the hub's.
func (m Moment) Time() int64 { return cmp.Or(m.Device, m.Hub) }

// By returns m and the earlier moment since by one clock: the device's if it has both, else the hub's.
func (m Moment) By(since Moment) (at, from int64) {
	if m.Device != 0 && since.Device != 0 {
		return m.Device, since.Device
	}

	return m.Hub, since.Hub
}

// after returns how long after the earlier moment since m is, as By says.
func (m Moment) after(since Moment) time.Duration {
	now, from := m.By(since)
	return time.Duration(now-from) * time.Microsecond
}

// A Phase is the state of one level of one device.
type Phase uint8

const (
	Normal  Phase = iota
	Pending       // the limit is reached, but not for long enough yet
	Open          // an alarm
)

func (p Phase) String() string               { return [...]string{"normal", "pending", "open"}[p] }
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// A State is that of one level of one device. The zero State is normal.
type State struct {
	Phase Phase
	Since Moment // unless Normal: of the first reading of those that reached the limit
	// unless Normal: the greatest time that its device has given a reading since then, in Unix µs; 0 if none had one
	Newest int64
	// while Open: of the first of the last readings, if these are all beyond the clear; zero if the last one is not
	Cleared Moment
}

// Outdates reports whether a reading taken at a moment says nothing about the present, because one that was taken
// later has come before it: devices send what they have stored beside what they measure.
//
//planted:late-as-any return false
func (s State) Outdates(at Moment) bool { return at.Device != 0 && at.Device < s.Newest }

// Breaching reports whether value reaches limit.
func (r *Rule) Breaching(value, limit float64) bool {
	if r.Below {
		return value <= limit
	}

	return value >= limit
}

// ClearOf returns the value beyond which an alarm of l ends for a device whose limit is limit: as
// far from it as Clear is from Limit. A device with a limit of its own would otherwise never clear,
// if its limit is milder than Clear, or clear much too late.
func (l *Level) ClearOf(limit float64) float64 {
	if limit == l.Limit {
		return l.Clear // exactly, whatever a difference is rounded to
	}

	return Counted(limit, Counted(l.Clear, -l.Limit))
}

// Cleared reports whether value ends an alarm that ends beyond clear.
func (r *Rule) Cleared(value, clear float64) bool {
	if r.Below {
		return value > clear
	}

	return value < clear
}

// Next returns the state of a level after a reading. limit and clear are the level's, or what replaces them for this
// device: see Look.Compare. A reading that s outdates changes nothing.
func (r *Rule) Next(l *Level, s State, value float64, limit float64, clear float64, at Moment) State {
	if s.Outdates(at) {
		return s
	}

	switch {
	case s.Phase == Open && r.Cleared(value, clear):
		s.Cleared = cmp.Or(s.Cleared, at)
		//planted:clear-at-once if true
		if at.after(s.Cleared) >= r.ClearedFor {
			return State{}
		}

	case s.Phase == Open:
		s.Cleared = Moment{}

	case !r.Breaching(value, limit):
		return State{}

	case s.Phase == Normal:
		s = State{Phase: Pending, Since: at}
	}

	s.Newest = max(s.Newest, at.Device)

	if at.after(s.Since) >= l.For {
		s.Phase = Open
	}

	return s
}

// Reasons say why an event has no reading, by what decoding all of its measurements gave. The zero Reasons are of none.
type Reasons struct {
	// All is ReasonOK, or ReasonDamaged, if there is a reading, else the reason of the first that is there.
	All  telemetry.Reason
	rank int // how much All says; 0: there is none
}

// Add adds what decoding one measurement gave, or why there is none. What has no readings says nothing beside others,
// and of those that say as much the first counts.
func (r *Reasons) Add(c *Cut, reason telemetry.Reason) {
	rank := 1
	if c.Readings > 0 {
		rank += 4
	}
	if reason.HasReading() {
		rank += 2
	}
	if reason != telemetry.ReasonMissing {
		rank++
	}

	if rank > r.rank {
		r.All = reason
		r.rank = rank
	}
}
