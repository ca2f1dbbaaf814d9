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
		for end := time.Now().Add(time.Minute); !strings.Contains(ask(t, device), "open since"); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the alarm of %s is not in the ledger", device)
			}
		}
	}
	var out strings.Builder
	if err := silence(t.Context(), &out, []string{"--device", "oven-*", "--for", "2h", "--why", "service", "--who", "eva"}); err != nil {
		t.Fatal(err)
	}
	documented(t, out.String())
	if !strings.Contains(out.String(), "device oven-* (1 of 2 known devices); to end it") {
		t.Errorf("of two devices with an alarm it says %s", out.String())
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
	out.Reset()
	if err := listSilences(t.Context(), &out, []string{"list"}); err != nil || !strings.Contains(out.String(), "eva  service") {
		t.Fatalf("%v: %s", err, out.String())
	}
	documented(t, out.String())
	id, _, _ := strings.Cut(strings.Split(out.String(), "\n")[1], " ")
	if err := listSilences(t.Context(), &out, []string{"end", id}); err != nil {
		t.Fatal(err)
	}
	w.logs(`"msg":"a silence has ended"`)
	if strings.Contains(w.logged(), `"device":"oven-7"`) {
		t.Error("the silenced device was reported")
	}
	time.Sleep(time.Second) // the record's clock has whole seconds
	publish("oven-7")
	w.logs("temperature alert", `"oven-7"`)

	out.Reset()
	if err := silence(t.Context(), &out, strings.Fields("--device kiln --until-normal --why known --who eva")); err != nil {
		t.Fatal(err)
	}
	if err := listSilences(t.Context(), &out, []string{"list"}); err != nil || strings.Count(out.String(), "device kiln, until normal") != 2 {
		t.Errorf("%v: %s", err, out.String())
	}
	w.logs(`"msg":"alerts are silenced"`, `"silenced":"device kiln, until normal"`)
	if says := ask(t, "kiln"); !strings.Contains(says, "its alarms since before ") ||
		!strings.Contains(says, "are silenced until normal, at the latest until ") {
		t.Errorf("why says: %s", says)
	}

	for args, want := range map[string]string{
		"--for 2h --why service":                    "say what to silence",
		"--device oven --for 2h":                    "say why",
		"--device oven --why service":               "for must be a duration",
		"--where site --for 2h --why service":       "must be NAME=VALUE",
		"--rule hot --for 2h --why service surplus": "unexpected",
		"--rule temprature --for 2h --why service":  "there is no rule temprature: rule must be temperature",
	} {
		if err := silence(t.Context(), &out, strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	for _, args := range []string{"", "end", "end nobody", "list all"} {
		if err := listSilences(t.Context(), &out, strings.Fields(args)); err == nil {
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
