package telemetry

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"
)

// Measurements are those of one message: the whole message or, with an Each, what it finds there. Arrays on its way and
// at its end give their elements, and an object or number there is one. It is reused for one message after the other, by
// one goroutine.
//
// A name that begins with $ is the hub's, whatever a body says. Others are looked up in the measurement; conditions then
// outward, in each object around it up to the body, but in no other element of its array; and then, but for readings of
// a measurement with an Each, among the application properties. Of several names the first counts that the nearest of
// these places has. Names are the same in any case. Of one that is there twice the worst counts for a reading, and else
// the last.
type Measurements struct {
	Event *Event // that Split has taken

	each    *Each
	found   finder
	one     *scanner // reads a measurement
	outer   *scanner // reads what is around it
	around  []surroundings
	damaged bool
	last    int // the index of the measurement that was read last; -1: none
}

// surroundings are what a Decoder finds in objects around measurements.
type surroundings struct {
	decoder *Decoder
	begun   [][]cursor // see Each.begun; by how many names have matched
	inner   []Found    // what they find
	begin   []int      // in found, of each scope, plus 1; 0 if it was not read yet
	found   []Found
}

// NewMeasurements returns one for an Each, or nil for whole messages.
func NewMeasurements(each *Each) *Measurements {
	m := &Measurements{each: each, one: new(scanner)}
	if each != nil {
		m.found = finder{scanner: new(scanner), each: each}
		m.outer = new(scanner)
	}

	return m
}

// Split takes e, and returns how many measurements it has, and if it has none, why. m does not change e, which must not
// change before the next Split.
func (m *Measurements) Split(e *Event) (n int, reason Reason) {
	m.Event = e
	m.last = -1
	if m.each == nil {
		return 1, ReasonOK
	}

	// What a usual message does not need is not kept.
	f := &m.found
	if 16*(cap(f.elements)+cap(f.scopes))+cap(f.repair) > maxKept {
		f.elements, f.scopes, f.repair, m.around = nil, nil, nil, nil
	}

	for i := range m.around {
		a := &m.around[i]
		a.begin, a.found = a.begin[:0], a.found[:0]
	}

	m.outer.texts = m.outer.texts[:0]
	if reason = unread(e); reason != ReasonOK {
		f.elements = f.elements[:0]
		return 0, reason
	}

	f.reason = ReasonMalformed // until a layer of the body says something else
	end := f.unpack(e.Body, func(text []byte) (broken bool) {
		f.elements, f.scopes = f.elements[:0], f.scopes[:0]
		f.reason = f.all(text, place{matched: 1, scope: -1})
		return f.reason == ReasonMalformed
	})
	m.damaged = f.isUncertain()
	switch {
	case f.reason == ReasonMalformed:
		f.elements = f.elements[:0]
		return 0, end
	case len(f.elements) > 0:
		return len(f.elements), ReasonOK
	}

	return 0, cmp.Or(f.reason, f.mended.unread, ReasonMissing)
}

// Read sets found, which has one element for each field of d, in one pass over the measurement with an index: each to the
// reading there, in the unit in which the device sends it. It returns ReasonOK if at least one field has a reading, or
// else the reason of the first field that is there. Conditions do not count.
//
// Only what the device itself sent as telemetry counts, and only the device
// that the hub names, never one that the body claims. The body is JSON; a body
// that is not is unpacked first if it is gzip, zlib, deflate, UTF-16, base64 or JSON
// in a JSON string, by its bytes alone: devices put anything into the
// labels. Bare NaN and Infinity, as Python writes them, are taken for values.
//
// A path is matched without regard to case. It goes through arrays and text that is JSON, and
// a name in the body may hold dots: machine.temperature finds
// {"machine":{"temperature":1}}, {"machine":[{"temperature":1}]} and
// {"machine.temperature":1}. A number is a position where an array is: values.0 is its first element. The path . is the
// body itself. In an object the first path with a finite number
// counts; a number may stand in a string, and true and false are 1 and 0. Where a measurement holds several
// readings, as an array, as several JSON values or under one name twice, the
// highest counts, or the lowest if the field says so, and one that cannot be read hides
// no other. If none can be read, the reason is that of the first path that is there.
//
// A body that is nearly JSON, or is cut off, is read as far as nobody can take what was sent for something else: see
// repairer. What Read returns is ReasonDamaged then, and ReasonMalformed without a reading. Zlib with a wrong
// checksum is damaged, too. Nothing counts of gzip, or of a JSON string, that is cut off.
//
// A body that is nested more than 64 deep is damaged, and read up to there.
//
// Read allocates nothing for plain JSON, and for any body its time and memory are bounded by MaxBody.
//
// A Decoder without fields does not look into the body. Without other fields than conditions Read returns ReasonOK for
// telemetry of a device.
func (m *Measurements) Read(d *Decoder, i int, found []Found) Reason {
	s, found := m.one, found[:len(d.fields)]
	if i != m.last {
		m.last, s.texts = i, s.texts[:0]
	}

	var key []byte
	scope, unreadable := int32(-1), ReasonMalformed
	if m.each == nil {
		reason := unread(m.Event)
		for j := range found {
			found[j] = Found{Reason: cmp.Or(reason, ReasonMalformed)} // until a layer of the body says something else
		}
		if reason != ReasonOK || len(found) == 0 {
			return reason
		}

		unreadable = s.unpack(m.Event.Body, func(text []byte) (broken bool) {
			return s.readValues(d, d.start, text, found)
		})
		m.damaged = s.isUncertain()
	} else {
		one := &m.found.elements[i]
		key, scope = one.key, one.scope
		s.mended, s.repaired = m.found.mended, m.found.repaired
		s.readValues(d, d.start, one.value, found)
		//planted:conditions-of-first-element first := make([]Found, len(found)); s.readValues(d, d.start, m.found.elements[0].value, first); for j := range found { if d.fields[j].field.Condition { found[j] = first[j] } }
		m.readBegun(d, s, len(m.each.path.ends), one.value, found)
	}

	for j := range found {
		f, to := &found[j], &d.fields[j]
		//planted:damaged-is-whole f.Damaged = false; skip
		f.Damaged = m.damaged
		if f.Reason == ReasonMalformed {
			f.Reason = unreadable
		}

		if to.field.Condition && len(to.names) > 0 {
			m.lookAround(d, j, scope, f)
		}

		if f.Reason != ReasonOK && (to.field.Condition || m.each == nil) || len(to.given) > 0 {
			to.elsewhere(s, m.Event, key, f)
		}
	}

	return d.reason(found, m.damaged)
}

