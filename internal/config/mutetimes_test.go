package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"alertworker/internal/rules"
)

const oneRule = "rules: [{name: hot, field: temp, above: 1}]\n"

// Each mistake in a mute, alone, at its place, with what to write.
func TestMuteMistakes(t *testing.T) {
	const once = "a mute on a date must have both from and to, such as 2026-12-01 22:00, with to after from, and no days"
	const day = "must be sun, mon, tue, wed, thu, fri or sat, a list of these, or several in a row, such as mon-fri"
	const hhmm, zone = "must be a time of the day such as 06:30, or on a day, 2026-12-01 22:00", "must be UTC or the name of a time zone, such as Europe/Berlin"
	const noEnd = "a mute has no end: must have days, from and to, where, or until"
	const named = "must be the name of an application property"
	for _, tt := range []struct{ name, text, want string }{
		{"no list", "mute: sat", "2, column 7: is not a mute: must be - days: …, from: …, where: … and so on"},
		{"none", "mute: []", "2, column 7: mute has 0 values; must be 1 to 32"},
		{"too many", "mute: [" + strings.Repeat("{days: sat},", 33) + "]", "2, column 7: mute has 33 values; must be 1 to 32"},
		{"a day", "mute: [sat]", "2, column 8: is not a mute: must be - days: …, from: …, where: … and so on"},
		{"an unknown key", "mute: [{days: sat, end: 6}]",
			`2, column 20: "end" is not known: must be zone, days, from, to, device, rule, where or until`},
		{"an unknown day", "mute: [{days: [sat, holiday]}]", `2, column 21: days is "holiday"; ` + day},
		{"half a range", "mute: [{days: mon-}]", `2, column 15: days is "mon-"; ` + day},
		{"no days", "mute: [{days: []}]", "2, column 15: days has 0 values; must be 1 to 7"},
		{"no time", "mute: [{from: 6}]",
			"2, column 8: " + noEnd + "\nline 2, column 15: from is \"6\"; " + hhmm},
		{"no time of the day", "mute: [{days: sat, from: 24:00}]",
			`2, column 26: from is "24:00"; ` + hhmm},
		{"a time after it", "mute: [{days: sat, to: 24:01}]", `2, column 24: to is "24:01"; ` + hhmm},
		{"minutes", "mute: [{days: sat, to: 20:60}]", `2, column 24: to is "20:60"; ` + hhmm},
		{"a zone", "mute: [{days: sat, zone: Berlin}]", `2, column 26: zone is "Berlin"; ` + zone},
		{"the machine's zone", "mute: [{days: sat, zone: Local}]", `2, column 26: zone is "Local"; ` + zone},
		{"a file", "mute: [{days: sat, zone: ../../etc/passwd}]", `2, column 26: zone is "../../etc/passwd"; ` + zone},
		{"no rule of this name", "mute: [{days: sat, rule: hott}]",
			`2, column 26: rule is "hott", which is not the name of a rule; did you mean hot?`},
		{"no value", "mute: [{days: sat, where: site}]", "2, column 27: where must be a name in messages and its value, such as site=berlin"},
		{"no text", "mute: [{days: sat, device: \"a\\u0007\"}]",
			"2, column 28: device must be 1 to 200 printable characters"},
		{"until a time of the day", "mute: [{until: 22:00}]", "2, column 16: until " + named + " with a time; for a time of the day write to, and to mute until a time once use alertworker silence"},
		{"until a time", "mute: [{until: \"2026-03-01T14:00:00Z\"}]", "2, column 16: until " + named + " with a time; for a time of the day write to, and to mute until a time once use alertworker silence"},
		{"until a path in the twin", "mute: [{until: $twin.tags.quietUntil}]", "2, column 16: until " + named + ", as a message has it: the path in the twin belongs in the IoT Hub's message enrichment"},
		{"a zone without times", "mute: [{where: a=b, zone: UTC}]", "2, column 27: zone is set without days, from and to"},
		{"a date and a time of the day", "mute: [{from: 2026-12-01 22:00, to: 04:00}]", "2, column 8: " + once},
		{"only from", "mute: [{from: 2026-12-01 22:00}]", "2, column 8: " + once},
		{"only to", "mute: [{to: 2026-12-02 04:00}]", "2, column 8: " + once},
		{"ends before it begins", "mute: [{from: 2026-12-01 22:00, to: 2026-12-01 04:00}]", "2, column 8: " + once},
		{"no such day", "mute: [{from: 2026-11-31 22:00, to: 2026-12-01 04:00}]", "2, column 8: " + once + "\nline 2, column 15: from is \"2026-11-31 22:00\"; " + hhmm},
		{"days beside a date", "mute: [{days: sat, from: 2026-12-01 22:00, to: 2026-12-02 04:00}]", "2, column 8: " + once},
		{"always", "mute: [{device: oven}]", "2, column 8: " + noEnd},
		{"every day from 06:00 to 06:00", "mute: [{days: sat-fri, from: 06:00, to: 06:00}]", "2, column 8: " + noEnd},
	} {
		_, err := parse(oneRule + tt.text)
		if want := "line " + tt.want; err == nil || err.Error() != want {
			t.Errorf("%s: got  %v\nwant %s", tt.name, err, want)
		}
	}
}

