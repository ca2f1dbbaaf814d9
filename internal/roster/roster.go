// Package roster knows who was heard in one partition, and when: what a rule about silence decides by.
//
// A [Roster] follows from the partition's log up to its position, and from nothing else. So a copy of it, kept in
// a [File], needs no owner. It may be ahead of the checkpoint or behind it, and one that is written late, or by a
// former owner of the partition, only costs reading.
package roster

import (
	"slices"
	"strings"
	"time"

	"alertworker/internal/telemetry"
)

const (
	MaxDevices = 100_000 // in one roster
	MaxName    = 256     // bytes of a device's ID; IoT Hub's have at most 128
)

// A Heard is the last event of one device that counts. The zero Heard is none.
type Heard struct {
	Sequence int64
	Time     int64 // when the hub took it, in Unix ms
	Quiet    int64 // until when the device is allowed to be silent, in Unix ms; 0: not at all
}

// A Place is one in the partition.
type Place struct {
	Sequence int64
	Time     int64 // in Unix ms
}

// A Roster is not safe for concurrent use.
type Roster struct {
	// Position: everything up to here has been heard.
	Position telemetry.Position
	// Floor: of what was before it, something may be missing. So every device counts as heard there.
	Floor Place

	fields []string // what events must have to count, as the user of the roster calls it
	index  index
	names  []string
	heard  []Place // one for each device and field; its time is 0 if there is none
	quiet  []int64 // Heard.Quiet likewise; nil as long as nobody was quiet, as without the property
}

// New returns an empty roster. What an event must have to count is called fields, of which there is at least one.
func New(fields []string) *Roster {
	return &Roster{fields: fields, index: newIndex(), Floor: Place{Sequence: -1}}
}

// Len returns how many devices are known.
func (r *Roster) Len() int { return len(r.names) }

// Known returns how many devices were heard for a field.
func (r *Roster) Known(field string) (n int) {
	f := slices.Index(r.fields, field)
	for d := 0; f >= 0 && d < len(r.names); d++ {
		if r.Heard(d, f) != (Heard{}) {
			n++
		}
	}
	return n
}

// Device returns the number of a device, which is valid until the next Forget; -1 if it is not known.
func (r *Roster) Device(name string) int { return r.Find(name, Hash(name)) }

// Find is Device for a name whose hash is known.
func (r *Roster) Find(name string, hash uint64) int {
	device, _ := r.index.find(name, hash, r.names)
	return device
}

// Add returns the number of a device, which is known from now on; -1 if there is no room for it.
func (r *Roster) Add(name string) int {
	device, slot := r.index.find(name, Hash(name), r.names)
	if device >= 0 {
		return device
	}
	if len(r.names) == MaxDevices || len(name) > MaxName {
		return -1
	}
	r.names = append(r.names, strings.Clone(name))
	r.heard = append(r.heard, make([]Place, len(r.fields))...)
	if r.quiet != nil {
		r.quiet = append(r.quiet, make([]int64, len(r.fields))...)
	}
	r.index.add(slot, r.names)
	return len(r.names) - 1
}

// Name returns that of a device.
func (r *Roster) Name(device int) string { return r.names[device] }

// Heard returns the last event of a device that counts for a field.
func (r *Roster) Heard(device, field int) Heard {
	at := device*len(r.fields) + field
	h := Heard{Sequence: r.heard[at].Sequence, Time: r.heard[at].Time}
	if r.quiet != nil {
		h.Quiet = r.quiet[at]
	}
	return h
}

// Last returns the last event of a device that counts for a field, by their names; the zero Heard if there is none.
func (r *Roster) Last(name, field string) Heard {
	device, f := r.Device(name), slices.Index(r.fields, field)
	if device < 0 || f < 0 {
		return Heard{}
	}
	return r.Heard(device, f)
}

// Hear records an event of a device, unless a later one is known.
func (r *Roster) Hear(device, field int, h Heard) {
	if at := device*len(r.fields) + field; r.heard[at].Time == 0 || h.Sequence > r.heard[at].Sequence {
		r.set(at, h)
	}
}

func (r *Roster) set(at int, h Heard) {
	r.heard[at] = Place{h.Sequence, h.Time}
	if r.quiet == nil && h.Quiet != 0 {
		r.quiet = make([]int64, len(r.heard), cap(r.heard))
	}
	if r.quiet != nil {
		r.quiet[at] = h.Quiet
	}
}

// Forget removes what is known of a device for a field, and with the last one the device, in whose place comes the
// last device of all. It reports whether it did that.
func (r *Roster) Forget(device, field int) (all bool) {
	n := len(r.fields)
	of := r.heard[device*n : (device+1)*n]
	r.set(device*n+field, Heard{})
	for _, h := range of {
		if h != (Place{}) {
			return false
		}
	}
	last := len(r.names) - 1
	r.index.remove(device, r.names)
	if device != last {
		for f := range n {
			r.set(device*n+f, r.Heard(last, f))
		}
		r.index.move(last, device, r.names)
		r.names[device] = r.names[last]
	}
	r.names[last] = ""
	r.names, r.heard = r.names[:last], r.heard[:last*n]
	if r.quiet != nil {
		r.quiet = r.quiet[:last*n]
	}
	return true
}

// Raise raises the floor, unless it is there already.
func (r *Roster) Raise(to Place) {
	if to.Sequence > r.Floor.Sequence {
		r.Floor.Sequence = to.Sequence
	}
	r.Floor.Time = max(r.Floor.Time, to.Time)
}

// Rebase makes r the roster of another hub, of which nothing was heard: its devices stay known.
func (r *Roster) Rebase(to telemetry.Position) {
	r.Position, r.Floor.Sequence = to, -1
	for i := range r.heard {
		if r.heard[i].Time != 0 {
			r.heard[i].Sequence = -1
		}
	}
}

// Since returns what a silence after h is about: h, or the floor if that is later.
func (r *Roster) Since(h Heard) Place {
	return Place{max(h.Sequence, r.Floor.Sequence), max(h.Time, r.Floor.Time)}
}

// Deadline returns from when on a device is silent, in Unix ms, of which h is the last event that counts. It is
// later than any time if it may be silent for ever.
func (r *Roster) Deadline(h Heard, silent time.Duration) int64 {
	return max(r.Since(h).Time+silent.Milliseconds(), h.Quiet)
}
