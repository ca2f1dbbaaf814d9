package telemetry

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

// Beyond these a number of seconds or of milliseconds since 1970 stands for no time that a device means.
const (
	maxSeconds = 1e11 // the year 5138
	maxMillis  = 1e14
)

// ParseTime reads a time as devices write it: by RFC 3339, in UTC if it names no zone, as some device SDKs
// write it; or as the seconds or milliseconds since 1970. It allocates nothing for a time.
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

	if len(text) > longest {
		return time.Time{}, false
	}

	var room [longest + 1]byte
	written := append(room[:0], text...)
	if c := written[10]; c == 't' || c == ' ' || c == '_' {
		written[10] = 'T'
	}

	switch last := len(written) - 1; {
	case written[last] == 'z':
		written[last] = 'Z'
	case !bytes.ContainsAny(written[shortest:], "Z+-"):
		written = append(written, 'Z')
	}

	var t time.Time
	err := t.UnmarshalText(written)

	return t, err == nil
}

// ParseNumber reads a decimal number. strconv also takes hexadecimal, underscores and words,
// which nobody means. Of one that is too large f is infinite, and ok is false.
func ParseNumber(text []byte) (f float64, ok bool) {
	if len(bytes.TrimLeft(text, "0123456789.+-eE")) > 0 {
		return 0, false
	}

	f, err := strconv.ParseFloat(string(text), 64)
	return f, err == nil
}

// UnixTime returns the time that so many seconds since 1970 are, or milliseconds if there are more than 10^11.
func UnixTime(n float64) (time.Time, bool) {
	switch size := math.Abs(n); {
	case size < maxSeconds:
		return time.UnixMicro(int64(n * 1e6)), true
	case size < maxMillis:
		return time.UnixMicro(int64(n * 1e3)), true
	}

	return time.Time{}, false // NaN, too
}
