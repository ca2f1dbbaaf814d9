package wording_test

import (
	"cmp"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"alertworker/internal/notify"
	"alertworker/internal/notify/wording"
)

func TestMessage(t *testing.T) {
	for want, a := range map[string]notify.Alert{
		"gw-12 / return: 78.2 °C, at or above 60 (hot)":                          {Device: "gw-12", Sensor: "return", Rule: "hot", Unit: "°C", Temperature: 78.2, Threshold: 60},
		"gw-12 / return: no longer in alarm, because the rule was removed (hot)": {Device: "gw-12", Sensor: "return", Rule: "hot", Resolved: true, Removed: true},
		"plant, gw-12 / return: 78.2, at or above 60 (hot)": {
			Device: "gw-12", Sensor: "return", Per: "site", PerValue: "plant", Rule: "hot", Temperature: 78.2, Threshold: 60},
		"device-7: 91.5, at or above 80":                 {Device: "device-7", Temperature: 91.5, Threshold: 80},
		"berlin, freezer-7: -12, at or above -15 (warm)": {Device: "freezer-7", Per: "site", PerValue: "berlin", Rule: "warm", Temperature: -12, Threshold: -15},
		"berlin, freezer-7: -12, at or above -15 (warm), at least 29 devices since the last alert": {
			Device: "freezer-7", Per: "site", PerValue: "berlin", Rule: "warm", Temperature: -12, Threshold: -15, Suppressed: 29},
		"freezer-7: -12, at or above -15 (warm)":                                 {Device: "freezer-7", Per: "site", Rule: "warm", Temperature: -12, Threshold: -15},
		"truck: 91, at or above 80 (hot), arrived 6h28m late":                    {Device: "truck", Rule: "hot", Temperature: 91, Threshold: 80, DeviceTime: time.Unix(1e9, 0), Enqueued: time.Unix(1e9+388*60, 0)},
		"truck: 71, normal again, below 80":                                      {Device: "truck", Resolved: true, Temperature: 71, Threshold: 80, DeviceTime: time.Unix(1e9, 0), Enqueued: time.Unix(1e9+59, 0)},
		"device-7: 91.5, at or above 80, from a damaged message":                 {Device: "device-7", Temperature: 91.5, Threshold: 80, Damaged: true},
		"device-7: 91.5, at or above 80 (test)":                                  {Device: "device-7", Temperature: 91.5, Threshold: 80, Test: true},
		"device-7: 91.5, at or above 80 (critical)":                              {Device: "device-7", Level: "critical", Temperature: 91.5, Threshold: 80},
		"device-7: 71.5, normal again, below 80 (hot)":                           {Device: "device-7", Level: "hot", Resolved: true, Temperature: 71.5, Threshold: 80},
		"device-7: 64.5, normal again, below 65":                                 {Device: "device-7", Rule: "temperature", Resolved: true, Temperature: 64.5, Threshold: 65},
		"device-7: 91.5, at or above 80 (hot, critical)":                         {Device: "device-7", Rule: "hot", Level: "critical", Temperature: 91.5, Threshold: 80},
		"store-3: 1.4, at or below 2 (cold-chain)":                               {Device: "store-3", Rule: "cold-chain", Below: true, Temperature: 1.4, Threshold: 2},
		"store-3: 3.5, normal again, above 3 (cold)":                             {Device: "store-3", Rule: "cold", Below: true, Resolved: true, Temperature: 3.5, Threshold: 3},
		"oven: no longer in alarm, because the rule was removed (hot, critical)": {Device: "oven", Rule: "hot", Level: "critical", Resolved: true, Removed: true, Temperature: 91.5, Threshold: 80},
		"oven: no longer monitored (hot)":                                        {Device: "oven", Rule: "hot", Resolved: true, Forgotten: true, Temperature: 91.5, Threshold: 80},
		"oven: 68, not normal yet after reaching 70 (hot, warning)":              {Device: "oven", Rule: "hot", Level: "warning", Temperature: 68, Threshold: 70},
		"truck: no longer in alarm, because kind is chilled, not frozen (cargo)": {
			Device: "truck", Rule: "cargo", Resolved: true, Temperature: 4, Threshold: -15, Excluded: "kind is chilled, not frozen"},
		"store: 2.5, not normal yet after reaching 2 (cold, warning)": {Device: "store", Rule: "cold", Level: "warning", Below: true, Temperature: 2.5, Threshold: 2},
		"dock-4: open (door)":                              {Device: "dock-4", Rule: "door", Word: "open", Temperature: 1, Threshold: 1},
		"dock-4: not normal yet after open or ajar (door)": {Device: "dock-4", Rule: "door", Word: "open or ajar", Threshold: 1},
		"dock-4: normal again, not open or ajar (door)":    {Device: "dock-4", Rule: "door", Word: "open or ajar", Resolved: true},
		"two�lines: 80, at or above 80":                    {Device: "two\nlines", Temperature: 80, Threshold: 80},
		"�gniht: 80, at or above 80":                       {Device: "\u202egniht", Temperature: 80, Threshold: 80},
		"Käl<te>&\"1': 80, at or above 80":                 {Device: `Käl<te>&"1'`, Temperature: 80, Threshold: 80},
		"a device without a name: 80, at or above 80":      {Temperature: 80, Threshold: 80},
		"oven: 30.3, at or above 30":                       {Device: "oven", Temperature: float64(float32(30.3)), Threshold: 30},
		"oven: 0, at or above -12.5":                       {Device: "oven", Temperature: math.Copysign(0, -1), Threshold: -12.5},
		"oven: 1234568, at or above 0.000001":              {Device: "oven", Temperature: 1234567.9, Threshold: 1e-6},
		"oven: 100000000000000, at or above 2e-07":         {Device: "oven", Temperature: 1e14, Threshold: 2e-7},
		"oven: 1.797693e+308, at or above -1e+15":          {Device: "oven", Temperature: 1.797693e308, Threshold: -1e15},
		"oven: 1.797693e+308, at or above NaN":             {Device: "oven", Temperature: math.MaxFloat64, Threshold: math.NaN()},
		strings.Repeat("ä", 128) + ": 1, at or above 1":    {Device: strings.Repeat("ä", 128), Temperature: 1, Threshold: 1},
		strings.Repeat("d", 128) + ": -100000000000000, normal again, below -100000000000000 (" + strings.Repeat("r", 32) + ", " + strings.Repeat("l", 29) + "…": {
			Device: strings.Repeat("d", 128), Resolved: true, Temperature: -1e14, Threshold: -1e14, Rule: strings.Repeat("r", 32), Level: strings.Repeat("l", 32)},
		strings.Repeat("ä", 95) + "…" + strings.Repeat("ä", 30) + "-7: 1, at or above 1": {Device: strings.Repeat("ä", 400) + "-7", Temperature: 1, Threshold: 1},
		"oven: not heard for 15m, since 2001-09-09 01:46 UTC (offline)": {
			Device: "oven", Rule: "offline", Silent: 15 * time.Minute, Since: time.Unix(1e9, 0), LastHeard: time.Unix(1e9, 0)},
		"oven: not heard for 20m, since 2001-09-09 01:46 UTC (offline)": {
			Device: "oven", Rule: "offline", Silent: 20 * time.Minute, Since: time.Unix(1e9, 0), LastHeard: time.Unix(1e9-3600, 0)},
		"oven: without probe or temp for 2h, since 2001-09-09 01:46 UTC (probe-dead)": {
			Device: "oven", Rule: "probe-dead", Field: "probe,temp", Silent: 2 * time.Hour, Since: time.Unix(1e9, 0), LastHeard: time.Unix(1e9, 0)},
		"oven: heard again (offline)": {
			Device: "oven", Rule: "offline", Silent: time.Minute, Resolved: true},
		"oven: no longer monitored (offline)": {
			Device: "oven", Rule: "offline", Silent: time.Minute, Resolved: true, Forgotten: true, Partition: "7"},
		"hub/telemetry: heard again (offline)": {
			Device: notify.Hub, Rule: "offline", Silent: time.Minute, Resolved: true, Partition: "7"},
		"hub/telemetry: no longer monitored (offline)": {
			Device: notify.Hub, Rule: "offline", Silent: time.Minute, Resolved: true, Forgotten: true},
		"hub/telemetry: not heard for 1m, nothing from any of 312 devices since 2026-11-23 12:17 UTC (offline)": {
			Device: notify.Hub, Rule: "offline", Silent: time.Minute, Since: time.Date(2026, 11, 23, 12, 17, 0, 0, time.UTC),
			Outage: &notify.Outage{Devices: 312}},
		"hub/telemetry: not heard for 1m, since 2026-11-23 12:17 UTC (offline)": {
			Device: notify.Hub, Rule: "offline", Silent: time.Minute, Since: time.Date(2026, 11, 23, 12, 17, 0, 0, time.UTC)},
	} {
		a.Rule = cmp.Or(a.Rule, notify.DefaultRule)
		if got := (wording.Style{}).Message(a); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// One message is about all members of an incident: about one it says what it would say of the device, of several it
// names the first, and its end is about all.
func TestMessageOfIncident(t *testing.T) {
	at := time.Date(2026, 3, 1, 3, 8, 0, 0, time.UTC)
	freezers := notify.Alert{Device: "freezer-7", Per: "site", PerValue: "berlin", Rule: "freezer", Unit: "°C", Temperature: -12.5, Threshold: -15,
		Since: at, Enqueued: at.Add(5 * time.Minute), Suppressed: 7,
		Incident: &notify.Incident{ID: "I", Began: at.Add(time.Minute), Members: 12, First: "freezer-7"}}
	meters := notify.Alert{Device: "meter-3", Per: "gateway", PerValue: "gw-12", Rule: "offline", Silent: 15 * time.Minute, Since: at, LastHeard: at,
		Enqueued: at.Add(15 * time.Minute), Incident: &notify.Incident{ID: "I", Began: at.Add(15 * time.Minute), Members: 30, First: "meter-3"}}
	hub := notify.Alert{Device: notify.Hub, Per: "hub", PerValue: notify.Hub, Rule: "offline", Silent: time.Minute, Since: at,
		Outage: &notify.Outage{Devices: 312}, Incident: &notify.Incident{ID: "I", Members: 4, First: notify.Hub}}
	doors := freezers
	doors.Device, doors.Rule, doors.Word, doors.Temperature, doors.Threshold = "dock-4", "door", "open", 1, 1
	sensors := freezers
	sensors.Sensor = "probe 2"

	with := func(a notify.Alert, change func(a *notify.Alert, i *notify.Incident)) notify.Alert {
		i := *a.Incident
		a.Incident = &i
		if i.First != "" {
			i.First = a.From().String()
		}
		change(&a, &i)
		return a
	}
	as := func(members int) func(*notify.Alert, *notify.Incident) {
		return func(_ *notify.Alert, i *notify.Incident) { i.Members = members }
	}
	over := func(after time.Duration) func(*notify.Alert, *notify.Incident) {
		return func(a *notify.Alert, i *notify.Incident) {
			a.Resolved, a.Enqueued, i.Members, i.First = true, at.Add(after), 0, ""
		}
	}

	for _, test := range []struct {
		a    notify.Alert
		want string
	}{
		{freezers, "berlin: 12 devices at or above -15 °C, first freezer-7: -12.5 °C (freezer)"},
		{with(freezers, as(1)), "berlin, freezer-7: -12.5 °C, at or above -15 (freezer)"},
		{with(freezers, func(_ *notify.Alert, i *notify.Incident) { i.AtLeast = true }),
			"berlin: at least 12 devices at or above -15 °C, first freezer-7: -12.5 °C (freezer)"},
		{with(freezers, func(_ *notify.Alert, i *notify.Incident) { i.Members, i.AtLeast = 1, true }),
			"berlin: at least 1 device at or above -15 °C, first freezer-7: -12.5 °C (freezer)"},
		{with(freezers, func(_ *notify.Alert, i *notify.Incident) { i.First = "freezer-1" }),
			"berlin: 12 devices at or above -15 °C, first freezer-1 (freezer)"},
		{with(freezers, func(a *notify.Alert, _ *notify.Incident) { a.OwnLimit = true }),
			"berlin: 12 devices at or above their limits, first freezer-7: -12.5 °C (freezer)"},
		{with(freezers, func(a *notify.Alert, _ *notify.Incident) { a.Below, a.Temperature = true, -20 }),
			"berlin: 12 devices at or below -15 °C, first freezer-7: -20 °C (freezer)"},
		{with(freezers, func(a *notify.Alert, _ *notify.Incident) { a.Temperature = -16 }),
			"berlin: 12 devices not normal yet after reaching -15 °C, first freezer-7: -16 °C (freezer)"},
		{with(sensors, as(3)), "berlin: 3 sensors at or above -15 °C, first freezer-7 / probe 2: -12.5 °C (freezer)"},
		{with(doors, as(2)), "berlin: 2 devices open, first dock-4 (door)"},
		{with(doors, func(a *notify.Alert, i *notify.Incident) { a.Word, a.Temperature = "open or ajar", 0 }),
			"berlin: 12 devices not normal yet after open or ajar, first dock-4 (door)"},
		{with(freezers, over(43*time.Minute)), "berlin: all devices normal again after 43 min (freezer)"},
		{with(sensors, over(43*time.Minute)), "berlin: all sensors normal again after 43 min (freezer)"},
		{with(doors, over(3*time.Hour)), "berlin: all devices normal again after 3 h (door)"},
		{with(with(freezers, over(43*time.Minute)), func(a *notify.Alert, _ *notify.Incident) { a.Since = at.Add(40 * time.Minute) }),
			"berlin: all devices normal again after 42 min (freezer)"},
		{with(freezers, over(-time.Minute)), "berlin: all devices normal again (freezer)"},
		{with(with(freezers, over(time.Hour)), func(a *notify.Alert, _ *notify.Incident) { a.Removed = true }),
			"berlin: over after 60 min, last freezer-7 no longer in alarm, because the rule was removed (freezer)"},
		{with(with(freezers, over(time.Hour)), func(a *notify.Alert, _ *notify.Incident) { a.Excluded = "mode is defrost" }),
			"berlin: over after 60 min, last freezer-7 no longer in alarm, because mode is defrost (freezer)"},

		{meters, "gw-12: 30 devices not heard for 15m, first meter-3, since 2026-03-01 03:08 UTC (offline)"},
		{with(meters, as(1)), "gw-12, meter-3: not heard for 15m, since 2026-03-01 03:08 UTC (offline)"},
		{with(meters, func(a *notify.Alert, _ *notify.Incident) { a.Field = "probe,temp" }),
			"gw-12: 30 devices without probe or temp for 15m, first meter-3, since 2026-03-01 03:08 UTC (offline)"},
		{with(meters, over(44*time.Minute)), "gw-12: all devices heard again after 44 min (offline)"},
		{with(with(meters, over(44*time.Minute)), func(a *notify.Alert, _ *notify.Incident) { a.Forgotten = true }),
			"gw-12: over after 44 min, last meter-3 no longer monitored (offline)"},

		{hub, "hub/telemetry: not heard for 1m, nothing from any of 312 devices since 2026-03-01 03:08 UTC (offline)"},
		{with(hub, over(time.Hour)), "hub/telemetry: heard again (offline)"},
	} {
		if got := (wording.Style{}).Message(test.a); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add("device-7", "hot", "critical", 91.5, 80.0, false, false)
	f.Add("\xff\x00\u202e\u2028", "\xff\n", "\u2028", math.Inf(1), math.SmallestNonzeroFloat64, true, false)
	f.Add(strings.Repeat("ä", 1000), strings.Repeat("ä", 1000), strings.Repeat("ä", 1000), -math.MaxFloat64, -123456.7e-11, true, true)
	f.Fuzz(func(t *testing.T, device, rule, level string, temperature, threshold float64, below, resolved bool) {
		m := wording.Style{}.Message(notify.Alert{
			Device: device, Rule: rule, Level: level, Below: below, Resolved: resolved, Temperature: temperature, Threshold: threshold, Test: true,
		})
		if n := utf8.RuneCountInString(m); n > 250 || !utf8.ValidString(m) {
			t.Errorf("%d characters: %q", n, m)
		}
		if strings.ContainsFunc(m, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("not one printable line: %q", m)
		}
	})
}
