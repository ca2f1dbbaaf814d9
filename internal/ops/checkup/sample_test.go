package checkup

import (
	"fmt"
	"testing"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/telemetrytest"
)

// What a check says of events is what a worker makes of them: words, conditions, ranges, units and limits of devices.
func TestSampleDecidesAsWorkersDo(t *testing.T) {
	one := func(limit float64) []rules.Level { return []rules.Level{{Limit: limit, Clear: limit}} }
	door := rules.Rule{Name: "door", Field: "door", Is: []string{"open", "ajar"}, Levels: one(1)}
	truck := rules.Rule{
		Name: "frozen", Field: "temp", Unit: "°C", Levels: one(-17),
		Only: []rules.Condition{{Name: "kind", Values: []string{"frozen"}}},
	}
	cargo := rules.Rule{
		Name: "cargo", Field: "temp", Levels: one(8),
		Only: []rules.Condition{{Name: "mode", Values: []string{"run", "start"}}, {Name: "load", Values: []string{"full"}}},
	}
	probe := rules.Rule{Name: "probe", Field: "temp", Valid: &telemetry.Range{From: -60, To: 60}, Levels: one(8)}
	own := rules.Rule{
		Name: "own", Field: "temp",
		Levels: []rules.Level{{Name: "warning", Limit: 70}, {Name: "critical", Limit: 80, LimitAt: rules.Reference{Name: "maxTemp"}}},
	}
	event := func(body string, properties map[string]any) telemetry.Event {
		return telemetry.Event{Device: "d", Body: []byte(body), Properties: telemetrytest.Properties(properties)}
	}
	for name, test := range map[string]struct {
		rule   rules.Rule
		events []telemetry.Event
		want   string
	}{
		"words": {
			door, []telemetry.Event{event(`{"door":"Open"}`, nil), event(`{"door":"closed"}`, nil), event(`{"door":false}`, nil)},
			"3 read: 3 readings at door; reaching the limit (1)",
		},
		"words elsewhere": {
			door, []telemetry.Event{event(`{"doors":{"main":"open"},"temp":1,"x":null}`, nil)},
			"✗ 1 read: 0 readings at door; missing (1); found at doors.main (1), temp (1): add the right one to the field of the rule door",
		},
		"a condition that some meet": {
			truck, []telemetry.Event{event(`{"temp":40.4,"kind":"chilled"}`, nil), event(`{"temp":-18.5}`, map[string]any{"kind": "frozen"})},
			`2 read: 1 reading at temp, highest -18.5 °C; excluded: kind is "chilled" (1)`,
		},
		"conditions that none meets": {
			cargo, []telemetry.Event{event(`{"temp":40.4,"mode":"Running"}`, nil), event(`{"temp":9}`, map[string]any{"mode": "run"}), event(`{}`, nil)},
			`! 3 read: 0 readings at temp; excluded: load is missing (1), excluded: mode is "Running" (1), excluded: mode is missing (1)`,
		},
		"a range": {
			probe, []telemetry.Event{event(`{"temp":850}`, nil), event(`{"temp":-127}`, nil), event(`{"temp":5}`, nil)},
			"! 3 read: 1 reading at temp, highest 5; invalid (2)",
		},
		"limits of devices": {
			own, []telemetry.Event{event(`{"temp":85}`, map[string]any{"maxTemp": "90"}), event(`{"temp":81}`, nil)},
			"2 read: 2 readings at temp, highest 85; reaching warning (2), maxTemp absent (1), reaching critical (1)",
		},
		"limits that no device has": {
			own, []telemetry.Event{event(`{"temp":85}`, map[string]any{"maxTemp": "high"}), event(`{"temp":81}`, nil)},
			"! 2 read: 2 readings at temp, highest 85; reaching critical (2), reaching warning (2), maxTemp absent (1), maxTemp not_a_number (1); " +
				"do the devices send maxTemp, or has the IoT Hub a message enrichment of this name?",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := newReading(rules.Set{Rules: []rules.Rule{test.rule}}, true, []eventhubs.PartitionState{{Events: test.events}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.samples[0].verdict()
			switch {
			case outcomeOf(err) == warned:
				got = "! " + err.Error()
			case err != nil:
				got = "✗ " + err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// A sample counts what the rules see of one event alone, so it may not depend on what came before it.
func TestSampleOfManyEvents(t *testing.T) {
	set := rules.Set{Rules: []rules.Rule{{
		Name: "hot", Field: "temp", Levels: []rules.Level{{Limit: 80}},
		Only: []rules.Condition{{Name: "site", Values: []string{"site-1"}}},
	}}}
	var p eventhubs.PartitionState
	for i := range 160 {
		body := fmt.Sprintf(`{"temp":%d,"site":"site-%d"}`, i, i%10)
		p.Events = append(p.Events, telemetry.Event{Device: "d", Body: []byte(body)})
	}
	r, err := newReading(set, true, []eventhubs.PartitionState{p})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.samples[0].verdict()
	const want = `160 read: 16 readings at temp, highest 151; excluded: site is "site-0" (16), excluded: site is "site-2" (16), ` +
		`excluded: site is "site-3" (16), excluded: site is "site-4" (16), excluded: site is "site-5" (16), excluded: site is "site-6" (16)`
	if err != nil || got != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}
