package wording

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

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

// Links returns those of an alert: where to look its device up, and what to do.
func (s Style) Links(a notify.Alert) []Link {
	var links []Link
	if s.Page != "" {
		at := s.Page

		if u, err := url.Parse(s.Page); err == nil && a.Device != "" {
			query := u.Query()
			query.Set("device", a.Device)
			u.RawQuery = query.Encode()
			at = u.String()
		}

		links = append(links, Link{"Status page", at})
	}

	if a.Runbook != "" {
		links = append(links, Link{"Runbook", a.Runbook})
	}

	return links
}

// PageLinks returns the link to the status page, if there is one.
func (s Style) PageLinks() []Link { return s.Links(notify.Alert{}) }

// MaxFacts is how many facts an alert can have.
const MaxFacts = 11 + notify.MaxShown

// Facts returns what a channel shows below an alert's Message: at most MaxFacts, the device first,
// none longer than 200 characters.
func (s Style) Facts(a notify.Alert) []Fact {
	var facts []Fact
	add := func(name, value string) { facts = append(facts, Fact{Name: name, Value: value}) }
	addProperty := func(name, value string) {
		fact := Fact{Name: printable(name, maxName), Value: printable(cmp.Or(value, "–"), maxField), Property: true}
		facts = append(facts, fact)
	}

	add("Device", deviceName(a.Device))
	if a.PerValue != "" {
		addProperty(a.Per, a.PerValue)
	}

	switch {
	case a.Silent > 0:
	case a.Word == "":
		add("Value", value(a, a.Temperature))
		add("Limit", value(a, a.Threshold))
	case !a.Resolved:
		add("Value", printable(a.Word, maxField))
	}

	for name, value := range a.Shown.All() {
		if name == a.Per && a.PerValue != "" {
			continue
		}
		addProperty(name, value)
	}

	if rule := a.Rule; rule != notify.DefaultRule || a.Title != "" {
		add("Rule", printable(cmp.Or(a.Title, rule), maxTitle))
	}

	if a.Level != "" {
		add("Level", printable(a.Level, maxName))
	}

	if a.Field != "" {
		add("Field", printable(a.Field, maxField))
	}

	at, late := taken(a)
	text := s.moment(at)
	if late > 0 {
		text += ", arrived " + s.moment(a.Enqueued)
	}

	add("Time", text)
	if lasted := at.Sub(a.Since).Round(time.Second); !a.Since.IsZero() && lasted > 0 {
		add("Since", s.moment(a.Since)+", for "+notify.Duration(lasted))
	}

	if !a.Resolved && a.Suppressed > 0 {
		add("Suppressed", suppressed(a))
	}

	if a.Ambiguous {
		add("Repeat", "possible: an earlier attempt may have arrived")
	}

	return facts
}

// ourFields are the names of fields that no property takes, whether or not an alert has them.
var ourFields = []string{
	"device", "value", "limit", "rule", "level", "field", "time", "since", "suppressed", "repeat",
	"id", "replica", "summary", "runbook_url",
}

// Fields returns an alert's facts, ID and replica for receivers that keep fields by name. A name is of ASCII letters,
// digits and underscores, and begins with no digit, because Alertmanager before 0.27 rejects others. A property has
// "property_" in front of its name if that is one of ours, and a number behind it if another property has it already.
func (s Style) Fields(a notify.Alert) map[string]string {
	fields := map[string]string{"id": a.ID, "replica": a.Replica}
	for _, f := range s.Facts(a) {
		if !f.Property {
			fields[strings.ToLower(f.Name)] = f.Value
			continue
		}

		name := fieldName(f.Name)
		if slices.Contains(ourFields, name) {
			name = "property_" + name
		}

		free := name
		for n := 2; fields[free] != ""; n++ {
			free = fmt.Sprint(name, "_", n)
		}

		fields[free] = f.Value
	}

	return fields
}

// fieldName returns a property's name as a field can have it.
func fieldName(property string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return unicode.ToLower(r)
		}

		return '_'
	}, property)
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}

	return name
}

// suppressed says how many readings, or devices that share their alerts, were suppressed. Each replica counts what it
// reads, so there may be more devices.
func suppressed(a notify.Alert) string {
	text := count(a.Suppressed, "reading")
	if a.PerValue != "" {
		text = "at least " + count(a.Suppressed, "device")
	}

	return text + " since the last alert"
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

func (s Style) in(t time.Time) time.Time {
	if s.Zone == nil {
		return t.UTC()
	}
	return t.In(s.Zone)
}

func count(n int64, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return strconv.FormatInt(n, 10) + " " + of + "s"
}

// Cut returns s, or its beginning and "…" if it has more than limit characters. It counts
// UTF-16 code units, as many services do: by any other count of characters there are fewer.
func Cut(s string, limit int) string {
	units, end := 0, 0 // end is where "…" still fits
	for i, r := range s {
		if units < limit {
			end = i
		}

		if units += utf16.RuneLen(r); units > limit {
			return s[:end] + "…"
		}
	}

	return s
}