// readBegun completes found, which is of a value at which names of the Each have matched, by longer names that lead there.
func (m *Measurements) readBegun(d *Decoder, s *scanner, matched int, value []byte, found []Found) {
	a := m.surroundings(d)
	if len(a.begun[matched]) == 0 {
		return
	}

	s.readValues(d, a.begun[matched], value, a.inner)
	for i := range found {
		if to := &d.fields[i]; to.field.Condition && to.lacks(found[i].Reason) && a.inner[i].Reason != ReasonMissing {
			found[i] = a.inner[i]
		}
	}
}

// lookAround sets f, the field of d with an index, to what is around a measurement in scope, if that has no such field.
func (m *Measurements) lookAround(d *Decoder, field int, scope int32, f *Found) {
	for ; scope >= 0 && d.fields[field].lacks(f.Reason); scope = m.found.scopes[scope].around {
		outer := m.outside(d, scope)[field]
		if outer.Reason == ReasonMissing {
			continue
		}

		if outer.Reason == ReasonOK && d.fields[field].field.Text {
			outer.Value = m.one.keepText(textOf(m.outer.texts, outer.Value))
		}

		outer.Damaged = f.Damaged
		outer.Around = true
		*f = outer
	}
}

// surroundings returns those for d.
func (m *Measurements) surroundings(d *Decoder) *surroundings {
	for i := range m.around {
		if m.around[i].decoder == d {
			return &m.around[i]
		}
	}

	a := surroundings{decoder: d, inner: make([]Found, len(d.fields))}
	for matched := range len(m.each.path.ends) + 1 {
		a.begun = append(a.begun, m.each.begun(d.around, matched))
	}
	m.around = append(m.around, a)

	return &m.around[len(m.around)-1]
}

// outside returns what d finds in a scope, but for the arrays that its measurements are elements of. Each scope is read
// once.
func (m *Measurements) outside(d *Decoder, scope int32) []Found {
	a, n := m.surroundings(d), len(d.fields)
	if scopes := len(m.found.scopes); len(a.begin) < scopes {
		was := len(a.begin)
		a.begin = slices.Grow(a.begin, scopes-was)[:scopes]
		clear(a.begin[was:])
	}

	if a.begin[scope] == 0 {
		begin := len(a.found)
		a.begin[scope] = begin + 1
		a.found = slices.Grow(a.found, n)[:begin+n]
		s, of := m.outer, &m.found.scopes[scope]
		s.mended, s.repaired = m.found.mended, m.found.repaired
		s.closed = of.closed
		s.readValues(d, d.around, of.value, a.found[begin:])
		m.readBegun(d, s, of.matched, of.value, a.found[begin:])
	}

	return a.found[a.begin[scope]-1:][:n]
}

// AppendText appends the text, number or boolean that f, of a field with Text, stands for. No other measurement has been
// read since.
func (m *Measurements) AppendText(to []byte, f Found) []byte {
	v := textOf(m.one.texts, f.Value)
	if v[0] != '"' {
		return append(to, v...)
	}
	return append(to, bytes.TrimSpace(m.one.unquote(v))...)
}

