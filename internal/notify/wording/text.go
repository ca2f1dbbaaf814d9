package wording

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
)

const (
	maxLines    = 10 // devices with value and limit, in a message about several
	maxSections = 16
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
	Facts    []Fact   // whose names no device has chosen
	Lines    []Line   // of a device or an incident each; of several alerts, the first of the ten in a Text
	Others   []string // the names of the others
}

// A Line is about one device, or one incident.
type Line struct {
	Name  string
	Facts string // "91.5 °C, limit 80"; may be empty
}

// String returns the line as text.
func (l Line) String() string {
	if l.Facts == "" {
		return l.Name
	}
	return l.Name + ": " + l.Facts
}

// Text returns the message about alerts, of which there is at least one: alerts before recoveries, the most severe
// first.
func (s Style) Text(alerts ...notify.Alert) Text {
	if len(alerts) == 1 {
		return s.textOfOne(alerts[0])
	}

	sorted := slices.SortedFunc(slices.Values(alerts), worstFirst)
	t := Text{
		ID:       fmt.Sprintf("%s and %d more", alerts[0].ID, len(alerts)-1),
		Headline: headline(alerts),
		Severity: sorted[0].Severity(),
		Resolved: sorted[0].Resolved, // recoveries are the last
		Sections: s.sections(sorted),
		Links:    s.PageLinks(),
	}

	if len(t.Sections) == 1 {
		only := &t.Sections[0]
		t.Headline = printable(only.Title, maxMessage-1)
		only.Title = ""
	}

	return t
}

// textOfOne returns the message about one alert.
func (s Style) textOfOne(a notify.Alert) Text {
	return Text{
		ID:       a.ID,
		Headline: s.Message(a),
		Severity: a.Severity(),
		Resolved: a.Resolved,
		Test:     a.Test,
		Sections: []Section{{Facts: s.Facts(a)}},
		Links:    s.Links(a),
	}
}

// headline counts alerts of several sections, and their devices, unless some are about more of them.
func headline(alerts []notify.Alert) string {
	devices, resolved := map[string]bool{}, 0
	for _, a := range alerts {
		devices[a.Device] = true
		if a.Resolved {
			resolved++
		}
	}

	var said []string
	if open := len(alerts) - resolved; open > 0 {
		said = append(said, humanize.Count(open, "alert"))
	}
	if resolved > 0 {
		said = append(said, fmt.Sprintf("%d normal again", resolved))
	}

	of := humanize.Count(len(devices), "device") + ": "
	if slices.ContainsFunc(alerts, isOfMany) {
		of = ""
	}

	return of + strings.Join(said, ", ")
}

// sections returns those of sorted alerts. All that have no room for sections of their own share the last one.
func (s Style) sections(sorted []notify.Alert) (all []Section) {
	lines := maxLines // that are left
	for len(sorted) > 0 {
		n := firstGroup(sorted)
		part := Section{Title: title(sorted[:n]), Severity: sorted[0].Severity(), Resolved: sorted[0].Resolved}

		if len(all) == maxSections-1 && n < len(sorted) {
			n = len(sorted)
			part.Title = fmt.Sprintf("%d more, of other rules and levels", n)
		}

		shown := min(n, lines)
		lines -= shown
		for _, a := range sorted[:shown] {
			part.Lines = append(part.Lines, s.line(a))
		}

		for _, a := range sorted[shown:n] {
			part.Others = append(part.Others, names(a))
		}

		all = append(all, part)
		sorted = sorted[n:]
	}

	return all
}

