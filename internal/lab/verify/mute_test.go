package verify_test

import (
	"testing"

	"alertworker/internal/lab/verify"
)

// What people mute needs no alert, and gets none once workers know it. What is still open when it ends does.
func TestMuted(t *testing.T) {
	rule := warm
	rule.Levels = []verify.Level{{Limit: 30, Clear: 28}}
	all := verify.Mute{From: at(2), Known: at(15), Ending: at(60), Until: at(61)}
	device, another, ofSite := all, all, all
	device.Device = "a*"
	another.Device = "*b"
	ofSite.Property, ofSite.Value = "site", "berlin"
	otherRule := all
	otherRule.Rule = "cold"
	for name, test := range map[string]struct {
		mute verify.Mute
		log  []any
		want findings
	}{
		"muted":                      {all, []any{reading(20, 31), reading(30, 20)}, findings{over: 1, opened: 1}},
		"muted, and alerted":         {all, []any{reading(20, 31), alerted(20, 1, 20), reading(30, 31)}, findings{over: 2, opened: 1, alerts: 1, wrong: 1}},
		"muted, and recovered":       {all, []any{reading(20, 31), reading(30, 20), recovered(30, 1, 30)}, findings{over: 1, opened: 1, recoveries: 1, wrong: 1}},
		"before workers know":        {all, []any{reading(5, 31), alerted(5, 1, 5), reading(6, 20), recovered(6, 2, 15)}, findings{over: 1, opened: 1, alerts: 1, recoveries: 1}},
		"before workers know, muted": {all, []any{reading(5, 31), reading(30, 20)}, findings{over: 1, opened: 1}},
		"alerted before":             {all, []any{reading(1, 31), alerted(1, 1, 1), reading(30, 20), recovered(30, 2, 30)}, findings{over: 1, opened: 1, alerts: 1, recoveries: 1}},
		"still open when it ends":    {all, []any{reading(20, 31), reading(62, 31), alerted(62, 1, 62)}, findings{over: 2, opened: 1, alerts: 1}},
		"forgotten when it ends":     {all, []any{reading(20, 31), reading(62, 31)}, findings{over: 2, opened: 1, lost: 1, stale: 1}},
		"of the device":              {device, []any{reading(20, 31)}, findings{over: 1, opened: 1}},
		"of another device":          {another, []any{reading(20, 31)}, findings{over: 1, opened: 1, lost: 1, stale: 1}},
		"of its site":                {ofSite, []any{with(reading(20, 31), "site", "berlin")}, findings{over: 1, opened: 1}},
		"of another site":            {ofSite, []any{with(reading(20, 31), "site", "paris")}, findings{over: 1, opened: 1, lost: 1, stale: 1}},
		"of another rule":            {otherRule, []any{reading(20, 31)}, findings{over: 1, opened: 1, lost: 1, stale: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			log := verify.NewLog(rule)
			log.Muted(test.mute)
			report := recordTo(log, test.log).Check(rules)
			if got := findingsOf(report); got != test.want {
				t.Errorf("\n got %+v\nwant %+v\n%v %v %v %v", got, test.want, report.Lost, report.TooClose, report.Stale, report.Wrong)
			}
		})
	}

	log := verify.NewLog(offline)
	log.Muted(all)
	r := rules
	r.Until = at(100)
	if report := recordTo(log, []any{heard(0)}).Check(r); !report.OK() {
		t.Errorf("a silence that is muted: %v %v", report.Lost, report.Stale)
	}
	if report := recordTo(log, []any{silent(0, 20, 1, 25)}).Check(r); len(report.Wrong) == 0 {
		t.Error("a silence that is muted, and told: nothing is wrong")
	}
}
