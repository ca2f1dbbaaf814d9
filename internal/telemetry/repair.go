package telemetry

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Damage is the first place at which a body is not JSON. The zero Damage is none.
type Damage struct {
	Offset int32 // bytes before it; of a body that is packed in another one, those of the inner one
	Found  rune  // what is there; -1: the body ends
	Kind   DamageKind
}

// A DamageKind says what must be there instead.
type DamageKind uint8

const (
	noDamage      DamageKind = iota
	damagedBody              // an object or an array
	damagedName              // a name, or the end of an object
	damagedColon             // a colon after a name
	damagedValue             // a value, or the end of an array
	damagedNext              // a comma, or the end of an object or an array
	damagedText              // something that text can have without an escape
	damagedEscape            // an escape that JSON has
	damagedEnd               // the end of a text
	damagedDepth             // nothing that is nested deeper
	damagedSum               // another checksum; there is no place then
)

var damageKinds = [...]string{
	damagedBody:   "where an object or an array must begin",
	damagedName:   "where a name in double quotes must begin",
	damagedColon:  "where a colon must follow a name",
	damagedValue:  "where a value must begin",
	damagedNext:   "where a comma or a closing bracket must follow",
	damagedText:   "inside text, where it must be escaped",
	damagedEscape: "after a backslash, with which it is no escape",
	damagedEnd:    "inside text that has no closing quote",
	damagedDepth:  "inside 64 objects and arrays, which is as deep as a message is read",
}

// DamageOf returns where body, or what is packed in it, stops being JSON. It is zero if that is JSON with a right
// checksum, or if body has another format.
func DamageOf(body []byte) Damage {
	s := new(scanner)
	s.unpack(body, func(text []byte) (broken bool) { return s.readValues(&Decoder{}, nil, text, nil) })
	if s.changed && s.mended.damage.Kind == noDamage {
		return Damage{Kind: damagedSum}
	}

	return s.mended.damage
}

// Text says for people what is wrong with a message of a device, such as "not JSON at byte 17 of a message of oven-7:
// found ' where a name in double quotes must begin". It is empty if d is none.
func (d Damage) Text(device string) string {
	switch d.Kind {
	case noDamage:
		return ""
	case damagedSum:
		return "the checksum in a message of " + device + " is not that of what is packed in it"
	}

	found := string(d.Found)
	switch {
	case d.Found < 0:
		found = "the end"
	case d.Found == '\n', d.Found == '\r':
		found = "a line break"
	case d.Found <= ' ', d.Found == 0x7f, d.Found == utf8.RuneError:
		found = fmt.Sprintf("the character U+%04X", d.Found)
	}

	return fmt.Sprintf("not JSON at byte %d of a message of %s: found %s %s", d.Offset, device, found, damageKinds[d.Kind])
}

// mended says what repair has made of a body. The zero mended is that of a body that is JSON.
type mended struct {
	damage Damage
	doubt  bool   // a null stands for a value of which nobody knows what it was
	unread Reason // ReasonMalformed if only what comes before some place could be read
}

// A repairer makes JSON of a body that is nearly JSON, as people write it by hand, in one pass over its tokens. It
// knows a closed list of damage, after which it reads on:
//   - a comma before a closing bracket, or two; none after one, or between a text and a name on the next line;
//   - objects joined by commas without brackets around them;
//   - names without quotes; single and typographic quotes; a backslash before each quote of the body;
//   - True, False, None and NULL; a value that is no JSON, such as 1.#QNAN or 91.5C, or none after a colon;
//   - comments; raw control characters and unknown escapes in text.
//
// At any other damage it stops, and closes what is open. A missing quote or bracket turns text into structure, and
// nobody knows where that ends. NaN and Infinity, as Python writes them, become text, and are no damage.
//
// A value counts if nothing was added to it, dropped or joined, and if what is around it says that it is whole: before
// it a name and a colon; after it a closing brace, or a comma and then a brace or a name, as far as the body goes. The
// comma of 80,9 may be a decimal one. What is in doubt becomes null. Between the numbers of an array nothing says
// whether a comma is a decimal one, so a Decoder reads none in a damaged body.
type repairer struct {
	mended
	in      []byte
	at      int // in in: what comes next
	out     []byte
	open    []byte     // the brackets that are
	must    DamageKind // what comes next, in JSON
	first   bool       // and it is the first in its object or array, so that this may end
	held    int        // where in out a value begins that does not count yet; -1: there is none
	number  bool       // that value is a number, a boolean, or text that is a number
	named   int        // if must is damagedColon: where in out its member begins
	newLine bool       // there is a line break before what comes next
	quotes  rune       // the kind of the last quotes; 0 if there were none
}

