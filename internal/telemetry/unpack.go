package telemetry

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"hash/adler32"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
)

// maxLayers bounds how often a body is unpacked. Base64 of gzip of UTF-16 takes three.
const maxLayers = 5

// unpack calls try with body, trimmed, and, as long as that is a JSON string or try finds it broken, with what is packed in
// it; at last, if nothing is, with what repair makes of it. It returns why what is broken cannot be read, ReasonOK if it has not
// come to that.
func (s *scanner) unpack(body []byte, try func([]byte) (broken bool)) Reason {
	s.mended, s.changed, s.repaired = mended{}, false, false
	for range maxLayers + 1 {
		text := trim(body)
		if at(text, 0) != '"' && !try(text) {
			return ReasonOK
		}

		inner, isPacked, r := s.inner(body)
		switch {
		case !isPacked:
			s.repair, s.mended = repair(body, s.repair)
			if s.repaired = len(s.repair) > 0; s.repaired {
				try(s.repair)
			}
			if isBinary(text) {
				return ReasonUnsupportedEncoding
			}
			return ReasonMalformed

		case r != ReasonOK:
			return r
		}

		body = inner
	}

	return ReasonMalformed
}

// inner returns what is packed in body, which is not JSON as it stands, or why that cannot be read. What it returns may
// alias body.
func (s *scanner) inner(body []byte) (text []byte, isPacked bool, r Reason) {
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		if err := s.gzip.Reset(bytes.NewReader(body)); err != nil {
			return nil, true, ReasonMalformed
		}

		text, r = readAll(&s.gzip)
		return text, true, r
	}

	// Zlib is deflate between two bytes, a number that 31 divides, and a checksum. If that is wrong, text may look like it,
	// and deflate says nothing of itself: then what comes out must begin as JSON.
	deflated := body
	isZlib := len(body) > 2 && body[0]&0x0f == 8 && binary.BigEndian.Uint16(body)%31 == 0
	if isZlib {
		deflated = body[2:]
	}
	if isZlib || isBinary(trim(body)) {
		text, rest, r := s.inflate(deflated)
		isSure := isZlib && bytes.HasPrefix(rest, binary.BigEndian.AppendUint32(nil, adler32.Checksum(text)))
		switch {
		case r == ReasonTooLarge, r == ReasonOK && isSure:
			return text, true, r
		case r == ReasonOK && isStart(text):
			s.changed = s.changed || isZlib
			return text, true, r
		}
	}

	if c := charsetOf(body); c != nil {
		text, _ = c.NewDecoder().Bytes(body[:len(body)&^1]) // half a unit at the end is dropped, and what is invalid replaced
		return text, true, ReasonOK
	}

	body = trim(body)
	if at(body, 0) == '"' {
		text, err := jsontext.AppendUnquote(nil, body)
		return text, err == nil, ReasonOK
	}

	alphabet := base64.RawStdEncoding
	if bytes.ContainsAny(body, "-_") {
		alphabet = base64.RawURLEncoding
	}

	text, err := alphabet.AppendDecode(nil, bytes.TrimRight(body, "="))
	if err != nil || len(text) == 0 {
		return nil, false, ReasonOK
	}

	if !isStart(text) { // many a text could be base64
		_, isPacked, r = s.inner(text)
		return text, isPacked && r != ReasonMalformed, ReasonOK
	}

	return text, true, ReasonOK
}

// inflate unpacks deflate, and returns what is behind it, too.
func (s *scanner) inflate(body []byte) (text, rest []byte, r Reason) {
	from := bytes.NewReader(body)
	if s.flate == nil {
		s.flate = flate.NewReader(from)
	} else if err := s.flate.(flate.Resetter).Reset(from, nil); err != nil {
		return nil, nil, ReasonMalformed
	}

	text, r = readAll(s.flate)

	return text, body[len(body)-from.Len():], r
}

// trim cuts off what devices put around their JSON: a byte order mark, white
// space, and the zero that ends a string in C.
func trim(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	for isSpace(at(text, 0)) {
		text = text[1:]
	}

	for len(text) > 0 && (isSpace(text[len(text)-1]) || text[len(text)-1] == 0) {
		text = text[:len(text)-1]
	}

	return text
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// readAll stops one byte after MaxBody, whatever there is to unpack.
func readAll(from io.Reader) ([]byte, Reason) {
	text, err := io.ReadAll(io.LimitReader(from, MaxBody+1))
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
	if len(b) < 2 {
		return nil
	}

	switch first := binary.BigEndian.Uint16(b); {
	case first == 0:
		return nil
	case first == 0xfffe, first&0xff == 0:
		return utf16LE
	case first == 0xfeff, first <= 0xff:
		return utf16BE
	}

	return nil
}

// isStart reports whether text begins as JSON in which readings may be.
func isStart(text []byte) bool {
	first := at(trim(text), 0)
	return first == '{' || first == '[' || first == '"'
}

// notFinite reports whether word is how some language writes NaN or infinity.
func notFinite(word []byte) bool {
	word = bytes.TrimPrefix(bytes.TrimPrefix(word, []byte{'+'}), []byte{'-'})
	return slices.ContainsFunc(infinities, func(other []byte) bool { return bytes.EqualFold(word, other) })
}

var infinities = [][]byte{[]byte("nan"), []byte("inf"), []byte("infinity")}

// isBinary reports whether text, which is not JSON, cannot be text at all: CBOR, MessagePack and Protocol Buffers rarely
// look like it. What begins as JSON is meant to be, and STX is what serial lines have in front of a message.
func isBinary(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte("\x02"))
	first := at(text, 0)
	if first == '{' || first == '[' {
		return false
	}

	return first >= utf8.RuneSelf ||
		bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' && !isSpace(byte(r)) })
}
