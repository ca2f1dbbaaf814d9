package telemetry

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"
)

// Beyond these a number of seconds, milliseconds and so on since 1970 stands for no time that a device means.
const (
	maxSeconds = 1e11 // the year 5138
	maxMillis  = 1e14
	maxMicros  = 1e17
	maxNanos   = 1e20
)

// ParseTime reads a time as devices write it: by RFC 3339, in UTC if it names no zone, as some device SDKs
// write it, and with a zone such as -0700, as strftime does; or as UnixTime. It allocates nothing for a time.
func ParseTime(text []byte) (time.Time, bool) {
	text = bytes.TrimSpace(text)
	const shortest, longest = len("2006-01-02T15:04:05"), len("2006-01-02T15:04:05.123456789+01:00")
	if len(text) < shortest || text[4] != '-' {
		f, ok := ParseNumber(text)
		if !ok {
			return time.Time{}, false
		}
		return UnixTime(f)
	}

	if len(text) > longest+len(" ") {
		return time.Time{}, false
	}

	var room [longest + len(" Z")]byte
	written := append(room[:0], text...)
	if c := written[10]; c == 't' || c == ' ' || c == '_' {
		written[10] = 'T'
	}

	zone := bytes.LastIndexAny(written[shortest:], "Zz+-")
	switch at := shortest + zone; {
	case zone < 0:
		written = append(written, 'Z')
	case written[at] == 'z':
		written[at] = 'Z'
	case len(written)-at == len("-0700"):
		written = append(written[:at+len("-07")], ':', written[at+3], written[at+4])
	}

	if at := shortest + zone - 1; zone > 0 && written[at] == ' ' {
		written = append(written[:at], written[at+1:]...)
	}

	var t time.Time
	err := t.UnmarshalText(written)

	return t, err == nil
}

// ParseNumber reads a decimal number. strconv also takes hexadecimal, underscores and words,
// which nobody means. A comma stands for the decimal point, as in 91,5, unless three digits follow it: 1,234 may be two
// numbers, and is none. Of one that is too large f is infinite, and ok is false.
func ParseNumber(text []byte) (f float64, ok bool) {
	if f, end := parsePlain(text, 0); end == len(text) {
		return f, true
	}

	for _, c := range text {
		if !isDigit(c) && strings.IndexByte(".+-eE", c) < 0 {
			return parseComma(text)
		}
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

// parseComma is ParseNumber for a number with a decimal comma.
func parseComma(text []byte) (f float64, ok bool) {
	const digits = "0123456789"
	before, after, has := bytes.Cut(text, []byte{','})
	if !has {
		return 0, false
	}

	whole := bytes.TrimLeft(before, "+-")
	areDigits := len(bytes.Trim(whole, digits)) == 0 && len(bytes.Trim(after, digits)) == 0
	if !areDigits || len(whole) == 0 || len(after) == 0 || len(after) == len("000") || len(before) > len(whole)+1 {
		return 0, false
	}

	f, err := strconv.ParseFloat(string(before)+"."+string(after), 64)
	return f, err == nil
}

// UnixTime returns the time that so many seconds since 1970 are; milliseconds if there are more than 10^11,
// microseconds if there are more than 10^14, and nanoseconds if there are more than 10^17.
func UnixTime(n float64) (time.Time, bool) {
	switch size := math.Abs(n); {
	case size < maxSeconds:
		return time.UnixMicro(int64(n * 1e6)), true
	case size < maxMillis:
		return time.UnixMicro(int64(n * 1e3)), true
	case size < maxMicros:
		return time.UnixMicro(int64(n)), true
	case size < maxNanos:
		return time.UnixMicro(int64(n / 1e3)), true
	}

	return time.Time{}, false // NaN, too
}
