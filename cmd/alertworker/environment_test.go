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

func TestHelp(t *testing.T) { golden(t, "help.golden", helpText()) }
