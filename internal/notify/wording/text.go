package wording

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
)

const (
	maxLines    = 10 // devices with what is said of them, in a message about several
	maxSections = 16
	maxNames    = 2500                    // bytes of a line that names the others
	countRoom   = len("100 more: …") + 32 // what such a line takes at least, as size has it
)

// A Text is a message for people. Its parts are lines of printable characters.
type Text struct {
	ID       string // as people are shown it
	Headline string // at most 250 characters
	Severity notify.Severity
	Resolved bool // so are all alerts that it is about
	Test     bool
	Sections []Section // about several alerts: at most 16
	Links    []Link
}

// A Section of a message about several alerts has those of one rule and level.
type Section struct {
	Title    string // "hot, critical: 45 devices at or above 80 °C"; empty if the headline says it
	Severity notify.Severity
	Resolved bool
	Facts    []Fact // whose names no device has chosen
	// Lines have a device or an incident each, by its name, of several alerts the first of the ten in a Text; and the last
	// one, without a name, how many more there are, and as many of their names as have room.
	Lines []Fact
}

// String returns a fact or a line as text.
func (f Fact) String() string { return strings.TrimPrefix(f.Name+": "+f.Value, ": ") }

// Text returns the message about alerts, of which there is at least one: alerts before recoveries, the most severe
// first. What it says of several has at most room bytes, as size counts them, which is 1,000 at least; it names every
// device, or says how many more there are.
func (s Style) Text(room int, alerts ...notify.Alert) Text {
	if a := alerts[0]; len(alerts) == 1 {
		return Text{
			ID:       printable(a.ID, maxMessage),
			Headline: s.Message(a),
			Severity: a.Severity(),
			Resolved: a.Resolved,
			Test:     a.Test,
			Sections: []Section{{Facts: s.Facts(a)}},
			Links:    s.Links(a),
		}
	}

	groups := s.groups(alerts)
	worst := groups[0][0]
	t := Text{
		ID:       fmt.Sprintf("%s and %d more", printable(alerts[0].ID, maxMessage), len(alerts)-1),
		Headline: printable(s.title(groups[0]), maxMessage-1),
		Severity: worst.Severity(),
		Resolved: worst.Resolved, // recoveries are the last
		Links:    s.Links(notify.Alert{}),
	}

	lines := maxLines
	for i, group := range groups {
		share := room / (len(groups) - i)
		room -= share
		part := Section{Title: cut(s.title(group), share-countRoom), Severity: group[0].Severity(), Resolved: group[0].Resolved}
		share -= size(part.Title)
		forNames := share / 3
		for ; len(group) > 0 && lines > 0; lines-- {
			line := s.line(group[0])
			takes := size(line.String())
			if share-takes < forNames {
				break
			}

			share -= takes
			part.Lines = append(part.Lines, line)
			group = group[1:]
		}

		if len(group) > 0 {
			others := more(group, min(share, maxNames))
			part.Lines = append(part.Lines, Fact{Value: others})
			share -= size(others)
		}

		room += share
		t.Sections = append(t.Sections, part)
	}

	if n := len(alerts) - len(groups[0]); n > 0 {
		t.Headline = printable(fmt.Sprintf("%s, and %d more", t.Headline, n), maxMessage-1)
	} else {
		t.Sections[0].Title = ""
	}

	return t
}

// groups returns alerts, the worst first, by what a section has in common. All that have no room for sections of their own
// share the last one.
func (s Style) groups(alerts []notify.Alert) (all [][]notify.Alert) {
	sorted := slices.SortedFunc(slices.Values(alerts), func(a, b notify.Alert) int {
		values := cmp.Compare(b.Temperature, a.Temperature)
		if a.Below {
			values = -values
		}
		return cmp.Or(s.byGroup(a, b), values, cmp.Compare(a.Device, b.Device), cmp.Compare(a.Sensor, b.Sensor))
	})

	for i, a := range sorted {
		if i == 0 || s.byGroup(sorted[i-1], a) != 0 && len(all) < maxSections {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], a)
	}

	return all
}

