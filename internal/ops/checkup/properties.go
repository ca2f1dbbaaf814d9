package checkup

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

var noTelemetry = undecided("no telemetry was read")

// muteName says how many of events, all of them telemetry, have the name that a mute of set asks for. The error is a
// warning if none does, or if isTime and some have something else.
func muteName(set rules.Set, name string, isTime bool, events []telemetry.Event) (string, error) {
	used, other := map[*telemetry.Event]bool{}, map[*telemetry.Event]string{}
	err := eachMeasurement(set, events, func(d *rules.Decoder, m *telemetry.Measurements, i int) {
		switch text := d.Text(m, i, name); {
		case isTime && text != "" && rules.TimeOf(text).IsZero():
			other[m.Event()] = text
		case text != "":
			used[m.Event()] = true
		}
	})
	if err != nil {
		return "", err
	}

	text := fmt.Sprintf("in %d of %s", len(used), humanize.Count(len(events), "event"))
	for _, example := range slices.Sorted(maps.Values(other)) {
		return "", warning(fmt.Sprintf("%s; in %d it is no RFC 3339 time, such as %q", text, len(other), humanize.Middle(example, 32)))
	}
	if len(used) == 0 {
		return "", warning(text + ": do the devices send it, or has the IoT Hub a message enrichment of this name?")
	}

	return text, nil
}

// eachMeasurement calls do with each measurement that the rules of set take events for, all of them telemetry.
func eachMeasurement(
	set rules.Set, events []telemetry.Event, do func(d *rules.Decoder, m *telemetry.Measurements, i int),
) error {
	if len(events) == 0 {
		return noTelemetry
	}

	decoder, err := set.Decoder()
	if err != nil {
		return err
	}

	clock, err := set.Clock()
	if err != nil {
		return err
	}

	for _, c := range decoder.Cuts {
		m := telemetry.NewMeasurements(c.Each)
		for i := range events {
			n, _ := m.Split(&events[i])
			if n > 1 && clock != nil {
				clock.Sort(m)
			}
			for j := range n {
				do(decoder, m, j)
			}
		}
	}

	return nil
}

// timeKinds says what is made of times that are not used as they are.
var timeKinds = []struct {
	kind    rules.DeviceTime
	isWrong bool
	what    string
}{
	{rules.TimeLate, false, "were taken before one that had arrived: they end no alarm"},
	{rules.TimeUnreadable, true, "have something that is not a time: must be RFC 3339, or seconds or milliseconds since 1970"},
	{rules.TimeFuture, true, "are more than 5m ahead of the hub: for them the hub's time counts"},
	{rules.TimeOld, true, "are more than 30 days behind the hub: for them the hub's time counts"},
}

// deviceTimes says what events, all of them telemetry and each partition's in its order, have for the time of their
// device. The error is a warning if none has one that conditions go by, or if some have one that they do not.
func deviceTimes(events []telemetry.Event, set rules.Set) (string, error) {
	clock, err := set.Clock()
	if err != nil {
		return "", err
	}

	devices := map[rules.DeviceTime][]string{} // of the measurements
	type key struct {
		of     *telemetry.Measurements
		device string
	}
	newest := map[key]int64{}
	late, all := time.Duration(0), 0
	err = eachMeasurement(set, events, func(_ *rules.Decoder, m *telemetry.Measurements, i int) {
		e := m.Event()
		at, kind := clock.Read(m, i)
		if of := (key{m, e.Device}); kind == rules.TimeUsed {
			late = max(late, e.Enqueued.Sub(time.UnixMicro(at)))
			if at < newest[of] {
				kind = rules.TimeLate
			}
			newest[of] = max(at, newest[of])
		}

		devices[kind] = append(devices[kind], e.Device)
		all++
	})
	if err != nil {
		return "", err
	}

	used := len(devices[rules.TimeUsed])
	text := fmt.Sprintf("%s: in %d of %s, up to %s before they arrived", set.Time, used+len(devices[rules.TimeLate]),
		humanize.Count(all, "measurement"), humanize.Plain(late.Round(time.Second)))

	isWrong := used == 0
	for _, of := range timeKinds {
		if n := len(devices[of.kind]); n > 0 {
			isWrong = isWrong || of.isWrong
			text += fmt.Sprintf("; %d %s (such as %s)", n, of.what, devices[of.kind][0])
		}
	}

	if len(devices[rules.TimeMissing]) == all {
		text += ": do the devices set it?"
	}
	if isWrong {
		return "", warning(text)
	}

	return text, nil
}
