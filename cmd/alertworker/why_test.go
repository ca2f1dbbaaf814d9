package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
)

// ask runs `alertworker why` in the worker's environment.
func (w *runningWorker) ask(args ...string) string {
	w.t.Helper()
	out, said, code := w.run(append([]string{"why"}, args...)...)
	if code != exitStopped {
		w.t.Fatalf("why %q: exit code %d, %s\n%s", args, code, said, out)
	}
	if strings.Contains(out, "t0k3n") || strings.Contains(out, emulators.AzuriteKey) {
		w.t.Errorf("secrets are shown:\n%s", out)
	}
	return out
}

// A machine that runs no worker says what all of them share: alarms, windows, dead letters and, from the hub, readings.
func TestWhy(t *testing.T) {
	t.Parallel()
	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "kiln") {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	defer receiver.Close()
	publish := func(device, body string, properties map[string]any) {
		t.Helper()
		if _, err := hub.Publish(devhub.Message{Device: device, Body: []byte(body), Partition: "1", Enqueued: time.Now(), Properties: properties}); err != nil {
			t.Fatal(err)
		}
	}
	azurite := emulators.StartAzurite(t)
	publish("oven-7", `{"temperature":85}`, map[string]any{"maxTemp": "90"})
	publish("oven-7", `{"temperature":91.5}`, map[string]any{"maxTemp": "90"})
	publish("kiln", `{"temperature":99}`, nil)
	publish("fridge", `{"temperature":4}`, nil)
	w := runWorker(t, "EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "EVENTHUB_CONSUMER_GROUP=worker", "STORAGE_CONNECTION_STRING="+azurite.ConnectionString,
		"CHECKPOINT_CONTAINER="+azurite.NewContainer(), "THROTTLE_CONTAINER="+azurite.NewContainer(), "DEAD_LETTER_CONTAINER="+azurite.NewContainer(),
		"NOTIFY_URLS=name=hook "+receiver.URL+"/t0k3n", "TEMPERATURE_THRESHOLD=", "RULES=rules: [{name: temperature, field: temperature, above: maxTemp or 80, resolved: true}]", "THROTTLE_WINDOW=10m", "REPLICA_NAME=replica-a",
		"HTTP_ADMIN_TOKEN=0123456789abcdef0123456789abcdef")
	w.logs("starting to read") // its containers are there

	var got string
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		got = w.ask("oven-7", "--verbose")
		if strings.Contains(got, "open since") && strings.Contains(w.ask("kiln"), "dead letter of") || time.Now().After(end) {
			break
		}
	}
	for _, part := range []string{
		"oven-7: Its alarm has been open since ", ", when 91.5 reached its own limit of 90, by maxTemp instead of 80; receiver hook: replica-a delivered an alert ", "\nreceiver hook: replica-a delivered an alert ", "the window is in force until ", "rule temperature: alerts when ",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q", part)
		}
	}
	kiln := w.ask("kiln")
	if !regexp.MustCompile("kiln: The alert about 99 .* became a dead letter of receiver hook .*answered 422.*deadletters replay").MatchString(kiln) {
		t.Errorf("of a dead letter:\n%s", kiln)
	}
	if fridge := w.ask("fridge", "--verbose"); !strings.Contains(fridge, "receiver hook: no alert is recorded") {
		t.Errorf("of a device that was never hot:\n%s", fridge)
	}

	if fridge := w.ask("fridge", "--last", "2h"); !regexp.MustCompile("^fridge: Its last event was at .* ago\\): 4, does not reach the limit of 80\n").MatchString(fridge) {
		t.Errorf("of a device that the hub knows:\n%s", fridge)
	}

	if short := w.ask("oven-7"); strings.Count(short, "\n") != 1 || !strings.HasPrefix(short, "oven-7: Its alarm has been open since ") {
		t.Errorf("the answer is not one line:\n%s", short)
	}

	last := w.ask("oven-7", "--last", "2h")
	t.Logf("\n%s", last)
	for _, part := range []string{"the hub has 2 events of it from the last 2 h", "sequence 1: 91.5, reaches its own limit of 90, by maxTemp instead of 80", "sequence 0: 85, does not reach its own limit of 90"} {
		if !strings.Contains(last, part) {
			t.Errorf("no %q in:\n%s", part, last)
		}
	}

	var local, shared struct{ Status, Why string }
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.site()+"/devices/kiln", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer 0123456789abcdef0123456789abcdef")
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&local); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(w.ask("kiln", "--json")), &shared); err != nil {
		t.Fatal(err)
	}
	// The replica says when the dead letter was kept, the dead letter when that began.
	ages := regexp.MustCompile(`[0-9:]+ UTC \([^)]* ago\)`)
	if local.Status != shared.Status || ages.ReplaceAllString(local.Why, "") != ages.ReplaceAllString(shared.Why, "") {
		t.Errorf("the replica that reads the partition answers %+v, the command %+v", local, shared)
	}
}

func TestWhyUsage(t *testing.T) {
	environment(t, nil)
	for _, args := range [][]string{nil, {"a", "b"}, {"a", "--last", "-1h"}, {"a", "--no"}, {"a", "--json", "--last", "1h"}} {
		var b bytes.Buffer
		if err := why(t.Context(), &b, args); err == nil || b.Len() > 0 {
			t.Errorf("%q: %v %s", args, err, b.String())
		}
	}
}