// firstGroup returns how many of sorted alerts have a section in common with the first.
func firstGroup(sorted []notify.Alert) int {
	isOther := func(a notify.Alert) bool { return byGroup(a, sorted[0]) != 0 }
	if n := slices.IndexFunc(sorted, isOther); n >= 0 {
		return n
	}
	return len(sorted)
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

// severities, the highest first.
var severities = []notify.Severity{notify.Critical, notify.Serious, notify.Warning, notify.Info}

// worstFirst orders alerts by group, and then by value.
func worstFirst(a, b notify.Alert) int {
	values := cmp.Compare(b.Temperature, a.Temperature)
	if a.Below {
		values = -values
	}

	return cmp.Or(byGroup(a, b), values, cmp.Compare(a.Device, b.Device), cmp.Compare(a.Sensor, b.Sensor))
}

// byGroup orders alerts before recoveries, then by severity, rule and level. It is 0 for those that have a section in
// common.
func byGroup(a, b notify.Alert) int {
	return cmp.Or(
		falseFirst(a.Resolved, b.Resolved),
		cmp.Compare(slices.Index(severities, a.Severity()), slices.Index(severities, b.Severity())),
		cmp.Compare(a.Rule, b.Rule),
		cmp.Compare(a.Level, b.Level),
		falseFirst(a.Removed, b.Removed),
		falseFirst(a.Forgotten, b.Forgotten),
		falseFirst(a.Excluded != "", b.Excluded != ""),
		falseFirst(a.Below, b.Below),
		falseFirst(lingers(a), lingers(b)),
		falseFirst(isOfMany(a), isOfMany(b)),
	)
}

// falseFirst compares two conditions: what is not so comes first, as "false" does before "true".
func falseFirst(a, b bool) int { return cmp.Compare(strconv.FormatBool(a), strconv.FormatBool(b)) }

// title names what alerts of one section have in common.
func title(alerts []notify.Alert) string {
	a := alerts[0]
	limit := value(a, a.Threshold)
	if slices.ContainsFunc(alerts, func(b notify.Alert) bool { return b.Threshold != a.Threshold || isOfMany(b) && b.OwnLimit }) {
		limit = "their limits"
	}

	of := "device"
	if slices.ContainsFunc(alerts, func(b notify.Alert) bool { return b.Sensor != "" }) {
		of = "sensor"
	}

	text := ruleAndLevel(a) + ": "
	switch {
	case isOfMany(a) && a.Resolved:
		text += humanize.Count(len(alerts), "incident") + " over"
	case isOfMany(a):
		text += humanize.Count(len(alerts), "incident") + ", " + membersOfAll(alerts) + condition(a, limit)
	default:
		text += humanize.Count(len(alerts), of) + condition(a, limit)
	}

	if a.Test {
		text += " (test)"
	}

	return text
}

// condition follows the number of devices, and says how they are.
func condition(a notify.Alert, limit string) string {
	switch {
	case a.Removed:
		return ": the rule was removed, their alarms have ended"
	case a.Excluded != "":
		return ": the rule no longer applies, their alarms have ended"
	case a.Forgotten:
		return " not watched any more"
	case a.Resolved:
		return " normal again"
	case a.Silent > 0:
		return " silent for " + humanize.Plain(a.Silent)
	case a.Word != "":
		return ""
	}

	return " " + meaning(a) + " " + limit
}

// line is a in the section of its rule and level.
func (s Style) line(a notify.Alert) Line {
	facts := s.lineFacts(a)
	if others := suppressed(a); a.PerValue != "" && others != "" {
		facts = append(facts, others)
	}

	for name, value := range a.Shown.All() {
		facts = append(facts, printable(name, maxName)+" "+printable(cmp.Or(value, "–"), maxName))
	}

	text := strings.Join(facts, ", ")
	if a.Damaged {
		text = strings.TrimPrefix(text+damaged, ", ")
	}

	if a.Ambiguous {
		text = strings.TrimPrefix(text+" (possibly a repeat)", " ")
	}

	name := names(a)

	return Line{name, printable(text, max(maxMessage-utf8.RuneCountInString(name), maxName))}
}

// lineFacts returns what a section's title does not say of a device.
func (s Style) lineFacts(a notify.Alert) []string {
	isSilent := a.Silent > 0
	hasEnded := a.Removed || a.Forgotten
	switch {
	case isOfMany(a):
		return s.incidentFacts(a)
	case isSilent && !a.Resolved:
		return []string{"since " + s.minute(a.Since)}
	case a.Excluded != "":
		return []string{printable(a.Excluded, maxExcluded)}
	case hasEnded || isSilent:
		return nil
	case a.Word == "":
		return []string{value(a, a.Temperature), "limit " + number(a.Threshold)}
	case a.Resolved:
		return nil
	case lingers(a):
		return []string{wordLingering + printable(a.Word, maxName)}
	}

	return []string{printable(a.Word, maxName)}
}

// Fit returns s with only as many of its Lines as have room: size is what one takes of it. The devices of the others
// are in front of its Others.
func (s Section) Fit(room int, size func(Line) int) Section {
	for i, line := range s.Lines {
		if room -= size(line); room >= 0 {
			continue
		}

		var names []string
		for _, other := range s.Lines[i:] {
			names = append(names, other.Name)
		}

		s.Lines, s.Others = s.Lines[:i], append(names, s.Others...)
		break
	}

	return s
}

// countRoom is room for the number of devices that [Section.More] has no room to name.
const countRoom = len("and 100 more")

// More names the devices that s has no lines for: "and 35 more: a, b, c and 32 others". It is empty if there are
// none. As many names are in it as have room: size is what a text takes of it. It takes more than room only if that
// is less than countRoom. quote makes a name what the channel takes for text.
func (s Section) More(room int, quote func(string) string, size func(string) int) string {
	if len(s.Others) == 0 {
		return ""
	}

	text := fmt.Sprintf("%d more", len(s.Others))
	if len(s.Lines) > 0 {
		text = "and " + text
	}

	room -= size(text) + len(" and 100 others")
	separator := ": "
	for i, name := range s.Others {
		next := separator + quote(name)
		if room -= size(next); room < 0 {
			if i > 0 {
				text += fmt.Sprintf(" and %d others", len(s.Others)-i)
			}
			break
		}

		text += next
		separator = ", "
	}

	return text
}

// Plain and Bytes are for channels that take text as it is, and count bytes.
func Plain(s string) string { return s }
func Bytes(s string) int    { return len(s) }

// Units counts s in UTF-16 code units, as many services do: by any other count of characters there are fewer.
func Units(s string) int {
	return len(utf16.Encode([]rune(s)))
}

// Body is t without its headline as lines of text, in at most limit bytes. Each section has its share of them, and of
// what the sections before it left. It counts every device if limit is at least 1,000.
func (t Text) Body(limit int) string {
	var b strings.Builder
	for i, s := range t.Sections {
		b.WriteString(s.body((limit - b.Len()) / (len(t.Sections) - i)))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// body is s as lines of text, in at most limit bytes.
func (s Section) body(limit int) string {
	var b strings.Builder
	write := func(line string) {
		if line != "" && b.Len()+len(line)+1 <= limit {
			b.WriteString(line + "\n")
		}
	}
	write(humanize.Cut(s.Title, limit-countRoom-2))
	for _, f := range s.Facts {
		write(f.Name + ": " + f.Value)
	}

	s = s.Fit(limit-b.Len()-countRoom-1, func(l Line) int { return len(l.String()) + 1 })
	for _, line := range s.Lines {
		write(line.String())
	}

	write(s.More(limit-b.Len()-1, Plain, Bytes))

	return b.String()
}
