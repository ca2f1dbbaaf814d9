package checkup

import (
	"strings"
	"testing"
	"time"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/telemetrytest"
)

// A check sees that readings of several sensors are taken for one, and says what to write.
func TestProposals(t *testing.T) {
	one := []rules.Level{{Limit: 80, Clear: 80}}
	plain := rules.Rule{Name: "hot", Field: "temperature", Levels: one}
	stateful := rules.Rule{Name: "hot", Field: "temperature", Levels: one, Resolved: true}
	lasting := rules.Rule{Name: "hot", Field: "temperature", Levels: []rules.Level{{Limit: 80, Clear: 80, For: 5 * time.Minute}}}
	value := rules.Rule{Name: "hot", Field: "v", Levels: one, Only: []rules.Condition{{Name: "tag", Values: []string{"water"}}}}

	body := func(bodies ...string) (all []telemetry.Event) {
		for _, b := range bodies {
			all = append(all, telemetry.Event{Device: "gw-1", Body: []byte(b)})
		}
		return all
	}
	from := func(set func(e *telemetry.Event, name string), names ...string) []telemetry.Event {
		all := body(`{"temperature":91}`, `{"temperature":21}`, `{"temperature":91}`)
		for i := range all {
			set(&all[i], names[i%len(names)])
		}
		return all
	}
	every := func(gap time.Duration) []telemetry.Event {
		all := body(`{"temperature":21}`, `{"temperature":91}`, `{"temperature":22}`)
		for i := range all {
			all[i].Enqueued = time.Unix(1_800_000_000, 0).Add(time.Duration(i) * gap)
		}
		return all
	}

	for name, test := range map[string]struct {
		rule   rules.Rule
		events []telemetry.Event
		want   string // nothing is proposed if it is empty
	}{
		"modules": {
			plain, from(func(e *telemetry.Event, name string) { e.Module = name }, "furnace", "room"),
			"gw-1 has 2 different $module (furnace, room): sensor: $module would keep them apart",
		},
		"one module": {plain, from(func(e *telemetry.Event, name string) { e.Module = name }, "furnace"), ""},
		"components": {
			plain, from(func(e *telemetry.Event, name string) { e.Component = name }, "t1", "t2"),
			"gw-1 has 2 different $component (t1, t2): sensor: $component would keep them apart",
		},
		"sensors in the body": {
			plain, body(`{"deviceId":"ble-a","temperature":91}`, `{"deviceId":"ble-b","temperature":21}`),
			"gw-1 has 2 different deviceId (ble-a, ble-b): sensor: deviceId would keep them apart",
		},
		"sensors in a property": {
			plain,
			from(func(e *telemetry.Event, name string) {
				e.Properties = telemetrytest.Properties(map[string]any{"probe": name})
			}, "a", "b"),
			"gw-1 has 2 different probe (a, b): sensor: probe would keep them apart",
		},
		"another measurement in turn": {
			value, body(`{"tag":"water","v":37}`, `{"tag":"speed","v":1450}`),
			"gw-1 has 2 different tag (speed, water): sensor: tag would keep them apart",
		},
		"a state that changes is no sensor": {plain, body(`{"status":"ok","temperature":91}`, `{"status":"warn","temperature":21}`), ""},
		"an array with names": {
			plain, body(`{"site":"b","readings":[{"name":"flow","temperature":91},{"name":"return","temperature":"41"}]}`),
			"if readings.temperature is the right one, TEMPERATURE_FIELD=temperature,readings.temperature; " +
				"gw-1 sends 2 measurements in a message: each: readings, field: temperature, sensor: name would keep them apart",
		},
		"an array on the way": {
			rules.Rule{Name: "hot", Field: "rows.values.t", Levels: one},
			body(`{"rows":[{"values":[{"t":1,"id":"x"},{"t":2,"id":"y"},{"t":3,"id":"z"}]}]}`),
			"gw-1 sends 3 measurements in a message: each: rows.values, field: t, sensor: id would keep them apart",
		},
		"stored readings": {
			stateful, body(`[{"ts":1800000000,"temperature":91},{"ts":1800000060,"temperature":21}]`),
			"gw-1 sends 2 measurements in a message: each: ., field: temperature, TIME_PROPERTY=body:ts would take them in their order",
		},
		"stored readings of a rule without state": {plain, body(`[{"ts":1800000000,"temperature":91},{"ts":1800000060,"temperature":21}]`), ""},
		"an array without names":                  {stateful, body(`[{"temperature":91},{"temperature":21}]`), ""},
		"numbers under several names": {
			plain, body(`{"DS18B20-1":{"Temperature":21},"DS18B20-2":{"Temperature":91},"Unit":"C"}`),
			"; of several sensors, in a rule, each: \"DS18B20-*\", field: Temperature, sensor: $key",
		},
		"numbers in arrays under several names": {
			plain, body(`{"Device A":[{"ts":1800000000,"values":{"temperature":91}}],"Device B":[{"ts":1800000000,"values":{"temperature":21}}]}`),
			"; of several sensors, in a rule, each: \"*\", field: values.temperature, sensor: $key",
		},
		"elements that are called by a name": {
			rules.Rule{Name: "hot", Each: "r", Field: "t", Levels: one}, body(`{"r":[{"t":91,"probe":"a"},{"t":21,"probe":"b"}]}`),
			"; gw-1 has 2 different probe (a, b): sensor: probe would keep them apart",
		},
		"several values of several sensors, in JSON in text": {
			plain, body(`{"data":"{\"S1\":{\"humidity\":40,\"temp\":21},\"S2\":{\"humidity\":50,\"temp\":91}}"}`),
			"; of several sensors, in a rule, each: \"data.S*\", field: temp, sensor: $key",
		},
		"numbered names": {
			rules.Rule{Name: "hot", Field: "temperature", Levels: one}, body(`{"temp1":91,"temp2":21,"humidity":50}`),
			"; of several sensors, in a rule, each: \"temp*\", field: ., sensor: $key",
		},
		"only changes are sent": {
			lasting, every(12 * time.Minute),
			"gw-1's messages are up to 12m apart, and never less than for (5m): it may send changes only, and its alarm opens with the next one",
		},
		"more often than for": {lasting, every(4 * time.Minute), ""},
		"a rule with a sensor": {
			rules.Rule{Name: "hot", Field: "temperature", Levels: one, Sensor: []string{"probe"}},
			body(`{"probe":"a","temperature":91}`, `{"probe":"b","temperature":21}`, `{"temperature":20}`),
			"; reaching the limit (1), without a name at probe (1)",
		},
		"a sensor that nobody names": {
			rules.Rule{Name: "hot", Field: "temperature", Levels: one, Sensor: []string{"probe"}},
			body(`{"temperature":91}`), "; reaching the limit (1), without a name at probe (1)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := newReading(rules.Set{Rules: []rules.Rule{test.rule}}, false, []eventhubs.PartitionState{{Events: test.events}})
			if err != nil {
				t.Fatal(err)
			}
			text, problem := r.samples[0].verdict()
			if problem != nil {
				text = problem.Error()
			}
			if test.want == "" && (strings.Contains(text, "sensor") || strings.Contains(text, "apart")) || !strings.HasSuffix(text, test.want) {
				t.Errorf("got %s\nwant …%s", text, test.want)
			}
		})
	}
}
