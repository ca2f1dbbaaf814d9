// Package sensor names what a reading is of.
package sensor

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// How long the two parts of an ID are, in bytes. IoT Hub's devices have at most 128 characters.
const (
	MaxDevice = 256
	MaxName   = 128
)

// Device returns what a device is called here, everywhere: id, or, if that is longer than MaxDevice, its beginning, a
// hash of all of it, and its end. So whatever is kept, sent or shown about a device is bounded, although anybody who may
// send to an event hub can write an id of a megabyte.
func Device(id string) string { return shorten(id, MaxDevice) }

// Name is Device for the name of a sensor, and MaxName.
func Name(name string) string { return shorten(name, MaxName) }

// shorten returns id, or its beginning, a hash of it between two ~, and its end, if it has more bytes than most.
func shorten(id string, most int) string {
	if len(id) <= most {
		return id
	}

	sum := sha256.Sum256([]byte(id))
	hash := "~" + hex.EncodeToString(sum[:8]) + "~"
	end := most / 4
	begin := most - len(hash) - end

	return strings.ToValidUTF8(id[:begin], "") + hash + strings.ToValidUTF8(id[len(id)-end:], "")
}

// An ID names a device, or one of its sensors. The two parts are never one text in a key or a record: over HTTP a device
// may have a name with any characters. It can be compared.
type ID struct {
	Device string
	Name   string // of the sensor; empty: the readings are the device's own
}

// Of returns the ID of a device's own readings.
func Of(device string) ID { return ID{Device: device} }

// Parse reads an ID as people write it in commands: the first slash parts device and sensor.
func Parse(text string) ID {
	device, name, _ := strings.Cut(text, "/")
	return ID{device, name}
}

// Covers reports whether other is id, or one of its sensors.
func (id ID) Covers(other ID) bool {
	return id == other || id.Name == "" && id.Device == other.Device
}

// String shows it to people: gw-12 / return.
func (id ID) String() string {
	if id.Name == "" {
		return id.Device
	}
	return id.Device + " / " + id.Name
}
