package telemetry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// DefaultFields is where a reading is if nothing else is said.
const DefaultFields = "temperature,temp"

const (
	maxList = 16  // paths of one field
	maxPath = 256 // bytes
)

// A path is one of a field's dotted paths, cut at its dots.
type path struct {
	text      []byte
	ends      []int        // where its names end in text
	starts    []beginnings // of each of its names
	positions []int        // of each of its names, the number that it is; -1 if it is none
	given     given        // what of the hub's it is; then there is no path
	of        *decoded     // its field
	index     uint16       // of that among the decoder's
	rank      uint8        // in the field's list
}

// A word is one of a field's.
type word struct {
	text   []byte
	number float64 // NaN if it is none
}

// reading returns what p's field makes of v, a JSON value that is neither an object nor an array. number
// is what v is as a number.
func (p *path) reading(s *scanner, v []byte, number finding) finding {
	of, one := p.of, finding{rank: p.rank, value: number.value, reason: number.reason}
	if len(of.unit) > 0 && one.reason == ReasonNotANumber && !s.isDamaged() { // of text
		if f, ok := of.withUnit(bytes.TrimSpace(s.unquote(v))); ok {
			one.value, one.reason = f, ReasonOK
		}
	}

	valid := of.field.Valid
	switch {
	case one.reason == ReasonNull:
	case of.field.Text:
		one.value, one.reason = s.keepText(v), ReasonOK
	case of.field.Time:
		one.value, one.reason = s.instant(v, number)
	case len(of.words) > 0:
		one.value, one.reason = of.word(s, v, number), ReasonOK
	case valid != nil && one.reason == ReasonOK && (one.value < valid.From || one.value > valid.To):
		one.value, one.reason = 0, ReasonInvalid
	}

	return one
}

// withUnit returns the number in text in front of the field's unit, which may be written in another way.
func (to *decoded) withUnit(text []byte) (f float64, ok bool) {
	if before, has := bytes.CutSuffix(text, to.written); has { // it may begin with a digit
		if f, ok = ParseNumber(bytes.TrimSpace(before)); ok {
			return f, true
		}
	}

	const inNumber = "0123456789.,+-"
	unit := bytes.TrimLeft(text, inNumber)
	if at(unit, 0)|0x20 == 'e' && strings.IndexByte(inNumber, at(unit, 1)) >= 0 { // an exponent
		unit = bytes.TrimLeft(unit[1:], inNumber)
	}

	f, ok = ParseNumber(text[:len(text)-len(unit)])

	return f, ok && bytes.Equal(plainUnit(unit), to.unit)
}

// plainUnit returns unit in one way of those in which devices write it: of a temperature's it is the letter, which has a
// degree sign, none, or what becomes of one in another charset.
func plainUnit(unit []byte) []byte {
	unit = bytes.TrimSpace(unit)
	if bytes.ContainsAny(unit, "\u2103\u2109\u03bc\u03a9") {
		unit = []byte(lookalikes.Replace(string(unit)))
	}

	isDegree := func(r rune) bool { return r >= utf8.RuneSelf && r != '\u00b5' } // no micro
	if letter := bytes.TrimLeftFunc(unit, isDegree); len(letter) == 1 && bytes.ContainsAny(letter, "CFK") {
		return letter
	}

	return unit
}

// lookalikes are characters that people take for others: a degree sign and a letter in one, and Greek letters.
var lookalikes = strings.NewReplacer("\u2103", "C", "\u2109", "F", "\u03bc", "\u00b5", "\u03a9", "\u2126")

// NotANumber says for people why text, a value as it stands in a body, is no number for a field with a unit, such as
// "could be 1,234 or 1.234: …". It is empty if that is plain.
func NotANumber(text, unit string) string {
	text = strings.TrimSpace(strings.Trim(text, `"`))
	number := text[:len(text)-len(strings.TrimLeft(text, "0123456789.,+-"))]
	other := strings.TrimSpace(text[len(number):])
	_, isNumber := ParseNumber([]byte(number))
	switch {
	case strings.Contains(number, ",") && !isNumber:
		return "may be one number or two: the device must write a decimal point"
	case !isNumber || other == "" || len(other) > maxUnit:
		return ""
	case unit == "":
		return "ends in " + other + ", and the rule has no unit"
	}

	return other + " where the rule has " + unit
}

// maxUnit is how long a unit is, in bytes, that people are shown.
const maxUnit = 16

// instant returns the time that v is, in Unix µs.
func (s *scanner) instant(v []byte, number finding) (float64, Reason) {
	t, ok := UnixTime(number.value)
	switch v[0] {
	case '"':
		t, ok = ParseTime(s.unquote(v))
	case 't', 'f': // numbers elsewhere
		ok = false
	default:
		ok = ok && number.reason == ReasonOK
	}

	if !ok {
		return 0, ReasonNotANumber
	}

	return float64(t.UnixMicro()), ReasonOK
}

