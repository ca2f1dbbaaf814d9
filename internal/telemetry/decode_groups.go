package telemetry

// groupsOf returns the groups with two fields or more in the elements of an array, at the place in the body
// that at describes. A field that names a position is in one element whatever is in the others.
func groupsOf(at []cursor) (groups fieldBits, any bool) {
	var first [maxDecoded + 1]uint16
	for _, c := range at {
		g := c.path.group
		switch {
		case g == 0 || c.position() >= 0:
		case first[g] == 0:
			first[g] = c.path.field + 1
		case first[g] != c.path.field+1:
			groups.set(g)
			any = true
		}
	}

	return groups, any
}

// grouping is value for an element of an array that at describes. of is what at is in the element. What is of
// groups replaces what in has of other elements, or is left out.
func (s *scanner) grouping(kind byte, groups *fieldBits, at, of []cursor, in []finding) error {
	all := s.push(at, len(in))
	err := s.value(kind, of, all, '[')
	done := *groups

	for i, c := range at {
		field, g := c.path.field, c.path.group
		switch {
		case !groups.has(int(g)) || c.position() >= 0:
			if i == 0 || at[i-1].path.field != field {
				c.join(in, all[field], '[')
			}

		case done.has(int(g)):
			done[g/64] &^= 1 << (g % 64)
			chooseGroup(at, g, in, all)
		}
	}

	s.pop(len(in))

	return err
}

// chooseGroup replaces what in has of a group by one, which is of another element, if that one counts.
func chooseGroup(at []cursor, g uint16, in, one []finding) {
	now, before := weigh(at, g, one), weigh(at, g, in)
	if !now.has || before.has && !now.before(before) {
		return
	}

	for _, c := range at {
		if c.path.group != g || c.position() >= 0 {
			continue
		}

		to, from := &in[c.path.field], one[c.path.field]
		if to.reason == ReasonOK && from.reason == ReasonOK {
			from.rank = min(from.rank, to.rank)
		}
		*to = from
	}
}

// A weight says how much an element counts for a group.
type weight struct {
	has    bool    // it has something of it
	holds  int     // 2 if all conditions hold, 1 if one of them is not there, 0 if one does not hold
	reads  int     // 2 if there are a reading and what limits are counted from, 1 if there is only a reading, else 0
	there  bool    // there is something where the reading must be
	beyond float64 // the reading, as far as it is beyond what limits are counted from
	lowest bool    // the lowest counts
}

func weigh(at []cursor, g uint16, frame []finding) weight {
	w := weight{holds: 2}
	base, hasBase, needsBase, isValid := 0.0, false, false, true
	var reading finding

	for _, c := range at {
		p, f := c.path, frame[c.path.field]
		if p.group != g || c.position() >= 0 {
			continue
		}

		w.has = w.has || f.reason != ReasonMissing
		isOther := f.reason == ReasonOK && f.value == 0

		switch {
		case !p.condition:
			reading = f
			w.lowest = p.lowest
			w.there = f.reason != ReasonMissing
			w.reads = 1
		case p.isText, p.time:
		case p.flag:
			isValid = isValid && !isOther
		case len(p.words) > 0 && isOther:
			w.holds = 0
		case len(p.words) > 0 && f.reason != ReasonOK:
			w.holds = min(w.holds, 1)
		case p.limit:
			needsBase = true
			if f.reason == ReasonOK {
				base, hasBase = f.value, true
			} else if p.otherwise != nil {
				base, hasBase = *p.otherwise, true
			}
		}
	}

	if reading.reason != ReasonOK || !isValid {
		w.reads = 0
	}

	if w.reads == 1 && (hasBase || !needsBase) {
		w.reads = 2
	}

	w.beyond = reading.value - base

	return w
}

// before reports whether an element with the weight w counts, and not one with the weight v, which comes earlier.
func (w weight) before(v weight) bool {
	switch {
	case w.holds != v.holds:
		return w.holds > v.holds
	case w.reads != v.reads:
		return w.reads > v.reads
	case w.reads == 0:
		return w.there && !v.there
	case w.lowest:
		return w.beyond < v.beyond
	}

	return w.beyond > v.beyond
}
