// Package wording puts alerts into words for people: the sentence, the facts and the sections that channels lay out.
package wording

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"unicode"

	"alertworker/internal/notify"
)

// maxDevice is how much of a device id, in characters, a sentence shows: as long as IoT
// Hub lets one be.
const maxDevice = 128

const (
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
	says := ", at or above "

	switch {
	case a.Removed:
		return printable(
			deviceName(a.Device)+": the rule "+ruleAndLevel(a)+" was removed, its alarm has ended",
			maxMessage-1,
		)

	case a.Forgotten && a.Device != notify.Partition(a.Partition):
		return printable(
			deviceName(a.Device)+": is not watched any more, its alarm has ended ("+ruleAndLevel(a)+")",
			maxMessage-1,
		)

	case a.Excluded != "":
		return printable(
			deviceName(a.Device)+": the rule "+ruleAndLevel(a)+" no longer applies ("+printable(a.Excluded, maxExcluded)+
				"), its alarm has ended",
			maxMessage-1,
		)

	case a.Resolved && a.Below:
		says = ", normal again, above "

	case a.Resolved:
		says = ", normal again, below "

	case lingers(a):
		says = ", not normal yet after reaching "

	case a.Below:
		says = ", at or below "
	}

	text := names(a) + ": "

	switch word := printable(a.Word, maxField); {
	case a.Silent > 0:
		text += s.silence(a)
	case word == "":
		text += value(a, a.Temperature) + says + number(a.Threshold)
	case a.Resolved:
		text += "normal again, not " + word
	default:
		text += word
	}

	if names := ruleAndLevel(a); names != notify.DefaultRule {
		text += " (" + strings.TrimPrefix(names, notify.DefaultRule+", ") + ")"
	}

	if a.PerValue != "" && a.Suppressed > 0 && !a.Resolved {
		text += ", " + suppressed(a)
	}

	if _, late := taken(a); late > 0 {
		text += ", arrived " + notify.Duration(late) + " late"
	}

	if a.Test {
		text += " (test)"
	}

	return printable(text, maxMessage-1)
}

// lingers reports whether a is about a milder level that is still open, because its alarm has not cleared, when the
// higher one has: its value is short of the limit.
func lingers(a notify.Alert) bool {
	if a.Resolved || a.Silent > 0 || a.Word != "" {
		return false
	}
	if a.Below {
		return a.Temperature > a.Threshold
	}

	return a.Temperature < a.Threshold
}

// silence says what an alert about silence does.
func (s Style) silence(a notify.Alert) string {
	switch {
	case a.Forgotten: // a whole partition
		return "has been silent for so long that its devices are reported one by one from now on"
	case a.Resolved:
		return "is heard again"
	case !a.LastHeard.IsZero() && a.LastHeard.Before(a.Since):
		return "has not been heard for " + notify.Duration(a.Silent) + ", and not since " + s.minute(a.LastHeard) + " for certain"
	}

	return "has not been heard for " + notify.Duration(a.Silent) + ", since " + s.minute(a.Since)
}

// Subject names the alert's alarm for people, in one line of at most 250 printable characters: it is
// the same for an alert, its reminders and its recovery.
func Subject(a notify.Alert) string {
	return printable(deviceName(a.About())+": "+ruleAndLevel(a), maxMessage-1)
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

// names returns the device, behind what it shares the alert by.
func names(a notify.Alert) string {
	if a.PerValue == "" {
		return deviceName(a.Device)
	}
	return printable(a.PerValue, maxDevice) + ", " + deviceName(a.Device)
}

// deviceName returns a device id fit for a sentence.
func deviceName(id string) string {
	if id == "" {
		return "a device without a name"
	}
	return printable(id, maxDevice)
}

// printable returns the first characters of s, at most limit, fit for one line.
func printable(s string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > limit {
			return b.String() + "…"
		}

		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}

		b.WriteRune(r)
	}

	return b.String()
}

// number writes v as people do: without the noise that a 32-bit float has in 64 bits,
// and with an exponent only if there would be many zeros.
func number(v float64) string {
	const digits = 7                                                              // as many as a 32-bit float holds
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64) // the greatest is rounded down: no error
	if size := math.Abs(rounded); rounded != 0 && (size < 1e-6 || size >= 1e15) {
		return strconv.FormatFloat(rounded, 'g', -1, 64)
	}

	return strconv.FormatFloat(rounded+0, 'f', -1, 64) // +0: never "-0"
}
