// Package wording puts alerts into words for people: the sentence, the facts and the sections that channels lay out.
package wording

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
)

// How much of a text people are shown, in characters.
const (
	maxDevice   = 128 // as long as IoT Hub lets a device id be; of a longer one its beginning and its end
	maxSensor   = 64
	maxName     = 32 // of the name of a rule or a level
	maxTitle    = 64 // of a rule's title
	maxUnit     = 16
	maxField    = 128 // of the paths of a rule's field
	maxMessage  = 250
	maxExcluded = 100 // of why a rule does not apply
)

// Message is an alert as one sentence for people, such as
// "device-7: 91.5, at or above 80 (hot, critical)": one line of at most 250 printable
// characters. DefaultRule is not named. Numbers are rounded to seven digits, U+FFFD stands
// for what cannot be printed.
func (s Style) Message(a notify.Alert) string {
	text := names(a) + ": " + s.says(a)
	if rule := ruleAndLevel(a); rule != notify.DefaultRule {
		text += " (" + strings.TrimPrefix(rule, notify.DefaultRule+", ") + ")"
	}

	return printable(text+remarks(a), maxMessage-1)
}

// says is how the device, sensor or incident is that names names: "91.5, at or above 80", or "12 devices at or above -15 °C,
// first freezer-7: -12.5 °C".
func (s Style) says(a notify.Alert) string {
	if !isOfMany(a) {
		reading, condition, detail := s.state(a, number(a.Threshold))
		return list(reading, condition, detail)
	}

	reading, condition, detail := s.state(a, limits(a))
	if a.Resolved {
		after := ""
		if _, d := lasted(a); d > 0 {
			after = " after " + humanize.Span(d)
		}

		if a.Removed || a.Forgotten || a.Excluded != "" {
			return list("over"+after, "last "+sensorName(a.Device, a.Sensor)+" "+condition, detail)
		}
		return "all " + memberKind(a) + "s " + condition + after
	}

	first := "first " + firstName(a)
	if isFirst(a) && reading != "" {
		first += ": " + reading
	}

	text := memberCount(a) + " " + memberKind(a)
	if a.Incident.Members != 1 {
		text += "s"
	}

	return list(text+" "+condition, first, detail)
}

// state says how a device is: its reading, what is wrong or has ended, in words that several devices can share, and details.
// Each may be empty. limit is how its limit is written.
func (s Style) state(a notify.Alert, limit string) (reading, condition, detail string) {
	side, clear, beyond := "above", "below", cmp.Compare(a.Temperature, a.Threshold)
	if a.Below {
		side, clear, beyond = clear, side, -beyond
	}

	reading = value(a, a.Temperature)
	word := printable(a.Word, maxField)

	switch {
	case a.Removed:
		return "", "no longer in alarm", "because the rule was removed"
	case a.Excluded != "":
		return "", "no longer in alarm", "because " + printable(a.Excluded, maxExcluded)
	case a.Forgotten:
		return "", "no longer monitored", ""
	case a.Silent > 0 && a.Resolved:
		return "", "heard again", ""
	case a.Silent > 0:
		condition, since := s.silence(a)
		return "", condition, since
	case a.Resolved && word != "":
		return "", "normal again", "not " + word
	case a.Resolved:
		return reading, "normal again", clear + " " + limit

	// An alarm is open until it has cleared. Its alert was held back, as by a higher level, or is sent again.
	case word != "" && a.Temperature < 1: // which numbers the words from 1
		return "", "not normal yet after " + word, ""
	case word != "":
		return "", word, ""
	case beyond < 0:
		return reading, "not normal yet after reaching " + limit, ""
	}

	return reading, "at or " + side + " " + limit, ""
}

