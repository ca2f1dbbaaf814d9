package telemetry

import (
	"bytes"
	"encoding/base64"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
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

	if c := charsetOf(body); c != nil {
		text, err := c.NewDecoder().Bytes(body[:len(body)&^1]) // half a unit at the end is dropped
		if err != nil {
			return nil, ReasonMalformed
		}
		return text, ReasonOK
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

// space is what JSON has between values.
const space = " \t\n\r"

// trim cuts off what devices put around their JSON: a byte order mark, white
// space, and the zero that ends a string in C.
func trim(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	return bytes.TrimRight(bytes.TrimLeft(text, space), space+"\x00")
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

var (
	utf16LE = unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)
	utf16BE = unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
)

// charsetOf knows UTF-16 by its byte order mark, or by the zero beside the first character: JSON begins with an ASCII
// one. It returns nil for anything else.
func charsetOf(b []byte) encoding.Encoding {
	switch {
	case len(b) < 2:
	case b[0] == 0xff && b[1] == 0xfe, b[0] != 0 && b[1] == 0:
		return utf16LE
	case b[0] == 0xfe && b[1] == 0xff, b[0] == 0 && b[1] != 0:
		return utf16BE
	}

	return nil
}

// fromBase64 decodes base64 of either alphabet, padded or not, if what comes
// out begins like something that can be read.
func fromBase64(body []byte) ([]byte, bool) {
	alphabet := base64.RawStdEncoding
	if bytes.ContainsAny(body, "-_") {
		alphabet = base64.RawURLEncoding
	}

	text, err := alphabet.AppendDecode(nil, bytes.TrimRight(body, "="))
	if err != nil || len(text) == 0 {
		return nil, false
	}
	if charsetOf(text) != nil || isGzip(text) {
		return text, true
	}

	start := trim(text)

	return text, len(start) > 0 && (start[0] == '{' || start[0] == '[' || start[0] == '"')
}

// lexeme is a string, or what may be a number or a word.
var lexeme = regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*"?|[A-Za-z0-9+.-]+`)

// quoteNonFinite puts quotes around every bare NaN and Infinity, and reports
// whether there was any.
func quoteNonFinite(body []byte) (text []byte, found bool) {
	text = lexeme.ReplaceAllFunc(body, func(word []byte) []byte {
		if !notFinite(word) {
			return word
		}

		found = true
		return strconv.AppendQuote(nil, string(word))
	})

	return text, found
}

// notFinite reports whether word is how some language writes NaN or infinity.
func notFinite(word []byte) bool {
	if len(word) > 0 && (word[0] == '+' || word[0] == '-') {
		word = word[1:]
	}
	return len(word) <= len("infinity") &&
		slices.Contains([]string{"nan", "inf", "infinity"}, strings.ToLower(string(word)))
}

// isBinary reports whether body cannot be text in UTF-8 or UTF-16: CBOR,
// MessagePack and Protocol Buffers rarely look like it.
func isBinary(body []byte) bool {
	return len(body) > 0 && body[0] >= utf8.RuneSelf ||
		bytes.ContainsFunc(body, func(r rune) bool { return r < ' ' && !isSpace(byte(r)) })
}

// understood reports whether a content encoding is one that is unpacked.
func understood(encoding string) bool {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "utf-8", "utf8", "us-ascii", "ascii", "identity",
		"utf-16", "utf-16le", "utf-16be",
		"gzip", "x-gzip", "base64":
		return true
	}

	return false
}
