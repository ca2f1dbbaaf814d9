package rules

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// A Mute says that nobody is alerted: people have silenced some devices or a rule, nobody wants to know at some times of
// the week, or a message says so itself. Its conditions all hold; one that is empty holds for everything. Times are the
// hub's.
type Mute struct {
	Device          string    // of the device; * stands for any characters
	Sensor          string    // of the device's sensor, likewise
	Rule            string    // name
	Property, Value string    // a name in the message, and what it must be there; compared as a Condition's values are
	UntilAt         string    // the name in the message of a time, by RFC 3339, before which the hub takes it
	From, Until     time.Time // the readings that the hub takes from From on, before Until; both zero: at any time
	Times           *Times    // those that it takes then; nil: at any time
}

// A Subject is what an alert would be about.
type Subject struct {
	Device   string
	Sensor   string // of the device; empty: the device's own readings
	Rule     string
	Enqueued time.Time // when the hub took the reading
	// Text returns what the measurement has at a name, "" if it has nothing: see Decoder.Text. nil: there is no measurement
	Text func(name string) string
}

// at returns what the measurement has at a name; empty if it has nothing.
func (s *Subject) at(name string) string {
	if s.Text == nil {
		return ""
	}
	return s.Text(name)
}

// Matches reports whether m is about s.
func (m *Mute) Matches(s *Subject) bool {
	return m.InForce(s.Enqueued) && m.isAbout(s) && m.until(s).After(s.Enqueued)
}

// isAbout reports whether m is about s, at some time.
func (m *Mute) isAbout(s *Subject) bool {
	switch {
	case m.Rule != "" && m.Rule != s.Rule,
		m.Sensor != "" && !like(m.Sensor, s.Sensor),
		m.Device != "" && !like(m.Device, s.Device):
		return false
	case m.Property == "":
		return true
	}

	text := s.at(m.Property)
	switch {
	case text == "":
		return false
	case strings.EqualFold(text, m.Value):
		return true
	}

	number, isNumber := telemetry.ParseNumber([]byte(text))
	value, isValue := telemetry.ParseNumber([]byte(m.Value))

	return isNumber && isValue && number == value // however it is written
}

// forever is when a mute without an end ends.
var forever = time.Unix(1<<40, 0)

// until returns the time at UntilAt: forever without that, zero if the message has none there.
func (m *Mute) until(s *Subject) time.Time {
	if m.UntilAt == "" {
		return forever
	}

	text := s.at(m.UntilAt)
	var room [64]byte // more than a time takes
	// What most devices have is none. UnmarshalText would make an error of it.
	if len(text) < len("2006-01-02T15:04:05Z") || len(text) > len(room) || text[10] != 'T' {
		return time.Time{}
	}

	var t time.Time
	if t.UnmarshalText(append(room[:0], text...)) != nil {
		return time.Time{}
	}

	return t
}

// MayMatch reports whether m is about alerts of a device, or of one of its sensors if that has a name, of some rule and
// with some property at least.
func (m *Mute) MayMatch(of sensor.ID) bool {
	about := Mute{Device: m.Device, Sensor: m.Sensor}
	if of.Name == "" {
		about.Sensor = ""
	}

	return about.isAbout(&Subject{Device: of.Device, Sensor: of.Name})
}

// Mutes are several.
type Mutes []Mute

// Match reports whether one of them is about s. It allocates nothing.
func (all Mutes) Match(s *Subject) bool {
	for i := range all {
		if all[i].Matches(s) {
			return true
		}
	}

	return false
}

// Quiet returns until when mutes that only ask what a message says are about s: its device is not expected to send
// before. It is in Unix ms, 0 if there is no such mute, and math.MaxInt64 if nothing says until when. It allocates
// nothing.
func (all Mutes) Quiet(s *Subject) (until int64) {
	for i := range all {
		m := &all[i]
		isByMessage := m.Times == nil && m.Until.IsZero() && m.Property+m.UntilAt != ""
		if !isByMessage || !m.isAbout(s) {
			continue
		}

		switch t := m.until(s); {
		case t.Equal(forever):
			return math.MaxInt64
		case !t.IsZero():
			until = max(until, t.Add(time.Millisecond-1).UnixMilli()) // rounded up: it is never too early
		}
	}

	return until
}

// InForce reports whether m is in force at t, as far as its times say.
func (m *Mute) InForce(t time.Time) bool {
	if m.Times != nil && !m.Times.Contain(t) {
		return false
	}

	if m.Until.IsZero() {
		return true
	}

	return !t.Before(m.From) && t.Before(m.Until)
}

