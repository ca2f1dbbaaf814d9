package telemetry

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParseTime reads a time as devices write it: by RFC 3339, with a space or underscore for the T, in UTC if it names no
// zone, as some device SDKs write it, and with a zone such as -0700, as strftime does, or after a space, as Ruby does; or as
// UnixTime. It allocates nothing for a time.
func ParseTime(text []byte) (time.Time, bool) {
	text = bytes.TrimSpace(text)
	const shortest, longest = len("2006-01-02T15:04:05"), len("2006-01-02T15:04:05.123456789+01:00")
	if len(text) < shortest || text[4] != '-' {
		f, isNumber := ParseNumber(text)
		t, isTime := UnixTime(f)
		return t, isNumber && isTime
	}

	if len(text) > longest+len(" ") {
		return time.Time{}, false
	}

	var room [longest + len(" :")]byte
	written := append(room[:0], text...)
	if c := written[10]; c == 't' || c == ' ' || c == '_' {
		written[10] = 'T'
	}

	zone := shortest + bytes.LastIndexAny(written[shortest:], "Zz+-")
	switch {
	case zone < shortest:
		written = append(written, 'Z')
	case written[zone] == 'z':
		written[zone] = 'Z'
	case len(written)-zone == len("-0700"):
		written = slices.Insert(written, len(written)-2, ':')
	}

	if zone > shortest && written[zone-1] == ' ' {
		written = slices.Delete(written, zone-1, zone)
	}

	var t time.Time
	err := t.UnmarshalText(written)

	return t, err == nil
}

// ParseNumber reads a decimal number. strconv also takes hexadecimal, underscores and words, which nobody means. A comma
// stands for the decimal point, as in 91,5, unless three digits follow it: 1,234 may be two numbers, and is none. Of one that is too large f is infinite, and ok is false.
func ParseNumber(text []byte) (f float64, ok bool) {
	if f, end := parsePlain(text, 0); end == len(text) {
		return f, true
	}

	if bytes.ContainsFunc(text, func(c rune) bool { return !strings.ContainsRune("0123456789.,+-eE", c) }) {
		return 0, false
	}

	if whole, places, hasComma := bytes.Cut(text, []byte{','}); hasComma {
		isDigits := len(whole) > 0 && isDigit(whole[len(whole)-1]) && !bytes.ContainsAny(text, ".eE")
		if !isDigits || len(places) == 0 || len(places) == len("000") {
			return 0, false
		}

		f, err := strconv.ParseFloat(string(whole)+"."+string(places), 64)
		return f, err == nil
	}

	f, err := strconv.ParseFloat(string(text), 64)
	return f, err == nil
}

// parsePlain returns the number that begins at i and where it ends, if JSON allows it and it is like nearly all: with no
// more than 15 digits and no exponent. Else the end is -1. A float64 holds both as they are, the digits and the power of
// ten that they are divided by, so that the quotient is as exact as it can be.
func parsePlain(b []byte, i int) (f float64, end int) {
	const most = 15 // digits
	isNegative := at(b, i) == '-'
	if isNegative {
		i++
	}

	n, begin := int64(0), i
	for uint(i) < uint(len(b)) && isDigit(b[i]) {
		n = 10*n + int64(b[i]-'0')
		i++
	}

	whole, places := i-begin, 0
	if at(b, i) == '.' {
		for i++; uint(i) < uint(len(b)) && isDigit(b[i]); i++ {
			n = 10*n + int64(b[i]-'0')
			places++
		}
		if places == 0 {
			return 0, -1
		}
	}

	if whole == 0 || whole > 1 && b[begin] == '0' || whole+places > most || at(b, i)|0x20 == 'e' {
		return 0, -1
	}

	f = float64(n)
	if places > 0 {
		f /= powers[places]
	}
	if isNegative {
		f = -f
	}

	return f, i
}

// powers are those of ten.
var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14}

// UnixTime returns the time that so many seconds since 1970 are; milliseconds if there are 10^11 or more, microseconds
// if there are 10^14 or more, and nanoseconds if there are 10^17 or more.
func UnixTime(n float64) (time.Time, bool) {
	const beyond = 1e17 // in the year 5138, which no device means
	us := n * 1e6
	for range 3 {
		if math.Abs(us) >= beyond {
			us /= 1e3
		}
	}

	return time.UnixMicro(int64(math.Round(us))), math.Abs(us) < beyond // false for NaN, too
}