// repair returns the JSON that body can be read as, in the memory of out; nothing if there is nothing to read. It has at
// most three times as many bytes as body.
func repair(body, out []byte) ([]byte, mended) {
	text := trim(body)
	begin := bytes.Index(body, text)
	r := repairer{in: body[:begin+len(text)], at: begin, out: out[:0], must: damagedBody, held: -1}
	for r.unread == ReasonOK && r.skip() {
		switch c := r.in[r.at]; r.must {
		case damagedBody: // outside of all brackets
			switch {
			case c == '{', c == '[':
				r.begin(c)
			case c == ',' && len(r.out) > 0:
				r.pass()
			default:
				r.stop()
			}

		case damagedName:
			r.name(c)

		case damagedColon:
			if c != ':' {
				r.stop()
				break
			}

			r.held = -1 // the value before the name counts
			r.put(1, ":")
			r.must, r.first = damagedValue, false

		case damagedValue:
			r.value(c)
		case damagedNext:
			r.next(c)
		}
	}

	r.finish()

	return r.out, r.mended
}

// name takes the name of a member, or what is there instead.
func (r *repairer) name(c byte) {
	_, quote := quoteAt(r.in[r.at:])
	switch {
	case c == '}':
		r.end(c)

	case c == ',' && !r.first:
		r.drop() // the comma before it may be a decimal one
		r.pass()

	case quote != 0:
		r.named = len(r.out)
		r.separate()
		r.text()
		r.must = damagedColon

	default:
		bare := bareName(r.in[r.at:])
		if len(bare) == 0 {
			r.stop()
			return
		}

		r.damaged(r.must)
		r.named = len(r.out)
		r.separate()
		r.put(len(bare), `"`+string(bare)+`"`)
		r.must = damagedColon
	}
}

// value takes a value, or what is there instead.
func (r *repairer) value(c byte) {
	inArray := r.open[len(r.open)-1] == '['
	from := len(r.out)
	_, quote := quoteAt(r.in[r.at:])
	switch {
	case c == '{', c == '[':
		r.begin(c)

	case c == ']' && inArray:
		r.end(c)

	case c == ',' && inArray && !r.first:
		r.pass()

	case c == ',' && !inArray, c == '}' && !inArray:
		r.damaged(r.must)
		r.hold(from, true)
		r.drop()

	case quote != 0:
		r.separate()
		start := len(r.out)
		if !r.text() {
			r.out = r.out[:from]
			return
		}
		r.hold(start, isNumber(r.out[start+1:len(r.out)-1]))

	default:
		r.bare()
	}
}

// words are values as other languages write them.
var words = map[string]string{"True": "true", "False": "false", "None": "null", "NULL": "null"}

// bare takes a value that is neither text nor an object or an array.
func (r *repairer) bare() {
	v := bareValue(r.in[r.at:])
	word, isWord := words[string(v)]
	if len(v) == 0 {
		r.stop()
		return
	}

	r.separate()
	start := len(r.out)
	switch {
	case isNumber(v), string(v) == "true", string(v) == "false", string(v) == "null":
		r.out = append(r.out, v...)
	case notFinite(v):
		r.out = append(append(append(r.out, '"'), v...), '"')
	case isWord:
		r.damaged(r.must)
		r.out = append(r.out, word...)
	default:
		r.damaged(r.must)
		r.out = append(r.out, "null"...)
		r.doubt = true
	}

	r.at += len(v)
	r.hold(start, true)
}

