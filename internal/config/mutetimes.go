package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"alertworker/internal/rules"
)

// maxMatcher is how long a text that a mute compares may be, in characters.
const maxMatcher = 200

// mutes reads the times at which nobody wants to know, none if n is nil. The rules have been read.
func (r *rulesReader) mutes(n ast.Node) {
	list := items(n, maxMutes)
	if n != nil && len(list) == 0 {
		r.wrong(n, "mute must be a list of 1 to %d times, such as {days: mon-fri, from: 22:00, to: 06:00}", maxMutes)
	}

	for _, one := range list {
		if members(one) == nil {
			r.wrong(one, "is not a mute: must be days: …, from: …, to: … and so on")
			continue
		}
		r.set.Mutes = append(r.set.Mutes, r.mute(one))
	}
}

// mute reads when and about what nobody wants to know.
func (r *rulesReader) mute(n ast.Node) rules.Mute {
	values := r.mapping(n, "days", "from", "to", "zone", "device", "rule", "where")
	times := &rules.Times{Days: rules.EveryDay, To: rules.MinutesOfDay, Zone: r.zone}

	if at := values["days"]; at != nil {
		times.Days = r.days(at)
	}

	if at := values["from"]; at != nil {
		times.From = r.timeOfDay(at, "from", rules.MinutesOfDay-1)
	}

	if at := values["to"]; at != nil {
		times.To = r.timeOfDay(at, "to", rules.MinutesOfDay)
	}

	if at := values["zone"]; at != nil {
		times.Zone = r.timeZone(at)
	}

	if times.Always() {
		r.wrong(n, "a mute has no end: must have days, or from and to")
	}

	m := rules.Mute{Times: times, Device: r.text(values["device"], "device", checkPrintable(maxMatcher))}

	if at := values["rule"]; at != nil {
		m.Rule = scalar(at)
		var names []string
		for i := range r.set.Rules {
			names = append(names, r.set.Rules[i].Name)
		}

		if !slices.Contains(names, m.Rule) {
			r.wrong(at, "rule is %s, which is not the name of a rule%s", show(m.Rule), didYouMean(m.Rule, names))
		}
	}

	if at := values["where"]; at != nil {
		var both bool
		m.Property, m.Value, both = strings.Cut(r.text(at, "where", checkPrintable(maxMatcher)), "=")
		if !both || m.Value == "" || checkProperty(m.Property) != nil {
			r.mustBe(at, "where", "the name of an application property and its value, such as site=berlin")
		}
	}

	return m
}

// weekdays are the names of days, by time.Weekday.
var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// days reads days, such as sat, mon-fri or a list of these.
func (r *rulesReader) days(n ast.Node) (days [7]bool) {
	values := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		values = list.Values
	}
	if len(values) == 0 || len(values) > len(weekdays) {
		r.wrong(n, "days must be one or several, such as [sat, sun] or mon-fri")
	}

	for _, value := range values {
		first, last, several := strings.Cut(strings.ToLower(scalar(value)), "-")
		from, to := slices.Index(weekdays, first), slices.Index(weekdays, last)
		if !several {
			to = from
		}

		if from < 0 || to < 0 {
			r.mustBe(value, "days", "sun, mon, tue, wed, thu, fri or sat, a list of these, or several in a row, such as mon-fri")
			continue
		}

		days[to] = true
		for day := from; day != to; day = (day + 1) % len(weekdays) {
			days[day] = true
		}
	}

	return days
}

var timeOfDay = regexp.MustCompile(`^([0-9]{1,2}):([0-9]{2})$`)

// timeOfDay reads a time on the clock, and returns how many minutes after midnight it is, at most latest.
func (r *rulesReader) timeOfDay(n ast.Node, name string, latest int) int {
	parts := timeOfDay.FindStringSubmatch(scalar(n))
	if parts == nil {
		r.mustBe(n, name, "a time of the day such as 06:30")
		return 0
	}

	hours, _ := strconv.Atoi(parts[1])
	minutes, _ := strconv.Atoi(parts[2])
	at := 60*hours + minutes
	if minutes > 59 || at > latest {
		r.mustBe(n, name, "a time of the day, 00:00 to "+rules.TimeOfDay(latest))
		return 0
	}

	return at
}

// timeZone reads the name of a time zone.
func (r *rulesReader) timeZone(n ast.Node) *time.Location {
	name := scalar(n)
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		r.mustBe(n, "zone", "UTC or the name of a time zone, such as Europe/Berlin")
		return r.zone
	}

	return zone
}
