package checkup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/ops/status"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/telemetrytest"
)

// An error that is not a service's answer names the variable to look at; what a step says of itself stays.
func TestExplain(t *testing.T) {
	err := step{variable: "STORAGE_ACCOUNT_URL"}.explain(errors.New("no answer from x"))
	if err == nil || !strings.Contains(err.Error(), "check the address in STORAGE_ACCOUNT_URL") {
		t.Errorf("got %q", err)
	}
	for _, said := range []error{nil, noRecords, warning("half of it")} {
		if err := (step{by: status.ByStore, variable: "STORAGE_ACCOUNT_URL"}).explain(said); err != said {
			t.Errorf("%v became %v", said, err)
		}
	}
}

// Steps run side by side, each within its limit, and print in order.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		var b bytes.Buffer
		start := time.Now()
		passed := run(t.Context(), &b, []step{
			{name: "slow", limit: 2 * time.Second, do: slow},
			{name: "slow too", limit: 3 * time.Second, do: slow},
			{name: "quick", limit: time.Second, do: func(context.Context) (string, error) { return "well\n\x1b[31mred", nil }},
			{name: "odd", limit: time.Second, do: func(context.Context) (string, error) { return "", undecided("who knows") }},
			{name: "so so", limit: time.Second, do: func(context.Context) (string, error) { return "", warning("half of it") }},
			{name: "rule hot", limit: time.Second, do: func(context.Context) (string, error) { return "", statement("alerts when t is at or above 80") }},
		})
		want := "✗ slow      no answer within 2s\n" +
			"✗ slow too  no answer within 3s\n" +
			"✓ quick     well \uFFFD[31mred\n" +
			"– odd       who knows\n" +
			"! so so     half of it\n" +
			"· rule hot  alerts when t is at or above 80\n" +
			"\n2 of 5 checks passed, 1 warning, 1 could not be tried\n"
		if b.String() != want || passed {
			t.Errorf("got %v and:\n%s\nwant:\n%s", passed, b.String(), want)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v: one after the other?", took)
		}
	})
	if !run(t.Context(), io.Discard, []step{
		{name: "odd", limit: time.Second, do: func(context.Context) (string, error) { return "", undecided("") }},
		{name: "so so", limit: time.Second, do: func(context.Context) (string, error) { return "", warning("") }},
	}) {
		t.Error("nothing failed, and the check did not pass")
	}
}

