package checkup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A property is an application property that a rule, or all of them, look at.
type property struct {
	name, use, must string
	// nil: what an event has at the name, whether it is a property or not, if that is a text or a number
	valid func(telemetry.Property, *telemetry.Event) bool
	rule  *rules.Rule // that looks at it
}

// properties returns those that set looks at.
func properties(set rules.Set) (all []property) {
	for i := range set.Rules {
		all = append(all, propertiesOf(&set.Rules[i])...)
	}

	for i := range set.Mutes {
		m := &set.Mutes[i]
		if m.Property != "" {
			all = append(all, property{m.Property, "where of a mute", "anything", isAny, nil})
		}

		if m.UntilAt != "" {
			all = append(all, property{m.UntilAt, "until of a mute", "an RFC 3339 time", isTime, nil})
		}
	}

	return all
}

// propertiesOf returns those that r looks at.
func propertiesOf(r *rules.Rule) (all []property) {
	for _, l := range r.Levels {
		if l.Override != "" {
			use := "the limit of " + strings.TrimSuffix(r.Name+", "+l.Name, ", ")
			all = append(all, property{l.Override, use, "a number", isLimit, r})
		}
	}

	if name := r.Levels[0].ClearOverride; name != "" {
		side := "at or below"
		if r.Below {
			side = "at or above"
		}

		must := "a number " + side + " the device's limit"
		all = append(all, property{name, "clear of " + r.Name, must, isClearOf(r), r})
	}

	if r.Per != "" {
		all = append(all, property{r.Per, "per of " + r.Name, "a text or number of at most 256 bytes", nil, r})
	}

	return all
}

// isLimit reports whether p replaces a limit.
func isLimit(p telemetry.Property, _ *telemetry.Event) bool {
	_, kind := rules.Limit(p)
	return kind == rules.OverrideUsed
}

// isClearOf returns what reports whether a property replaces clear of all levels of r.
func isClearOf(r *rules.Rule) func(telemetry.Property, *telemetry.Event) bool {
	return func(p telemetry.Property, e *telemetry.Event) bool {
		return !slices.ContainsFunc(r.Levels, func(l rules.Level) bool {
			limit, _ := l.LimitFor(0, e.Properties) // beside overrides there is no base
			_, kind := r.ClearFor(&l, p, limit)
			return kind != rules.OverrideUsed
		})
	}
}

// isTime reports whether p says until when a device is muted.
func isTime(p telemetry.Property, _ *telemetry.Event) bool { return !rules.TimeOf(p).IsZero() }

// isAny reports whether p is there: any value may be one that a mute asks for, and most are not. The literal that IoT Hub
// leaves is none.
func isAny(p telemetry.Property, _ *telemetry.Event) bool {
	text, _ := p.Text()
	return !strings.HasPrefix(string(text), "$twin.")
}

const noTelemetry = undecided("no telemetry was read")

// verdict says how many of events, all of them telemetry, have p. The error is a warning if
// none does, or if some have something else.
func (p property) verdict(events []telemetry.Event) (string, error) {
	if len(events) == 0 {
		return "", noTelemetry
	}

	used := 0
	literal := 0
	other := 0
	path := ""
	for i := range events {
		v := events[i].Properties.Get(p.name)
		text, _ := v.Text()
		switch {
		case p.valid == nil && p.shares(&events[i]):
			used++
		case v.IsNull():
		case p.valid != nil && p.valid(v, &events[i]):
			used++
		case strings.HasPrefix(string(text), "$twin."):
			literal++
			path = string(text[:min(len(text), 80)])
		default:
			other++
		}
	}

	text := fmt.Sprintf("%s: in %d of %s", p.use, used, humanize.Count(len(events), "event"))
	if literal > 0 {
		text += fmt.Sprintf("; in %d it is the text %s: the twin has no such path", literal, path)
	}

	if other > 0 {
		text += fmt.Sprintf("; in %d it is something else and not used: must be %s", other, p.must)
	}

	if used+literal+other == 0 {
		text += ": does the IoT Hub have a message enrichment of this name?"
	}

	if used == 0 || other > 0 {
		return "", warning(text)
	}

	return text, nil
}

// shares reports whether a measurement of e has something at the name by which devices can share alerts.
func (p property) shares(e *telemetry.Event) bool {
	set := rules.Set{Rules: []rules.Rule{*p.rule.Alone()}}
	set.Rules[0].Per = p.name
	reader, err := set.Reader()
	if err != nil {
		return false
	}

	views, _ := reader.Read(e)

	return slices.ContainsFunc(views, func(v rules.View) bool { return v.Shared != "" })
}

// wrongTimes says what is wrong with times that are not used.
var wrongTimes = []struct {
	kind rules.DeviceTime
	what string
}{
	{rules.TimeUnreadable, "have something that is not a time: must be RFC 3339, or seconds or milliseconds since 1970"},
	{rules.TimeFuture, "are more than 5m ahead of the hub: for them the hub's time counts"},
	{rules.TimeOld, "are more than 30 days behind the hub: for them the hub's time counts"},
}

// deviceTimes says what events, all of them telemetry and each partition's in its order, have for the time of their
// device. The error is a warning if none has one that conditions go by, or if some have one that they do not.
func deviceTimes(events []telemetry.Event, where string) (string, error) {
	clock, err := rules.NewClock(where)
	if err != nil {
		return "", err
	}

	if len(events) == 0 {
		return "", noTelemetry
	}

	devices, late := readTimes(clock, events)
	readable := len(devices[rules.TimeUsed]) + len(devices[rules.TimeLate])
	text := fmt.Sprintf("%s: in %d of %s", where, readable, humanize.Count(len(events), "event"))
	if late >= time.Minute {
		text += fmt.Sprintf(", up to %s before they arrived", config.Plain(late.Round(time.Second)))
	}

	if of := devices[rules.TimeLate]; len(of) > 0 {
		text += fmt.Sprintf("; %d were taken before one that had arrived (such as %s): they end no alarm", len(of), of[0])
	}

	isWrong := len(devices[rules.TimeUsed]) == 0
	for _, wrong := range wrongTimes {
		if of := devices[wrong.kind]; len(of) > 0 {
			isWrong = true
			text += fmt.Sprintf("; %d %s (such as %s)", len(of), wrong.what, of[0])
		}
	}

	if len(devices[rules.TimeMissing]) == len(events) {
		text += ": do the devices set it?"
	}

	if isWrong {
		return "", warning(text)
	}

	return text, nil
}

// readTimes returns the devices of events by what these have for a time, and how late the latest of them is.
func readTimes(clock *rules.Clock, events []telemetry.Event) (map[rules.DeviceTime][]string, time.Duration) {
	devices := map[rules.DeviceTime][]string{}
	newest := map[string]int64{} // by device
	late := time.Duration(0)
	m := telemetry.NewMeasurements(nil)
	for i := range events {
		e := &events[i]
		n, _ := m.Split(e)
		for i := range n {
			at, kind := clock.Read(m, i)
			if kind == rules.TimeUsed {
				late = max(late, e.Enqueued.Sub(time.UnixMicro(at)))
				if at < newest[e.Device] {
					kind = rules.TimeLate
				}
				newest[e.Device] = max(at, newest[e.Device])
			}

			devices[kind] = append(devices[kind], e.Device)
		}
	}

	return devices, late
}