// Value returns the measurement with an index as JSON, or the body of a whole message. It must not be changed.
func (m *Measurements) Value(i int) []byte {
	if m.each == nil {
		return m.Event.Body
	}
	return m.found.elements[i].value
}

// Sort orders the measurements by when they were taken, in Unix µs, as at says of each, if it knows that of all. Those
// of the same time stay in the order in which they are in the message, which is that of all measurements before.
func (m *Measurements) Sort(at func(i int) (us int64, ok bool)) {
	all := m.found.elements
	for i := range all {
		var ok bool
		if all[i].at, ok = at(i); !ok {
			return
		}
	}

	m.last = -1
	slices.SortStableFunc(all, func(a, b element) int { return cmp.Compare(a.at, b.at) })
}

// maxParts is how many names an Each may have.
const maxParts = 16

// An Each says where in a message its measurements are. It is not changed, and safe for concurrent use.
type Each struct {
	path path // a part of a name may be *, which stands for any text
	// like matches names of path from one with an index to another one, joined by dots; nil unless there is a * in them.
	like [maxParts][maxParts]*regexp.Regexp
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

	e := &Each{path: p}
	for first := range p.ends {
		for last := first; last < len(p.ends); last++ {
			if names := regexp.QuoteMeta(string(p.between(first, last))); strings.Contains(names, `\*`) {
				e.like[first][last] = regexp.MustCompile(`(?is)^` + strings.ReplaceAll(names, `\*`, `.*`) + `$`)
			}
		}
	}

	return e, nil
}

// between returns p's names from one with an index to another one, joined by dots.
func (p *path) between(first, last int) []byte {
	begin := 0
	if first > 0 {
		begin = p.ends[first-1] + 1
	}
	return p.text[begin:p.ends[last]]
}

// past returns which names of e are matched, a bit for how many, once name is, of which so many may have been before.
// A name with dots may be several.
func (e *Each) past(matched uint32, name []byte) (now uint32) {
	for i := range e.path.ends {
		for j := i; matched&(1<<i) != 0 && j < len(e.path.ends); j++ {
			like := e.like[i][j]
			if like != nil && like.Match(name) || like == nil && bytes.EqualFold(e.path.between(i, j), name) {
				now |= 1 << (j + 1)
			}
		}
	}

	return now
}

// begun returns those of the paths in at that begin with names of e, the last of which is the one before an index, so that
// they lead to where so many have matched: with readings, readings.unit is the unit of each of them.
func (e *Each) begun(at []cursor, matched int) (all []cursor) {
	for _, c := range at {
		for n := 1; n <= matched && n <= len(c.path.ends); n++ {
			if bytes.EqualFold(e.path.between(matched-n, matched-1), c.path.between(0, n-1)) {
				all = append(all, cursor{path: c.path, names: n, next: c.path.ends[n-1] + 1})
			}
		}
	}

	return all
}

// An element is a measurement in a message.
type element struct {
	value []byte // as JSON
	key   []byte // the name under which it or its array stands, as JSON; nil if there is none
	scope int32  // the innermost object around it; -1: none
	at    int64  // when it was taken, in Unix µs: see Measurements.Sort
}

// A scope is an object with measurements in it.
type scope struct {
	value   []byte // as JSON
	closed  []int  // where in it arrays of measurements begin, and texts with some, in order
	begin   int    // where it begins in its text
	around  int32  // the object around it; -1: none
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
	for reason == ReasonOK && !f.json.ends() {
		if f.value(at) != nil {
			reason = ReasonMalformed
		}
	}

	return reason
}

// value looks at the next value, which is at a place.
func (f *finder) value(at place) error {
	kind := f.json.peek()
	isWhole := at.matched&(1<<len(f.each.path.ends)) != 0
	switch {
	case kind == '[' && !at.element:
		return f.array(at)
	case kind == '{' && !isWhole:
		return f.object(at)
	}

	v, err := f.json.peeked(kind)
	if err == nil && !f.inText(v, at) && isWhole {
		f.elements = append(f.elements, element{value: v, key: at.key, scope: at.scope})
	}

	return err
}

// array looks at the elements of an array. A name that is a number is that of one of them.
func (f *finder) array(at place) error {
	if err := f.json.bracket(); err != nil {
		return err
	}

	f.close(at.scope, f.json.at-1)
	element := at
	element.element = true
	for i := 0; f.json.peek() != ']'; i++ {
		element.matched = at.matched
		for n, position := range f.each.path.positions {
			if position == i && at.matched&(1<<n) != 0 {
				element.matched |= 1 << (n + 1)
			}
		}
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
			_, err = f.json.value()
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

// inText looks into v, a value at a place, and reports whether that is a text with JSON.
func (f *finder) inText(v []byte, at place) bool {
	if v[0] != '"' {
		return false
	}

	text, ok := f.textWithin(v)
	if !ok {
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

	return true
}