func TestSample(t *testing.T) {
	const none = "<none>"
	event := func(device, source, body string) telemetry.Event {
		return telemetry.Event{Device: device, MessageSource: source, Body: []byte(body)}
	}
	hot := event("d", "", `{"temperature":93.5,"temp":1}`)
	for name, test := range map[string]struct {
		fields    string
		events    []telemetry.Event
		want, err string
		result    outcome
	}{
		"all well": {"temperature,temp", []telemetry.Event{hot, event("d", "Telemetry", `{"temp":20}`)},
			"2 read: 2 readings at temperature or temp, highest 93.5; reaching the limit (1)", none, passed},
		"the hotter of two": {"temperature,temp", []telemetry.Event{event("d", "", `[{"temperature":20},{"temp":95}]`)},
			"1 read: 1 reading at temperature or temp, highest 95; reaching the limit (1)", none, passed},
		"some not": {"temperature", []telemetry.Event{hot, event("d", "", "{"), event("d", "", "{"), event("d", "twinChangeEvents", "{}")},
			"", "4 read: 1 reading at temperature, highest 93.5; malformed (2), not_telemetry (1), reaching the limit (1); not JSON at byte 1 of a message of d: found the end where a name in double quotes must begin", warned},
		"damaged": {"temperature", []telemetry.Event{hot, event("oven-7", "", `[{"temperature": 20, 'a': 1}]`)},
			"", "2 read: 2 readings at temperature, highest 93.5; damaged, which ends no alarm (1), reaching the limit (1); not JSON at byte 21 of a message of oven-7: found ' where a name in double quotes must begin", warned},
		"no repair": {"temperature", []telemetry.Event{event("oven-7", "", `{"temperature":91,5}`)},
			"", "1 read: 0 readings at temperature; malformed (1); not JSON at byte 18 of a message of oven-7: found 5 where a name in double quotes must begin", failed},
		"a comma": {"temperature", []telemetry.Event{event("d", "", `{"temperature":"1,234"}`)},
			"", "1 read: 0 readings at temperature; not_a_number (1); \"1,234\" at temperature: may be one number or two: the device must write a decimal point", failed},
		"a unit": {"temperature", []telemetry.Event{event("d", "", `{"temperature":"91.5 °C"}`)},
			"", "1 read: 0 readings at temperature; not_a_number (1); \"91.5 °C\" at temperature: ends in °C, and the rule has no unit", failed},
		"another format": {"temperature", []telemetry.Event{event("d", "", "\xa1\x61a\x01")},
			"", "1 read: 0 readings at temperature; unsupported_encoding (1)", failed},
		"a tenth not": {"temperature", append(slices.Repeat([]telemetry.Event{hot}, 9), event("d", "", `{"coreTemp":71}`), event("d", "twinChangeEvents", "{}")),
			"11 read: 9 readings at temperature, highest 93.5; reaching the limit (9), missing (1), not_telemetry (1)", none, passed},
		"more than a tenth": {"temperature", append(slices.Repeat([]telemetry.Event{hot}, 8), event("d", "", `{"coreTemp":71,"rpm":900}`)),
			"", "9 read: 8 readings at temperature, highest 93.5; reaching the limit (8), missing (1); found at coreTemp (1), rpm (1): if coreTemp is the right one, TEMPERATURE_FIELD=temperature,coreTemp", warned},
		"more than a tenth, and no likely field": {"temperature,temp", []telemetry.Event{hot, event("d", "", `{"rpm":900}`)},
			"", "2 read: 1 reading at temperature or temp, highest 93.5; missing (1), reaching the limit (1); found at rpm (1): add the right one to TEMPERATURE_FIELD", warned},
		"another field": {"temperature,temp", []telemetry.Event{event("d", "", `{"machine":{"rpm":900,"coreTemp":71}}`), event("d", "", `{"machine":{"rpm":900}}`)},
			"", "2 read: 0 readings at temperature or temp; missing (2); found at machine.coreTemp (1), machine.rpm (2): if machine.coreTemp is the right one, TEMPERATURE_FIELD=temperature,temp,machine.coreTemp", failed},
		"no likely field": {"temp", []telemetry.Event{event("d", "", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}`)},
			"", "1 read: 0 readings at temp; missing (1); found at a (1), b (1), c (1), d (1), e (1), f (1): add the right one to TEMPERATURE_FIELD", failed},
		"no numbers": {"temp", []telemetry.Event{event("d", "", `{"temp":"hot"}`), event("d", "", "")},
			"", "2 read: 0 readings at temp; empty (1), not_a_number (1)", failed},
		"no IoT Hub": {"temp", []telemetry.Event{event("", "", `{"temp":1}`)},
			"", "1 read: 0 readings at temp; no_device (1); only an IoT Hub adds a device ID, so this is not an IoT Hub's endpoint", failed},
		"no IoT Hub, and twin events": {"temp", []telemetry.Event{event("oven-7", "twinChangeEvents", `{}`), event("oven-7", "twinChangeEvents", `{}`), event("oven-7", "twinChangeEvents", `{}`), event("", "", `{"temp":1}`)},
			"", "4 read: 0 readings at temp; not_telemetry (3), no_device (1); only an IoT Hub adds a device ID, so this is not an IoT Hub's endpoint", failed},
		"another field, and twin events": {"temp", []telemetry.Event{event("oven-7", "twinChangeEvents", `{}`), event("oven-7", "", `{"t":1}`)},
			"", "2 read: 0 readings at temp; missing (1), not_telemetry (1); found at t (1): add the right one to TEMPERATURE_FIELD", failed},
		"no telemetry": {"temp", []telemetry.Event{event("d", "deviceLifecycleEvents", `{"temp":1}`)},
			"", "1 read: 0 readings at temp; not_telemetry (1)", open},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := newReading(rules.Threshold(test.fields, 80, time.Minute), false, []eventhubs.PartitionState{{Events: test.events}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.samples[0].verdict()
			text := none
			if err != nil {
				text = err.Error()
			}
			if got != test.want || text != test.err || outcomeOf(err) != test.result {
				t.Errorf("got %q, %q, result %d", got, text, outcomeOf(err))
			}
		})
	}
}

// Several rules look at the same events: what one of them reads is no fault of the others.
func TestSampleOfRules(t *testing.T) {
	set := rules.Set{Rules: []rules.Rule{
		{Name: "hot", Field: "temperature", Levels: []rules.Level{{Name: "warning", Limit: 70}, {Name: "critical", Limit: 80}}},
		{Name: "cold", Field: "probe.temp", Below: true, Levels: []rules.Level{{Limit: 2}}},
		{Name: "wet", Field: "humidty", Levels: []rules.Level{{Limit: 90}}},
		{Name: "near", Field: "temperature", Levels: []rules.Level{{Limit: 2, LimitAt: rules.Reference{Name: "dew", Plus: true}}}},
		{Name: "far", Field: "temperature", Levels: []rules.Level{{Limit: 2, LimitAt: rules.Reference{Name: "dw", Plus: true}}}},
		{Name: "loud", Field: "noise", Levels: []rules.Level{{Limit: 90}}}, // of devices that did not send just now
		{Name: "gone", Silent: time.Hour, Levels: []rules.Level{{}}},
		{Name: "dumb", Field: "noise", Silent: time.Hour, Levels: []rules.Level{{}}},
	}}
	event := func(body string) telemetry.Event { return telemetry.Event{Device: "d", Body: []byte(body)} }
	events := []telemetry.Event{event(`{"temperature":75}`), event(`{"temperature":71,"dew":70}`), event(`{"probe":{"temp":3},"humidity":40}`), event(`{"probe":{"temp":5},"humidity":50}`)}
	r, err := newReading(set, true, []eventhubs.PartitionState{{Events: events}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"4 read: 2 readings at temperature, highest 75; for other rules (2), reaching warning (2)",
		"4 read: 2 readings at probe.temp, lowest 3; for other rules (2)",
		"! 4 read: 0 readings at humidty; for other rules (4); found at humidity (2), dew (1): if humidity is the right one, field: humidty,humidity",
		"! 4 read: 1 reading at temperature, highest 71; for other rules (2), without a number at dew (1)",
		"! 4 read: 0 readings at temperature; for other rules (2), without a number at dw (2)",
		"– 4 read: 0 readings at noise; for other rules (4); found at humidity (2), dew (1): add the right one to the field of the rule loud",
		"4 read: 4 readings",
		"– 4 read: 0 readings at noise; for other rules (4); found at humidity (2), dew (1): add the right one to the field of the rule dumb",
	} {
		got, err := r.samples[i].verdict()
		if outcomeOf(err) == open {
			got = "– " + err.Error()
		} else if outcomeOf(err) == warned {
			got = "! " + err.Error()
		} else if err != nil {
			t.Error(err)
		}
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	r, err = newReading(set, true, []eventhubs.PartitionState{{Events: events}, {Events: []telemetry.Event{event(`{"temp":1}`), event(`{"t":2}`)}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.samples[0].verdict()
	const want = "6 read: 2 readings at temperature, highest 75; for other rules (2), missing (2), reaching warning (2); " +
		"found at temp (1), humidity (2), t (1): if temp is the right one, field: temperature,temp"
	if outcomeOf(err) != warned || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// A hub whose events other rules read is an IoT Hub, though this rule finds nothing in them.
func TestSampleOfOthersAlone(t *testing.T) {
	set := rules.Set{Rules: []rules.Rule{
		{Name: "hot", Field: "temperature", Levels: []rules.Level{{Limit: 80}}}, {Name: "loud", Field: "noise", Levels: []rules.Level{{Limit: 90}}},
	}}
	r := read(t, set, telemetry.Event{Device: "d", Body: []byte(`{"temperature":75}`)})
	_, err := r.samples[1].verdict()
	if outcomeOf(err) != open || err.Error() != "1 read: 0 readings at noise; for other rules (1)" {
		t.Errorf("got %v", err)
	}
}

func TestPartitions(t *testing.T) {
	of := func(id string, devices ...string) eventhubs.PartitionState {
		p := eventhubs.PartitionState{ID: id}
		for _, d := range devices {
			p.Events = append(p.Events, telemetry.Event{Device: d})
		}
		return p
	}
	for name, test := range map[string]struct {
		partitions []eventhubs.PartitionState
		want       string
	}{
		"one each":   {[]eventhubs.PartitionState{of("0", "a", "a", ""), of("1", "b", "")}, "2 devices, each in one"},
		"several":    {[]eventhubs.PartitionState{of("0", "a"), of("1", "b", "b"), of("3", "a")}, "! device a is in the partitions 0 and 3: "},
		"none twice": {[]eventhubs.PartitionState{of("0", "a", "b"), of("1")}, "– no device was seen twice"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := partitions(test.partitions)
			switch {
			case outcomeOf(err) == warned:
				got = "! " + err.Error()
			case outcomeOf(err) == open:
				got = "– " + err.Error()
			}
			if !strings.HasPrefix(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// read returns what rules find in some events.
func read(t *testing.T, set rules.Set, events ...telemetry.Event) reading {
	t.Helper()
	r, err := newReading(set, false, []eventhubs.PartitionState{{Events: events}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDeviceTimes(t *testing.T) {
	now := time.Date(2026, 3, 2, 9, 40, 0, 0, time.UTC)
	event := func(device string, created any) telemetry.Event {
		return telemetry.Event{Device: device, Enqueued: now, Properties: telemetrytest.Properties(map[string]any{"created": created})}
	}
	at := func(behind time.Duration) string { return now.Add(-behind).Format(time.RFC3339) }
	for _, test := range []struct {
		events []telemetry.Event
		want   string
	}{
		{[]telemetry.Event{event("a", at(0)), event("b", at(time.Second)), event("a", at(0))}, "created: in 3 of 3 measurements, up to 1s before they arrived"},
		{[]telemetry.Event{event("a", at(388*time.Minute)), event("b", nil)}, "created: in 1 of 2 measurements, up to 6h28m before they arrived"},
		{[]telemetry.Event{event("a", nil)}, "! created: in 0 of 1 measurement, up to 0s before they arrived; 1 missing, such as of a: do the devices set it?"},
		{
			[]telemetry.Event{event("a", at(0)), event("a", at(time.Second)), event("b", at(-time.Hour)), event("c", "soon"), event("d", 7)},
			"! created: in 2 of 5 measurements, up to 1s before they arrived; 1 unreadable, such as of c: must be RFC 3339, or seconds or milliseconds since 1970; " +
				"1 future, such as of b: more than 5m ahead of the hub: for them the hub's time counts; 1 old, such as of d: more than 30 days behind the hub: for them the hub's time counts",
		},
	} {
		set := rules.Threshold("temperature", 80, time.Minute)
		set.Time = "created"
		got, err := read(t, set, test.events...).deviceTimes(set.Time)
		if outcomeOf(err) == warned {
			got = "! " + err.Error()
		}
		if got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}

	set := rules.Set{Time: "body:ts", Rules: []rules.Rule{{Name: "hot", Each: "r", Field: "t", Levels: []rules.Level{{Limit: 80, Clear: 80}}}}}
	e := event("a", nil)
	e.Body = fmt.Appendf(nil, `{"r":[{"t":1,"ts":%d},{"t":2,"ts":%d}]}`, e.Enqueued.Unix(), e.Enqueued.Unix()-60)
	if got, err := read(t, set, e).deviceTimes(set.Time); err != nil || got != "body:ts: in 2 of 2 measurements, up to 1m before they arrived" {
		t.Errorf("of measurements: %s, %v", got, err)
	}

}

// The line of a receiver says which alerts it gets, in the words of NOTIFY_URLS.
func TestWants(t *testing.T) {
	filters := notify.Filters{
		{Rules: []string{"hot", "cold"}, Levels: []string{"critical"}}, {Property: "site", Values: []string{"berlin", "hamburg"}},
	}
	if got, want := wants(filters), "; gets alerts of rule=hot|cold level=critical, or where=site:berlin|hamburg"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := wants(nil); got != "" {
		t.Errorf("a receiver that gets all: %q", got)
	}
}
