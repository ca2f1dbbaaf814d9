package telemetry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
)

// A jsonReader reads a sequence of JSON values where they stand, in one pass and without an allocation. It takes what RFC
// 8259 allows, names twice and invalid UTF-8, and nothing else, no deeper than maxDepth: package jsontext, which checks the same, is the judge of
// that in its tests, and takes four times as long. Decoding is most of what an event costs. An error is final.
type jsonReader struct {
	text   []byte
	at     int
	next   expected
	after  expected           // what comes after the next value of the innermost bracket
	depth  int                // how many brackets are open
	afters [maxDepth]expected // what after is once each of them is closed
}

// expected is what comes next.
type expected uint8

const (
	aValue       expected = iota // outside of all brackets, or of an array after a comma
	aFirstValue                  // of an array, or its end
	aMemberValue                 // after a colon
	aComma                       // or the end of the array
	aColon
	aMemberComma // or the end of the object; from here on, a member follows if anything does
	aFirstName   // of an object, or its end
	aName        // after a comma
)

var errNotJSON = errors.New("not JSON")

func (r *jsonReader) reset(text []byte) {
	r.text, r.at, r.next, r.after, r.depth = text, 0, aValue, aValue, 0
}

// peek returns the first byte of the next token, after the comma or colon in front of it; 0 if there is none.
func (r *jsonReader) peek() byte {
	for _, c := range r.text[r.at:] {
		if isToken[c] || !r.pass(c) {
			return c
		}
	}
	return 0
}

// ends reports whether nothing comes next.
func (r *jsonReader) ends() bool { return r.peek() == 0 && r.at == len(r.text) }

// isToken has what begins a token, or nothing.
var isToken = func() (is [256]bool) {
	for c := range is {
		is[c] = c != ',' && c != ':' && !isSpace(byte(c))
	}
	return is
}()

// pass passes over c, which is next and no token, if it is space, or the comma or colon that must be there.
func (r *jsonReader) pass(c byte) bool {
	switch {
	case c == ',' && r.next == aComma:
		r.next = aValue
	case c == ',' && r.next == aMemberComma:
		r.next = aName
	case c == ':' && r.next == aColon:
		r.next = aMemberValue
	case !isSpace(c):
		return false
	}

	r.at++

	return true
}

// closing are the brackets that may come next.
var closing = [...]byte{aFirstValue: ']', aComma: ']', aFirstName: '}', aMemberComma: '}', aName: 0}

// bracket takes a bracket that opens or closes, which peek has returned.
func (r *jsonReader) bracket() error {
	switch c := at(r.text, r.at); {
	case (c == '{' || c == '[') && r.next <= aMemberValue && r.depth < maxDepth:
		r.afters[r.depth] = r.after
		r.depth++
		r.next, r.after = aFirstValue, aComma
		if c == '{' {
			r.next, r.after = aFirstName, aMemberComma
		}

	case c == closing[r.next] && c != 0:
		r.depth--
		r.after = r.afters[r.depth]
		r.next = r.after

	default:
		return errNotJSON
	}

	r.at++

	return nil
}

// value returns the next value, or name, as it stands.
func (r *jsonReader) value() ([]byte, error) { return r.peeked(r.peek()) }

// peeked is value after peek has returned c.
func (r *jsonReader) peeked(c byte) ([]byte, error) {
	for start, depth := r.at, r.depth; ; c = r.peek() {
		switch c {
		case '{', '[', '}', ']':
			if r.bracket() != nil || r.depth < depth {
				return nil, errNotJSON
			}

		default:
			end, next := -1, r.after
			if r.next <= aMemberValue {
				end = scalarEnd(r.text, r.at)
			} else if next = aColon; r.next > aMemberComma && c == '"' {
				end = textEnd(r.text, r.at)
			}
			if end < 0 {
				return nil, errNotJSON
			}

			r.at, r.next = end, next
		}

		if r.depth == depth {
			return r.text[start:r.at], nil
		}
		r.passPlain(0)
	}
}

// plainNumber takes the next value if it begins at once and parsePlain reads it. It returns it as it stands, too.
func (r *jsonReader) plainNumber() (v []byte, f float64, ok bool) {
	f, end := parsePlain(r.text, r.at)
	if end < 0 || r.next > aMemberValue {
		return nil, 0, false
	}

	v = r.text[r.at:end]
	r.at, r.next = end, r.after

	return v, f, true
}

// seek passes over members of the object, and before them over a value if that is next, up to one whose name may be wanted.
// It takes that name and returns it as it stands, nil if there is none; if it is plain, nothing in it is escaped.
func (r *jsonReader) seek(wanted beginnings) (name []byte, isPlain bool, err error) {
	for {
		if name = r.passPlain(wanted); name != nil {
			return name, true, nil
		}

		c := r.peek()
		isName := c == '"' && r.next > aMemberComma
		if !isName && r.next != aMemberValue {
			return nil, false, nil
		}

		v, err := r.peeked(c)
		if err != nil || isName && (bytes.IndexByte(v, '\\') > 0 || wanted.has(v[1], at(v, 2))) {
			return v, false, err
		}
	}
}

