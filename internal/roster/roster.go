// Package roster knows who was heard in one partition, and when: what a rule about silence decides by. What is said of
// devices in it is true of their sensors, which are known one by one where a rule tells them apart.
//
// A [Roster] follows from the partition's log up to its position, and from nothing else. So a copy of it, kept in
// a [File], needs no owner. It may be ahead of the checkpoint or behind it, and one that is written late, or by a
// former owner of the partition, only costs reading.
package roster

import (
	"cmp"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
	"unique"

	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// MaxDevices is how many a roster knows, with sensors.
const MaxDevices = 100_000

// A Heard is the last event of one device that counts. The zero Heard is none.
type Heard struct {
	Sequence int64
	Time     int64 // when the hub took it, in Unix ms
	Quiet    int64 // until when the device is allowed to be silent, in Unix ms; 0: not at all. Or Excluded
}

// Excluded is the Quiet of a device from which a rule expects nothing, because of its Only.
const Excluded = math.MaxInt64 - 1

// Expected reports whether a rule expects something of a device whose last event is h.
func (h Heard) Expected() bool { return h.Time != 0 && h.Quiet != Excluded }

// A Place is one in the partition.
type Place struct {
	Sequence int64
	Time     int64 // in Unix ms
}

// A Column is who was heard as one rule counts it.
type Column struct {
	Rule  string `json:"rule"`
	Hears string `json:"hears,omitempty"` // what events must have to count, as the user of the roster calls it
	Only  string `json:"only,omitempty"`  // which devices the rule expects to hear from; empty: all
	// Covers reports whether those are all that a rule with another Only expects to hear from; nil: of none
	Covers func(only string) bool `json:"-"`
	Limit  time.Duration          `json:"limit"`         // after how long the rule calls a device silent
	Per    string                 `json:"per,omitempty"` // by what name devices share a value; empty: by none

	// Floor: of what was before it, something may be missing. So every device counts as heard there.
	Floor Place `json:"floor"`
	// Gap is the last place before which some events are missing that were taken within Limit. It stands in for Floor
	// once: see Silence.
	Gap Place `json:"gap,omitzero"`
	// Idle is since when nobody has heard for the column, because the rule was not configured, in Unix ms; 0: somebody
	// does.
	Idle int64 `json:"idle,omitempty"`
}

// KeepIdle is how long a column without a rule is kept for: the partition may go on to a replica that has the rule.
const KeepIdle = 10 * time.Minute

// MaxColumns bounds those of a roster, with those that are idle.
const MaxColumns = 64

// A Roster is not safe for concurrent use.
type Roster struct {
	// Position: everything up to here has been heard.
	Position telemetry.Position
	// Outage: since then nothing has come to any partition of the hub, in Unix ms, and the hub is taken to be cut off from
	// its devices; 0: it is not.
	Outage int64

	columns []Column
	numbers map[uint64]uint32 // of names, by their hashes: what a map of names would take is three times as much
	names   []sensor.ID
	known   []known // one for each device and column
}

// known is what a roster has of one device for one column.
type known struct {
	Heard
	shared unique.Handle[string] // what the device shares with others; the zero one is nothing
}

// New returns an empty roster with at least one column, each for a rule of its own.
func New(columns []Column) *Roster {
	r := &Roster{columns: slices.Clone(columns), numbers: map[uint64]uint32{}}
	for i := range r.columns {
		r.columns[i].Floor = before
		r.columns[i].Gap = before
	}

	return r
}

// before is a place before all others.
var before = Place{Sequence: -1}

// Len returns how many devices and sensors are known.
func (r *Roster) Len() int { return len(r.names) }

// Column returns the number of a rule's column, -1 if there is none.
func (r *Roster) Column(rule string) int {
	return slices.IndexFunc(r.columns, func(c Column) bool { return c.Rule == rule })
}

// seed is random, so that nobody can choose names that share a hash.
var seed = maphash.MakeSeed()

// Hash returns a hash of a device's name, the same in all of one process. It costs about half of what finding a
// device does.
func Hash(name string) uint64 { return maphash.String(seed, name) }

// hashOf returns the hash of a sensor of the device with this hash, or that of the device if name is empty.
func hashOf(device uint64, name []byte) uint64 {
	if len(name) == 0 {
		return device
	}
	return bits.RotateLeft64(device, 17) ^ maphash.Bytes(seed, name)
}

// Device returns the number of a device or sensor, which is valid until the next Forget; -1 if it is not known.
func (r *Roster) Device(of sensor.ID) int { return r.Find(of.Device, Hash(of.Device), []byte(of.Name)) }

// Find is Device for the name of a device whose hash is known, and that of its sensor. It allocates nothing.
func (r *Roster) Find(device string, hash uint64, name []byte) int {
	number, is := r.numbers[hashOf(hash, name)]
	if !is || r.names[number].Device != device || r.names[number].Name != string(name) {
		return -1
	}

	return int(number)
}

// Add returns the number of a device or sensor, which is known from now on; -1 if there is no room for it, or if another
// one has its hash, which nobody will see in a lifetime.
func (r *Roster) Add(of sensor.ID) int {
	hash := hashOf(Hash(of.Device), []byte(of.Name))
	number, is := r.numbers[hash]
	switch {
	case is && r.names[number] == of:
		return int(number)
	case is, len(r.names) == MaxDevices:
		return -1
	}

	r.names = append(r.names, sensor.ID{Device: strings.Clone(of.Device), Name: strings.Clone(of.Name)})
	r.known = append(r.known, make([]known, len(r.columns))...)
	r.numbers[hash] = uint32(len(r.names) - 1)

	return len(r.names) - 1
}

// Name returns that of a device.
func (r *Roster) Name(device int) sensor.ID { return r.names[device] }

// Covered returns what r knows of what of names: the sensor, or the device with all of its sensors.
func (r *Roster) Covered(of sensor.ID) (all []sensor.ID) {
	for _, each := range r.names {
		if of.Covers(each) {
			all = append(all, each)
		}
	}

	return all
}

// Heard returns the last event of a device that counts for a column.
func (r *Roster) Heard(device, column int) Heard {
	return r.known[device*len(r.columns)+column].Heard
}

// Last returns the last event of a device that counts for a rule, by their names; the zero Heard if there is none.
func (r *Roster) Last(of sensor.ID, rule string) Heard {
	device := r.Device(of)
	column := r.Column(rule)
	if device < 0 || column < 0 {
		return Heard{}
	}

	return r.Heard(device, column)
}

// Hear records an event of a device, unless a later one is known.
func (r *Roster) Hear(device, column int, h Heard) {
	last := &r.known[device*len(r.columns)+column].Heard
	if last.Time == 0 || last.Sequence < h.Sequence {
		*last = h
	}
}

// Excuse records that a device that was heard is allowed to be silent until a time, in Unix ms, if it was not.
func (r *Roster) Excuse(device, column int, until int64) {
	if h := &r.known[device*len(r.columns)+column].Heard; h.Time != 0 {
		h.Quiet = max(h.Quiet, until)
	}
}

// Forget removes what is known of a device for a column, and with the last column that is not idle the device, in whose
// place comes the last device of all. It reports whether it did that.
func (r *Roster) Forget(device, column int) (all bool) {
	columns := r.of(device)
	columns[column] = known{}
	for i, k := range columns {
		if k.Heard != (Heard{}) && r.columns[i].Idle == 0 {
			return false
		}
	}

	r.remove(device)

	return true
}

// Remove removes a device, if it is known.
func (r *Roster) Remove(of sensor.ID) {
	if device := r.Device(of); device >= 0 {
		r.remove(device)
	}
}

// remove removes a device, in whose place comes the last one.
func (r *Roster) remove(device int) {
	last := len(r.names) - 1
	hash := func(of sensor.ID) uint64 { return hashOf(Hash(of.Device), []byte(of.Name)) }
	delete(r.numbers, hash(r.names[device]))
	if device != last {
		copy(r.of(device), r.of(last))
		r.numbers[hash(r.names[last])] = uint32(device)
		r.names[device] = r.names[last]
	}

	r.names[last] = sensor.ID{}
	r.names = r.names[:last]
	r.known = r.known[:last*len(r.columns)]
}

// of returns what is known of a device, for each column.
func (r *Roster) of(device int) []known {
	return r.known[device*len(r.columns) : (device+1)*len(r.columns)]
}

// Share records what a device shares with others by the Per of a column: empty if its last event that counts does not
// say. It allocates nothing if that is what it shared before.
func (r *Roster) Share(device, column int, value []byte) {
	if r.Shared(device, column) != string(value) {
		r.of(device)[column].shared = unique.Make(string(value))
	}
}

// Shared returns what a device shares with others by the Per of a column; empty if that is nothing, or not known.
func (r *Roster) Shared(device, column int) string {
	shared := r.of(device)[column].shared
	if shared == (unique.Handle[string]{}) {
		return ""
	}

	return shared.Value()
}

// Raise raises all floors, unless they are there already.
func (r *Roster) Raise(to Place) {
	for i := range r.columns {
		r.Restart(i, to)
	}
}

// Unheard records that nobody has heard what came before a place: floors rise, and every device is excused until then, so
// that none is forgotten before it was silent. One that would be has a whole Forget after that.
func (r *Roster) Unheard(to Place) {
	r.Raise(to)
	for i := range r.columns {
		r.ExcuseAll(i, to.Time)
	}
}

// ExcuseAll is Excuse for every device.
func (r *Roster) ExcuseAll(column int, until int64) {
	for device := range r.names {
		r.Excuse(device, column, until)
	}
}

// Restart raises the floor of a column, unless it is there already: deadlines start anew.
func (r *Roster) Restart(column int, at Place) {
	c := &r.columns[column]
	c.Floor = later(c.Floor, at)
}

// FloorOf returns the time of the floor of a rule's column, in Unix ms; 0 if there is none.
func (r *Roster) FloorOf(rule string) int64 {
	if column := r.Column(rule); column >= 0 {
		return r.columns[column].Floor.Time
	}
	return 0
}

// Floor returns the latest floor's time, in Unix ms.
func (r *Roster) Floor() (at int64) {
	for i := range r.columns {
		at = max(at, r.columns[i].Floor.Time)
	}

	return at
}

// Expected is what rules about silence expect.
type Expected struct {
	Devices int           // from so many devices something, sensors aside
	Limit   time.Duration // the shortest after which one of them is silent; 0 if there is none
}

// And returns what both of e and o are.
func (e Expected) And(o Expected) Expected {
	both := Expected{Devices: e.Devices + o.Devices, Limit: cmp.Or(e.Limit, o.Limit)}
	if o.Limit != 0 {
		both.Limit = min(both.Limit, o.Limit)
	}

	return both
}

// Expects returns what the rules of r expect, but for those that are not configured any more.
func (r *Roster) Expects() (e Expected) {
	for device, of := range r.names {
		if of.Name != "" {
			continue
		}

		var one Expected
		for i := range r.columns {
			if r.columns[i].Idle == 0 && r.Heard(device, i).Expected() {
				one = one.And(Expected{Limit: r.columns[i].Limit})
				one.Devices = 1
			}
		}
		e = e.And(one)
	}

	return e
}

// Miss records that events are missing between two that the hub took at these times, in Unix ms, the second of them
// at to.
func (r *Roster) Miss(from int64, to Place) {
	for i := range r.columns {
		c := &r.columns[i]
		//planted:compacted-never-silent if true
		if to.Time-from > c.Limit.Milliseconds() {
			c.Floor = later(c.Floor, to)
		}

		c.Gap = later(c.Gap, to)
	}
}

// later returns the later sequence number and the later time of two places.
func later(a, b Place) Place {
	return Place{
		Sequence: max(a.Sequence, b.Sequence),
		Time:     max(a.Time, b.Time),
	}
}

// Rebase makes r the roster of another hub, which has sent nothing yet: its devices stay known.
func (r *Roster) Rebase(to telemetry.Position) {
	r.Position = to
	for i := range r.columns {
		r.columns[i].Floor.Sequence = -1
		r.columns[i].Gap.Sequence = -1
	}

	for i := range r.known {
		if h := &r.known[i].Heard; h.Time != 0 {
			h.Sequence = -1
		}
	}
}

// Silence returns what a silence of a device is about of which h is the last event that counts for a column, and its
// deadline, from when on the device is silent, in Unix ms: later than any time if it may be silent for ever.
//
// A gap before the deadline has it begin anew, once. Where events are missing again and again, the hub is compacted,
// and has kept the last event of each device: it takes twice the limit, and nothing else.
func (r *Roster) Silence(column int, h Heard) (since Place, deadline int64) {
	c := &r.columns[column]
	limit := c.Limit.Milliseconds()
	since = later(Place{h.Sequence, h.Time}, c.Floor)
	deadline = since.Time + limit

	switch {
	case c.Gap.Time <= since.Time:

	case c.Gap.Time <= deadline:
		since = later(since, c.Gap)
		deadline = since.Time + limit

	default:
		deadline += limit
	}

	return since, max(deadline, h.Quiet)
}
