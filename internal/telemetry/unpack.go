package telemetry

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/base64"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
)

// maxLayers bounds how often a body is unpacked. Base64 of gzip of UTF-16 takes three.
const maxLayers = 5

// unpack calls try with body and, as long as try finds that broken, with what is packed in it; at last, if nothing is,
// with what repair makes of it. It returns why what is broken cannot be read, ReasonOK if it has not come to that, or
// nobody can say.
func (s *scanner) unpack(body []byte, try func([]byte) (broken bool)) Reason {
	s.mended, s.changed, s.repaired = mended{}, false, false
	for layer := 0; try(body); layer++ {
		inner, isPacked, r := s.inner(body)
		if r != ReasonOK || isPacked && layer == maxLayers {
			return r
		}

		if !isPacked {
			return s.mend(body, try)
		}

		body = inner
	}

	return ReasonOK
}

// mend is unpack for a body in which nothing is packed.
func (s *scanner) mend(body []byte, try func([]byte) (broken bool)) Reason {
	text := trim(body)
	s.repair, s.mended = repair(text, s.repair)
	if d := &s.mended.damage; d.Kind != noDamage {
		d.Offset += int32(bytes.Index(body, text))
	}

	if s.repaired = len(s.repair) > 0; s.repaired {
		try(s.repair)
	}

	if isBinary(text) {
		return ReasonUnsupportedEncoding
	}

	return ReasonOK
}

// inner returns what is packed in body, which is not JSON as it stands, or why that cannot be read. What it returns may
// alias body.
func (s *scanner) inner(body []byte) (text []byte, isPacked bool, r Reason) {
	if isGzip(body) {
		text, r = s.gunzip(body)
		return text, true, r
	}

	if isZlib(body) {
		if text, r = s.unzlib(body); r != ReasonMalformed { // text may look like it
			return text, true, r
		}

		if text, r = s.inflate(body[2:]); r == ReasonOK && isStart(text) { // but for its checksum
			s.changed = true
			return text, true, r
		}
	}

	if c := charsetOf(body); c != nil {
		text, err := c.NewDecoder().Bytes(body[:len(body)&^1]) // half a unit at the end is dropped
		if err != nil {
			return nil, true, ReasonMalformed
		}
		return text, true, ReasonOK
	}

	body = trim(body)
	if len(body) > 0 && body[0] == '"' {
		text, err := jsontext.AppendUnquote(nil, body)
		return text, err == nil, ReasonOK
	}

	if text, isPacked = s.fromBase64(body); isPacked {
		return text, true, ReasonOK
	}

	if isBinary(body) { // deflate says nothing of itself
		if text, r = s.inflate(body); r == ReasonTooLarge || r == ReasonOK && isStart(text) {
			return text, true, r
		}
	}

	return nil, false, ReasonOK
}

// trim cuts off what devices put around their JSON: a byte order mark, white
// space, and the zero that ends a string in C.
func trim(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	for len(text) > 0 && isSpace(text[0]) {
		text = text[1:]
	}

	for len(text) > 0 && (isSpace(text[len(text)-1]) || text[len(text)-1] == 0) {
		text = text[:len(text)-1]
	}

	return text
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isGzip(body []byte) bool { return bytes.HasPrefix(body, []byte{0x1f, 0x8b}) }

func (s *scanner) gunzip(body []byte) ([]byte, Reason) {
	if err := s.gzip.Reset(bytes.NewReader(body)); err != nil {
		return nil, ReasonMalformed
	}
	return readAll(&s.gzip)
}

// isZlib reports whether body begins as zlib does: with deflate, and a number of two bytes that 31 divides.
func isZlib(body []byte) bool {
	return len(body) > 2 && body[0]&0x0f == 8 && (int(body[0])<<8|int(body[1]))%31 == 0
}

func (s *scanner) unzlib(body []byte) (text []byte, r Reason) {
	from := bytes.NewReader(body)
	var err error
	if s.zlib == nil {
		s.zlib, err = zlib.NewReader(from)
	} else {
		err = s.zlib.(zlib.Resetter).Reset(from, nil)
	}

	if err != nil {
		return nil, ReasonMalformed
	}

	return readAll(s.zlib)
}

// inflate unpacks deflate without a header.
func (s *scanner) inflate(body []byte) (text []byte, r Reason) {
	from := bytes.NewReader(body)
	if s.flate == nil {
		s.flate = flate.NewReader(from)
	} else if err := s.flate.(flate.Resetter).Reset(from, nil); err != nil {
		return nil, ReasonMalformed
	}

	return readAll(s.flate)
}

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
func (s *scanner) fromBase64(body []byte) ([]byte, bool) {
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

	if isStart(text) {
		return text, true
	}

	unpacked, r := s.unzlib(text)
	if r == ReasonMalformed {
		unpacked, r = s.inflate(text)
	}

	return text, r == ReasonOK && isStart(unpacked)
}

// isStart reports whether text begins as JSON in which readings may be.
func isStart(text []byte) bool {
	text = trim(text)
	return len(text) > 0 && (text[0] == '{' || text[0] == '[' || text[0] == '"')
}

// notFinite reports whether word is how some language writes NaN or infinity.
func notFinite(word []byte) bool {
	if len(word) > 0 && (word[0] == '+' || word[0] == '-') {
		word = word[1:]
	}
	return len(word) <= len("infinity") &&
		slices.Contains([]string{"nan", "inf", "infinity"}, strings.ToLower(string(word)))
}

// isBinary reports whether text, which is not JSON, cannot be text at all: CBOR, MessagePack and Protocol Buffers rarely
// look like it. What begins as JSON is meant to be, and STX is what serial lines have in front of a message.
func isBinary(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte("\x02"))
	if len(text) == 0 || text[0] == '{' || text[0] == '[' {
		return false
	}

	return text[0] >= utf8.RuneSelf ||
		bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' && !isSpace(byte(r)) })
}

// understood reports whether a content encoding is one that is unpacked.
func understood(encoding string) bool {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "utf-8", "utf8", "us-ascii", "ascii", "identity",
		"utf-16", "utf-16le", "utf-16be",
		"gzip", "x-gzip", "zlib", "deflate", "base64":
		return true
	}

	return false
}
