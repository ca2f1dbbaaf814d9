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
		got = w.ask("oven-7")
		if strings.Contains(got, "open since") && strings.Contains(w.ask("kiln"), "dead letter") || time.Now().After(end) {
			break
		}
	}
	for _, part := range []string{
		"oven-7: its alarm is open\n  alarm    open since ", ", by 91.5, limit 90 (partition ",
		"\n  window   hook: in force until ", "; an alert was delivered ", " by replica-a\n",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q", part)
		}
	}
	kiln := w.ask("kiln")
	if !regexp.MustCompile("(?s)^kiln: a receiver did not accept its last alert\n.*letter   hook: kiln: 99, .*answered 422.*\nFix the receiver, then run `alertworker deadletters replay ").MatchString(kiln) {
		t.Errorf("of a dead letter:\n%s", kiln)
	}
	if fridge := w.ask("fridge"); fridge != "fridge: it has no alarm\n  window   none is recorded\nRun `alertworker why DEVICE --last 2h` to see what it sent, and what that reaches.\n" {
		t.Errorf("of a device that was never hot:\n%s", fridge)
	}

	if fridge := w.ask("fridge", "--last", "2h"); !regexp.MustCompile("^fridge: it has no alarm\n  hub      1 event .*\n  event    at .* ago\\), partition .*: 4, limit 80: not reached\n").MatchString(fridge) {
		t.Errorf("of a device that the hub knows:\n%s", fridge)
	}

	last := w.ask("oven-7", "--last", "2h")
	t.Logf("\n%s", last)
	for _, part := range []string{"  hub      2 events of it from the last 2 h", "sequence 1: 91.5, limit 90 (maxTemp): reached", "sequence 0: 85, limit 90 (maxTemp): not reached"} {
		if !strings.Contains(last, part) {
			t.Errorf("no %q in:\n%s", part, last)
		}
	}

	var local struct{ Why string }
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
	// The replica knows the last reading as well. It says when the dead letter was kept, the dead letter when that began.
	ages := regexp.MustCompile(`[0-9:]+ UTC \([^)]* ago\)`)
	known := ages.ReplaceAllString(local.Why, "")
	for line := range strings.Lines(ages.ReplaceAllString(kiln, "")) {
		if !strings.Contains(known+"\n", line) {
			t.Errorf("the replica that reads the partition answers %q, without the command's %q", known, line)
		}
	}
}

func TestWhyUsage(t *testing.T) {
	environment(t, nil)
	for _, args := range [][]string{nil, {"a", "b"}, {"a", "--no"}} {
		var b bytes.Buffer
		if err := why(t.Context(), &b, args); err == nil || b.Len() > 0 {
			t.Errorf("%q: %v %s", args, err, b.String())
		}
	}
}