// String says what m mutes, but not at which times.
func (m *Mute) String() string {
	var parts []string
	for _, part := range [...]struct{ before, text, after string }{
		{"device ", m.Device, ""},
		{"sensor ", m.Sensor, ""},
		{"rule ", m.Rule, ""},
		{"", m.Property, "=" + m.Value},
	} {
		if part.text != "" {
			parts = append(parts, part.before+part.text+part.after)
		}
	}

	what := cmp.Or(strings.Join(parts, ", "), "everything")
	if m.UntilAt != "" {
		what += ", until the time in " + m.UntilAt
	}

	return what
}

// When says what m mutes, and at which times.
func (m *Mute) When() string {
	if at := m.TimesText(); at != "" {
		return m.String() + ": " + at
	}
	return m.String()
}

// TimesText says at which times m is in force; empty if at any.
func (m *Mute) TimesText() string {
	switch {
	case m.Times != nil:
		return m.Times.String()
	case m.Until.IsZero():
		return ""
	}

	return "from " + m.From.Format(PlannedTime+" MST") + " to " + m.Until.Format(PlannedTime+" MST")
}

// PlannedTime is how people write a time on a day, in a layout of package time.
const PlannedTime = "2006-01-02 15:04"

// ParsePlanned reads a time on a day, such as 2026-12-01 22:00 in zone, or one by RFC 3339.
func ParsePlanned(text string, zone *time.Location) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.In(zone), nil
	}
	return time.ParseInLocation(PlannedTime, strings.Replace(text, "T", " ", 1), zone)
}

// MinutesOfDay is how many minutes a day has for Times.
const MinutesOfDay = 24 * 60

// Times are those of every week at which a clock on a wall shows something. A time that the clock skips is none, and
// one that it shows twice is both.
type Times struct {
	Days     [7]bool // on which they begin, by time.Weekday
	From, To int     // minutes after midnight, To at most 24:00. Unless From is before To, that is on the next day
	Zone     *time.Location
}

// Contain reports whether t is one of them.
func (w *Times) Contain(t time.Time) bool {
	t = t.In(w.Zone)
	minute := 60*t.Hour() + t.Minute()
	today := t.Weekday()
	yesterday := (today + 6) % 7

	beganToday := w.Days[today] && minute >= w.From
	if w.From < w.To {
		return beganToday && minute < w.To
	}

	beganYesterday := w.Days[yesterday] && minute < w.To

	//planted:mute-ends-at-midnight return beganToday
	return beganToday || beganYesterday
}

// Always reports whether every time is one of them.
func (w *Times) Always() bool {
	return w.Days == EveryDay && (w.From-w.To+MinutesOfDay)%MinutesOfDay == 0
}

// EveryDay are the days of Times that begin on each.
var EveryDay = [7]bool{true, true, true, true, true, true, true}

// Around returns from when until when t, which is one of them, and all times between are. If that is longer than 9
// days, as it is if they are Always, it returns less.
func (w *Times) Around(t time.Time) (from, until time.Time) {
	const longest = 9 * MinutesOfDay // a week, and whatever a zone changes
	last := func(step time.Duration) time.Time {
		at := t.Truncate(time.Minute)
		for n := 0; n < longest && w.Contain(at.Add(step)); n++ {
			at = at.Add(step)
		}
		return at
	}

	return last(-time.Minute), last(time.Minute).Add(time.Minute)
}

// String says when they are: Sat, Sun from 22:00 to 06:00 of the next day, Europe/Berlin.
func (w *Times) String() string {
	var names []string
	for i := range w.Days { // from Monday on
		if day := (time.Monday + time.Weekday(i)) % 7; w.Days[day] {
			names = append(names, day.String()[:3])
		}
	}

	days := strings.Join(names, ", ")
	if w.Days == EveryDay {
		days = "every day"
	}

	next := ""
	if w.To <= w.From {
		next = " of the next day"
	}

	return fmt.Sprintf("%s from %s to %s%s, %v", days, TimeOfDay(w.From), TimeOfDay(w.To), next, w.Zone)
}

// TimeOfDay shows a time of the day, in minutes after midnight: 06:30.
func TimeOfDay(minutes int) string { return fmt.Sprintf("%02d:%02d", minutes/60, minutes%60) }

// like reports whether s is what pattern says: * stands for any characters, also none.
func like(pattern, s string) bool {
	first, rest, more := strings.Cut(pattern, "*")
	if !more {
		return pattern == s
	}

	s, ok := strings.CutPrefix(s, first)
	for ok {
		part, after, isMore := strings.Cut(rest, "*")
		if !isMore {
			return strings.HasSuffix(s, rest)
		}

		_, s, ok = strings.Cut(s, part)
		rest = after
	}

	return false
}
