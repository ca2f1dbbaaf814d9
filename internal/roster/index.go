package roster

import (
	"hash/maphash"
	"math/bits"

	"alertworker/internal/sensor"
)

// An index finds devices and sensors by their names, which it does not hold: a table with linear probing that is at most half full.
// That takes a third of the memory of a map, and half of its time.
type index struct {
	// a power of two of them: bits of the name's hash, and below them the device's number plus 1; 0 is empty
	slots []uint32
	used  int
}

const (
	numberBits = 17 // for MaxDevices + 1
	numbers    = 1<<numberBits - 1
)

// seed is random, so that nobody can choose names that share a slot.
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

// idHash is hashOf for a whole ID.
func idHash(of sensor.ID) uint64 {
	if of.Name == "" {
		return Hash(of.Device)
	}
	return bits.RotateLeft64(Hash(of.Device), 17) ^ Hash(of.Name)
}

// place returns the slot where the search for a name begins, and the bits of its hash that a slot has.
func (x *index) place(hash uint64) (slot int, tag uint32) {
	return int(hash) & (len(x.slots) - 1), uint32(hash>>32) &^ numbers
}

// find returns the number of a device, or of its sensor unless name is empty, -1 if there is none, and its slot, or where
// it would be.
func (x *index) find(device string, name []byte, hash uint64, names []sensor.ID) (number, slot int) {
	slot, tag := x.place(hash)
	for ; x.slots[slot] != 0; slot = (slot + 1) & (len(x.slots) - 1) {
		s := x.slots[slot]
		if s&^numbers != tag {
			continue
		}

		if of := &names[s&numbers-1]; of.Device == device && of.Name == string(name) {
			return int(s&numbers) - 1, slot
		}
	}

	return -1, slot
}

// add adds the last device of names, at the slot that find returned.
func (x *index) add(slot int, names []sensor.ID) {
	last := len(names) - 1
	_, tag := x.place(idHash(names[last]))
	x.slots[slot] = tag | uint32(last+1)
	x.used++

	if x.used*2 <= len(x.slots) {
		return
	}

	x.slots = make([]uint32, 2*len(x.slots))
	for device, name := range names {
		slot, tag := x.place(idHash(name))
		for x.slots[slot] != 0 {
			slot = (slot + 1) & (len(x.slots) - 1)
		}

		x.slots[slot] = tag | uint32(device+1)
	}
}

// remove removes a device, and moves those back that its slot kept from theirs.
func (x *index) remove(device int, names []sensor.ID) {
	mask := len(x.slots) - 1
	_, hole := x.find(names[device].Device, []byte(names[device].Name), idHash(names[device]), names)
	for at := (hole + 1) & mask; x.slots[at] != 0; at = (at + 1) & mask {
		home, _ := x.place(idHash(names[x.slots[at]&numbers-1]))
		if (at-home)&mask >= (at-hole)&mask {
			x.slots[hole], hole = x.slots[at], at
		}
	}

	x.slots[hole] = 0
	x.used--
}

// move gives a device another number.
func (x *index) move(device, to int, names []sensor.ID) {
	_, slot := x.find(names[device].Device, []byte(names[device].Name), idHash(names[device]), names)
	x.slots[slot] = x.slots[slot]&^numbers | uint32(to+1)
}
