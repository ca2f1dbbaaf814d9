package telemetry

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"math"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// A scanner walks through one body at a time.
type scanner struct {
	json     jsonReader
	cursors  []cursor  // a stack: what the names down to here have matched
	found    []finding // a stack: what the objects and arrays down to here hold of each field
	text     []byte    // the last string that had to be unescaped
	texts    []byte    // what fields hold that are texts: see keepText
	scalar   []byte    // the last value that is not of the body, as JSON
	grouped  bool      // some fields have a group
	closed   []int     // where arrays and texts begin in what json reads that are not looked into, in order
	mended   mended    // what was done to what json reads
	changed  bool      // the checksum of what was unpacked is wrong
	repair   []byte    // of it, if it was damaged
	repaired bool      // json reads that
	gzip     gzip.Reader
	flate    io.ReadCloser // nil until it is needed, and so is the rest
	within   *scanner      // of JSON in text
	layer    int           // in how many texts it is
}

// begin makes s ready for text, which is trimmed, or says why there is nothing to scan.
func (s *scanner) begin(text []byte) Reason {
	switch {
	case len(text) == 0:
		return ReasonEmpty
	case len(text) > MaxBody:
		return ReasonTooLarge
	}

	s.json.reset(text)

	return ReasonOK
}

// readValues scans text, a sequence of JSON values, from the place that at describes, and reports whether it is broken.
// Unless it is, it sets in found what it holds of d's fields.
func (s *scanner) readValues(d *Decoder, at []cursor, text []byte, found []Found) (broken bool) {
	s.grouped = d.grouped
	all, reason := s.scan(at, text, len(found))
	s.pop(len(found)) // it stays valid until the next push
	if reason == ReasonMalformed {
		return true
	}

	reason = cmp.Or(reason, s.mended.unread)
	for i, one := range all {
		r := one.reason
		switch {
		case r == ReasonOK:
		case reason != ReasonOK:
			r = reason
		case s.mended.doubt && r == ReasonNull:
			r = ReasonMalformed
		}

		found[i] = Found{Value: one.value, Reason: r, rank: one.rank}
	}

	return false
}

// scan returns a frame for what text, a sequence of JSON values, holds of each of n fields; and ReasonMalformed if it is
// broken, in which case that is nothing, or why there is nothing to scan.
func (s *scanner) scan(at []cursor, text []byte, n int) (all []finding, reason Reason) {
	all = s.push(nil, n)
	for i := range all {
		all[i] = nothing
	}

	reason = s.begin(text)
	for first := true; reason == ReasonOK; first = false {
		kind := s.json.peek()
		if s.json.at == len(s.json.text) {
			break
		}

		var err error
		if s.grouped && !first { // several values are as the elements of an array
			groups, _ := groupsOf(at)
			err = s.grouping(kind, &groups, at, at, all)
		} else {
			err = s.value(kind, at, all, '[')
		}

		if err != nil {
			reason = ReasonMalformed
		}
	}

	return all, reason
}

// push returns a frame for what an object or array, at the place in the body that at
// describes, holds of each of n fields: nothing of those that at is about, and none of the others.
func (s *scanner) push(at []cursor, n int) []finding {
	start := len(s.found)
	s.found = slices.Grow(s.found, n)[:start+n]
	all := s.found[start:]
	for _, c := range at {
		all[c.path.index] = nothing
	}

	return all
}

func (s *scanner) pop(n int) { s.found = s.found[:len(s.found)-n] }

// value scans the next value, for which peek has returned kind, at the place in the body that at describes. It joins what it
// finds to in, which is of an array or an object: within says which. With an error that is what
// was found before.
func (s *scanner) value(kind byte, at []cursor, in []finding, within byte) error {
	switch kind {
	case '[', '{':
		if kind == '[' && s.isClosed(s.json.at) {
			_, err := s.json.peeked(kind)
			return err
		}

		if kind == within { // what is joined twice in the same way could be joined at once
			return s.values(at, in, kind)
		}

		all := s.push(at, len(in))
		err := s.values(at, all, kind)

		s.joinAll(at, in, all, within)
		s.pop(len(in))
		return err
	}

	v, f, read := s.json.plainNumber()
	one := finding{value: f, reason: ReasonOK}
	if !read {
		var err error
		if v, err = s.json.peeked(kind); err != nil {
			return err
		}
	}

	goesOn := false
	for _, c := range at {
		if !c.whole() {
			goesOn = true
			continue
		}

		if !read {
			one.value, one.reason = s.number(v)
			read = true
		}

		if s.isDamaged() && within == '[' { // see repairer
			c.join(in, finding{rank: c.path.rank, reason: ReasonMalformed}, within)
			continue
		}

		c.join(in, c.path.reading(s, v, one), within)
	}

	if goesOn && v[0] == '"' {
		s.inText(at, in, within, v)
	}

	return nil
}

