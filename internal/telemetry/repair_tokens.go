package telemetry

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The tokens of a body that is nearly JSON, each of which begins a text that is not empty.

// slashed is the kind of quotes with a backslash before each.
const slashed = '\\'

// quoteAt returns how long the quote is with which b begins, and its kind: itself, slashed, or the first of the
// typographic ones like it; 0 if it is none.
func quoteAt(b []byte) (length int, kind rune) {
	switch c := b[0]; {
	case c == '"', c == '\'':
		return 1, rune(c)
	case c == '\\' && len(b) > 1 && b[1] == '"':
		return 2, slashed
	case c < utf8.RuneSelf:
		return 0, 0
	}

	switch c, size := utf8.DecodeRune(b); {
	case c >= '‘' && c <= '‛':
		return size, '‘'
	case c >= '“' && c <= '‟':
		return size, '“'
	}

	return 0, 0
}

// bareName returns the name without quotes with which b begins: of letters, digits, _, $, - and .; empty if it begins
// with none of the first three that are no digits.
func bareName(b []byte) []byte {
	n := 0
	for n < len(b) {
		c, size := utf8.DecodeRune(b[n:])
		isFirst := c == '_' || c == '$' || unicode.IsLetter(c)
		isOther := c == '-' || c == '.' || unicode.IsDigit(c)
		if !isFirst && (!isOther || n == 0) {
			break
		}
		n += size
	}

	return b[:n]
}

// bareValue returns what b begins with up to a bracket, a quote, or another character that ends a value.
func bareValue(b []byte) []byte {
	n := 0
	for n < len(b) && b[n] > ' ' && strings.IndexByte(",:;=/\\{}[]", b[n]) < 0 {
		if _, quote := quoteAt(b[n:]); quote != 0 {
			break
		}
		n++
	}

	return b[:n]
}

// isNumber reports whether v is a number as JSON has them.
func isNumber(v []byte) bool {
	v = bytes.TrimPrefix(v, []byte{'-'})
	whole := digits(v)
	if whole == 0 || whole > 1 && v[0] == '0' {
		return false
	}

	if v = v[whole:]; len(v) > 0 && v[0] == '.' {
		n := digits(v[1:])
		if n == 0 {
			return false
		}
		v = v[1+n:]
	}

	if len(v) > 0 && v[0]|0x20 == 'e' {
		if v = v[1:]; len(v) > 0 && (v[0] == '+' || v[0] == '-') {
			v = v[1:]
		}
		return len(v) > 0 && digits(v) == len(v)
	}

	return len(v) == 0
}

// digits returns with how many v begins.
func digits(v []byte) int { return len(v) - len(bytes.TrimLeft(v, "0123456789")) }

// escapeAt returns how long the escape of JSON is with which b begins; 0 if it is none.
func escapeAt(b []byte) int {
	switch {
	case len(b) > 1 && strings.IndexByte(`"\/bfnrt`, b[1]) >= 0:
		return 2
	case len(b) > 5 && b[1] == 'u' && len(bytes.Trim(b[2:6], "0123456789abcdefABCDEF")) == 0:
		return 6
	}

	return 0
}

// commentAt returns how long the comment is with which b begins, which may break off; 0 if it is none.
func commentAt(b []byte) int {
	end, after := -1, 0
	switch {
	case bytes.HasPrefix(b, []byte("//")):
		end = bytes.IndexAny(b, "\r\n")
	case bytes.HasPrefix(b, []byte("/*")):
		end, after = bytes.Index(b[2:], []byte("*/")), len("/**/")
	default:
		return 0
	}

	if end < 0 {
		return len(b)
	}

	return end + after
}
