package checkup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A property is a name in messages that a rule, or all of them, look at, mostly of an application property.
type property struct {
	name, use, must string
	has             func(*telemetry.Event) rules.Override // what an event has there
}

// properties returns those that set looks at.
func properties(set rules.Set) (all []property) {
	for i := range set.Rules {
		all = append(all, propertiesOf(&set.Rules[i])...)
	}

	for i := range set.Mutes {
		m := &set.Mutes[i]
		if m.Property != "" {
			all = append(all, property{m.Property, "where of a mute", "anything", propertyIs(m.Property, isAny)})
		}

		if m.UntilAt != "" {
			all = append(all, property{m.UntilAt, "until of a mute", "an RFC 3339 time", propertyIs(m.UntilAt, isTime)})
		}
	}

	return all
}

// propertiesOf returns those that r looks at.
func propertiesOf(r *rules.Rule) (all []property) {
	side := "at or below"
	if r.Below {
		side = "at or above"
	}

	for i, l := range r.Levels {
		of := strings.TrimSuffix(r.Name+", "+l.Name, ", ")
		if l.LimitAt.Name != "" && !l.LimitAt.Plus { // the events themselves say more of what limits are counted from
			limit := func(v rules.View) rules.Override { return v.Levels[i].HasLimit }
			all = append(all, property{l.LimitAt.Name, "the limit of " + of, "a number", viewed(r, limit)})
		}

		if l.ClearAt.Name != "" {
			clear := func(v rules.View) rules.Override { return v.Levels[i].HasClear }
			must := "a number " + side + " the device's limit"
			all = append(all, property{l.ClearAt.Name, "clear of " + of, must, viewed(r, clear)})
		}
	}

	if r.Per != "" {
		shared := func(v rules.View) rules.Override {
			if v.Shared == "" {
				return rules.OverrideAbsent
			}
			return rules.OverrideUsed
		}
		all = append(all, property{r.Per, "per of " + r.Name, "a text or number of at most 256 bytes", viewed(r, shared)})
	}

	return all
}

// viewed returns what says what an event has for r, by what that finds in its measurements: what is used, if one has it.
func viewed(r *rules.Rule, has func(rules.View) rules.Override) func(*telemetry.Event) rules.Override {
	set := rules.Set{Rules: []rules.Rule{*r}}
	reader, err := set.Reader()

	return func(e *telemetry.Event) rules.Override {
		if err != nil {
			return rules.OverrideAbsent
		}

		found := rules.OverrideAbsent
		views, _ := reader.Read(e)
		for _, v := range views {
			if len(v.Levels) == 0 {
				continue
			}

			switch has := has(v); has {
			case rules.OverrideUsed:
				return has
			case rules.OverrideOther, rules.OverrideBeyond:
				found = has
			}
		}

		return found
	}
}

// propertyIs returns what says whether an event has an application property that is valid.
func propertyIs(name string, valid func(telemetry.Property) bool) func(*telemetry.Event) rules.Override {
	return func(e *telemetry.Event) rules.Override {
		switch p := e.Properties.Get(name); {
		case p.IsNull():
			return rules.OverrideAbsent
		case valid(p):
			return rules.OverrideUsed
		}
		return rules.OverrideOther
	}
}

// isTime reports whether p says until when a device is muted.
func isTime(p telemetry.Property) bool { return !rules.TimeOf(p.String()).IsZero() }

// isAny reports whether p is there: any value may be one that a mute asks for, and most are not.
func isAny(telemetry.Property) bool { return true }

var noTelemetry = undecided("no telemetry was read")

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
		text, _ := events[i].Properties.Get(p.name).Text()
		has := p.has(&events[i])
		switch {
		case strings.HasPrefix(string(text), "$twin.") && has != rules.OverrideBeyond:
			literal++
			path = string(text[:min(len(text), 80)])
		case has == rules.OverrideUsed:
			used++
		case has != rules.OverrideAbsent:
			other++
		}
	}

	text := fmt.Sprintf("%s: in %d of %s", p.use, used, humanize.Count(len(events), "event")) +
		clause(literal, "; in %d it is the text %s: the twin has no such path", path) +
		clause(other, "; in %d it is something else and not used: must be %s", p.must)
	if used+literal+other == 0 {
		text += ": does the IoT Hub have a message enrichment of this name?"
	}

	if used == 0 || other > 0 {
		return "", warning(text)
	}

	return text, nil
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
func deviceTimes(events []telemetry.Event, set rules.Set) (string, error) {
	where := set.Time
	clock, err := set.Clock()
	if err != nil {
		return "", err
	}

	decoder, err := set.Decoder()
	if err != nil {
		return "", err
	}

	if len(events) == 0 {
		return "", noTelemetry
	}

	devices, late := readTimes(clock, decoder.Cuts, events)
	all := 0
	for _, of := range devices {
		all += len(of)
	}

	what := "event"
	if slices.ContainsFunc(decoder.Cuts, func(c rules.Cut) bool { return c.Each != nil }) {
		what = "measurement"
	}

	readable := len(devices[rules.TimeUsed]) + len(devices[rules.TimeLate])
	text := fmt.Sprintf("%s: in %d of %s", where, readable, humanize.Count(all, what))
	if late >= time.Minute {
		text += fmt.Sprintf(", up to %s before they arrived", humanize.Plain(late.Round(time.Second)))
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

	if len(devices[rules.TimeMissing]) == all {
		text += ": do the devices set it?"
	}

	if isWrong {
		return "", warning(text)
	}

	return text, nil
}

// readTimes returns the devices of events by what their measurements have for a time, and how late the latest of them is.
func readTimes(clock *rules.Clock, cuts []rules.Cut, events []telemetry.Event) (map[rules.DeviceTime][]string, time.Duration) {
	devices := map[rules.DeviceTime][]string{}
	newest := map[string]int64{} // by device
	late := time.Duration(0)
	for _, c := range cuts {
		clear(newest)
		m := telemetry.NewMeasurements(c.Each)
		for i := range events {
			e := &events[i]
			n, _ := m.Split(e)
			if n > 1 {
				clock.Sort(m)
			}

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
	}

	return devices, late
}
