package checkup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// An error that is not a service's answer names the variable to look at.
func TestStorageErrorNamesTheVariable(t *testing.T) {
	for variable, k := range map[string]checkup{
		"STORAGE_CONNECTION_STRING": {config: config.Config{StorageConnectionString: config.NewSecret("x")}},
		"STORAGE_ACCOUNT_URL":       {},
	} {
		if err := k.storageError(errors.New("no answer from x")); !strings.Contains(err.Error(), "check the address in "+variable) {
			t.Errorf("got %q", err)
		}
	}
}

func TestProgress(t *testing.T) {
	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hub.Close() }()
	for i := range 5 { // sequences 0 to 2 and 0 to 1
		if _, err := hub.Publish(devhub.Message{Device: "d", Body: []byte("1"), Partition: strconv.Itoa(i % 2), Enqueued: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	c := config.Config{EventHubConnectionString: config.NewSecret(hub.ConnectionString()), EventHubConsumerGroup: "$Default"}
	k := newCheckup(t.Context(), c, nil, Services{Resolve: func() (config.Config, error) { return c, nil }})
	at := func(sequences ...int64) map[string]eventhubs.Checkpoint {
		all := map[string]eventhubs.Checkpoint{}
		for i, sequence := range sequences {
			all[strconv.Itoa(i)] = eventhubs.Checkpoint{Position: telemetry.Position{Sequence: sequence}}
		}
		return all
	}
	others := at(1, 100)
	others["1"] = eventhubs.Checkpoint{Position: others["1"].Position, HubCreated: time.Now().Add(-time.Hour)}
	for want, written := range map[string]map[string]eventhubs.Checkpoint{
		"no checkpoints yet: the first start begins at latest": nil,
		"1 checkpoint, 2 events behind":                        at(0),
		"2 checkpoints, 1 event behind":                        at(1, 1),
		"2 checkpoints, 0 events behind":                       at(9, 1),
		"2 checkpoints, 1 event behind; 1 belongs to another hub of this name, deleted or failed over: workers start over there": others,
	} {
		if got := k.progress(written); got != want {
			t.Errorf("got %q, want %q", got, want)
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
		passed := Output{W: &b, Color: true}.run(t.Context(), []step{
			{"slow", 2 * time.Second, slow},
			{"slow too", 3 * time.Second, slow},
			{"quick", time.Second, func(context.Context) (string, error) { return "well\n\x1b[31mred", nil }},
			{"odd", time.Second, func(context.Context) (string, error) { return "", undecided("who knows") }},
			{"so so", time.Second, func(context.Context) (string, error) { return "", warning("half of it") }},
		})
		want := "\x1b[31m✗\x1b[0m slow      no answer within 2s\n" +
			"\x1b[31m✗\x1b[0m slow too  no answer within 3s\n" +
			"\x1b[32m✓\x1b[0m quick     well \uFFFD[31mred\n" +
			"\x1b[33m–\x1b[0m odd       who knows\n" +
			"\x1b[33m!\x1b[0m so so     half of it\n" +
			"\n2 of 5 checks passed, 1 warning, 1 could not be tried\n"
		if b.String() != want || passed {
			t.Errorf("got %v and:\n%s\nwant:\n%s", passed, b.String(), want)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v: one after the other?", took)
		}
	})
	if !(Output{W: io.Discard}).run(t.Context(), []step{
		{"odd", time.Second, func(context.Context) (string, error) { return "", undecided("") }},
		{"so so", time.Second, func(context.Context) (string, error) { return "", warning("") }},
	}) {
		t.Error("nothing failed, and the check did not pass")
	}
}

func TestSample(t *testing.T) {
	const none = "<none>"
	type result int
	const (
		passed result = iota
		failed
		warned
		open
	)
	event := func(device, source, body string) telemetry.Event {
		return telemetry.Event{Device: device, MessageSource: source, Body: []byte(body)}
	}
	hot := event("d", "", `{"temperature":93.5,"temp":1}`)
	for name, test := range map[string]struct {
		fields    string
		events    []telemetry.Event
		want, err string
		result    result
	}{
		"all well": {"temperature,temp", []telemetry.Event{hot, event("d", "Telemetry", `{"temp":20}`)},
			"2 read: temperature in 1, temp in 1, hottest 93.5, threshold 80", none, passed},
		"the hotter of two": {"temperature,temp", []telemetry.Event{event("d", "", `[{"temperature":20},{"temp":95}]`)},
			"1 read: temp in 1, hottest 95, threshold 80", none, passed},
		"some not": {"temperature", []telemetry.Event{hot, event("d", "", "{"), event("d", "", "{"), event("d", "twinChangeEvents", "{}")},
			"", "4 read: temperature in 1, hottest 93.5, threshold 80; 3 not decoded: not_telemetry 1, malformed 2", warned},
		"a tenth not": {"temperature", append(slices.Repeat([]telemetry.Event{hot}, 9), event("d", "", `{"coreTemp":71}`), event("d", "twinChangeEvents", "{}")),
			"11 read: temperature in 9, hottest 93.5, threshold 80; 2 not decoded: not_telemetry 1, missing 1", none, passed},
		"more than a tenth": {"temperature", append(slices.Repeat([]telemetry.Event{hot}, 8), event("d", "", `{"coreTemp":71,"rpm":900}`)),
			"", "9 read: temperature in 8, hottest 93.5, threshold 80; 1 not decoded: missing 1; numbers found at coreTemp (1), rpm (1): set TEMPERATURE_FIELD=temperature,coreTemp if that is a temperature too", warned},
		"more than a tenth, and no likely field": {"temperature,temp", []telemetry.Event{hot, event("d", "", `{"rpm":900}`)},
			"", "2 read: temperature in 1, hottest 93.5, threshold 80; 1 not decoded: missing 1; numbers found at rpm (1): add the one that is a temperature to TEMPERATURE_FIELD", warned},
		"another field": {"temperature , temp", []telemetry.Event{event("d", "", `{"machine":{"rpm":900,"coreTemp":71}}`), event("d", "", `{"machine":{"rpm":900}}`)},
			"", "no reading at temperature or temp in 2 events (missing 2); numbers found at machine.coreTemp (1), machine.rpm (2): set TEMPERATURE_FIELD=machine.coreTemp if that is the temperature", failed},
		"no likely field": {"temp", []telemetry.Event{event("d", "", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}`)},
			"", "no reading at temp in 1 event (missing 1); numbers found at a (1), b (1), c (1), d (1), e (1): set TEMPERATURE_FIELD to the one that is the temperature", failed},
		"no numbers": {"temp", []telemetry.Event{event("d", "", `{"temp":"hot"}`), event("d", "", "")},
			"", "no reading at temp in 2 events (empty 1, not_a_number 1); they contain no numbers", failed},
		"no IoT Hub": {"temp", []telemetry.Event{event("", "", `{"temp":1}`)},
			"", "no device ID in 1 event: only an IoT Hub adds it, so this is not an IoT Hub's endpoint", failed},
		"no telemetry": {"temp", []telemetry.Event{event("d", "deviceLifecycleEvents", `{"temp":1}`)},
			"", "1 event read, none of them telemetry (twin changes, lifecycle events): run the check again when devices have sent some", open},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newSample(test.fields)
			if err != nil {
				t.Fatal(err)
			}
			for i := range test.events {
				s.add(&test.events[i])
			}
			got, err := s.verdict(80)
			text := none
			if err != nil {
				text = err.Error()
			}
			found := passed
			switch {
			case errors.As(err, new(undecided)):
				found = open
			case errors.As(err, new(warning)):
				found = warned
			case err != nil:
				found = failed
			}
			if got != test.want || text != test.err || found != test.result {
				t.Errorf("got %q, %q, result %d", got, text, found)
			}
		})
	}
}