// word returns the position of the word that v is, counted from 1, or 0 if it is none.
func (to *decoded) word(s *scanner, v []byte, number finding) float64 {
	if v[0] == '"' {
		v = bytes.TrimSpace(s.unquote(v))
	}

	i := slices.IndexFunc(to.words, func(w word) bool {
		return bytes.EqualFold(v, w.text) || number.reason == ReasonOK && number.value == w.number
	})

	return float64(i + 1)
}

// parsePaths reads a list of dotted paths.
func parsePaths(list string) ([]path, error) {
	if strings.TrimSpace(list) == "" {
		list = DefaultFields
	}

	texts := strings.Split(list, ",")
	if len(texts) > maxList {
		return nil, fmt.Errorf("%d fields are too many: name at most %d", len(texts), maxList)
	}

	paths := make([]path, 0, len(texts))
	for i, text := range texts {
		p, err := parsePath(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("field %d of %d: %w", i+1, len(texts), err)
		}

		for j, other := range paths {
			if bytes.EqualFold(p.text, other.text) {
				const text = "field %d of %d: %q is field %d already: remove one (case does not matter)"
				return nil, fmt.Errorf(text, i+1, len(texts), p.text, j+1)
			}
		}

		paths = append(paths, p)
	}

	return paths, nil
}

func parsePath(text string) (path, error) {
	p := path{text: []byte(text)}
	if text == "." { // the measurement itself
		return path{}, nil
	}

	switch {
	case text == "":
		return p, fmt.Errorf("it is empty: write paths separated by single commas, as in %q", "machine.temperature,temp")
	case len(text) > maxPath:
		return p, fmt.Errorf("%.32q… has %d bytes: use at most %d", text, len(text), maxPath)
	case !utf8.ValidString(text):
		return p, fmt.Errorf("%q is not valid UTF-8", text)
	case brackets.MatchString(text), text == "$", strings.HasPrefix(text, "$."):
		return p, fmt.Errorf("%q %w", text, ErrJSONPath)
	case text[0] == '$':
		return parseGiven(text)
	}

	end := -1
	for name := range strings.SplitSeq(text, ".") {
		if strings.TrimSpace(name) != name || name == "" {
			const rule = "%q has an empty name or a space beside a dot: write names joined by single dots, as in %q"
			return p, fmt.Errorf(rule, text, "machine.temperature")
		}

		p.starts = append(p.starts, beginningsOf(name))
		end += 1 + len(name)
		p.ends = append(p.ends, end)

		position := -1
		if at, err := strconv.ParseUint(name, 10, 31); err == nil && strconv.FormatUint(at, 10) == name {
			position = int(at)
		}
		p.positions = append(p.positions, position)
	}

	return p, nil
}

// ErrJSONPath is why a path is none.
var ErrJSONPath = errors.New(
	"is JSONPath: write names joined by dots, a position in an array as a number (values.1), and a condition as only")

// brackets are those of JSONPath: with a position, a name in quotes, a star, a slice or a condition.
var brackets = regexp.MustCompile(`\[(\d+|\*|'[^']*'|"[^"]*"|[-\d]*:[-:\d]*|-\d+)\]|\[\?`)

// A cursor says how much of a path the names on the way from a body's root to
// a place in it have matched.
type cursor struct {
	path  *path
	names int // of path.ends, matched so far
	next  int // where the next name begins in path.text
}

// whole reports whether c's path is matched to its end. At one place that is so of at
// most one path of a field.
func (c cursor) whole() bool { return c.names == len(c.path.ends) }

// position returns which element of an array comes next, -1 if what comes is no number.
func (c cursor) position() int {
	if c.whole() {
		return -1
	}
	return c.path.positions[c.names]
}

// enter moves c past a position.
func (c cursor) enter() cursor {
	return cursor{path: c.path, names: c.names + 1, next: c.path.ends[c.names] + 1}
}

// beginnings are those of names that may be wanted, by their first two bytes in any case: a bit for each, which others have
// too. Those with an escape or with what is not ASCII are always wanted.
type beginnings uint64

// beginningsOf returns those of a name that is one of a path, or goes on with a dot and another one.
func beginningsOf(name string) beginnings {
	if len(name) == 1 {
		return beginningsOf(name+`"`) | beginningsOf(name+".")
	}
	if name[0]|name[1] >= utf8.RuneSelf {
		return ^beginnings(0)
	}
	return 1 << beginning(name[0], name[1])
}

func beginning(a, b byte) byte { return (a&31 ^ b&31<<1) & 63 }

// has reports whether a name that begins with these two bytes may be wanted.
func (all beginnings) has(a, b byte) bool {
	return all&(1<<beginning(a, b)) != 0 || a|b >= utf8.RuneSelf
}

