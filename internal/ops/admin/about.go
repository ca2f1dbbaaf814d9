package admin

import (
	"net/url"
	"slices"
	"unicode/utf8"

	"alertworker/internal/humanize"
)

// An aboutView is what the page shows of a device that its address names: a link of an alert leads there. It has only
// what the page's lists have too, so it needs no token.
type aboutView struct {
	Device string // the whole name, if it is known
	Sensor string // that the address names, too; empty: it names the device
	Open   []openAlarm
	Alerts []pastDelivery // the latest first
}

// about returns what this replica and m, of all, have of the device that query names, or of one of its sensors; nil if
// it names none.
func (a *Admin) about(query url.Values, m Snapshot) *aboutView {
	device := query.Get("device")
	if device == "" {
		return nil
	}

	name := query.Get("sensor")
	v := &aboutView{Device: device, Sensor: name}
	for _, o := range m.Open {
		if isNamed(device, o.Device) && (name == "" || o.Sensor == name) {
			v.Device = o.Device
			v.Open = append(v.Open, o)
		}
	}

	of := func(d *pastDelivery) bool {
		return d.Reason == "" && isNamed(device, d.Device) && (name == "" || d.Sensor == name)
	}
	v.Alerts = a.Recorder.last(listed, of)
	isOurs := func(d pastDelivery) bool {
		return slices.ContainsFunc(v.Alerts, func(o pastDelivery) bool { return o.ID == d.ID && o.Receiver == d.Receiver && o.At.Equal(d.At) })
	}

	for _, d := range m.Alerts {
		if of(&d) && !isOurs(d) {
			v.Alerts = append(v.Alerts, d)
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
