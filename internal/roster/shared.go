package roster

// maxShared bounds the values that the devices of a roster share. Of a device with another one nothing is known.
const maxShared = 20_000

// shared has what devices share with others, for each of their columns. Each value is kept once.
type shared struct {
	of     []uint32          // indexes in values, one for each index of Roster.heard; nil as long as there is no value
	values []string          // the first is empty
	index  map[string]uint32 // of values
	later  int               // times that there is no room until somebody looks for values that no device has
}

// Share records what a device shares with others by the Per of a column: empty if its last event that counts does not
// say. It allocates nothing if that is known of the device.
func (r *Roster) Share(device, column int, value []byte) {
	if r.shared.of == nil && len(value) > 0 {
		r.shared = shared{of: make([]uint32, len(r.heard), cap(r.heard)), values: []string{""}, index: map[string]uint32{"": 0}}
	}

	r.shared.set(device*len(r.columns)+column, value)
}

// Shared returns what a device shares with others by the Per of a column; empty if that is nothing, or not known.
func (r *Roster) Shared(device, column int) string {
	return r.shared.get(device*len(r.columns) + column)
}

func (s *shared) get(at int) string {
	if s.of == nil {
		return ""
	}
	return s.values[s.of[at]]
}

func (s *shared) set(at int, value []byte) {
	if s.of == nil || s.values[s.of[at]] == string(value) {
		return
	}

	i, known := s.index[string(value)]
	if !known && len(s.values) >= maxShared {
		if s.later--; s.later < 0 {
			s.compact()
			s.later = maxShared
		}
	}

	if !known && len(s.values) < maxShared {
		i = uint32(len(s.values))
		s.values = append(s.values, string(value))
		s.index[s.values[i]] = i
	}

	s.of[at] = i
}

// compact drops the values that no device has any more, unless these are few.
func (s *shared) compact() {
	used := map[uint32]bool{0: true}
	for _, i := range s.of {
		used[i] = true
	}

	if len(used) > maxShared/2 {
		return
	}

	to := make([]uint32, len(s.values))
	kept := s.values[:0]
	clear(s.index)
	for i, value := range s.values {
		if used[uint32(i)] {
			to[i] = uint32(len(kept))
			s.index[value] = to[i]
			kept = append(kept, value)
		}
	}

	clear(s.values[len(kept):])
	s.values = kept
	for at, i := range s.of {
		s.of[at] = to[i]
	}
}

// grow makes room for as many devices and columns.
func (s *shared) grow(n int) {
	if s.of != nil {
		s.of = append(s.of, make([]uint32, n-len(s.of))...)
	}
}

// cut leaves as many devices and columns.
func (s *shared) cut(n int) {
	if s.of != nil {
		s.of = s.of[:n]
	}
}

func (s *shared) move(from, to int) {
	if s.of != nil {
		s.of[to] = s.of[from]
	}
}
