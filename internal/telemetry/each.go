package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxParts is how many names an Each may have.
const maxParts = 16

// An Each says where in a message its measurements are. It is not changed, and safe for concurrent use.
type Each struct {
	names     [][]byte // a part of a name may be *, which stands for any text
	positions []int    // see path
}

// NewEach returns the Each for a dotted path, such as readings, Content.Data.Values, DS18B20-* or . for the body
// itself. The error says how to write it.
func NewEach(path string) (*Each, error) {
	p, err := parsePath(path)
	switch {
	case strings.HasPrefix(path, "$") && err == nil:
		return nil, fmt.Errorf("%q is no place in a message: must be a path such as readings, or . for the body itself", path)
	case err != nil:
		return nil, err
	case strings.Contains(path, ","):
		return nil, fmt.Errorf("%q has a comma: must be one path; write a rule for each", path)
	case len(p.ends) > maxParts:
		return nil, fmt.Errorf("%q has %d names: must be at most %d", path, len(p.ends), maxParts)
	}

	e := &Each{positions: p.positions}
	for i := range p.ends {
		e.names = append(e.names, p.text[p.startOf(i):p.ends[i]])
	}

	return e, nil
}

// startOf returns where a path's name with an index begins.
func (p *path) startOf(i int) int {
	if i == 0 {
		return 0
	}
	return p.ends[i-1] + 1
}

// past returns which names of e are matched, a bit for how many, once name is, of which so many may have been before.
// A name with dots may be several.
func (e *Each) past(matched uint32, name []byte) (now uint32) {
	for i := range e.names {
		if matched&(1<<i) == 0 {
			continue
		}

		for j := i; j < len(e.names); j++ {
			if matches(e.names[i:j+1], name) {
				now |= 1 << (j + 1)
			}
		}
	}

	return now
}

// pastPosition is past for an element of an array.
func (e *Each) pastPosition(matched uint32, position int) (now uint32) {
	for i, at := range e.positions {
		if at == position && matched&(1<<i) != 0 {
			now |= 1 << (i + 1)
		}
	}
	return now
}

// begun returns those of the paths in at that begin with names of e, the last of which is the one before an index, so that
// they lead to where so many have matched: with readings, readings.unit is the unit of each of them.
func (e *Each) begun(at []cursor, matched int) (all []cursor) {
	for _, c := range at {
		for n := 1; n <= matched && n <= len(c.path.ends); n++ {
			isNamed := true
			for i, name := range e.names[matched-n : matched] {
				isNamed = isNamed && bytes.EqualFold(name, c.path.text[c.path.startOf(i):c.path.ends[i]])
			}
			if isNamed {
				all = append(all, cursor{path: c.path, names: n, next: c.path.ends[n-1] + 1})
			}
		}
	}

	return all
}

// whole is the bit for all names.
func (e *Each) whole() uint32 { return 1 << len(e.names) }

// matches reports whether name is all of pattern, with dots between them.
func matches(pattern [][]byte, name []byte) bool {
	if len(pattern) == 1 {
		return isLike(pattern[0], name)
	}
	return isLike(bytes.Join(pattern, []byte{'.'}), name)
}

// isLike reports whether name is pattern, in any case, where * is any text. It takes no longer than the product of
// their lengths.
func isLike(pattern, name []byte) bool {
	first, rest, hasStar := bytes.Cut(pattern, []byte{'*'})
	if !hasStar {
		return bytes.EqualFold(pattern, name)
	}

	name, ok := cutPrefixFold(name, first)
	for ok {
		first, rest, hasStar = bytes.Cut(rest, []byte{'*'})
		if !hasStar { // what is left must end in it
			return hasSuffixFold(name, first)
		}

		for { // the earliest place leaves most for the rest
			var after []byte
			if after, ok = cutPrefixFold(name, first); ok {
				name = after
				break
			}

			if len(name) == 0 {
				return false
			}

			_, size := utf8.DecodeRune(name)
			name = name[size:]
		}
	}

	return false
}

// cutPrefixFold cuts off prefix, in any case: as many runes as it has.
func cutPrefixFold(name, prefix []byte) (after []byte, ok bool) {
	end := 0
	for range utf8.RuneCount(prefix) {
		_, size := utf8.DecodeRune(name[end:])
		end += size
	}
	return name[end:], bytes.EqualFold(name[:end], prefix)
}

func hasSuffixFold(name, suffix []byte) bool {
	begin := len(name)
	for range utf8.RuneCount(suffix) {
		_, size := utf8.DecodeLastRune(name[:begin])
		begin -= size
	}
	return bytes.EqualFold(name[begin:], suffix)
}

// An element is a measurement in a message.
type element struct {
	value []byte // as JSON
	key   []byte // the name under which it or its array stands, as JSON; nil if there is none
	scope int32  // the innermost object around it; -1: none
	depth int32  // in how many objects and arrays it is
	at    int64  // when it was taken, in Unix µs: see Measurements.Sort
}

// A scope is an object with measurements in it.
type scope struct {
	value   []byte // as JSON
	closed  []int  // where in it arrays of measurements begin, and texts with some, in order
	begin   int    // where it begins in its text
	around  int32  // the object around it; -1: none
	depth   int32  // in how many objects and arrays it is
	matched int    // how many names of the Each
	element bool   // of such an array, or what such a text holds
}

