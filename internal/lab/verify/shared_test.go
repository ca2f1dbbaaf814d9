package verify_test

import (
	"testing"

	"alertworker/internal/lab/verify"
)

// Devices with the same value of a property share alerts.
func TestShared(t *testing.T) {
	rule := verify.Rule{Name: "temperature", Levels: []verify.Level{{Limit: 30, Clear: 30}}, Per: "site"}
	of := func(device, site, partition string, seconds float64) verify.Reading {
		r := with(reading(seconds, 31), "site", site)
		r.Device, r.Partition = device, partition
		return r
	}
	sent := func(about, partition string, reading float64, token int64, seconds float64) verify.Delivery {
		d := alerted(reading, token, seconds)
		d.Device, d.Partition = about, partition
		return d
	}
	for name, test := range map[string]struct {
		log  []any
		want findings
	}{
		"one for all": {
			[]any{of("a", "berlin", "0", 1), of("b", "berlin", "1", 2), of("c", "berlin", "0", 3), sent("berlin", "1", 2, 1, 3), of("a", "berlin", "0", 12.9)},
			findings{over: 4, opened: 3, alerts: 1, suppressed: 3},
		},
		"each site":                     {[]any{of("a", "berlin", "0", 1), of("b", "paris", "0", 2), sent("berlin", "0", 1, 1, 1), sent("paris", "0", 2, 1, 2)}, findings{over: 2, opened: 2, alerts: 2}},
		"none for one site":             {[]any{of("a", "berlin", "0", 1), of("b", "paris", "0", 2), sent("berlin", "0", 1, 1, 1)}, findings{over: 2, opened: 2, alerts: 1, lost: 1}},
		"each device":                   {[]any{of("a", "berlin", "0", 1), of("b", "berlin", "1", 2), sent("berlin", "0", 1, 1, 1), sent("berlin", "1", 2, 2, 2)}, findings{over: 2, opened: 2, alerts: 2, tooClose: 1}},
		"by device without a site":      {[]any{of("a", "", "0", 1), of("b", "$twin.tags.site", "1", 2), sent("a", "0", 1, 1, 1), sent("b", "1", 2, 1, 2)}, findings{over: 2, opened: 2, alerts: 2}},
		"by device although it has one": {[]any{of("a", "berlin", "0", 1), sent("a", "0", 1, 1, 1)}, findings{over: 1, opened: 1, alerts: 1, lost: 1, wrong: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			report := recordTo(verify.NewLog(rule), test.log).Check(rules)
			if got := findingsOf(report); got != test.want {
				t.Errorf("\n got %+v\nwant %+v\n%v %v %v %v", got, test.want, report.Lost, report.TooClose, report.Stale, report.Wrong)
			}
		})
	}
}
