package verify

import (
	"strings"
	"time"
)

// A Reading is one message as it was published, or one of the measurements in it.
type Reading struct {
	Device      string
	Sensor      string    // of the device; empty: its own. A rule with sensors looks at these only, and no other at any
	Temperature float64   // NaN: the message holds no reading
	Damaged     bool      // the message is not quite JSON: it may alert, and neither clears, interrupts nor ends anything
	Over        bool      // at or above the threshold, so that it needs an alert; of no meaning to a Log with rules
	At          time.Time // when the hub got it
	Taken       time.Time // the time that the device gives it, if rules go by that; zero: none
	Partition   string
	Sequence    int64

	ByHub bool // it comes from the hub itself, about the device: nothing was heard of the device
	// Fields is what its body has besides the temperature, as text. Where a rule looks for a field that is not there,
	// the application property of that name counts.
	Fields     map[string]string
	Own        map[string]string // of a measurement of several in a message: the fields in it, before those around it
	Properties map[string]string // application properties
}

// Which times of devices may be right.
const (
	mostAhead  = 5 * time.Minute // of the hub's
	mostBehind = 30 * 24 * time.Hour
)

// value returns what the message has where a rule looks for a field, empty if it has nothing.
func (r Reading) value(name string) string {
	for _, fields := range []map[string]string{r.Own, r.Fields} {
		if text, ok := fields[name]; ok {
			return text
		}
	}

	return r.Properties[name]
}

// A moment is when a reading was taken, by two clocks.
type moment struct {
	hub    time.Time
	device time.Time // zero: it is not known, or cannot be right
}

// moment returns when r was taken. A time of the device that cannot be right is none.
func (r Reading) moment() moment {
	late := r.At.Sub(r.Taken)
	if late < -mostAhead || late > mostBehind { // as it is if there is no time
		return moment{hub: r.At}
	}

	return moment{r.At, r.Taken}
}

// after returns how long after first m is: by the device's clock if that is known of both.
func (m moment) after(first moment) time.Duration {
	if m.device.IsZero() || first.device.IsZero() {
		return m.hub.Sub(first.hub)
	}

	return m.device.Sub(first.device)
}

// shared returns what the device of r shares its alerts by: the value of a property that its message has.
func shared(r Reading, per string) string {
	value := r.Properties[per]
	if per == "" || strings.HasPrefix(value, "$twin.") {
		return ""
	}

	return value
}

// quiet reports whether the property suppresses the alerts of r.
func quiet(r Reading, property string) bool { return r.Properties[property] == "true" }
