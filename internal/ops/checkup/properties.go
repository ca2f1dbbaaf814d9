package checkup

import (
	"fmt"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// measurements calls do with each measurement that the rules take the telemetry for.
func (r reading) measurements(do func(m *telemetry.Measurements, i int)) {
	for _, c := range r.decoder.Cuts {
		m := telemetry.NewMeasurements(c.Each)
		for i := range r.telemetry {
			n, _ := m.Split(&r.telemetry[i])
			for j := range n {
				do(m, j)
			}
		}
	}
}

// What a mute may ask for: some text, or a time.
func isText(text string) bool { return text != "" }
func isTime(text string) bool { return !rules.TimeOf(text).IsZero() }

// muteName says how much of the telemetry has at a name what a mute asks for. The error is a warning if none does.
func (r reading) muteName(name string, is func(text string) bool) (string, error) {
	has := map[*telemetry.Event]bool{}
	r.measurements(func(m *telemetry.Measurements, i int) {
		if is(r.decoder.Text(m, i, name)) {
			has[m.Event()] = true
		}
	})

	text := fmt.Sprintf("in %d of %s", len(has), humanize.Count(len(r.telemetry), "event"))
	if len(has) == 0 {
		return "", warning(text + ": do the devices send it, for until as an RFC 3339 time, or has the IoT Hub a message enrichment of this name?")
	}

	return text, nil
}

// timeAdvice says what there is to do about times that are not used.
var timeAdvice = map[rules.DeviceTime]string{
	rules.TimeMissing:    "do the devices set it?",
	rules.TimeUnreadable: "must be RFC 3339, or seconds or milliseconds since 1970",
	rules.TimeFuture:     "more than 5m ahead of the hub: for them the hub's time counts",
	rules.TimeOld:        "more than 30 days behind the hub: for them the hub's time counts",
}

// deviceTimes says what the telemetry has for the time of its device, in a property. The error is a warning if none has one
// that conditions go by, or if some have one that they do not.
func (r reading) deviceTimes(property string) (string, error) {
	devices := map[rules.DeviceTime][]string{} // of the measurements
	late, all := time.Duration(0), 0
	r.measurements(func(m *telemetry.Measurements, i int) {
		e := m.Event()
		at, kind := r.clock.Read(m, i)
		if kind == rules.TimeUsed {
			late = max(late, e.Enqueued.Sub(time.UnixMicro(at)))
		}

		devices[kind] = append(devices[kind], e.Device)
		all++
	})

	used, missing := len(devices[rules.TimeUsed]), len(devices[rules.TimeMissing])
	text := fmt.Sprintf("%s: in %d of %s, up to %s before they arrived", property, used,
		humanize.Count(all, "measurement"), humanize.Plain(late.Round(time.Second)))
	if used > 0 && used+missing == all {
		return text, nil
	}

	for kind := rules.TimeMissing; kind <= rules.TimeOld; kind++ {
		if of := devices[kind]; len(of) > 0 {
			text += fmt.Sprintf("; %d %v, such as of %s: %s", len(of), kind, of[0], timeAdvice[kind])
		}
	}

	return "", warning(text)
}