// inText scans the JSON that v, a text, may be, for the paths that go on in it. What is broken holds nothing.
func (s *scanner) inText(at []cursor, in []finding, within byte, v []byte) {
	text, ok := s.textWithin(v)
	if !ok || s.isClosed(s.json.at-len(v)) {
		return
	}

	depth := len(s.cursors)
	defer func() { s.cursors = s.cursors[:depth] }()
	for _, c := range at {
		if !c.whole() {
			s.cursors = append(s.cursors, c)
		}
	}

	at = s.cursors[depth:]
	s.within.texts, s.within.grouped = s.texts, s.grouped
	all, reason := s.within.scan(at, text, len(in))
	s.texts = s.within.texts
	s.within.pop(len(in))
	if reason == ReasonOK {
		s.joinAll(at, in, all, within)
	}
}

// textWithin returns the JSON that v, a text, may be, and readies s.within for it. It returns false if it is none, and for a
// damaged body, in which nobody looks.
func (s *scanner) textWithin(v []byte) (text []byte, ok bool) {
	text = trim(s.unquote(v))
	if !isStart(text) || text[0] == '"' || s.isDamaged() || s.layer == maxLayers {
		return nil, false
	}

	if s.within == nil {
		s.within = new(scanner)
		s.within.layer = s.layer + 1
	}

	return text, true
}

// joinAll joins what one holds of fields to in, at the place that at describes, in an array or an object.
func (s *scanner) joinAll(at []cursor, in, one []finding, within byte) {
	for i, c := range at {
		if i == 0 || at[i-1].path.index != c.path.index { // once, whatever number of paths a field has
			c.join(in, one[c.path.index], within)
		}
	}
}

// isClosed reports whether what begins at an offset is not looked into.
func (s *scanner) isClosed(at int) bool {
	_, is := slices.BinarySearch(s.closed, at)
	return is
}

// isDamaged reports whether what s reads was made of a body that is not JSON.
func (s *scanner) isDamaged() bool { return s.mended.damage.Kind != noDamage && s.repaired }

// isUncertain reports whether what s reads may not be what was sent.
func (s *scanner) isUncertain() bool { return s.changed || s.isDamaged() }

// values scans an array or an object.
func (s *scanner) values(at []cursor, in []finding, kind byte) error {
	if err := s.json.bracket(); err != nil {
		return err
	}

	if kind == '[' {
		if err := s.elements(at, in); err != nil {
			return err
		}
	} else {
		var wanted beginnings // of the names with which paths go on
		for _, c := range at {
			if c.whole() {
				c.join(in, finding{rank: c.path.rank, reason: ReasonNotANumber}, kind)
			} else {
				wanted |= c.path.starts[c.names]
			}
		}

		depth := len(s.cursors)
		for {
			v, isPlain, err := s.json.seek(wanted)
			if err != nil {
				return err
			}
			if v == nil {
				break
			}

			name := v[1 : len(v)-1]
			if !isPlain {
				name = s.unquote(v)
			}
			for _, c := range at {
				if c, ok := c.advance(name); ok {
					s.cursors = append(s.cursors, c)
				}
			}

			if of := s.cursors[depth:]; len(of) > 0 {
				err := s.value(s.json.peek(), of, in, '{')
				s.cursors = s.cursors[:depth]
				if err != nil {
					return err
				}
			}
		}
	}

	return s.json.bracket()
}

// elements scans those of an array.
func (s *scanner) elements(at []cursor, in []finding) error {
	var groups groups
	isGrouped := false
	if s.grouped {
		groups, isGrouped = groupsOf(at)
	}

	hasPosition := slices.ContainsFunc(at, func(c cursor) bool { return c.position() >= 0 })
	for i := 0; ; i++ {
		kind := s.json.peek()
		if kind == ']' {
			return nil
		}

		depth, of := len(s.cursors), at
		if hasPosition { // a number is that of an element, and may also be a name in an object
			for _, c := range at {
				position := c.position()
				if position < 0 || kind == '{' {
					s.cursors = append(s.cursors, c)
				}
				if position == i {
					s.cursors = append(s.cursors, c.enter())
				}
			}
			of = s.cursors[depth:]
		}

		var err error
		if isGrouped {
			err = s.grouping(kind, &groups, at, of, in)
		} else {
			err = s.value(kind, of, in, '[')
		}

		s.cursors = s.cursors[:depth]
		if err != nil {
			return err
		}
	}
}

// unquote returns what a JSON string says. It is valid until the next call.
func (s *scanner) unquote(v []byte) []byte {
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}

	// Invalid UTF-8 is an error here, but replaced and no harm.
	s.text, _ = jsontext.AppendUnquote(s.text[:0], v)
	return s.text
}

// number reads a JSON value that is neither an object nor an array.
func (s *scanner) number(v []byte) (float64, Reason) {
	switch v[0] {
	case 'n':
		return 0, ReasonNull
	case 't':
		return 1, ReasonOK
	case 'f':
		return 0, ReasonOK
	case '"':
		if s.isDamaged() && !isNumber(v[1:len(v)-1]) && !notFinite(v[1:len(v)-1]) {
			return 0, ReasonNotANumber
		}
		v = bytes.TrimSpace(s.unquote(v))
	}

	f, ok := ParseNumber(v)
	switch {
	case ok:
		return f, ReasonOK
	case math.IsInf(f, 0), notFinite(v):
		return 0, ReasonNotFinite
	}

	return 0, ReasonNotANumber
}