// next takes what is behind a value.
func (r *repairer) next(c byte) {
	inArray := r.open[len(r.open)-1] == '['
	_, quote := quoteAt(r.in[r.at:])
	isName := !inArray && (quote != 0 || len(bareName(r.in[r.at:])) > 0)
	switch {
	case c == r.open[len(r.open)-1]+2: // its closing bracket
		r.end(c)

	case c == ',':
		r.at++
		r.must, r.first = damagedName, false
		if inArray {
			r.held, r.must = -1, damagedValue
		}

	case isName && (r.held < 0 || !r.number && r.newLine): // the comma is missing
		r.damaged(r.must)
		r.must, r.first = damagedName, false

	case inArray && r.held < 0 && (c == '{' || c == '['): // likewise
		r.damaged(r.must)
		r.must, r.first = damagedValue, false

	default:
		r.stop()
	}
}

// finish closes what is open.
func (r *repairer) finish() {
	if r.must != damagedBody && r.unread == ReasonOK { // the body breaks off
		r.stop()
	}

	if r.must == damagedColon {
		r.out = r.out[:r.named]
		if r.at == len(r.in) { // a name as far as the body goes
			r.held = -1
		}
	}

	//planted:broken-off-counts r.held = -1
	r.drop()
	if n := len(r.out); n > 0 && r.out[n-1] == ':' {
		r.out = append(r.out, "null"...)
		r.doubt = true
	}

	for _, b := range slices.Backward(r.open) {
		r.out = append(r.out, b+2) // its closing bracket
	}
}

// begin takes an opening bracket.
func (r *repairer) begin(c byte) {
	if len(r.open) == maxDepth {
		r.must = damagedDepth
		r.stop()
		return
	}

	if len(r.open) > 0 {
		r.separate()
	}

	r.open = append(r.open, c)
	r.out = append(r.out, c)
	r.at++
	r.must, r.first = damagedValue, true
	if c == '{' {
		r.must = damagedName
	}
}

// end takes a closing bracket. The value before it counts.
func (r *repairer) end(c byte) {
	if r.must != damagedNext && !r.first { // a comma is before it
		r.damaged(r.must)
	}

	r.open = r.open[:len(r.open)-1]
	r.out = append(r.out, c)
	r.at++
	r.held = -1
	r.must = damagedNext
	if len(r.open) == 0 {
		r.must = damagedBody
	}
}

// hold has the value that begins at a place in out count once what is behind it says so.
func (r *repairer) hold(start int, number bool) {
	r.held, r.number = start, number
	r.must = damagedNext
}

// drop has the value that is held, if there is one, be null.
func (r *repairer) drop() {
	if r.held >= 0 {
		r.out = append(r.out[:r.held], "null"...)
		r.held, r.doubt = -1, true
	}
}

// separate puts a comma before an element or a member, unless it is the first.
func (r *repairer) separate() {
	if last := r.out[len(r.out)-1]; last != '[' && last != '{' && last != ':' {
		r.out = append(r.out, ',')
	}
}

// pass reads on after a comma that is one too many.
func (r *repairer) pass() {
	r.damaged(r.must)
	r.at++
}

// stop reads no further.
func (r *repairer) stop() {
	r.damaged(r.must)
	r.unread = ReasonMalformed
}

// damaged notes the first damage: what is next is not what must be.
func (r *repairer) damaged(must DamageKind) {
	if r.damage.Kind != noDamage {
		return
	}

	at := r.at
	if must == damagedEscape { // the backslash may stand there
		at++
	}

	r.damage = Damage{Offset: int32(at), Found: -1, Kind: must}
	if at < len(r.in) {
		r.damage.Found, _ = utf8.DecodeRune(r.in[at:])
	}
}

// skip passes white space and comments. It reports whether anything comes behind them.
func (r *repairer) skip() bool {
	for r.newLine = false; r.at < len(r.in); {
		c, rest := r.in[r.at], r.in[r.at:]
		switch {
		case isSpace(c):
			r.newLine = r.newLine || c == '\n' || c == '\r'
			r.at++

		case bytes.HasPrefix(rest, []byte("//")):
			r.damaged(r.must)
			rest = bytes.TrimLeftFunc(rest, func(c rune) bool { return c != '\n' && c != '\r' })
			r.at = len(r.in) - len(rest)

		case bytes.HasPrefix(rest, []byte("/*")):
			r.damaged(r.must)
			_, rest, _ = bytes.Cut(rest[2:], []byte("*/"))
			r.at = len(r.in) - len(rest)

		default:
			return true
		}
	}

	return false
}

