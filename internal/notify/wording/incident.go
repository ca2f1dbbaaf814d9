package wording

import (
	"strconv"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
)

// isOfMany reports whether a is about all members of an incident, or all that it had. The text about one is that of its
// device.
func isOfMany(a notify.Alert) bool {
	i := a.Incident
	return i != nil && a.Device != notify.Hub && (a.Resolved || i.Members > 1 || i.AtLeast)
}

// incident says how the members of an incident are, or how it ended: "12 devices at or above -15 °C, first freezer-7:
// -12.5".
func (s Style) incident(a notify.Alert) string {
	if a.Resolved {
		return incidentEnd(a)
	}

	limit := value(a, a.Threshold)
	if a.OwnLimit {
		limit = "their limits"
	}

	text := members(a)
	switch word := printable(a.Word, maxName); {
	case a.Silent > 0:
		return text + s.membersSilent(a)
	case word == "":
		text += " " + meaning(a) + " " + limit
	case lingers(a):
		text += " " + wordLingering + word
	default:
		text += " not normal"
	}

	return text + ", " + first(a, number)
}

// membersSilent follows the number of devices that are silent.
func (s Style) membersSilent(a notify.Alert) string {
	text := " not heard for "
	if a.Field != "" { // they may have sent messages without it, or that could not be read
		text = " without " + strings.ReplaceAll(a.Field, ",", " or ") + " for "
	}

	return text + humanize.Plain(a.Silent) + ", since " + s.minute(a.Since)
}

// incidentEnd says why an incident is over: its last member's alarm has ended.
func incidentEnd(a notify.Alert) string {
	all, last := "all "+memberKind(a)+"s ", ", the last "+memberKind(a)
	switch after := incidentLasted(a); {
	case a.Removed:
		return "over" + after + ", the rule was removed"
	case a.Forgotten:
		return "over" + after + last + " is not watched any more"
	case a.Excluded != "":
		return "over" + after + last + " is not looked at any more: " + printable(a.Excluded, maxExcluded)
	case a.Silent > 0:
		return all + "heard again" + after
	default:
		return all + "normal again" + after
	}
}

// began returns when an alarm began, or if an incident is over, that; zero if it is not known.
func began(a notify.Alert) time.Time {
	at := a.Since
	if isOfMany(a) && a.Resolved && !a.Incident.Began.IsZero() && (at.IsZero() || a.Incident.Began.Before(at)) {
		at = a.Incident.Began // the last member's alarm began later
	}
	return at
}

// incidentLasted says for how long an incident that is over lasted; "" if that is not known.
func incidentLasted(a notify.Alert) string {
	began := began(a)
	at, _ := taken(a)
	if began.IsZero() || !began.Before(at) {
		return ""
	}

	return " after " + humanize.Span(at.Sub(began))
}

// incidentFacts returns what a section's title does not say of an incident.
func (s Style) incidentFacts(a notify.Alert) []string {
	withUnit := func(v float64) string { return value(a, v) }
	switch {
	case a.Resolved:
		return []string{incidentEnd(a)}
	case a.Silent > 0:
		return []string{members(a), "since " + s.minute(a.Since)}
	case a.Word != "" || !isFirst(a):
		return []string{members(a), first(a, withUnit)}
	}

	return []string{members(a), first(a, withUnit), "limit " + number(a.Threshold)}
}

// membersOfAll counts the members of incidents.
func membersOfAll(incidents []notify.Alert) string {
	sum := incidents[0]
	sum.Incident = &notify.Incident{}
	for _, a := range incidents {
		sum.Incident.Members += a.Incident.Members
		sum.Incident.AtLeast = sum.Incident.AtLeast || a.Incident.AtLeast
	}

	return members(sum)
}

// members counts those of an incident: "at least 12 devices".
func members(a notify.Alert) string {
	text := memberCount(a) + " " + memberKind(a)
	if a.Incident.Members != 1 {
		text += "s"
	}
	return text
}

// memberCount is how many members an incident has: "at least 12".
func memberCount(a notify.Alert) string {
	n := strconv.Itoa(a.Incident.Members)
	if a.Incident.AtLeast {
		return "at least " + n
	}
	return n
}

// memberKind is what one member of an incident is.
func memberKind(a notify.Alert) string {
	if a.Sensor != "" {
		return "sensor"
	}
	return "device"
}

// first names the first member of an incident, and its reading, which write makes text of, unless the reading is of
// another member.
func first(a notify.Alert, write func(float64) string) string {
	text := "first " + firstName(a)
	switch {
	case !isFirst(a) || a.Silent > 0 || a.Word != "" && lingers(a):
		return text
	case a.Word != "":
		return text + ": " + printable(a.Word, maxName)
	}

	return text + ": " + write(a.Temperature)
}

// firstName is the first member of an incident.
func firstName(a notify.Alert) string {
	if isFirst(a) {
		return sensorName(a.Device, a.Sensor)
	}
	return deviceName(a.Incident.First)
}

// isFirst reports whether a's reading is that of the first member.
func isFirst(a notify.Alert) bool {
	return a.Incident.First == "" || a.Incident.First == a.From().String()
}
