package checkup

import (
	"fmt"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

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
	if len(r.telemetry) == 0 {
		return "", undecided("no telemetry was read")
	}

	devices := map[rules.DeviceTime][]string{} // of the measurements that the rules take the telemetry for
	late, all := time.Duration(0), 0
	for _, c := range r.decoder.Cuts {
		m := telemetry.NewMeasurements(c.Each)
		for i := range r.telemetry {
			e := &r.telemetry[i]
			n, _ := m.Split(e)
			for j := range n {
				at, kind := r.clock.Read(m, j)
				if kind == rules.TimeUsed {
					late = max(late, e.Enqueued.Sub(time.UnixMicro(at)))
				}

				devices[kind] = append(devices[kind], e.Device)
				all++
			}
		}
	}

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
