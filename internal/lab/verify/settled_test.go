package verify_test

import (
	"testing"
	"time"

	"alertworker/internal/lab/verify"
)

// An alert has come when its reading is settled, and none comes long after that; nor does a recovery, once a reading is
// settled that opened the alarm again.
func TestSettled(t *testing.T) {
	rule := verify.Rule{Name: "temperature", Resolved: true, Levels: []verify.Level{{Limit: 30, Clear: 30}}}
	first, second := reading(1, 31), reading(2, 32)
	long := func(before int64, d verify.Delivery) verify.Delivery {
		d.Settled = before
		return d
	}
	for name, test := range map[string]struct {
		log     []any
		settled float64 // the first reading, in seconds; 0: it is not
		want    findings
	}{
		"alerted, then settled": {[]any{first, alerted(1, 1, 2)}, 2.5, findings{over: 1, opened: 1, alerts: 1}},
		"settled, then alerted": {[]any{first, alerted(1, 1, 2)}, 1.5, findings{over: 1, opened: 1, alerts: 1, lost: 1}},
		"settled by the alert about a later reading": {
			[]any{first, second, alerted(2, 2, 3)}, 2.5, findings{over: 2, opened: 1, alerts: 1, suppressed: 1},
		},
		"settled before a later reading came": {
			[]any{first, second, alerted(2, 2, 3)}, 1.5, findings{over: 2, opened: 1, alerts: 1, lost: 1},
		},
		"settled long before": {
			[]any{first, long(first.Sequence+1, alerted(1, 1, 2))}, 0, findings{over: 1, opened: 1, alerts: 1, wrong: 1},
		},
		"opened again long before its recovery": {
			[]any{
				first, alerted(1, 1, 1), reading(2, 20), reading(3, 31), long(3001, recovered(2, 2, 12)),
				alerted(3, 3, 12.5),
			}, 0, findings{over: 2, opened: 2, alerts: 2, recoveries: 1, lost: 1, wrong: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := recordTo(verify.NewLog(rule), test.log)
			if test.settled > 0 {
				log.Settled(first.Partition, first.Sequence+1, at(test.settled))
			}
			report := log.Check(rules)
			if got := findingsOf(report); got != test.want {
				t.Errorf("\n got %+v\nwant %+v\n%v %v %v %v", got, test.want, report.Lost, report.TooClose, report.Stale, report.Wrong)
			}
		})
	}
}

// What is older than Early must have come, however late it may be.
func TestEarly(t *testing.T) {
	rule := verify.Rule{Name: "temperature", Levels: []verify.Level{{Limit: 30, Clear: 30}}}
	late := rules
	late.Bound = time.Hour
	late.Early = 10 * time.Second
	late.Until = at(300)
	for _, test := range []struct {
		log  []any
		lost int
	}{
		{[]any{reading(1, 31), alerted(1, 1, 200)}, 0},
		{[]any{reading(1, 31)}, 1},
		{[]any{reading(295, 31)}, 0},
	} {
		if got := recordTo(verify.NewLog(rule), test.log).Check(late); len(got.Lost) != test.lost {
			t.Errorf("%v: lost are %v", test.log, got.Lost)
		}
	}
}

// A recovery does not come after its alarm has opened again, if nothing kept its sender from knowing that.
func TestCalm(t *testing.T) {
	rule := verify.Rule{Name: "temperature", Resolved: true, Levels: []verify.Level{{Limit: 30, Clear: 30}}}
	log := []any{reading(1, 31), alerted(1, 1, 1), reading(2, 20), reading(9, 31), recovered(2, 2, 12), alerted(9, 3, 12.5)}
	always := func(time.Time, time.Time) bool { return true }
	for name, test := range map[string]struct {
		log   []any
		calm  func(from, to time.Time) bool
		wrong int
	}{
		"in calm":       {log, always, 1},
		"in a storm":    {log, func(time.Time, time.Time) bool { return false }, 0},
		"it is unknown": {log, nil, 0},
		"at the same moment": {
			[]any{reading(1, 31), alerted(1, 1, 1), reading(2, 20), reading(11.5, 31), recovered(2, 2, 12), alerted(11.5, 3, 12.5)},
			always, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			strict := rules
			strict.Calm = test.calm
			report := recordTo(verify.NewLog(rule), test.log).Check(strict)
			if len(report.Wrong) != test.wrong {
				t.Errorf("%d are wrong, not %d: %v", len(report.Wrong), test.wrong, report.Wrong)
			}
		})
	}
}