func TestMuteAccepts(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	weekend := [7]bool{0: true, 6: true}
	for _, tt := range []struct {
		text  string
		about rules.Mute
		times rules.Times // zero: none
	}{
		{"{where: maintenance=true}", rules.Mute{Property: "maintenance", Value: "true"}, rules.Times{}},
		{"{until: quietUntil, rule: hot}", rules.Mute{UntilAt: "quietUntil", Rule: "hot"}, rules.Times{}},
		{"{until: quietUntil, where: a=b, days: sat-fri}", rules.Mute{UntilAt: "quietUntil", Property: "a", Value: "b"},
			rules.Times{Days: rules.EveryDay, To: rules.MinutesOfDay, Zone: time.UTC}},
		{"{days: [sat, Sun]}", rules.Mute{}, rules.Times{Days: weekend, To: rules.MinutesOfDay, Zone: time.UTC}},
		{"{days: sat-sun, zone: Europe/Berlin, rule: hot}", rules.Mute{Rule: "hot"},
			rules.Times{Days: weekend, To: rules.MinutesOfDay, Zone: berlin}},
		{"{from: 22:00, to: 6:30, device: gw-12/return/2}", rules.Mute{Device: "gw-12", Sensor: "return/2"},
			rules.Times{Days: rules.EveryDay, From: 22 * 60, To: 6*60 + 30, Zone: time.UTC}},
		{"{from: 22:00, to: 6:30, device: 'truck-*'}", rules.Mute{Device: "truck-*"},
			rules.Times{Days: rules.EveryDay, From: 22 * 60, To: 6*60 + 30, Zone: time.UTC}},
		{"{days: mon-fri, from: 22:00, to: 06:00, zone: Europe/Berlin, device: truck-*, rule: hot, where: kind=frozen}",
			rules.Mute{Device: "truck-*", Rule: "hot", Property: "kind", Value: "frozen"},
			rules.Times{Days: [7]bool{1: true, 2: true, 3: true, 4: true, 5: true}, From: 22 * 60, To: 6 * 60, Zone: berlin}},
		{"{from: 2026-12-01 22:00, to: 2026-12-02 04:00, where: site=x}", rules.Mute{
			Property: "site", Value: "x", From: time.Date(2026, 12, 1, 22, 0, 0, 0, time.UTC), Until: time.Date(2026, 12, 2, 4, 0, 0, 0, time.UTC),
		}, rules.Times{}},
		{"{from: 2026-12-01T22:00, to: 2026-12-02T04:00:00Z, zone: Europe/Berlin}", rules.Mute{
			From: time.Date(2026, 12, 1, 22, 0, 0, 0, berlin), Until: time.Date(2026, 12, 2, 5, 0, 0, 0, berlin),
		}, rules.Times{}},
		{`{"from": "12:00", "where": "site=a=b"}`, rules.Mute{Property: "site", Value: "a=b"},
			rules.Times{Days: rules.EveryDay, From: 12 * 60, To: rules.MinutesOfDay, Zone: time.UTC}},
	} {
		set, err := parseRules([]byte(oneRule+"mute:\n- "+tt.text), ruleDefaults{time.Minute, false, time.UTC})
		want := tt.about
		if tt.times.Zone != nil {
			want.Times = &tt.times
		}
		if err != nil || !reflect.DeepEqual(set.Mutes, rules.Mutes{want}) {
			t.Errorf("%s: %+v, %v", tt.text, set.Mutes, err)
		}
	}
}

// A mute without a zone goes by TIME_ZONE.
func TestMuteZone(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	if err := os.WriteFile(path, []byte(oneRule+"mute: [{days: sat}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	environment(t, valid("TEMPERATURE_THRESHOLD=", "RULES_FILE="+path, "TIME_ZONE=Asia/Tokyo"))
	c, _, err := Load()
	if err != nil || c.Rules().Mutes[0].Times.Zone.String() != "Asia/Tokyo" {
		t.Errorf("%+v, %v", c.Rules().Mutes, err)
	}
}

// muteText writes mutes as a part of a file that means them.
func muteText(all rules.Mutes) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("mute:\n")
	for _, m := range all {
		var fields []string
		if m.Times != nil {
			var names []string
			for day, is := range m.Times.Days {
				if is {
					names = append(names, weekdays[day])
				}
			}
			fields = append(fields, fmt.Sprintf("days: %s, from: %q, zone: %q", quoted(names), rules.TimeOfDay(m.Times.From), m.Times.Zone))
			if m.Times.To < rules.MinutesOfDay {
				fields = append(fields, fmt.Sprintf("to: %q", rules.TimeOfDay(m.Times.To)))
			}
		}
		device := m.Device
		if m.Sensor != "" {
			device += "/" + m.Sensor
		}
		if !m.Until.IsZero() {
			fields = append(fields, fmt.Sprintf("from: %q, to: %q, zone: %q", m.From.Format(rules.PlannedTime), m.Until.Format(rules.PlannedTime), m.From.Location()))
		}
		for key, value := range map[string]string{"device": device, "rule": m.Rule, "where": m.Property + "=" + m.Value, "until": m.UntilAt} {
			if value != "" && value != "=" {
				fields = append(fields, fmt.Sprintf("%s: %q", key, value))
			}
		}
		fmt.Fprintf(&b, "- {%s}\n", strings.Join(fields, ", "))
	}
	return b.String()
}