// text takes a text in quotes of any kind. It reports whether that ends; if it does not, r stops.
func (r *repairer) text() (ended bool) {
	length, kind := quoteAt(r.in[r.at:])
	if kind != '"' {
		r.damaged(r.must)
	}

	if r.quotes != 0 && (r.quotes == slashed) != (kind == slashed) {
		r.stop()
		return false
	}

	r.quotes = kind
	r.out = append(r.out, '"')
	for r.at += length; r.at < len(r.in); {
		rest := r.in[r.at:]
		switch length, k := quoteAt(rest); {
		case k == kind:
			r.out = append(r.out, '"')
			r.at += length
			return true

		case kind == slashed && (rest[0] == '\\' || rest[0] == '"'): // nobody knows how often it is escaped
			r.damaged(damagedText)
			r.unread = ReasonMalformed
			return false

		case rest[0] == '\\':
			r.escape(rest)

		case rest[0] == '"':
			r.put(1, `\"`)

		case rest[0] < ' ':
			r.damaged(damagedText)
			r.put(1, cmp.Or(spaceEscapes[rest[0]], "\ufffd"))

		default:
			r.out = append(r.out, rest[0])
			r.at++
		}
	}

	r.damaged(damagedEnd)
	r.unread = ReasonMalformed

	return false
}

// spaceEscapes are those of white space, which is trimmed off where texts are compared.
var spaceEscapes = map[byte]string{'\t': `\t`, '\n': `\n`, '\r': `\r`}

// escape takes a backslash in text, and what it escapes.
func (r *repairer) escape(rest []byte) {
	switch length := escapeEnd(rest, 0); {
	case length > 0:
		r.put(length, string(rest[:length]))
	case len(rest) > 1 && rest[1] == '\'':
		r.damaged(damagedEscape)
		r.put(2, "'")
	default: // the backslash of a path, say
		r.damaged(damagedEscape)
		r.put(1, `\\`)
	}
}

// put writes text for so many bytes of the body.
func (r *repairer) put(length int, text string) {
	r.out = append(r.out, text...)
	r.at += length
}

// The tokens of a body that is nearly JSON, each of which begins a text that is not empty.

// slashed is the kind of quotes with a backslash before each.
const slashed = '\\'

// quoteAt returns how long the quote is with which b begins, and its kind: itself, slashed, or the first of the
// typographic ones like it; 0 if it is none.
func quoteAt(b []byte) (length int, kind rune) {
	switch c := b[0]; {
	case c == '"', c == '\'':
		return 1, rune(c)
	case c == '\\' && at(b, 1) == '"':
		return 2, slashed
	case c < utf8.RuneSelf:
		return 0, 0
	}

	switch c, size := utf8.DecodeRune(b); {
	case strings.ContainsRune("‘’‚‛", c):
		return size, '‘'
	case strings.ContainsRune("“”„‟", c):
		return size, '“'
	}

	return 0, 0
}

// bareName returns the name without quotes with which b begins: of letters, digits, _, $, - and .; empty if it begins
// with none of the first three that are no digits.
func bareName(b []byte) []byte {
	isFirst := func(c rune) bool { return unicode.IsLetter(c) || strings.ContainsRune("_$", c) }
	isOther := func(c rune) bool { return isFirst(c) || unicode.IsDigit(c) || strings.ContainsRune("-.", c) }
	if first, _ := utf8.DecodeRune(b); !isFirst(first) {
		return nil
	}

	return b[:len(b)-len(bytes.TrimLeftFunc(b, isOther))]
}

// bareValue returns what b begins with up to a bracket, a quote, or another character that ends a value.
func bareValue(b []byte) []byte {
	isInside := func(c rune) bool { return c > ' ' && !strings.ContainsRune(`,:;=/\{}[]"'‘’‚‛“”„‟`, c) }
	return b[:len(b)-len(bytes.TrimLeftFunc(b, isInside))]
}

// isNumber reports whether v is a number as JSON has them.
func isNumber(v []byte) bool { return numberEnd(v, 0) == len(v) }
