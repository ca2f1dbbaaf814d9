package verify_test

import (
	"testing"

	"alertworker/internal/lab/verify"
)

// What receivers must not get, however rightly it comes by itself: an alert that a window covers, a second recovery of
// one alarm, and messages about different alarms that have one id.
func TestNothingComesTwice(t *testing.T) {
	rule := verify.Rule{Name: "temperature", Resolved: true, Levels: []verify.Level{{Limit: 30, Clear: 30}}}
	covered := func(until float64, d verify.Delivery) verify.Delivery {
		d.Covered = at(until)
		return d
	}
	named := func(id string, d verify.Delivery) verify.Delivery {
		d.ID = id
		return d
	}
	repeated := func(d verify.Delivery) verify.Delivery {
		d.Repeated = true
		return d
	}
	other := reading(1, 31)
	other.Device = "b"
	ofOther := alerted(1, 1, 2)
	ofOther.Device = "b"
	for name, test := range map[string]struct {
		log   []any
		wrong int
	}{
		"after the window": {[]any{reading(1, 31), alerted(1, 1, 2), reading(14, 31), covered(12, alerted(14, 2, 15))}, 0},
		"of a reading within it": {
			[]any{reading(1, 31), alerted(1, 1, 2), reading(5, 31), covered(12, alerted(5, 2, 15))}, 1,
		},
		"of which nobody knew whether it had begun": {
			[]any{reading(1, 31), alerted(1, 1, 2), reading(5, 31), repeated(covered(12, alerted(5, 2, 15)))}, 0,
		},
		"a recovery, and itself": {
			[]any{reading(1, 31), alerted(1, 1, 2), reading(3, 20), recovered(3, 2, 13), recovered(3, 3, 24)}, 0,
		},
		"a recovery under another id": {
			[]any{
				reading(1, 31), alerted(1, 1, 2), reading(3, 20), recovered(3, 2, 13), named("x", recovered(3, 3, 24)),
			}, 2, // it has no alert before it besides
		},
		"two devices under one id":  {[]any{reading(1, 31), alerted(1, 1, 2), other, ofOther}, 1},
		"two devices under two ids": {[]any{reading(1, 31), alerted(1, 1, 2), other, named("x", ofOther)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			strict := rules
			strict.Distinct = true
			report := recordTo(verify.NewLog(rule), test.log).Check(strict)
			if len(report.Wrong) != test.wrong {
				t.Errorf("%d are wrong, not %d: %v", len(report.Wrong), test.wrong, report.Wrong)
			}
		})
	}
}