// advance moves c past name, which stands for several names of the path if it
// holds dots: {"a.b":1} is where {"a":{"b":1}} is.
func (c cursor) advance(name []byte) (cursor, bool) {
	if !c.whole() && string(name) == string(c.path.text[c.next:c.path.ends[c.names]]) { // which most are
		return c.enter(), true
	}

	last := c.names
	if last+1 < len(c.path.ends) {
		last += bytes.Count(name, []byte{'.'})
	}

	if last >= len(c.path.ends) {
		return c, false
	}

	end := c.path.ends[last]
	if a, b := at(name, len(name)-1), c.path.text[end-1]; a < utf8.RuneSelf && b < utf8.RuneSelf && a|0x20 != b|0x20 {
		return c, false // their last letters differ
	}
	if !bytes.EqualFold(name, c.path.text[c.next:end]) {
		return c, false
	}
	return cursor{path: c.path, names: last + 1, next: c.path.ends[last] + 1}, true
}

// A given name is one that the hub gives, whatever a body says.
type given uint8

const (
	notGiven given = iota
	givenModule
	givenComponent
	givenDevice
	givenProperty // the application property that path.text names
	givenKey      // the name under which a measurement stands
)

// NameOfKey is the name under which a measurement stands, or its array.
const NameOfKey = "$key"

const propertyPrefix = "$property."

// givenNames are those that are the same for all messages.
var givenNames = map[string]given{
	"$module":    givenModule,
	"$component": givenComponent,
	"$device":    givenDevice,
	NameOfKey:    givenKey,
}

// parseGiven reads a name that begins with $.
func parseGiven(text string) (path, error) {
	if len(text) > len(propertyPrefix) && strings.EqualFold(text[:len(propertyPrefix)], propertyPrefix) {
		return path{text: []byte(text[len(propertyPrefix):]), given: givenProperty}, nil
	}

	if g := givenNames[strings.ToLower(text)]; g != notGiven {
		return path{text: []byte(text), given: g}, nil
	}

	return path{}, fmt.Errorf(
		"%q is not known: a name that begins with $ must be $module, $component, $device, $key or $property.NAME", text)
}

// elsewhere looks for the field outside of the body, which has f of it: among the names that the hub gives, and among
// the properties. key is the name under which the measurement stands.
func (to *decoded) elsewhere(s *scanner, e *Event, key []byte, f *Found) {
	if len(to.names) == 0 {
		f.Value, f.Reason = 0, ReasonMissing
	}

	for j := range to.given {
		p := &to.given[j]
		if f.Reason != ReasonOK || f.rank > p.rank {
			s.beside(p, e, key, f)
		}
	}

	for j := range to.names {
		if len(e.Properties) == 0 || to.field.InBody || !to.lacks(f.Reason) {
			return
		}

		s.beside(&to.names[j], e, key, f)
	}
}

// lacks reports whether a measurement in which a field has this reason may have it elsewhere.
func (to *decoded) lacks(r Reason) bool {
	switch {
	case r == ReasonMissing, r == ReasonEmpty:
		return true
	case !to.field.Condition:
		return false
	}

	return r == ReasonNull || !r.Decoded() || len(to.words) > 0 && r != ReasonOK
}

// beside sets f to what the value of p beside the body is for its field, unless there is none.
func (s *scanner) beside(p *path, e *Event, key []byte, f *Found) {
	var v []byte // as JSON
	switch p.given {
	case notGiven, givenProperty:
		v = s.property(p, e.Properties)
	case givenKey:
		v = key
	default:
		text := [...]string{givenModule: e.Module, givenComponent: e.Component, givenDevice: e.Device}[p.given]
		if text != "" {
			s.scalar, _ = jsontext.AppendQuote(s.scalar[:0], text)
			v = s.scalar
		}
	}
	if v == nil {
		return
	}

	isRepaired := s.repaired
	s.repaired = false // what is not of the body is whole
	var number finding
	number.value, number.reason = s.number(v)
	one := p.reading(s, v, number)
	s.repaired = isRepaired
	f.Value, f.Reason, f.Around = one.value, one.reason, p.given != givenKey
}

// property returns the application property with the name p as JSON; nil if there is none, or nothing but what an IoT
// Hub writes where a device's twin has no such path.
func (s *scanner) property(p *path, all Properties) []byte {
	v := all.Find(p.text)
	if v.IsNull() {
		return nil
	}

	s.text = v.Append(s.text[:0])
	text := bytes.TrimSpace(s.text)
	_, isText := v.Text()
	switch {
	case bytes.HasPrefix(text, []byte("$twin.")) && len(p.of.words) == 0 && !p.of.field.Time:
		return nil
	case isText || scalarEnd(text, 0) != len(text): // neither a number nor a boolean
		s.scalar, _ = jsontext.AppendQuote(s.scalar[:0], text)
		return s.scalar
	}

	return text
}

// keepText keeps v, a JSON value that is neither an object nor an array, and returns what stands for it.
func (s *scanner) keepText(v []byte) float64 {
	at := len(s.texts)
	s.texts = binary.AppendUvarint(s.texts, uint64(len(v)))
	s.texts = append(s.texts, v...)
	return float64(at)
}

// textOf returns the JSON value that keepText has returned a number for.
func textOf(texts []byte, number float64) []byte {
	texts = texts[int(number):]
	n, size := binary.Uvarint(texts)
	return texts[size:][:n]
}
