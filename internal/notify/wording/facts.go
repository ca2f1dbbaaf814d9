package wording

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
)

// A Fact is one thing about an alert, for people: one line of printable characters each.
type Fact struct {
	Name, Value string
	Property    bool // the name is that of an application property
}

// A Style is how messages for people look. The zero Style has times in UTC, and no links.
type Style struct {
	Zone *time.Location // of times; nil is UTC
	Page string         // the URL of the status page; empty if people cannot reach it
}

// A Link is one that a message has.
type Link struct{ Text, URL string }

// Links returns those of an alert: where to look its device or incident up, and what to do.
func (s Style) Links(a notify.Alert) []Link {
	var links []Link
	if s.Page != "" {
		links = append(links, Link{"Status page", s.pageOf(a)})
	}

	if a.Runbook != "" {
		links = append(links, Link{"Runbook", a.Runbook})
	}

	return links
}

// maxQuery is how long a link's query may be, in bytes, because of what was added to it: services refuse long addresses,
// from 2,048 bytes on.
const maxQuery = 1000

// pageOf returns the address of the status page: about an incident, a device, or one of its sensors, if a has one with a
// name. Of long names it has the beginning and the end, by which the page knows them.
func (s Style) pageOf(a notify.Alert) string {
	u, err := url.Parse(s.Page)
	if err != nil || a.Device == "" && a.Incident == nil {
		return s.Page
	}

	device, sensor := a.Device, a.Sensor
	given, query := len(u.RawQuery), u.Query()
	if a.Incident != nil {
		query.Set("incident", a.Incident.ID)
		u.RawQuery, u.Fragment = query.Encode(), "incidents"
		return u.String()
	}

	for limit := maxDevice; limit >= 16; limit /= 2 {
		query.Set("device", humanize.Middle(device, limit))
		if sensor != "" {
			query.Set("sensor", humanize.Middle(sensor, limit))
		}

		if u.RawQuery = query.Encode(); len(u.RawQuery)-given <= maxQuery {
			break
		}
	}

	return u.String()
}

// MaxFacts is how many facts an alert can have.
const MaxFacts = 12 + notify.MaxShown

// Facts returns what a channel shows below an alert's Message: at most MaxFacts, what the alert is about first,
// none longer than 200 characters.
func (s Style) Facts(a notify.Alert) (facts []Fact) {
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, Fact{Name: name, Value: value})
		}
	}
	property := func(name, value string) {
		f := Fact{Name: printable(name, maxName), Value: printable(cmp.Or(value, "–"), maxField), Property: true}
		facts = append(facts, f)
	}

	hasReading := true // what was read is of whom the facts name
	if isOfMany(a) {
		property(a.Per, a.PerValue)
		hasReading = !a.Resolved && isFirst(a)
		if !a.Resolved {
			add(humanize.Capital(memberKind(a))+"s", memberCount(a))
			add("First", firstName(a))
		}
	} else {
		add("Device", deviceName(a.Device))
		add("Sensor", printable(a.Sensor, maxSensor))
		if a.PerValue != "" {
			property(a.Per, a.PerValue)
		}
	}

	if hasReading {
		switch {
		case a.Silent > 0:
		case a.Word == "":
			add("Value", value(a, a.Temperature))
			add("Limit", value(a, a.Threshold))
		case !a.Resolved:
			add("Value", printable(a.Word, maxField))
		}

		for name, value := range a.Shown.All() {
			if name != a.Per || a.PerValue == "" { // else it is there already
				property(name, value)
			}
		}
	}

	at, late := taken(a)
	when := s.moment(at, toSecond)
	if late > 0 {
		when += ", arrived " + s.moment(a.Enqueued, toSecond)
	}

	if a.Title != "" || a.Rule != notify.DefaultRule {
		add("Rule", printable(cmp.Or(a.Title, a.Rule), maxTitle))
	}

	add("Level", printable(a.Level, maxName))
	add("Field", printable(a.Field, maxField))
	add("Time", when)
	if since, d := lasted(a); d > 0 {
		add("Since", s.moment(since, toSecond)+", for "+humanize.Plain(d))
	}

	add("Suppressed", suppressed(a))
	if a.Ambiguous {
		add("Repeat", "possible: an earlier attempt may have arrived")
	}

	return facts
}

