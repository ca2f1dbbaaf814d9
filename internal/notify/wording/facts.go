package wording

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
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

// PageLinks returns the link to the status page, if there is one.
func (s Style) PageLinks() []Link { return s.Links(notify.Alert{}) }

// MaxFacts is how many facts an alert can have.
const MaxFacts = 12 + notify.MaxShown

// Facts returns what a channel shows below an alert's Message: at most MaxFacts, what the alert is about first,
// none longer than 200 characters.
func (s Style) Facts(a notify.Alert) []Fact {
	var facts factList
	if isOfMany(a) {
		facts.addIncident(a)
	} else {
		facts.add("Device", deviceName(a.Device))
		facts.add("Sensor", printable(a.Sensor, maxSensor))
		if a.PerValue != "" {
			facts.addProperty(a.Per, a.PerValue)
		}

		facts.addReading(a)
	}

	for name, value := range a.Shown.All() {
		isShown := name == a.Per && a.PerValue != ""
		isOfNobody := isOfMany(a) && (a.Resolved || !isFirst(a)) // that the message names
		if !isShown && !isOfNobody {
			facts.addProperty(name, value)
		}
	}

	facts.add("Rule", printable(ruleName(a), maxTitle))
	facts.add("Level", printable(a.Level, maxName))
	facts.add("Field", printable(a.Field, maxField))
	facts.add("Time", s.time(a))
	facts.add("Since", s.since(a))
	facts.add("Suppressed", suppressed(a))
	if a.Ambiguous {
		facts.add("Repeat", "possible: an earlier attempt may have arrived")
	}

	return facts
}

// A factList is facts in the order in which they are shown.
type factList []Fact

// add adds a fact, if it has a value.
func (l *factList) add(name, value string) {
	if value != "" {
		*l = append(*l, Fact{Name: name, Value: value})
	}
}

// addProperty adds an application property, whose value may be empty.
func (l *factList) addProperty(name, value string) {
	*l = append(*l, Fact{
		Name:     printable(name, maxName),
		Value:    printable(cmp.Or(value, "–"), maxField),
		Property: true,
	})
}

// addIncident adds what an incident is of: until it is over its members, and the first one's reading.
func (l *factList) addIncident(a notify.Alert) {
	l.addProperty(a.Per, a.PerValue)
	if a.Resolved {
		return
	}

	l.add(humanize.Capital(memberKind(a))+"s", memberCount(a))
	l.add("First", firstName(a))
	if isFirst(a) {
		l.addReading(a)
	}
}

// addReading adds what a device has sent, and the limit.
func (l *factList) addReading(a notify.Alert) {
	switch {
	case a.Silent > 0:
	case a.Word == "":
		l.add("Value", value(a, a.Temperature))
		l.add("Limit", value(a, a.Threshold))
	case !a.Resolved:
		l.add("Value", printable(a.Word, maxField))
	}
}

// ruleName returns the title or name of a rule; "" if it is the default one.
func ruleName(a notify.Alert) string {
	if a.Title == "" && a.Rule == notify.DefaultRule {
		return ""
	}
	return cmp.Or(a.Title, a.Rule)
}

// time says when a reading was taken, and if it is late when it arrived.
func (s Style) time(a notify.Alert) string {
	at, late := taken(a)
	if late == 0 {
		return s.moment(at)
	}
	return s.moment(at) + ", arrived " + s.moment(a.Enqueued)
}

// since says since when there has been an alarm, and for how long; "" if it has just begun.
func (s Style) since(a notify.Alert) string {
	at, _ := taken(a)
	since := began(a)
	lasted := at.Sub(since).Round(time.Second)
	if since.IsZero() || lasted <= 0 {
		return ""
	}
	return s.moment(since) + ", for " + humanize.Plain(lasted)
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

// What the name of a field may not have, after it was put into lower case.
var (
	notInField = regexp.MustCompile(`[^a-z0-9_]`)
	notFirst   = regexp.MustCompile(`^([0-9]|$)`)
)

// FieldName returns a property's name as a field or a label can have it, with "property_" in front if it is one of ours.
func FieldName(property string, ours []string) string {
	name := notInField.ReplaceAllString(asciiLower(property), "_")
	name = notFirst.ReplaceAllString(name, "_$1")
	if slices.Contains(ours, name) {
		return "property_" + name
	}

	return name
}

// asciiLower returns s with its ASCII letters in lower case: others have forms that are ASCII.
func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return r
		}
		return unicode.ToLower(r)
	}, s)
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

// maxField is how much of the paths of a rule's field people are shown, in characters.
const maxField = 128

// moment writes a time for people.
func (s Style) moment(t time.Time) string { return s.in(t).Format("2006-01-02 15:04:05 MST") }

// minute writes a time that is only known to the minute, or need not be exact.
func (s Style) minute(t time.Time) string { return s.in(t).Format("2006-01-02 15:04 MST") }

// in returns t in the zone of those who read it.
func (s Style) in(t time.Time) time.Time {
	if s.Zone == nil {
		return t.UTC()
	}
	return t.In(s.Zone)
}

// Cut returns s, or its beginning and "…" if it has more than limit characters, counted as [Units] does.
func Cut(s string, limit int) string {
	units := utf16.Encode([]rune(s))
	if len(units) <= limit {
		return s
	}
	// What is cut in its middle is U+FFFD then.
	return strings.TrimSuffix(string(utf16.Decode(units[:limit-1])), "\uFFFD") + "…"
}
