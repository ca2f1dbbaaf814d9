package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"alertworker/internal/config"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (go test -update writes it anew); got:\n%s", path, got)
	}
}

// environment sets the given variables and unsets all others of ours.
func environment(t *testing.T, env map[string]string) {
	t.Helper()
	for _, v := range config.Variables() {
		for _, name := range []string{v.Name, v.Name + "_FILE"} {
			t.Setenv(name, "") // restores it
			os.Unsetenv(name)
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
}

// foreignEnvironment returns the variables that are not ours.
func foreignEnvironment() (env []string) {
	ours := map[string]bool{}
	for _, v := range config.Variables() {
		ours[v.Name], ours[v.Name+"_FILE"] = true, true
	}
	for _, assignment := range os.Environ() {
		if name, _, _ := strings.Cut(assignment, "="); !ours[name] {
			env = append(env, assignment)
		}
	}
	return env
}

const key64 = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I="

// valid is an environment that works; with replaces variables in it, an empty
// value removes one.
func valid(with ...string) map[string]string {
	env := map[string]string{
		"EVENTHUB_CONNECTION_STRING": "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=service;SharedAccessKey=" + key64 + ";EntityPath=telemetry",
		"TEMPERATURE_THRESHOLD":      "80",
		"STORAGE_CONNECTION_STRING":  "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=" + key64 + ";EndpointSuffix=core.windows.net",
		"NOTIFY_URLS":                "https://example.com/hook",
	}
	for _, assignment := range with {
		name, value, _ := strings.Cut(assignment, "=")
		env[name] = value
	}
	return env
}

func TestHelp(t *testing.T) {
	var out strings.Builder
	if err := printHelp(t.Context(), &out, nil); err != nil {
		t.Fatal(err)
	}
	golden(t, "help.golden", out.String())
}

// Each rule about a setting exists once, so that what breaks it is reported once.
func TestProblemsAreReportedOnce(t *testing.T) {
	for _, test := range []struct{ name, value, variable string }{
		{"webhook secret", "NOTIFY_WEBHOOK_SECRET=hunter2", "NOTIFY_WEBHOOK_SECRET"},
		{"receivers", "NOTIFY_URLS=ftp://example.com,https:///x,log:,log:", "NOTIFY_URLS"},
		{"receiver", "NOTIFY_URLS=pagerduty://R0UT1NGK3Y/v2", "NOTIFY_URLS"},
		{"unknown receiver", "NOTIFY_URLS=opsgenie://R0UT1NGK3Y", "NOTIFY_URLS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			environment(t, valid(test.value))
			_, _, err := configure()
			if err == nil {
				t.Fatal("no error")
			}
			var lines []string
			for line := range strings.Lines(err.Error()) {
				if strings.HasPrefix(line, "  ") {
					lines = append(lines, strings.TrimSpace(line))
				}
			}
			if len(lines) != 1 || !strings.HasPrefix(lines[0], test.variable+"  ") || strings.Count(err.Error(), test.variable) != 1 {
				t.Errorf("reported as %q, want one line about %s", lines, test.variable)
			}
			if strings.Contains(err.Error(), "R0UT1NGK3Y") {
				t.Errorf("the key is shown: %v", err)
			}
		})
	}
}
