package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
)

// A silence by command mutes a running worker until it is ended.
func TestSilenceCommand(t *testing.T) {
	t.Parallel()
	storage, hub := emulators.StartAzurite(t).ConnectionString, hubWith(t)
	w := runWorker(t, "EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "STORAGE_CONNECTION_STRING="+storage, "NOTIFY_URLS=log:", "NOTIFY_RESOLVED=true")
	publish := func(device string) {
		t.Helper()
		if _, err := hub.Publish(devhub.Message{Device: device, Body: []byte(`{"temperature":99}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, device := range []string{"before", "oven-1"} {
		publish(device)
		w.logs("temperature alert", `"`+device+`"`)
		for end := time.Now().Add(time.Minute); !strings.Contains(w.ask(device), "open since"); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the alarm of %s is not in the ledger", device)
			}
		}
	}
	out, said, code := w.run("silence", "--device", "oven-*", "--for", "2h", "--why", "service", "--who", "eva")
	if code != exitStopped {
		t.Fatalf("exit code %d, %s", code, said)
	}
	documented(t, out)
	if !strings.Contains(out, "device oven-*; to end it") {
		t.Errorf("it says %s", out)
	}
	w.logs(`"msg":"alerts are silenced"`, `"silenced":"device oven-*"`, `"why":"service"`, `"who":"eva"`)
	publish("oven-7")
	publish("kiln")
	w.logs("temperature alert", `"kiln"`)
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, metrics := w.get("/metrics"); strings.Contains(metrics, "alertworker_readings_quieted_total 1") {
			break
		}
		if time.Now().After(end) {
			_, metrics := w.get("/metrics")
			t.Fatal("the reading of the silenced device is not counted: ", metrics)
		}
	}
	out, said, code = w.run("silences", "list")
	if code != exitStopped || !strings.Contains(out, "eva  service") {
		t.Fatalf("exit code %d, %s: %s", code, said, out)
	}
	documented(t, out)
	id, _, _ := strings.Cut(strings.Split(out, "\n")[1], " ")
	if _, said, code = w.run("silences", "end", id); code != exitStopped {
		t.Fatalf("exit code %d, %s", code, said)
	}
	w.logs(`"msg":"a silence has ended"`)
	if strings.Contains(w.logged(), `"device":"oven-7"`) {
		t.Error("the silenced device was reported")
	}
	time.Sleep(time.Second) // the record's clock has whole seconds
	publish("oven-7")
	w.logs("temperature alert", `"oven-7"`)

	for args, want := range map[string]string{
		"--for 2h --why service":                    "say what to silence",
		"--device oven --for 2h":                    "say why",
		"--device oven --why service":               "for must be a duration",
		"--where site --for 2h --why service":       "must be NAME=VALUE",
		"--rule hot --for 2h --why service surplus": "unexpected",
		"--rule temprature --for 2h --why service":  "there is no rule temprature: rule must be temperature",
	} {
		_, said, code := w.run(append([]string{"silence"}, strings.Fields(args)...)...)
		if code == exitStopped || !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d, %s, want %q", args, code, said, want)
		}
	}
	for _, args := range []string{"", "end", "end nobody", "list all"} {
		if _, _, code := w.run(append([]string{"silences"}, strings.Fields(args)...)...); code == exitStopped {
			t.Errorf("silences %s succeeds", args)
		}
	}
}

// documented checks that docs/rules.md has what a command or the log said, but for numbers and ids.
func documented(t *testing.T, said string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	shape := func(text string) string { return regexp.MustCompile(`\b[0-9a-f]{8}\b|\d+`).ReplaceAllString(text, "0") }
	if said == "" || !strings.Contains(shape(string(page)), shape(said)) {
		t.Errorf("docs/rules.md does not have %q", said)
	}
}
