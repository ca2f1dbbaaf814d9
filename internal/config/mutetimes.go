package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"alertworker/internal/rules"
	"alertworker/internal/sensor"
)

// maxMatcher is how long a text that a mute compares may be, in characters.
const maxMatcher = 200

// mute reads when and about what nobody wants to know. The rules have been read.
func (r *rulesReader) mute(n ast.Node) {
	var m rules.Mute
	var device, where string
	times := rules.Times{Days: rules.EveryDay, To: rules.MinutesOfDay, Zone: r.zone}
	values := r.mapping(n,
		key{name: "zone", read: func(n ast.Node, name string) {
			zone, err := time.LoadLocation(scalar(n))
			if err != nil || slices.Contains([]string{"", "Local"}, scalar(n)) {
				r.mustBe(n, name, "UTC or the name of a time zone, such as Europe/Berlin")
				return
			}
			times.Zone = zone
		}},
		key{name: "days", read: func(n ast.Node, name string) { times.Days = r.days(n, name) }},
		key{name: "from", read: r.timeOfMute(&times, &times.From, &m.From)},
		key{name: "to", read: r.timeOfMute(&times, &times.To, &m.Until)},
		key{name: "device", read: r.text(&device, checkPrintable(maxMatcher))},
		key{name: "rule", read: r.text(&m.Rule, r.checkRuleName)},
		key{name: "where", read: r.text(&where, checkWhere)},
		key{name: "until", read: r.text(&m.UntilAt, checkUntil)},
	)
	of := sensor.Parse(device)
	m.Device, m.Sensor = of.Device, of.Name
	m.Property, m.Value, _ = strings.Cut(where, "=")

	days, zone := values["days"], values["zone"]
	isPlanned := !m.From.IsZero() || !m.Until.IsZero()
	isSpan := !m.From.IsZero() && m.Until.After(m.From)
	isWeekly := !isPlanned && cmp.Or(days, values["from"], values["to"]) != nil
	if isWeekly {
		m.Times = &times
	}

	r.wrongIf(isPlanned && (days != nil || !isSpan), n,
		"a mute on a date must have both from and to, such as 2026-12-01 22:00, with to after from, and no days")
	r.wrongIf(zone != nil && !isPlanned && !isWeekly, zone, "zone is set without days, from and to")
	r.wrongIf(m.Property+m.UntilAt == "" && !isPlanned && (!isWeekly || times.Always()), n,
		"a mute has no end: must have days, from and to, where, or until")
	r.set.Mutes = append(r.set.Mutes, m)
}

// timeOfMute returns what reads from or to: a time of the day, or once, on a day in the zone of times.
func (r *rulesReader) timeOfMute(times *rules.Times, minute *int, once *time.Time) reader {
	return func(n ast.Node, name string) {
		text := scalar(n)
		planned, notPlanned := rules.ParsePlanned(text, times.Zone)
		clock, notClock := time.Parse("15:04", text)
		switch {
		case notPlanned == nil:
			*once = planned
		case notClock == nil:
			*minute = 60*clock.Hour() + clock.Minute()
		case name != "to" || text != "24:00": // which To is already
			r.mustBe(n, name, "a time of the day such as 06:30, or on a day, 2026-12-01 22:00")
		}
	}
}

// checkUntil checks the name of an application property with a time, which is easily taken for a time.
func checkUntil(name string) error {
	if strings.Contains(name, ":") {
		return errors.New("must be the name of an application property with a time; for a time of the day write to, and to mute " +
			"until a time once use alertworker silence")
	}
	return checkProperty(name)
}

// checkRuleName checks the name of one of the rules, which have been read.
func (r *rulesReader) checkRuleName(name string) error {
	names := r.set.Names()
	if !slices.Contains(names, name) {
		return fmt.Errorf("is %s, which is not the name of a rule%s", show(name), didYouMean(name, names))
	}

	return nil
}

// checkWhere checks a name in messages and what it must be.
func checkWhere(text string) error {
	property, value, _ := strings.Cut(text, "=")
	if value == "" || checkLookup(property) != nil || checkPrintable(maxMatcher)(text) != nil {
		return errors.New("must be a name in messages and its value, such as site=berlin")
	}
	return nil
}

// weekdays are the names of days, by time.Weekday.
var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// days reads days, such as sat, mon-fri or a list of these.
func (r *rulesReader) days(n ast.Node, name string) (days [7]bool) {
	for _, value := range r.list(n, name, len(weekdays)) {
		first, last, several := strings.Cut(strings.ToLower(scalar(value)), "-")
		if !several {
			last = first
		}

		from, to := slices.Index(weekdays, first), slices.Index(weekdays, last)
		if from < 0 || to < 0 {
			r.mustBe(value, name, "sun, mon, tue, wed, thu, fri or sat, a list of these, or several in a row, such as mon-fri")
			continue
		}

		days[to] = true
		for day := from; day != to; day = (day + 1) % len(weekdays) {
			days[day] = true
		}
	}

	return days
}