// A finder finds the measurements of one message after the other.
type finder struct {
	*scanner
	each     *Each
	elements []element
	scopes   []scope
	reason   Reason // why it has looked at nothing
	tooDeep  bool   // there may be some where it does not look
}

// find finds what text, a sequence of JSON values, has, and reports whether that is broken.
func (f *finder) find(text []byte) (broken bool) {
	f.elements = f.elements[:0]
	f.scopes = f.scopes[:0]
	f.tooDeep = false
	if f.reason = ReasonMalformed; isWrapping(text) {
		return true
	}

	f.reason = f.all(text, place{matched: 1, scope: -1})

	return f.reason == ReasonMalformed
}

// A place in a message is one up to which names of an Each have matched.
type place struct {
	matched uint32 // see Each.past
	key     []byte // see element, and so is scope
	scope   int32
	element bool // of an array, or what a text holds
}

// all looks at all values in text, which is at a place.
func (f *finder) all(text []byte, at place) Reason {
	reason := f.begin(text)
	for reason == ReasonOK {
		switch err := f.value(at); err {
		case nil:
		case io.EOF:
			return ReasonOK
		default:
			reason = ReasonMalformed
		}
	}

	return reason
}

// value looks at the next value, which is at a place.
func (f *finder) value(at place) error {
	kind, depth := f.json.peek(), f.depth+f.json.depth
	isWhole := at.matched&f.each.whole() != 0

	switch canEnter := depth < maxDepth; {
	case kind == '[' && !at.element && canEnter:
		return f.array(at)

	case kind == '{' && !isWhole && canEnter:
		return f.object(at)

	case kind == '"':
		v, err := f.json.value()
		if err == nil && !f.inText(v, at) && isWhole {
			f.add(v, at, depth)
		}
		return err

	case isWhole:
		v, err := f.json.value()
		if err == nil {
			f.add(v, at, depth)
		}
		return err

	case !canEnter:
		f.tooDeep = true
	}

	return f.json.skip()
}

// add adds a measurement.
func (f *finder) add(v []byte, at place, depth int) {
	f.elements = append(f.elements, element{value: v, key: at.key, scope: at.scope, depth: int32(depth)})
}

// array looks at the elements of an array.
func (f *finder) array(at place) error {
	if err := f.json.bracket(); err != nil {
		return err
	}

	f.close(at.scope, f.json.at-1)
	element := at
	element.element = true
	for i := 0; f.json.peek() != ']'; i++ {
		element.matched = at.matched | f.each.pastPosition(at.matched, i)
		if err := f.value(element); err != nil {
			return err
		}
	}

	return f.json.bracket()
}

// close notes that what begins at an offset holds measurements, for the objects around it in which it does not belong
// to something that is closed already.
func (f *finder) close(scope int32, at int) {
	for scope >= 0 {
		s := &f.scopes[scope]
		s.closed = append(s.closed, at-s.begin)
		if s.element {
			return
		}
		scope = s.around
	}
}

// object looks at the members of an object.
func (f *finder) object(at place) error {
	if err := f.json.bracket(); err != nil {
		return err
	}

	number := len(f.scopes)
	f.scopes = slices.Grow(f.scopes, 1)[:number+1]
	f.scopes[number] = scope{
		closed:  f.scopes[number].closed[:0],
		begin:   f.json.at - 1,
		around:  at.scope,
		depth:   int32(f.depth + f.json.depth - 1),
		matched: bits.TrailingZeros32(at.matched),
		element: at.element,
	}

	for f.json.peek() != '}' {
		name, err := f.json.value()
		if err != nil {
			return err
		}

		inner := place{key: name, scope: int32(number)}
		if inner.matched = f.each.past(at.matched, f.unquote(name)); inner.matched == 0 {
			err = f.json.skip()
		} else {
			err = f.value(inner)
		}

		if err != nil {
			return err
		}
	}

	err := f.json.bracket()
	s := &f.scopes[number]
	s.value = f.json.text[s.begin:f.json.at]

	return err
}

// inText looks into v, a text at a place, and reports whether that is JSON.
func (f *finder) inText(v []byte, at place) bool {
	text := trim(f.unquote(v))
	if !isStart(text) || text[0] == '"' || f.isDamaged() || !f.descend() {
		return false
	}

	elements, scopes := len(f.elements), len(f.scopes)
	inner := finder{scanner: f.within, each: f.each, elements: f.elements, scopes: f.scopes}
	f.close(at.scope, f.json.at-len(v))
	at.element = false
	if inner.all(bytes.Clone(text), at) != ReasonOK {
		f.elements, f.scopes = inner.elements[:elements], inner.scopes[:scopes]
		return false
	}

	for i := scopes; i < len(inner.scopes); i++ { // offsets are those of another text
		s := &inner.scopes[i]
		s.element = s.element || s.around == at.scope
	}

	f.elements, f.scopes = inner.elements, inner.scopes
	f.tooDeep = f.tooDeep || inner.tooDeep

	return true
}
