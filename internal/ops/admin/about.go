package admin

import (
	"slices"
	"unicode/utf8"

	"alertworker/internal/humanize"
	"alertworker/internal/sensor"
)

// only leaves in m what is about the device that a link names, or about one of its sensors, and returns the device's
// whole name if it is known. A link of an alert leads there.
func (m *Snapshot) only(link, name string) (device string) {
	isOther := func(of sensor.ID) bool { return !isNamed(link, of.Device) || name != "" && of.Name != name }
	m.Open = slices.DeleteFunc(m.Open, func(o openAlarm) bool { return isOther(sensor.ID{Device: o.Device, Name: o.Sensor}) })
	m.Alerts = slices.DeleteFunc(m.Alerts, func(d pastDelivery) bool { return isOther(d.of()) })

	switch {
	case len(m.Alerts) > 0:
		return m.Alerts[0].Device
	case len(m.Open) > 0:
		return m.Open[0].Device
	}

	return link
}

// isNamed reports whether a link with this name is about a device: it has the whole name, or the beginning and the end
// of a long one.
func isNamed(link, device string) bool {
	return device == link || len(device) > len(link) && humanize.Middle(device, max(3, utf8.RuneCountInString(link))) == link
}
