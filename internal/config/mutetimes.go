package config

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"alertworker/internal/rules"
	"alertworker/internal/sensor"
)

// maxMatcher is how long a text that a mute compares may be, in characters.
const maxMatcher = 200

// mutes reads when nobody wants to know, nothing if n is nil. The rules have been read.
func (r *rulesReader) mutes(n ast.Node) {
	list := items(n, maxMutes)
	if n != nil && len(list) == 0 {
		r.wrong(n, "mute must be a list of 1 to %d mutes, such as {days: mon-fri, from: 22:00, to: 06:00}", maxMutes)
	}

	for _, one := range list {
		if members(one) == nil {
			r.wrong(one, "is not a mute: must be days: …, from: …, to: …, where: … and so on")
			continue
		}
		r.set.Mutes = append(r.set.Mutes, r.mute(one))
	}
}

// mute reads when and about what nobody wants to know.
func (r *rulesReader) mute(n ast.Node) rules.Mute {
	values := r.mapping(n, "days", "from", "to", "zone", "device", "rule", "where", "until")
	of := sensor.Parse(r.text(values["device"], "device", checkPrintable(maxMatcher)))
	m := rules.Mute{
		Device:  of.Device,
		Sensor:  of.Name,
		Rule:    readOr("", values["rule"], r.nameOfRule),
		UntilAt: r.text(values["until"], "until", checkUntil),
	}
	isPlanned := isDated(values["from"]) || isDated(values["to"])
	if isPlanned {
		m.From, m.Until = r.planned(values)
	} else {
		m.Times = r.times(values)
	}

	if at := values["where"]; at != nil {
		m.Property, m.Value = r.where(at)
	}

	hasEnd := m.Property+m.UntilAt != "" || isPlanned || m.Times != nil && !m.Times.Always()
	r.wrongIf(!hasEnd, n, "a mute has no end: must have days, from and to, where, or until")

	return m
}

// times reads at which times a mute holds, nil if values have none.
func (r *rulesReader) times(values map[string]ast.Node) *rules.Times {
	if values["days"] == nil && values["from"] == nil && values["to"] == nil {
		zone := values["zone"]
		r.wrongIf(zone != nil, zone, "zone is set without days, from and to")
		return nil
	}

	return &rules.Times{
		Days: readOr(rules.EveryDay, values["days"], r.days),
		From: readOr(0, values["from"], func(n ast.Node) int { return r.timeOfDay(n, "from", rules.MinutesOfDay-1) }),
		To: readOr(rules.MinutesOfDay, values["to"], func(n ast.Node) int {
			return r.timeOfDay(n, "to", rules.MinutesOfDay)
		}),
		Zone: readOr(r.zone, values["zone"], r.timeZone),
	}
}

// dated is how a time with its day begins.
var dated = regexp.MustCompile(`^[0-9]{4}-[0-9]`)

// isDated reports whether a value is to be a time on a day.
func isDated(n ast.Node) bool { return n != nil && dated.MatchString(scalar(n)) }

// planned reads the times between which a mute holds once.
func (r *rulesReader) planned(values map[string]ast.Node) (from, until time.Time) {
	zone := readOr(r.zone, values["zone"], r.timeZone)
	read := func(name string) (t time.Time) {
		n := values[name]
		if n == nil {
			return t
		}

		t, err := rules.ParsePlanned(scalar(n), zone)
		if err != nil {
			r.mustBe(n, name, "a time on a day such as 2026-12-01 22:00, as the other one is")
		}

		return t
	}

	from, until = read("from"), read("to")
	for _, other := range []string{"from", "to"} {
		if values[other] == nil {
			r.wrong(values[map[string]string{"from": "to", "to": "from"}[other]], "is a time on a day: must have %s, such as 2026-12-01 22:00, too", other)
		}
	}

	days := values["days"]
	r.wrongIf(days != nil, days, "days is set beside a time on a day: remove one of them")
	to := values["to"]
	r.wrongIf(to != nil && !from.IsZero() && !until.IsZero() && !until.After(from), to, "to must be later than from")

	return from, until
}

// checkUntil checks the name of an application property with a time, which is easily taken for a time.
func checkUntil(name string) error {
	_, err := time.Parse(time.RFC3339, name)
	switch {
	case timeOfDay.MatchString(name):
		return errors.New("must be the name of an application property with a time; for a time of the day write to")
	case err == nil:
		return errors.New("must be the name of an application property with a time; alertworker silence mutes until a time")
	}

	return checkProperty(name)
}

// readOr returns what read makes of n, and otherwise if n is nil.
func readOr[T any](otherwise T, n ast.Node, read func(ast.Node) T) T {
	if n == nil {
		return otherwise
	}
	return read(n)
}

// nameOfRule reads the name of one of the rules, which have been read.
func (r *rulesReader) nameOfRule(n ast.Node) string {
	name := scalar(n)
	names := make([]string, len(r.set.Rules))
	for i := range r.set.Rules {
		names[i] = r.set.Rules[i].Name
	}

	if !slices.Contains(names, name) {
		r.wrong(n, "rule is %s, which is not the name of a rule%s", show(name), didYouMean(name, names))
	}

	return name
}

// where reads a name in messages and what it must be.
func (r *rulesReader) where(n ast.Node) (property, value string) {
	property, value, _ = strings.Cut(r.text(n, "where", checkPrintable(maxMatcher)), "=")
	if value == "" || checkLookup(property) != nil {
		r.mustBe(n, "where", "a name in messages and its value, such as site=berlin")
	}

	return property, value
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
