package verify

import (
	"math"
	"slices"
	"time"
)

// awaiting is the partition that tells of devices of which nobody has ever heard: every hub has it.
const awaiting = "0"

// expect adds the silences of devices that rules expect and of which nobody has ever heard.
func (l *Log) expect(rules Rules, fleets map[alarm]*fleet, all map[alarm][]event) {
	for i := range l.rules {
		rule := &l.rules[i]
		f := fleets[alarm{wholeNames + awaiting, rule.Name, ""}]
		for _, device := range rule.Expect {
			if a := (alarm{device, rule.Name, ""}); l.tracks[a] == nil {
				all[a] = []event{l.neverHeard(a, rule, rules, f)}
			}
		}
	}
}

// neverHeard returns the silence of a device of which nobody has ever heard. f is the fleet of the partition that tells
// of it.
func (l *Log) neverHeard(a alarm, rule *Rule, rules Rules, f *fleet) event {
	at := Reading{
		Device:      a.device,
		Temperature: math.NaN(),
		At:          rules.Expect.Add(rule.Silent),
		Partition:   awaiting,
		Sequence:    -1,
	}

	e := event{Reading: at, opens: true}
	bound := rules.Bound + rules.Proof
	lasts := rules.Until.IsZero() || rules.Until.Sub(e.At) > bound
	e.needsAlert = lasts && !f.mayBeDark(e.At, e.At.Add(bound)) && !l.hushed(rule.Name, e, bound)

	return e
}

// heardFirst returns when something was first heard of the device of an alarm about silence, zero if it never was.
func (l *Log) heardFirst(a alarm) (at time.Time) {
	if t := l.tracks[a]; t != nil {
		at = t.first
	}
	return at
}

// aboutUnheard checks one alert that says that nobody has ever heard of a device.
func (j *judge) aboutUnheard(d Delivery) {
	switch {
	case !slices.Contains(j.by.Expect, d.Device):
		j.wrong(d, "nobody expects the device")
	case !j.heardFirst.IsZero() && !j.heardFirst.After(d.Deadline):
		j.wrong(d, "the device was heard at %s", clock(j.heardFirst))
	case d.Deadline.Before(j.Rules.Expect.Add(j.by.Silent - rounding)):
		j.wrong(d, "it is expected since %s", clock(j.Rules.Expect))
	}
}
