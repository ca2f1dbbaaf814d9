package telemetry

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxLayers bounds how often a body is unpacked. Base64 of gzip of UTF-16 with a
// bare NaN takes four.
const maxLayers = 5

// unpack calls try with body and, as long as try finds that broken, with what is
// packed in it. It returns why what is broken cannot be unpacked, ReasonOK if it has not come to that.
func (s *scanner) unpack(body []byte, try func([]byte) (broken bool)) Reason {
	for layer := 0; try(body) && layer < maxLayers; layer++ {
		inner, r := s.inner(body)
		if r != ReasonOK {
			return r
		}
		body = inner
	}
	return ReasonOK
}

// inner returns what is packed in body, which is not JSON as it stands. What it
// returns may alias body.
func (s *scanner) inner(body []byte) ([]byte, Reason) {
	if isGzip(body) {
		return s.gunzip(body)
	}
	if c, ok := charsetOf(body); ok {
		return c.utf8(body), ReasonOK
	}
	body = trim(body)
	if len(body) > 0 && body[0] == '"' {
		text, err := jsontext.AppendUnquote(nil, body)
		if err != nil {
			return nil, ReasonMalformed
		}
		return text, ReasonOK
	}
	if text, ok := fromBase64(body); ok {
		return text, ReasonOK
	}
	if text, ok := quoteNonFinite(body); ok {
		return text, ReasonOK
	}
	if isBinary(body) {
		return nil, ReasonUnsupportedEncoding
	}
	return nil, ReasonMalformed
}

// trim cuts off what devices put around their JSON: a byte order mark, white
// space, and the zero that ends a string in C.
func trim(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	start, end := 0, len(text)
	for start < end && isSpace(text[start]) {
		start++
	}
	for start < end && (isSpace(text[end-1]) || text[end-1] == 0) {
		end--
	}
	return text[start:end]
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isGzip(body []byte) bool { return bytes.HasPrefix(body, []byte{0x1f, 0x8b}) }

// gunzip stops one byte after MaxBody, whatever the body would unpack to.
func (s *scanner) gunzip(body []byte) ([]byte, Reason) {
	if err := s.gzip.Reset(bytes.NewReader(body)); err != nil {
		return nil, ReasonMalformed
	}
	text, err := io.ReadAll(io.LimitReader(&s.gzip, MaxBody+1))
	switch {
	case len(text) > MaxBody:
		return nil, ReasonTooLarge
	case err != nil:
		return nil, ReasonMalformed
	}
	return text, ReasonOK
}

// A charset is UTF-16 or UTF-32.
type charset struct {
	unit  int // bytes
	order binary.ByteOrder
	mark  int // length of the byte order mark, if there is one
}

// charsetOf knows a charset by its byte order mark, or by the zeros around
// the first character: JSON begins with an ASCII one.
func charsetOf(b []byte) (charset, bool) {
	le, be := binary.LittleEndian, binary.BigEndian
	var head [4]byte
	n := copy(head[:], b)
	switch {
	case n < 2:
	case n == 4 && head == [4]byte{0xff, 0xfe, 0, 0}:
		return charset{4, le, 4}, true
	case n == 4 && head == [4]byte{0, 0, 0xfe, 0xff}:
		return charset{4, be, 4}, true
	case head[0] == 0xff && head[1] == 0xfe:
		return charset{2, le, 2}, true
	case head[0] == 0xfe && head[1] == 0xff:
		return charset{2, be, 2}, true
	case n == 4 && head[0] != 0 && head[1] == 0 && head[2] == 0 && head[3] == 0:
		return charset{4, le, 0}, true
	case n == 4 && head[0] == 0 && head[1] == 0 && head[2] == 0 && head[3] != 0:
		return charset{4, be, 0}, true
	case head[0] != 0 && head[1] == 0:
		return charset{2, le, 0}, true
	case head[0] == 0 && head[1] != 0:
		return charset{2, be, 0}, true
	}
	return charset{}, false
}

// utf8 translates b. What is no character becomes the replacement character; half a unit
// at the end is dropped.
func (c charset) utf8(b []byte) []byte {
	b = b[c.mark:]
	text := make([]byte, 0, len(b)/c.unit)
	if c.unit == 4 {
		for ; len(b) >= 4; b = b[4:] {
			text = utf8.AppendRune(text, rune(c.order.Uint32(b)))
		}
		return text
	}
	for ; len(b) >= 2; b = b[2:] {
		r := rune(c.order.Uint16(b))
		if utf16.IsSurrogate(r) {
			var low rune
			if len(b) >= 4 {
				low = rune(c.order.Uint16(b[2:]))
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				b = b[2:]
			}
		}
		text = utf8.AppendRune(text, r)
	}
	return text
}

// fromBase64 decodes base64 of either alphabet, padded or not, if what comes
// out begins like something that can be read.
func fromBase64(body []byte) ([]byte, bool) {
	std := bytes.Map(func(r rune) rune {
		switch r {
		case '-':
			return '+'
		case '_':
			return '/'
		}
		return r
	}, bytes.TrimRight(body, "="))
	text, err := base64.RawStdEncoding.AppendDecode(nil, std)
	if err != nil || len(text) == 0 {
		return nil, false
	}
	if _, ok := charsetOf(text); ok || isGzip(text) {
		return text, true
	}
	start := trim(text)
	return text, len(start) > 0 && (start[0] == '{' || start[0] == '[' || start[0] == '"')
}

// quoteNonFinite puts quotes around every bare NaN and Infinity, and reports
// whether there was any.
func quoteNonFinite(body []byte) ([]byte, bool) {
	var text []byte
	done := 0 // what of body is in text
	for i := 0; i < len(body); {
		switch start := i; {
		case body[i] == '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			i++
		case isWord(body[i]):
			for i < len(body) && isWord(body[i]) {
				i++
			}
			if notFinite(body[start:i]) {
				text = append(text, body[done:start]...)
				text = append(text, '"')
				text = append(text, body[start:i]...)
				text = append(text, '"')
				done = i
			}
		default:
			i++
		}
	}
	return append(text, body[done:]...), done > 0
}

func isWord(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'
}

// notFinite reports whether word is how some language writes a number that is none.
func notFinite(word []byte) bool {
	if len(word) > 0 && (word[0] == '+' || word[0] == '-') {
		word = word[1:]
	}
	return len(word) <= len("infinity") &&
		slices.Contains([]string{"nan", "inf", "infinity"}, strings.ToLower(string(word)))
}

// isBinary reports whether body cannot be text in UTF-8, UTF-16 or UTF-32: CBOR,
// MessagePack and Protocol Buffers rarely look like it.
func isBinary(body []byte) bool {
	return len(body) > 0 && body[0] >= utf8.RuneSelf ||
		bytes.ContainsFunc(body, func(r rune) bool { return r < ' ' && !isSpace(byte(r)) })
}

// understood reports whether a content encoding is one that is unpacked.
func understood(encoding string) bool {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "utf-8", "utf8", "us-ascii", "ascii", "identity",
		"utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be",
		"gzip", "x-gzip", "base64":
		return true
	}
	return false
}