// ourFields are the names of fields that no property takes, whether or not an alert has them.
var ourFields = []string{
	"device", "sensor", "value", "limit", "rule", "level", "field", "time", "since", "suppressed", "repeat",
	"devices", "sensors", "first", "incident", "id", "replica", "summary", "runbook_url",
}

// Fields returns an alert's facts, ID and replica for receivers that keep fields by name. A name is of ASCII letters,
// digits and underscores, and begins with no digit, because Alertmanager before 0.27 rejects others. A property has
// "property_" in front of its name if that is one of ours, and a number behind it if another property has it already.
func (s Style) Fields(a notify.Alert) map[string]string {
	fields := map[string]string{"id": a.ID, "replica": a.Replica}
	if a.Incident != nil {
		fields["incident"] = a.Incident.ID
	}

	for _, f := range s.Facts(a) {
		if !f.Property {
			fields[strings.ToLower(f.Name)] = f.Value
			continue
		}

		name := FieldName(f.Name, ourFields)
		free := name
		for n := 2; fields[free] != ""; n++ {
			free = fmt.Sprint(name, "_", n)
		}

		fields[free] = f.Value
	}

	return fields
}

// What the name of a field may not have.
var (
	notInField = regexp.MustCompile(`[^A-Za-z0-9_]`)
	notFirst   = regexp.MustCompile(`^([0-9]|$)`)
)

// FieldName returns a property's name as a field or a label can have it, with "property_" in front if it is one of ours.
func FieldName(property string, ours []string) string {
	name := strings.ToLower(notInField.ReplaceAllString(property, "_")) // others than ASCII have forms that are
	name = notFirst.ReplaceAllString(name, "_$1")
	if slices.Contains(ours, name) {
		return "property_" + name
	}

	return name
}

// suppressed says how many readings, or devices that share their alerts, were suppressed; "" if none were, or nobody asks.
// Each replica counts what it reads, so there may be more devices.
func suppressed(a notify.Alert) string {
	const since = " since the last alert"
	switch {
	case a.Resolved || a.Suppressed == 0 || a.Incident != nil:
		return ""
	case a.PerValue != "":
		return "at least " + humanize.Count(int(a.Suppressed), "device") + since
	}

	return humanize.Count(int(a.Suppressed), "reading") + since
}

// taken returns when the reading was taken, by the best clock that is known, and how much later it arrived; 0 if that
// is no news.
func taken(a notify.Alert) (at time.Time, late time.Duration) {
	if a.DeviceTime.IsZero() {
		return a.Enqueued, 0
	}

	if late = a.Enqueued.Sub(a.DeviceTime).Round(time.Second); late < time.Minute {
		late = 0
	}

	return a.DeviceTime, late
}

// How times are written for people: to the second, or to the minute where no more is known.
const (
	toSecond = "2006-01-02 15:04:05 MST"
	toMinute = "2006-01-02 15:04 MST"
)

// moment writes a time in the zone of those who read it.
func (s Style) moment(t time.Time, layout string) string {
	return t.In(cmp.Or(s.Zone, time.UTC)).Format(layout)
}

// Cut returns s, or its beginning and "…" if it has more than limit characters, in UTF-16 code units.
func Cut(s string, limit int) string {
	units := utf16.Encode([]rune(s))
	if len(units) <= limit {
		return s
	}
	// What is cut in its middle is U+FFFD then.
	return strings.TrimSuffix(string(utf16.Decode(units[:limit-1])), "\uFFFD") + "…"
}
