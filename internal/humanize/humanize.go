// Package humanize writes numbers, durations and lists for people, and makes text from outside fit to be printed.
package humanize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Count returns a number of things: "1 event", "2 events".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// And returns words as a list: "a, b and c".
func And(words []string) string { return list(words, " and ") }

// Some is And of the first few of many: "a, b and 7 more".
func Some(words []string) string {
	const most = 8
	if n := len(words) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), n)
	}
	return And(words)
}

// Or returns words as a list: "a, b or c".
func Or(words []string) string { return list(words, " or ") }

func list(words []string, last string) string {
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + last + words[n]
	}
	return strings.Join(words, "")
}

// Capital returns s with a capital letter first.
func Capital(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToUpper(r)) + s[n:]
}

// Plain formats a number or a duration the way people write it in settings: 5m, not 5m0s.
func Plain[T int | time.Duration](value T) string {
	text := fmt.Sprint(value)
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}

	return text
}

// Span formats a duration in at most two units: "40 ms", "3 min", "2 h", "5 h 12 min".
func Span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(0, d.Milliseconds()))
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int((d+time.Second/2)/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d/time.Minute))
	case d < 48*time.Hour:
		return strings.TrimSuffix(fmt.Sprintf("%d h %d min", int(d/time.Hour), int(d%time.Hour/time.Minute)), " 0 min")
	}

	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}

// ClockOff says how far this machine's clock is from one that is ahead of it by so much: "this machine's clock is 20 min
// behind". It is empty if that is less than a minute, which may be the way of an answer.
func ClockOff(ahead time.Duration) string {
	apart := ahead.Abs().Round(time.Second)
	if apart >= 2*time.Minute {
		apart = apart.Round(time.Minute)
	}

	if apart < time.Minute {
		return ""
	}

	side := map[bool]string{false: "ahead", true: "behind"}[ahead > 0]
	return fmt.Sprintf("this machine's clock is %s %s", Span(apart), side)
}

// Clean replaces whatever a terminal would act upon rather than print: control characters, escape sequences, text that
// changes direction.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// OneLine returns s clean and in one line, with single spaces.
func OneLine(s string) string {
	return Clean(strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " "))
}

// Cut returns s, or its beginning and "…" if it has more than limit bytes. It is empty if there is no room for that.
func Cut(s string, limit int) string {
	const dots = "…"
	room := limit - len(dots)
	switch {
	case len(s) <= limit:
		return s
	case room <= 0:
		return ""
	}

	return strings.ToValidUTF8(s[:room], "") + dots
}

// Middle returns s, or its beginning, "…" and its end if it has more than limit characters: limit is 3 at
// least: names of devices differ at either.
func Middle(s string, limit int) string {
	if len(s) <= limit || utf8.RuneCountInString(s) <= limit {
		return s
	}

	runes, last := []rune(s), limit/4

	return string(runes[:limit-1-last]) + "…" + string(runes[len(runes)-last:])
}

// Number writes v in full, and with an exponent only if there would be many zeros: 0.5, 80, 1e+300.
func Number(v float64) string {
	format := byte('f')
	if size := math.Abs(v); v != 0 && (size < 1e-6 || size >= 1e15) {
		format = 'g'
	}

	return strconv.FormatFloat(v+0, format, -1, 64) // +0: never "-0"
}
