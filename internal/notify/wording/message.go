// Package wording puts alerts into words for people: the sentence, the facts and the sections that channels lay out.
package wording

import (
	"cmp"
	"strconv"
	"strings"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
)

// maxDevice is how much of a device id, in characters, a sentence or a link shows: as long as IoT
// Hub lets one be. Of a longer one it is the beginning and the end.
const maxDevice = 128

const (
	maxSensor  = 64 // how much of a sensor's name people are shown, in characters
	maxName    = 32 // how much of the name of a rule or a level people are shown, in characters
	maxTitle   = 64 // likewise of a rule's title
	maxUnit    = 16
	maxMessage = 250 // of a Message, in characters
	// likewise of why a rule does not apply
	maxExcluded = 100
)

// Message is an alert as one sentence for people, such as
// "device-7: 91.5, at or above 80 (hot, critical)": one line of at most 250 printable
// characters. DefaultRule is not named. Numbers are rounded to seven digits, U+FFFD stands
// for what cannot be printed.
func (s Style) Message(a notify.Alert) string {
	if text := ended(a); text != "" && a.Incident == nil {
		return printable(sensorName(a.Device, a.Sensor)+": "+text, maxMessage-1)
	}

	text := names(a) + ": " + s.reading(a)
	if names := ruleAndLevel(a); names != notify.DefaultRule {
		text += " (" + strings.TrimPrefix(names, notify.DefaultRule+", ") + ")"
	}

	if others := suppressed(a); a.PerValue != "" && others != "" {
		text += ", " + others
	}

	if _, late := taken(a); late > 0 {
		text += ", arrived " + humanize.Plain(late) + " late"
	}

	if a.Damaged {
		text += damaged
	}

	if a.Test {
		text += " (test)"
	}

	return printable(text, maxMessage-1)
}

// damaged follows a reading that could be read although its message is not JSON.
const damaged = ", from a damaged message"

// ended says why the alarm of one device has ended without a reading; "" if it has not.
func ended(a notify.Alert) string {
	rule := ruleAndLevel(a)
	switch {
	case a.Removed:
		return "the rule " + rule + " was removed, its alarm has ended"

	case a.Forgotten && a.Device != notify.Hub:
		return "is not watched any more, its alarm has ended (" + rule + ")"

	case a.Excluded != "":
		return "the rule " + rule + " no longer applies (" + printable(a.Excluded, maxExcluded) + "), its alarm has ended"
	}

	return ""
}

// reading says what a device has sent, and what that means.
func (s Style) reading(a notify.Alert) string {
	switch word := printable(a.Word, maxField); {
	case isOfMany(a):
		return s.incident(a)
	case a.Silent > 0:
		return s.silence(a)
	case word == "":
		return value(a, a.Temperature) + ", " + meaning(a) + " " + number(a.Threshold)
	case a.Resolved:
		return "normal again, not " + word
	case lingers(a):
		return wordLingering + word
	default:
		return word
	}
}

// meaning says on which side of its limit a value is, and what that means.
func meaning(a notify.Alert) string {
	switch {
	case a.Resolved && a.Below:
		return "normal again, above"
	case a.Resolved:
		return "normal again, below"
	case lingers(a):
		return lingering
	}

	return reached(a)
}

// lingering is in front of the limit of an alarm that has not cleared.
const lingering = "not normal yet after reaching"

// wordLingering is in front of the words that an alarm may be about, if its reading is none of them.
const wordLingering = "not normal yet after "

// reached is in front of a limit that was reached.
func reached(a notify.Alert) string {
	if a.Below {
		return "at or below"
	}
	return "at or above"
}

// lingers reports whether a is about an alarm that is open because it has not cleared: its value is short of the limit.
// It was held back before, as by a higher level, or is sent again.
func lingers(a notify.Alert) bool {
	if a.Resolved || a.Silent > 0 {
		return false
	}
	if a.Word != "" { // which numbers the words from 1
		return a.Temperature < 1
	}
	if a.Below {
		return a.Temperature > a.Threshold
	}

	return a.Temperature < a.Threshold
}

// silence says what an alert about silence does.
func (s Style) silence(a notify.Alert) string {
	switch {
	case a.Device == notify.Hub:
		return s.outage(a)
	case a.Resolved:
		return "is heard again"
	}

	text := "has not been heard for "
	if a.Field != "" { // it may have sent messages without it, or that could not be read
		text = "no " + strings.ReplaceAll(a.Field, ",", " or ") + " for "
	}

	text += humanize.Plain(a.Silent)
	if isUncertain := !a.LastHeard.IsZero() && a.LastHeard.Before(a.Since); isUncertain {
		return text + ", and not since " + s.minute(a.LastHeard) + " for certain"
	}

	return text + ", since " + s.minute(a.Since)
}

// outage says what an alert about the whole hub does.
func (s Style) outage(a notify.Alert) string {
	switch {
	case a.Forgotten:
		return "has been silent for so long that it is no longer watched"
	case a.Resolved:
		return "receives messages again"
	}

	text := "nothing"
	if a.Outage != nil {
		text += " from any of " + humanize.Count(a.Outage.Devices, "device")
	}

	return text + " since " + s.minute(a.Since)
}

// Subject names the alert's alarm for people, in one line of at most 250 printable characters: it is
// the same for an alert, its reminders and its recovery.
func Subject(a notify.Alert) string {
	of := a.Of()
	return printable(sensorName(of.Device, of.Name)+": "+ruleAndLevel(a), maxMessage-1)
}

// value writes a reading with its unit.
func value(a notify.Alert, v float64) string {
	if a.Unit == "" {
		return number(v)
	}
	return number(v) + " " + printable(a.Unit, maxUnit)
}

// ruleAndLevel returns the names of both, for people.
func ruleAndLevel(a notify.Alert) string {
	s := printable(cmp.Or(a.Title, a.Rule), maxTitle)
	if a.Level != "" {
		s += ", " + printable(a.Level, maxName)
	}

	return s
}

// names returns the device or sensor, behind what it shares the alert by; that alone if a is about several.
func names(a notify.Alert) string {
	of := sensorName(a.Device, a.Sensor)
	if a.PerValue == "" || a.Device == notify.Hub {
		return of
	}

	shared := deviceName(a.PerValue)
	if isOfMany(a) {
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
	if id == "" {
		return "a device without a name"
	}
	return printable(humanize.Middle(id, maxDevice), maxDevice)
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
