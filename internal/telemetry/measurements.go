package telemetry

import (
	"bytes"
	"cmp"
	"slices"
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
	each    *Each
	event   *Event
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
	m := &Measurements{each: each, one: newScanner()}
	if each != nil {
		m.found = finder{scanner: newScanner(), each: each}
		m.outer = newScanner()
	}

	return m
}

// Split takes e, and returns how many measurements it has, and if it has none, why. m does not change e, which must not
// change before the next Split.
func (m *Measurements) Split(e *Event) (n int, reason Reason) {
	m.event = e
	m.last = -1
	if m.each == nil {
		return 1, ReasonOK
	}

	m.reset()
	f := &m.found
	if reason = unread(e); reason != ReasonOK {
		f.elements = f.elements[:0]
		return 0, reason
	}

	f.reason = ReasonMalformed // until a layer of the body says something else
	end := f.unpack(e.Body, func(text []byte) (broken bool) { return f.find(text) })
	m.damaged = f.changed || f.isDamaged()
	switch {
	case f.reason == ReasonMalformed:
		f.elements = f.elements[:0]
		reason = cmp.Or(end, ReasonMalformed)
		if reason == ReasonMalformed && !understood(e.ContentEncoding) {
			reason = ReasonUnsupportedEncoding
		}

	case len(f.elements) > 0:
		return len(f.elements), ReasonOK
	case f.reason != ReasonOK:
		reason = f.reason
	case f.tooDeep, f.mended.tooDeep:
		reason = ReasonTooDeep
	case f.mended.stopped:
		reason = ReasonMalformed
	default:
		reason = ReasonMissing
	}

	return 0, reason
}

// reset forgets the last message, and memory that a usual one does not need.
func (m *Measurements) reset() {
	const kept = maxKept / 64
	f := &m.found
	if cap(f.elements) > kept {
		f.elements = nil
	}
	if cap(f.scopes) > kept {
		f.scopes = nil
	}
	if cap(f.repair) > maxKept {
		f.repair = nil
	}

	for i := range m.around {
		a := &m.around[i]
		if cap(a.found) > kept || cap(a.begin) > kept {
			*a = surroundings{decoder: a.decoder, begun: a.begun, inner: a.inner}
		}
		a.begin, a.found = a.begin[:0], a.found[:0]
	}

	m.outer.texts = m.outer.texts[:0]
}

// Read sets found to what d finds in the measurement with an index, as Decoder.DecodeAll does.
func (m *Measurements) Read(d *Decoder, i int, found []Found) Reason {
	if i != m.last {
		m.last = i
		m.one.texts = m.one.texts[:0]
	}

	if m.each == nil {
		return d.decode(m.one, m.event, found)
	}

	found = found[:len(d.fields)]
	one, s := &m.found.elements[i], m.one
	m.lend(s)
	s.depth = int(one.depth)
	s.readValues(d, d.start, one.value, found)
	//planted:conditions-of-first-element first := make([]Found, len(found)); s.readValues(d, d.start, m.found.elements[0].value, first); for j := range found { if d.fields[j].condition { found[j] = first[j] } }
	m.readBegun(d, s, len(m.each.names), one.value, found)

	for i := range found {
		f := &found[i]
		f.Damaged = m.damaged
		to := &d.fields[i]
		if to.condition && len(to.names) > 0 {
			m.lookAround(d, i, one.scope, f)
		}

		if f.Reason != ReasonOK && to.condition || len(to.given) > 0 {
			to.elsewhere(s, i, m.event, one.key, f)
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
		if to := &d.fields[i]; to.condition && to.lacks(found[i].Reason) && a.inner[i].Reason != ReasonMissing {
			found[i] = a.inner[i]
		}
	}
}

// lend has s read as the finder does.
func (m *Measurements) lend(s *scanner) {
	s.mended = m.found.mended
	s.repaired = m.found.repaired
	s.changed = m.found.changed
}

// lookAround sets f, the field of d with an index, to what is around a measurement in scope, if that has no such field.
func (m *Measurements) lookAround(d *Decoder, field int, scope int32, f *Found) {
	for ; scope >= 0 && d.fields[field].lacks(f.Reason); scope = m.found.scopes[scope].around {
		outer := m.outside(d, scope)[field]
		if outer.Reason == ReasonMissing {
			continue
		}

		if outer.Reason == ReasonOK && d.fields[field].isText {
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
	for matched := range len(m.each.names) + 1 {
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
		m.lend(s)
		s.depth = int(of.depth)
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

// Event returns the message that m has taken.
func (m *Measurements) Event() *Event { return m.event }

// Value returns the measurement with an index as JSON, or the body of a whole message. It must not be changed.
func (m *Measurements) Value(i int) []byte {
	if m.each == nil {
		return m.event.Body
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
