package rules

import (
	"fmt"
	"strings"
	"time"

	"alertworker/internal/sensor"
)

// A Mute says that nobody is alerted for a time: people have silenced some devices or a rule, or nobody wants to know
// at some times of the week. Its conditions all hold; one that is empty holds for everything. Times are the hub's.
type Mute struct {
	Device          string    // of the device; * stands for any characters
	Sensor          string    // of the device's sensor, likewise
	Rule            string    // name
	Property, Value string    // of the message
	From, Until     time.Time // the readings that the hub takes from From on, before Until; both zero: at any time
	Times           *Times    // those that it takes then; nil: at any time
}

// A Subject is what an alert would be about.
type Subject struct {
	Device   string
	Sensor   string // of the device; empty: the device's own readings
	Rule     string
	Enqueued time.Time // when the hub took the reading
	// Property returns the text of one of the message's properties.
	Property func(name string) string
}

// Matches reports whether m is about s.
func (m *Mute) Matches(s *Subject) bool {
	return m.at(s.Enqueued) &&
		m.isAboutRule(s.Rule) &&
		m.isAboutSensor(s.Sensor) &&
		m.MayMatch(sensor.Of(s.Device)) &&
		m.isAboutMessage(s)
}

// isAboutRule reports whether m is about the alerts of a rule.
func (m *Mute) isAboutRule(name string) bool { return m.Rule == "" || m.Rule == name }

// isAboutSensor reports whether m is about a sensor of the devices that it is about; an empty name is the devices' own.
func (m *Mute) isAboutSensor(name string) bool { return m.Sensor == "" || like(m.Sensor, name) }

// isAboutMessage reports whether m is about a message with the properties of s.
func (m *Mute) isAboutMessage(s *Subject) bool {
	return m.Property == "" || s.Property(m.Property) == m.Value
}

// MayMatch reports whether m is about alerts of a device, or of one of its sensors if that has a name, of some rule and
// with some property at least.
func (m *Mute) MayMatch(of sensor.ID) bool {
	if of.Name != "" && !m.isAboutSensor(of.Name) {
		return false
	}
	return m.Device == "" || like(m.Device, of.Device)
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

// at reports whether m is in force at t.
func (m *Mute) at(t time.Time) bool {
	if m.Times != nil && !m.Times.Contain(t) {
		return false
	}

	if m.Until.IsZero() {
		return true
	}

	return !t.Before(m.From) && t.Before(m.Until)
}

// String says what m mutes, but not when.
func (m *Mute) String() string {
	var parts []string
	if m.Device != "" {
		parts = append(parts, "device "+m.Device)
	}

	if m.Sensor != "" {
		parts = append(parts, "sensor "+m.Sensor)
	}

	if m.Rule != "" {
		parts = append(parts, "rule "+m.Rule)
	}

	if m.Property != "" {
		parts = append(parts, m.Property+"="+m.Value)
	}

	if len(parts) == 0 {
		return "everything"
	}

	return strings.Join(parts, ", ")
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

	if w.From < w.To {
		return w.Days[today] && minute >= w.From && minute < w.To
	}

	beganToday := w.Days[today] && minute >= w.From
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
	minute := t.Truncate(time.Minute)
	from = minute
	until = minute

	const longest = 9 * MinutesOfDay // a week, and whatever a zone changes
	for n := 0; n < longest && w.Contain(from.Add(-time.Minute)); n++ {
		from = from.Add(-time.Minute)
	}

	for n := 0; n < longest && w.Contain(until); n++ {
		until = until.Add(time.Minute)
	}

	return from, until
}

// String says when they are: Sat, Sun from 22:00 to 06:00 of the next day, Europe/Berlin.
func (w *Times) String() string {
	next := ""
	if w.To <= w.From {
		next = " of the next day"
	}

	return fmt.Sprintf("%s from %s to %s%s, %v", w.days(), TimeOfDay(w.From), TimeOfDay(w.To), next, w.Zone)
}

// days says on which days they begin, from Monday on.
func (w *Times) days() string {
	if w.Days == EveryDay {
		return "every day"
	}

	week := [...]time.Weekday{
		time.Monday,
		time.Tuesday,
		time.Wednesday,
		time.Thursday,
		time.Friday,
		time.Saturday,
		time.Sunday,
	}

	var names []string
	for _, day := range week {
		if w.Days[day] {
			names = append(names, day.String()[:3])
		}
	}

	return strings.Join(names, ", ")
}

// TimeOfDay shows a time of the day, in minutes after midnight: 06:30.
func TimeOfDay(minutes int) string { return fmt.Sprintf("%02d:%02d", minutes/60, minutes%60) }

// like reports whether s is what pattern says: * stands for any characters, also none.
func like(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}

	s, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}

	last := len(parts) - 1
	for _, part := range parts[1:last] {
		_, after, found := strings.Cut(s, part)
		if !found {
			return false
		}

		s = after
	}

	return strings.HasSuffix(s, parts[last])
}
