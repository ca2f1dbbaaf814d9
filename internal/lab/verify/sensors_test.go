package verify_test

import (
	"testing"

	"alertworker/internal/lab/verify"
)

// Sensors of a device have alarms of their own, by rules that know them.
func TestSensors(t *testing.T) {
	rule := warm
	rule.Sensor = true
	rule.Levels = []verify.Level{{Limit: 30, Clear: 28}}
	rule.Only = []verify.Condition{{Name: "mode", Values: []string{"run"}}}
	bySite := rule
	bySite.Per, bySite.Resolved = "site", false
	of := func(sensor string, seconds, temperature float64) verify.Reading {
		r := with(reading(seconds, temperature), "site", "berlin")
		r.Sensor, r.Fields, r.Own = sensor, map[string]string{"mode": "run"}, map[string]string{}
		return r
	}
	own := func(r verify.Reading, mode string) verify.Reading {
		r.Own = map[string]string{"mode": mode}
		return r
	}
	around := func(r verify.Reading, mode string) verify.Reading {
		r.Fields = map[string]string{"mode": mode}
		return r
	}
	about := func(sensor string, d verify.Delivery) verify.Delivery {
		d.Sensor = sensor
		d.ID += "/" + sensor
		return d
	}
	shared := func(sensor string, d verify.Delivery) verify.Delivery {
		d = about(sensor, d)
		d.Device, d.Shared = "berlin", true
		return d
	}
	excluded := func(d verify.Delivery) verify.Delivery {
		d.Excluded = true
		return d
	}
	for name, test := range map[string]struct {
		rule verify.Rule
		log  []any
		want findings
	}{
		"each has an alert": {
			rule, []any{of("x", 1, 31), of("y", 1, 31), about("x", alerted(1, 1, 1)), about("y", alerted(1, 1, 1))},
			findings{over: 2, opened: 2, alerts: 2},
		},
		"the alert of another one is no help": {
			rule, []any{of("x", 1, 31), of("y", 1, 31), about("x", alerted(1, 1, 1))},
			findings{over: 2, opened: 2, alerts: 1, lost: 1, stale: 1},
		},
		"an alert of the device is none of its sensor": {
			rule, []any{of("x", 1, 31), alerted(1, 1, 1)},
			findings{over: 1, opened: 1, alerts: 1, lost: 1, stale: 1, wrong: 1},
		},
		"the device itself has no alarm": {rule, []any{reading(1, 31)}, findings{}},
		"another one ends nothing":       {rule, []any{of("x", 1, 31), about("x", alerted(1, 1, 1)), of("y", 2, 20), of("x", 13, 31), about("x", alerted(13, 2, 13))}, findings{over: 2, opened: 1, alerts: 2}},
		"a recovery because of another one": {
			rule, []any{of("x", 1, 31), about("x", alerted(1, 1, 1)), of("y", 2, 20), about("x", recovered(2, 2, 12))},
			findings{over: 1, opened: 1, alerts: 1, recoveries: 1, stale: 1, wrong: 1},
		},
		"a measurement that is left out ends nothing": {
			rule, []any{of("x", 1, 31), about("x", alerted(1, 1, 1)), own(of("x", 2, 20), "clean")},
			findings{over: 1, opened: 1, alerts: 1},
		},
		"what excludes the message ends all": {
			rule, []any{of("x", 1, 31), about("x", alerted(1, 1, 1)), around(of("x", 2, 20), "clean"), excluded(about("x", recovered(2, 2, 12)))},
			findings{over: 1, opened: 1, alerts: 1, recoveries: 1},
		},
		"hot and cool in one message": {
			rule, []any{of("x", 1, 31), of("x", 1, 20), about("x", alerted(1, 1, 1)), about("x", recovered(1, 2, 12))},
			findings{over: 1, opened: 1, alerts: 1, recoveries: 1},
		},
		"one alert for a site": {
			bySite, []any{of("x", 1, 31), of("y", 1, 31), shared("y", alerted(1, 1, 1))},
			findings{over: 2, opened: 2, alerts: 1, suppressed: 1},
		},
		"two for a site": {
			bySite, []any{of("x", 1, 31), of("y", 1, 31), shared("x", alerted(1, 1, 1)), shared("y", alerted(1, 2, 2))},
			findings{over: 2, opened: 2, alerts: 2, tooClose: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			report := recordTo(verify.NewLog(test.rule), test.log).Check(rules)
			if got := findingsOf(report); got != test.want {
				t.Errorf("\n got %+v\nwant %+v\n%v %v %v %v", got, test.want, report.Lost, report.TooClose, report.Stale, report.Wrong)
			}
		})
	}
}

// Measurements of one message count by their times, if all have one, and else as they stand.
func TestMeasurementsAreInOrder(t *testing.T) {
	rule := warm
	rule.Sensor = true
	rule.Levels = []verify.Level{{Limit: 30, Clear: 28}}
	newest, oldest := reading(9, 20), reading(9, 31)
	newest.Sensor, oldest.Sensor = "x", "x"
	for name, test := range map[string]struct {
		newest, oldest float64 // times, in seconds; 0: none
		opened         int
		stale          bool
	}{
		"by their times":           {8, 7, 1, true},
		"one has none":             {8, 0, 1, false},
		"one cannot be right":      {8, -1e8, 1, false},
		"as they stand, all equal": {8, 8, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			log := verify.NewLog(rule)
			a, b := newest, oldest
			a.Taken, b.Taken = at(test.newest), at(test.oldest)
			if test.oldest == 0 {
				b.Taken = verify.Reading{}.Taken
			}
			log.PublishedTogether(a, b)
			d := alerted(9, 1, 9)
			d.Sensor = "x"
			log.Delivered(d)
			report := log.Check(rules)
			if report.Opened != test.opened || len(report.Stale) > 0 != test.stale {
				t.Errorf("opened %d, stale %v", report.Opened, report.Stale)
			}
		})
	}
}