// passPlain is seek as long as members are like nearly all: names and short texts without escapes, other scalars, and no
// space. At what is not, or is broken, it stays.
//
// Most of the time that a body takes goes here, and it is short loops that are fast. They look at one byte after the other, because
// texts and numbers are short and messages look alike: a processor knows by then where each of them ends.
func (r *jsonReader) passPlain(wanted beginnings) (name []byte) {
	b, end, isValue := r.text, r.at, r.next == aMemberValue
	if r.next == aMemberComma {
		if at(b, end) != ',' {
			return nil
		}
		end++
	}
	if !isValue && (r.next < aMemberComma || at(b, end) != '"') {
		return nil
	}

	for ; ; isValue = false {
		if !isValue {
			begin := end + 1
			end = plainEnd(b, begin)
			if end+5 >= len(b) || b[end] != '"' || b[end+1] != ':' {
				return nil
			}
			end += 2
			if wanted.has(b[begin], b[begin+1]) {
				r.at, r.next = end, aMemberValue
				return b[begin-1 : end-1]
			}
		}

		switch c := at(b, end); {
		case c == '"':
			end = plainEnd(b[:min(end+33, len(b))], end+1)
			if at(b, end) != '"' {
				return nil
			}
			end++

		case c == '-' || isDigit(c):
			if end = numberEnd(b, end); end < 0 {
				return nil
			}

		default:
			if end = scalarEnd(b, end); end < 0 {
				return nil
			}
		}

		r.at, r.next = end, aMemberComma
		if end+2 >= len(b) || b[end] != ',' || b[end+1] != '"' {
			return nil
		}
		end++
	}
}

// plainEnd returns where the text at i ends that stands for itself. It takes three bytes a turn: a shorter loop is slower by a
// fifth wherever it happens to cross a line of the processor's cache.
func plainEnd(b []byte, i int) int {
	plain := isPlain
	for {
		if uint(i) >= uint(len(b)) || !plain[b[i]] {
			return i
		}
		i++
		if uint(i) >= uint(len(b)) || !plain[b[i]] {
			return i
		}
		i++
		if uint(i) >= uint(len(b)) || !plain[b[i]] {
			return i
		}
		i++
	}
}

// In a word of eight bytes of a text, ones has a one in each of them and tops the top bit.
const ones, tops = 0x0101010101010101, 0x8080808080808080

// at returns b[i], 0 behind the end.
func at(b []byte, i int) byte {
	if uint(i) < uint(len(b)) { // the compiler needs no other check then
		return b[i]
	}
	return 0
}

// scalarEnd returns where the value at i ends, which is neither an object nor an array; -1 if it is none.
func scalarEnd(b []byte, i int) int {
	c := at(b, i)
	if c == '"' {
		return textEnd(b, i)
	}

	if literal := literals[c]; literal != nil && bytes.HasPrefix(b[i:], literal) {
		return i + len(literal)
	}

	return numberEnd(b, i)
}

// literals are those that begin with a byte.
var literals = [256][]byte{'t': []byte("true"), 'f': []byte("false"), 'n': []byte("null")}

// isPlain has what may be in text as it stands. It is a pointer so that the compiler keeps it in a register.
var isPlain = func() *[256]bool {
	var is [256]bool
	for c := range is {
		is[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return &is
}()

// textEnd returns where the text in quotes that begins at i ends, -1 if it does not. It looks at eight bytes at once.
func textEnd(b []byte, i int) int {
	for i++; ; {
		for ; i+8 <= len(b); i += 8 {
			x := binary.LittleEndian.Uint64(b[i:])
			quote, backslash := x^'"'*ones, x^'\\'*ones
			if ((x-' '*ones)|(quote-ones)|(backslash-ones))&^x&tops != 0 { // one of them is not plain
				break
			}
		}

		switch i = plainEnd(b, i); at(b, i) {
		case '"':
			return i + 1
		case '\\':
			if i = escapeEnd(b, i); i < 0 {
				return -1
			}
		default:
			return -1
		}
	}
}

// escapeEnd returns where the escape at i ends, -1 if it is none.
func escapeEnd(b []byte, i int) int {
	switch at(b, i+1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for j := range 4 {
			if strings.IndexByte("0123456789abcdefABCDEF", at(b, i+2+j)) < 0 {
				return -1
			}
		}
		return i + 6
	}

	return -1
}

// numberEnd returns where the number at i ends, -1 if there is none.
func numberEnd(b []byte, i int) int {
	if at(b, i) == '-' {
		i++
	}

	begin := i
	i = afterDigits(b, i)
	if i == begin {
		return -1
	}
	if b[begin] == '0' {
		i = begin + 1 // what follows is no part of it
	}

	if at(b, i) == '.' {
		begin = i + 1
		if i = afterDigits(b, begin); i == begin {
			return -1
		}
	}

	if at(b, i)|0x20 == 'e' {
		i++
		if c := at(b, i); c == '+' || c == '-' {
			i++
		}
		begin = i
		if i = afterDigits(b, begin); i == begin {
			return -1
		}
	}

	return i
}

func afterDigits(b []byte, i int) int {
	for uint(i) < uint(len(b)) && isDigit(b[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