// A finding is what part of a body holds of one field.
type finding struct {
	value  float64
	rank   uint8 // of the path it is from: the lower is preferred
	reason Reason
}

var nothing = finding{reason: ReasonMissing}

// join adds one to what in holds of c's field, in an array or an object.
func (c cursor) join(in []finding, one finding, within byte) {
	all := &in[c.path.index]
	switch {
	case one.reason == ReasonMissing:

	case all.reason == ReasonMissing:
		*all = one

	case (all.reason == ReasonOK) != (one.reason == ReasonOK):
		if one.reason == ReasonOK {
			*all = one
		}

	case all.reason == ReasonOK && (within == '[' || all.rank == one.rank): // elements, or one name twice
		all.rank = min(all.rank, one.rank)
		of, isWorse := &c.path.of.field, one.value > all.value
		if of.Lowest {
			isWorse = one.value < all.value
		}
		if isWorse || of.Condition && (within == '{' || of.Text) { // of conditions the last counts
			all.value = one.value
		}

	case one.rank < all.rank:
		*all = one
	}
}

// group returns that of c's field; 0 if it has none, or names a position: then it is in one element of an array whatever
// is in the others.
func (c cursor) group() int {
	if c.position() >= 0 {
		return 0
	}
	return c.path.of.field.Group
}

// groups has a bit for each of them.
type groups [maxDecoded/64 + 1]uint64

func (all *groups) has(g int) bool { return all[g/64]&(1<<(g%64)) != 0 }

// groupsOf returns the groups with two fields or more in the elements of an array, at the place in the body
// that at describes.
func groupsOf(at []cursor) (all groups, any bool) {
	var first [maxDecoded + 1]uint16
	for _, c := range at {
		g := c.group()
		switch {
		case g == 0:
		case first[g] == 0:
			first[g] = c.path.index + 1
		case first[g] != c.path.index+1:
			all[g/64] |= 1 << (g % 64)
			any = true
		}
	}

	return all, any
}

// grouping is value for an element of an array that at describes. of is what at is in the element. What is of
// groups replaces what in has of other elements, or is left out.
func (s *scanner) grouping(kind byte, groups *groups, at, of []cursor, in []finding) error {
	all := s.push(at, len(in))
	err := s.value(kind, of, all, '[')
	done := *groups

	for _, c := range at {
		switch g := c.group(); {
		case !groups.has(g):
			c.join(in, all[c.path.index], '[')
		case done.has(g):
			done[g/64] &^= 1 << (g % 64)
			chooseGroup(at, g, in, all)
		}
	}

	s.pop(len(in))

	return err
}

// chooseGroup replaces what in has of a group by one, which is of another element, if that one counts.
func chooseGroup(at []cursor, g int, in, one []finding) {
	now, before := weigh(at, g, one), weigh(at, g, in)
	if slices.Compare(now[:], before[:]) <= 0 {
		return
	}

	for _, c := range at {
		if c.group() != g {
			continue
		}

		to, from := &in[c.path.index], one[c.path.index]
		if to.reason == ReasonOK && from.reason == ReasonOK {
			from.rank = min(from.rank, to.rank)
		}
		*to = from
	}
}

// A weight says how much an element counts for a group, what matters most first:
//   - 1 if it has something of the group;
//   - 2 if all conditions hold, 1 if one of them is not there, 0 if one does not hold;
//   - 2 if there are a reading and what limits are counted from, 1 if there is only a reading;
//   - how far the reading is beyond what limits are counted from; without one, 1 if something is where it must be.
type weight [4]float64

func weigh(at []cursor, g int, frame []finding) weight {
	w := weight{1: 2, 2: 2}
	base, valid, sign := 0.0, 1.0, 1.0
	reading := nothing

	for _, c := range at {
		of, f := c.path.of, frame[c.path.index]
		if c.group() != g {
			continue
		}
		if f.reason != ReasonMissing {
			w[0] = 1
		}

		holds := 1.0
		if f.reason == ReasonOK {
			holds = min(2*f.value, 2)
		} else if of.field.Otherwise != nil {
			f = finding{value: *of.field.Otherwise}
		}

		switch {
		case !of.field.Condition:
			reading = f
			if of.field.Lowest {
				sign = -1
			}
		case of.field.Flag:
			valid = min(valid, holds)
		case len(of.words) > 0:
			w[1] = min(w[1], holds)
		case of.field.Limit && f.reason != ReasonOK:
			w[2] = 1
		case of.field.Limit:
			base = f.value
		}
	}

	switch {
	case reading.reason == ReasonMissing:
		w[2] = 0
	case reading.reason != ReasonOK || valid <= 0:
		w[2], w[3] = 0, 1
	default:
		w[3] = sign * (reading.value - base)
	}

	return w
}
