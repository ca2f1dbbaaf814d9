package admin

import (
	"net/url"
	"slices"
	"unicode/utf8"

	"alertworker/internal/humanize"
	"alertworker/internal/sensor"
)

// An aboutView is what the page shows of a device that its address names: a link of an alert leads there. It has only
// what the page's lists have too, so it needs no token.
type aboutView struct {
	Device string // the whole name, if it is known
	Sensor string // that the address names, too; empty: it names the device
	Open   []openAlarm
	Alerts []pastDelivery // the latest first
}

// about returns what m, of all replicas, has of the device that query names, or of one of its sensors; nil if it names none.
func (m Snapshot) about(query url.Values) *aboutView {
	device, name := sensor.Device(query.Get("device")), sensor.Name(query.Get("sensor"))
	if device == "" {
		return nil
	}

	isOther := func(of sensor.ID) bool { return !isNamed(device, of.Device) || name != "" && of.Name != name }
	v := &aboutView{
		Device: device,
		Sensor: name,
		Open:   slices.DeleteFunc(slices.Clone(m.Open), func(o openAlarm) bool { return isOther(sensor.ID{Device: o.Device, Name: o.Sensor}) }),
		Alerts: slices.DeleteFunc(slices.Clone(m.Alerts), func(d pastDelivery) bool { return isOther(d.of()) }),
	}
	v.Alerts = v.Alerts[:min(len(v.Alerts), listed)]

	switch {
	case len(v.Alerts) > 0:
		v.Device = v.Alerts[0].Device
	case len(v.Open) > 0:
		v.Device = v.Open[0].Device
	}

	return v
}

// isNamed reports whether a link with this name is about a device: it has the whole name, or the beginning and the end
// of a long one.
func isNamed(link, device string) bool {
	return device == link || len(device) > len(link) && humanize.Middle(device, max(3, utf8.RuneCountInString(link))) == link
}
