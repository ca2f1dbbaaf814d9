package telemetry

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
)

// A jsonReader reads a sequence of JSON values where they stand, in one pass and without an allocation. It takes what RFC
// 8259 allows, names twice and invalid UTF-8, and nothing else: package jsontext, which checks the same, is the judge of
// that in its tests, and takes twice as long. Decoding is most of what an event costs. An error is final.
type jsonReader struct {
	text  []byte
	at    int
	next  expected
	depth int                    // how many brackets are open
	kinds [maxSkip/64 + 1]uint64 // a bit for each of them, set if it is a brace
}

// expected is what comes next.
type expected uint8

const (
	aValue       expected = iota // outside of all brackets, or of an array after a comma
	aFirstValue                  // of an array, or its end
	aFirstName                   // of an object, or its end
	aName                        // after a comma
	aMemberValue                 // after a colon
	aComma                       // or the end of the array
	aMemberComma                 // or the end of the object
	aColon
)

var errNotJSON = errors.New("not JSON")

func (r *jsonReader) reset(text []byte) {
	r.text, r.at, r.next, r.depth = text, 0, aValue, 0
}

// peek returns the first byte of the next token, after the comma or colon in front of it; 0 if there is none.
func (r *jsonReader) peek() byte {
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; {
		case c > ':', c == '"': // nearly always
			return c
		case isSpace(c):
		case c == ',' && r.next == aComma:
			r.next = aValue
		case c == ',' && r.next == aMemberComma:
			r.next = aName
		case c == ':' && r.next == aColon:
			r.next = aMemberValue
		default:
			return c
		}
	}

	return 0
}

// bracket takes a bracket that opens or closes.
func (r *jsonReader) bracket() error {
	c := r.peek()
	switch {
	case (c == '{' || c == '[') && r.next <= aFirstValue, (c == '{' || c == '[') && r.next == aMemberValue:
		if r.depth == maxSkip {
			return errNotJSON
		}
		r.open(c)
		r.next = aFirstValue
		if c == '{' {
			r.next = aFirstName
		}

	case c == ']' && (r.next == aFirstValue || r.next == aComma), c == '}' && (r.next == aFirstName || r.next == aMemberComma):
		r.depth--
		r.ended()

	default:
		return errNotJSON
	}

	r.at++

	return nil
}

// open notes a bracket.
func (r *jsonReader) open(c byte) {
	bit := uint64(1) << (r.depth % 64)
	r.kinds[r.depth/64] &^= bit
	if c == '{' {
		r.kinds[r.depth/64] |= bit
	}
	r.depth++
}

// inObject reports whether the innermost bracket that is open, if one is, is a brace.
func (r *jsonReader) inObject() bool {
	last := r.depth - 1
	return r.kinds[last/64]&(1<<(last%64)) != 0
}

// ended sets what comes after a value.
func (r *jsonReader) ended() {
	switch {
	case r.depth == 0:
		r.next = aValue
	case r.inObject():
		r.next = aMemberComma
	default:
		r.next = aComma
	}
}

// value returns the next value, or name, as it stands. The error is io.EOF after the last value.
func (r *jsonReader) value() ([]byte, error) {
	c := r.peek()
	start, end := r.at, -1
	switch r.next {
	case aValue, aFirstValue, aMemberValue:
		if c == 0 && r.depth == 0 && r.at == len(r.text) {
			return nil, io.EOF
		}
		end = r.valueEnd(r.at)
		r.ended()
	case aFirstName, aName:
		if c == '"' {
			end = textEnd(r.text, r.at)
			r.next = aColon
		}
	}
	if end < 0 {
		return nil, errNotJSON
	}

	r.at = end

	return r.text[start:end], nil
}

// skip passes over the next value.
func (r *jsonReader) skip() error {
	_, err := r.value()
	return err
}