// silence says for how long a device was not heard, or sent messages without the rule's field, or that could not be read; and
// since when, as far as it is known.
func (s Style) silence(a notify.Alert) (condition, since string) {
	condition = "not heard"
	if a.Field != "" {
		condition = "without " + strings.ReplaceAll(a.Field, ",", " or ")
	}

	since = "since " + s.moment(a.Since, toMinute)
	if a.Outage != nil {
		since = "nothing from any of " + humanize.Count(a.Outage.Devices, "device") + " " + since
	}

	return condition + " for " + humanize.Plain(a.Silent), since
}

// limits writes the limit of several devices.
func limits(a notify.Alert) string {
	if a.OwnLimit {
		return "their limits"
	}
	return value(a, a.Threshold)
}

// remarks follow what is said of an alert.
func remarks(a notify.Alert) (text string) {
	if others := suppressed(a); a.PerValue != "" && others != "" {
		text += ", " + others
	}

	if _, late := taken(a); late > 0 {
		text += ", arrived " + humanize.Plain(late) + " late"
	}

	if a.Damaged {
		text += ", from a damaged message"
	}

	if a.Test {
		text += " (test)"
	}

	return text
}

// isOfMany reports whether a is about all members of an incident, or all that it had. The text about one is that of its
// device.
func isOfMany(a notify.Alert) bool {
	i := a.Incident
	return i != nil && a.Device != notify.Hub && (a.Resolved || i.Members > 1 || i.AtLeast)
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

// lasted returns when an alarm or incident began, and how long it had lasted when the reading was taken: 0 or less if that
// is not known, or it has just begun.
func lasted(a notify.Alert) (since time.Time, d time.Duration) {
	since = a.Since
	if isOfMany(a) && a.Resolved && a.Incident.Began.Before(since) {
		since = a.Incident.Began // the last member's alarm began later
	}

	if since.IsZero() {
		return since, 0
	}

	at, _ := taken(a)
	return since, at.Sub(since).Round(time.Second)
}

// Subject names the alert's alarm for people, in one line of at most 250 printable characters: it is
// the same for an alert, its reminders and its recovery.
func Subject(a notify.Alert) string {
	of := a.Of()
	return printable(sensorName(of.Device, of.Name)+": "+ruleAndLevel(a), maxMessage-1)
}

// value writes a reading with its unit.
func value(a notify.Alert, v float64) string {
	return strings.TrimSpace(number(v) + " " + printable(a.Unit, maxUnit))
}

// ruleAndLevel returns the names of both, for people.
func ruleAndLevel(a notify.Alert) string {
	return list(printable(cmp.Or(a.Title, a.Rule), maxTitle), printable(a.Level, maxName))
}

// names returns the device or sensor, behind what it shares the alert by; that alone if a is about several.
func names(a notify.Alert) string {
	of, shared := sensorName(a.Device, a.Sensor), deviceName(a.PerValue)
	switch {
	case a.PerValue == "" || a.Device == notify.Hub:
		return of
	case isOfMany(a):
		return shared
	}

	return shared + ", " + of
}

// sensorName returns a device, and its sensor if that has a name, fit for a sentence.
func sensorName(device, sensor string) string {
	if sensor == "" {
		return deviceName(device)
	}
	return deviceName(device) + " / " + printable(humanize.Middle(sensor, maxSensor), maxSensor)
}

// deviceName returns a device id fit for a sentence.
func deviceName(id string) string {
	return printable(humanize.Middle(cmp.Or(id, "a device without a name"), maxDevice), maxDevice)
}

// list joins those texts that are not empty.
func list(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), ", ")
}

// printable returns the first characters of s, at most limit, fit for one line.
func printable(s string, limit int) string {
	all := []rune(humanize.Clean(s))
	if len(all) <= limit {
		return string(all)
	}
	return string(all[:limit]) + "…"
}

// digits are those of a number that people are shown: as many as a 32-bit float holds.
const digits = 7

// number writes v as people do: without the noise that a 32-bit float has in 64 bits.
func number(v float64) string {
	// The greatest is rounded down: there is no error.
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64)
	return humanize.Number(rounded)
}
