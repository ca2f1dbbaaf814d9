// Package sensor names what a reading is of.
package sensor

import "strings"

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
