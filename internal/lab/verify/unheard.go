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
			a := alarm{device, rule.Name, ""}
			if l.tracks[a] != nil {
				continue
			}

			silence := l.neverHeard(a, rule, rules, f)
			all[a] = []event{silence}
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
	e.needsAlert = l.isProven(rule, e, time.Time{}, rules.Bound+rules.Proof, f)

	return e
}

// heardFirst returns when something was first heard of the device of an alarm about silence, zero if it never was.
func (l *Log) heardFirst(a alarm) (at time.Time) {
	t := l.tracks[a]
	if t == nil {
		return at
	}

	return t.first
}

// aboutUnheard checks one alert that says that nobody has ever heard of a device.
func (j *judge) aboutUnheard(d Delivery) {
	isKnown := !j.heardFirst.IsZero()
	due := j.Rules.Expect.Add(j.by.Silent)

	switch {
	case !slices.Contains(j.by.Expect, d.Device):
		j.wrong(d, "nobody expects the device")
	case isKnown && !j.heardFirst.After(d.Deadline):
		j.wrong(d, "the device was heard at %s", clock(j.heardFirst))
	case d.Deadline.Before(due.Add(-rounding)):
		j.wrong(d, "it is expected since %s", clock(j.Rules.Expect))
	}
}
