package roster

// maxShared bounds the values that the devices of a roster share. Of a device with another one nothing is known.
const maxShared = 20_000

// Share records what a device shares with others by the Per of a column: empty if its last event that counts does not
// say. It allocates nothing if some device shares that already.
func (r *Roster) Share(device, column int, value []byte) {
	r.shared.set(&r.of(device)[column].shared, value)
}

// Shared returns what a device shares with others by the Per of a column; empty if that is nothing, or not known.
func (r *Roster) Shared(device, column int) string {
	return r.shared.text[r.of(device)[column].shared]
}

// values are what devices share. Each is kept once, for as long as a device has it.
type values struct {
	text   []string // the first is empty
	uses   []int    // of each but the first
	unused []uint32
	number map[string]uint32 // the index of a text
}

func newValues() values {
	return values{text: []string{""}, uses: []int{0}, number: map[string]uint32{"": 0}}
}

// set has of be the number of a value; that of the empty one if there is no room for it.
func (v *values) set(of *uint32, value []byte) {
	was := *of
	if v.text[was] == string(value) {
		return
	}

	i, known := v.number[string(value)]
	switch free := len(v.unused) - 1; {
	case known:
	case free >= 0:
		i = v.unused[free]
		v.unused = v.unused[:free]
		v.text[i] = string(value)
	case len(v.text) < maxShared:
		i = uint32(len(v.text))
		v.text = append(v.text, string(value))
		v.uses = append(v.uses, 0)
	}

	v.number[v.text[i]] = i
	v.uses[i]++
	*of = i

	if v.uses[was]--; was != 0 && v.uses[was] == 0 {
		delete(v.number, v.text[was])
		v.text[was] = ""
		v.unused = append(v.unused, was)
	}
}
