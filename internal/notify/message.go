package notify

import (
	"math"
	"strconv"
	"strings"
	"unicode"
)

// maxDevice is how much of a device id, in characters, a sentence shows: as long as IoT
// Hub lets one be.
const maxDevice = 128

// maxLevel is how much of a level's name a sentence shows, in characters.
const maxLevel = 32

// Message is the alert as one sentence for people, such as
// "device-7: 91.5, at or above 80": one line of at most 250 printable characters. Numbers
// are rounded to seven digits, U+FFFD stands for what cannot be printed.
func (a Alert) Message() string {
	s := deviceName(a.Device) + ": " + number(a.Temperature)
	if a.Resolved {
		s += ", normal again, below " + number(a.Threshold)
	} else {
		s += ", at or above " + number(a.Threshold)
	}
	if a.Level != "" {
		s += " (" + printable(a.Level, maxLevel) + ")"
	}
	if a.Test {
		s += " (test)"
	}
	return s
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
