package notify

import (
	"cmp"
	"net/url"
	"strings"

	"alertworker/internal/sensor"
)

// Alarm names what the alert is about: an alert, its reminders and its recovery have the
// same one; those of another source, rule, level, device, sensor or incident never do.
func (a Alert) Alarm() string {
	if a.Incident != nil {
		return a.Incident.ID // that of another alarm begins with an escaped slash
	}

	var parts []string
	for _, s := range []string{a.Source, a.Rule, a.Level, a.About()} {
		parts = append(parts, url.PathEscape(s))
	}

	if of := a.Of(); of.Name != "" {
		parts = append(parts, url.PathEscape(of.Name))
	}

	return strings.Join(parts, "/")
}

// About is what a is about, as receivers remember it: the device, or what it shares the alert by. Of alerts about
// different sensors of a device the Source differs.
func (a Alert) About() string { return cmp.Or(a.PerValue, a.Device) }

// Of is what the window of a is of: the device or sensor, or as if it were a device, what devices share it by.
func (a Alert) Of() sensor.ID {
	if a.PerValue != "" {
		return sensor.Of(a.PerValue)
	}
	return a.From()
}

// From is what the reading of a is of.
func (a Alert) From() sensor.ID { return sensor.ID{Device: a.Device, Name: a.Sensor} }

// Hub is what an alert about the silence of most devices has for a device: no device of an IoT Hub can have that name.
const Hub = "hub/telemetry"

// A Severity is how urgent an alert is, in the words that most services share.
type Severity string

const (
	Critical Severity = "critical"
	Serious  Severity = "error"
	Warning  Severity = "warning"
	Info     Severity = "info"
)

// Severity returns that of a's level, if the level is called like one; otherwise an
// alert is critical, and a test is for information. An alert and its recovery have the same.
func (a Alert) Severity() Severity {
	switch s := Severity(a.Level); {
	case a.Test:
		return Info
	case s == Serious, s == Warning, s == Info:
		return s
	}

	return Critical
}