// severities, the highest first.
var severities = []notify.Severity{notify.Critical, notify.Serious, notify.Warning, notify.Info}

// byGroup orders alerts before recoveries, then by severity, rule and level. It is 0 for those that have a section in
// common.
func (s Style) byGroup(a, b notify.Alert) int {
	_, ofA, _ := s.state(a, limits(a))
	_, ofB, _ := s.state(b, limits(b))

	return cmp.Or(
		falseFirst(a.Resolved, b.Resolved),
		cmp.Compare(slices.Index(severities, a.Severity()), slices.Index(severities, b.Severity())),
		cmp.Compare(a.Rule, b.Rule),
		cmp.Compare(a.Level, b.Level),
		cmp.Compare(ofA, ofB),
		falseFirst(isOfMany(a), isOfMany(b)),
	)
}

// falseFirst compares two conditions: what is not so comes first, as "false" does before "true".
func falseFirst(a, b bool) int { return cmp.Compare(strconv.FormatBool(a), strconv.FormatBool(b)) }

// title names what the alerts of a group have in common.
func (s Style) title(group []notify.Alert) string {
	a, what := group[0], "device"
	if slices.ContainsFunc(group, func(b notify.Alert) bool { return b.Sensor != "" }) {
		what = "sensor"
	}

	if s.byGroup(a, group[len(group)-1]) != 0 {
		return fmt.Sprintf("%d more, of other rules and levels", len(group))
	}

	_, condition, _ := s.state(a, limits(a))
	switch {
	case isOfMany(a) && a.Resolved:
		what, condition = "incident", "over"
	case isOfMany(a):
		what, condition = "incident", "of devices "+condition
	case len(group) == 1:
		_, condition, _ = s.state(a, value(a, a.Threshold)) // its own
	}

	text := ruleAndLevel(a) + ": " + humanize.Count(len(group), what) + " " + condition
	if !slices.ContainsFunc(group, func(b notify.Alert) bool { return !b.Test }) {
		text += " (test)"
	}

	return text
}

// line is a in the section of its rule and level.
func (s Style) line(a notify.Alert) Fact {
	facts := []string{s.says(a)}
	for name, value := range a.Shown.All() {
		facts = append(facts, printable(name, maxName)+" "+printable(cmp.Or(value, "–"), maxName))
	}

	text := list(facts...) + remarks(a)
	if a.Ambiguous {
		text += " (possibly a repeat)"
	}

	name := names(a)

	return Fact{Name: name, Value: printable(text, max(maxMessage-utf8.RuneCountInString(name), maxName))}
}

// more names devices: "35 more: a, b, c, …", in at most room bytes, but with the number at least.
func more(rest []notify.Alert, room int) string {
	text := fmt.Sprintf("%d more: ", len(rest))
	room -= size(text)
	for _, a := range rest {
		name := names(a) + ", "
		if room -= len(html.EscapeString(name)); room < 0 {
			return text + "…"
		}
		text += name
	}

	return strings.TrimSuffix(text, ", ")
}

// size is how many bytes a line takes in a message, at most, whatever a channel escapes in it and puts around it.
func size(line string) int { return len(html.EscapeString(line)) + len("\n• `…`") }

// cut returns s, or as much of its beginning as has a size of room, and "…".
func cut(s string, room int) string {
	room -= size("")
	for i, r := range s {
		if room -= len(html.EscapeString(string(r))); room < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// BatchID names a message about alerts: the same for the same alerts, in any order.
func BatchID(alerts []notify.Alert) string {
	var ids []string
	for _, a := range alerts {
		ids = append(ids, a.ID)
	}

	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, "\n")))

	return "batch-" + hex.EncodeToString(sum[:16])
}