// valueEnd returns where the value at i ends; -1 if it is none.
func (r *jsonReader) valueEnd(i int) int {
	b, depth := r.text, r.depth
	if c := at(b, i); c != '{' && c != '[' {
		return scalarEnd(b, i)
	}

	for { // i is where a value begins
		c := at(b, i)
		if c == '{' || c == '[' {
			if r.depth == maxSkip {
				return -1
			}
			r.open(c)
			i = afterSpace(b, i+1)
			switch next := at(b, i); {
			case next == c+2: // its end
			case c == '[':
				continue
			default:
				if i = memberValue(b, i); i < 0 {
					return -1
				}
				continue
			}
		} else if i = scalarEnd(b, i); i < 0 {
			return -1
		} else {
			i = afterSpace(b, i)
		}

		for c = at(b, i); c != ','; c = at(b, i) {
			inObject := r.inObject()
			if c != '}' && c != ']' || inObject != (c == '}') {
				return -1
			}
			i++
			if r.depth--; r.depth == depth {
				return i
			}
			i = afterSpace(b, i)
		}

		i = afterSpace(b, i+1)
		if r.inObject() {
			if i = memberValue(b, i); i < 0 {
				return -1
			}
		}
	}
}

// A byteSet has a bit for each byte.
type byteSet [4]uint64

func (s *byteSet) add(c byte)      { s[c/64] |= 1 << (c % 64) }
func (s *byteSet) has(c byte) bool { return s[c/64]&(1<<(c%64)) != 0 }

// seek passes over members of the object until one whose name begins with one of some bytes, and returns what peek does
// then. It also stops before what is broken.
func (r *jsonReader) seek(wanted *byteSet) byte {
	for {
		c := r.peek()
		if c != '"' || r.next != aName && r.next != aFirstName || wanted.has(at(r.text, r.at+1)) {
			return c
		}

		i := memberValue(r.text, r.at)
		if i < 0 {
			return c
		}

		if i = r.valueEnd(i); i < 0 {
			return c
		}

		r.at, r.next = i, aMemberComma
	}
}

// memberValue returns where the value of a member begins, whose name does at i; -1 if there is none.
func memberValue(b []byte, i int) int {
	if at(b, i) != '"' {
		return -1
	}
	if i = textEnd(b, i); i < 0 {
		return -1
	}
	if i = afterSpace(b, i); at(b, i) != ':' {
		return -1
	}

	return afterSpace(b, i+1)
}

// at returns b[i], 0 behind the end.
func at(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func afterSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// scalarEnd returns where the value at i ends, which is neither an object nor an array; -1 if it is none.
func scalarEnd(b []byte, i int) int {
	switch at(b, i) {
	case '"':
		return textEnd(b, i)
	case 't':
		return literalEnd(b, i, "true")
	case 'f':
		return literalEnd(b, i, "false")
	case 'n':
		return literalEnd(b, i, "null")
	}

	return numberEnd(b, i)
}

func literalEnd(b []byte, i int, literal string) int {
	end := i + len(literal)
	if end > len(b) || string(b[i:end]) != literal {
		return -1
	}
	return end
}

// textEnd returns where the text in quotes that begins at i ends, -1 if it does not. It looks at eight bytes at once.
func textEnd(b []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for i++; ; {
		for i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			// the top bit of each byte that is below a space, a quote or a backslash; exact for the first such byte
			quote, backslash := x^'"'*ones, x^'\\'*ones
			found := ((x - ' '*ones) | (quote - ones) | (backslash - ones)) &^ x & tops
			if found != 0 {
				i += bits.TrailingZeros64(found) / 8
				break
			}
			i += 8
		}

		switch c := at(b, i); {
		case i >= len(b), c < ' ':
			return -1
		case c == '"':
			return i + 1
		case c == '\\':
			if i = escapeEnd(b, i); i < 0 {
				return -1
			}
		default:
			i++
		}
	}
}

// escapeEnd returns where the escape at i ends, -1 if it is none.
func escapeEnd(b []byte, i int) int {
	switch at(b, i+1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for j := i + 2; j < i+6; j++ {
			if c := at(b, j); !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
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

	start := i
	i = afterDigits(b, i)
	if i == start || b[start] == '0' && i > start+1 {
		if i == start {
			return -1
		}
		return start + 1 // a zero ends it, and what follows is an error
	}

	if at(b, i) == '.' {
		start = i + 1
		if i = afterDigits(b, start); i == start {
			return -1
		}
	}

	if at(b, i)|0x20 == 'e' {
		i++
		if c := at(b, i); c == '+' || c == '-' {
			i++
		}
		start = i
		if i = afterDigits(b, start); i == start {
			return -1
		}
	}

	return i
}

func afterDigits(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
