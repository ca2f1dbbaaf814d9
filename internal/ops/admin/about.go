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

// about returns what this replica and others have of the device that query names, or of one of its sensors; nil if it
// names none. open are the alarms of all.
func (a *Admin) about(query url.Values, open []openAlarm, others []Snapshot) *aboutView {
	device, name := sensor.Device(query.Get("device")), sensor.Name(query.Get("sensor"))
	if device == "" {
		return nil
	}

	isAbout := func(d, s string) bool { return isNamed(device, d) && (name == "" || s == name) }
	v := &aboutView{Device: device, Sensor: name}
	for _, o := range open {
		if isAbout(o.Device, o.Sensor) {
			v.Device = o.Device
			v.Open = append(v.Open, o)
		}
	}

	v.Alerts = a.Recorder.last(listed, func(d *pastDelivery) bool { return d.Reason == "" && isAbout(d.Device, d.Sensor) })
	for _, s := range others {
		for _, d := range s.Alerts {
			if isAbout(d.Device, d.Sensor) {
				v.Alerts = append(v.Alerts, d)
			}
		}
	}

	if len(v.Alerts) > 0 {
		v.Device = v.Alerts[0].Device
	}

	slices.SortStableFunc(v.Alerts, func(x, y pastDelivery) int { return y.At.Compare(x.At) })
	v.Alerts = v.Alerts[:min(len(v.Alerts), listed)]

	return v
}

// isNamed reports whether a link with this name is about a device: it has the whole name, or the beginning and the end
// of a long one.
func isNamed(link, device string) bool {
	return device == link || len(device) > len(link) && humanize.Middle(device, max(3, utf8.RuneCountInString(link))) == link
}
