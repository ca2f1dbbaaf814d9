// Package systemd_test checks the unit in deploy/systemd, as far as that goes without installing it.
package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"alertworker/internal/config"
)

const (
	unitFile        = "../../deploy/systemd/alertworker.service"
	environmentFile = "../../deploy/systemd/alertworker.env"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// lines returns the values of key=value lines, by key.
func lines(text string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			all[key] = append(all[key], value)
		}
	}
	return all
}

// The settings exist and are valid together, secrets come from credentials, and the service is
// stopped later than the worker stops itself.
func TestSettings(t *testing.T) {
	for _, v := range config.Variables() {
		t.Setenv(v.Name, "")
		t.Setenv(v.Name+"_FILE", "")
	}
	unit := lines(read(t, unitFile))
	credentials := map[string]bool{}
	for _, c := range unit["LoadCredential"] {
		name, path, _ := strings.Cut(c, ":")
		credentials[name] = true
		if path != "/etc/alertworker/credentials/"+name {
			t.Errorf("the credential %s is in %s", name, path)
		}
	}
	example := map[string]string{
		"EVENTHUB_CONNECTION_STRING": "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=a2V5;EntityPath=hub",
		"STORAGE_CONNECTION_STRING":  "UseDevelopmentStorage=true",
		"NOTIFY_URLS":                "https://example.com/hook",
	}
	for _, assignment := range unit["Environment"] {
		variable, path, _ := strings.Cut(assignment, "=")
		name, isFile := strings.CutSuffix(variable, "_FILE")
		if !slices.ContainsFunc(config.Variables(), func(v config.Variable) bool { return v.Name == name && v.Secret && isFile }) {
			t.Errorf("%s is no secret's", variable)
		}
		if path != "%d/"+name || !credentials[name] {
			t.Errorf("%s is %s, which no credential is loaded into", variable, path)
		}
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(example[name]), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(variable, file)
	}
	if len(unit["Environment"]) != len(credentials) {
		t.Errorf("%d credentials are loaded, %d are used", len(credentials), len(unit["Environment"]))
	}
	for name, values := range lines(read(t, environmentFile)) {
		if !slices.ContainsFunc(config.Variables(), func(v config.Variable) bool { return v.Name == name && !v.Secret }) {
			t.Errorf("%s in alertworker.env is no setting, or a secret", name)
		}
		t.Setenv(name, values[0])
	}
	c, warnings, err := config.Load()
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", err, warnings)
	}
	if stop, err := time.ParseDuration(unit["TimeoutStopSec"][0]); err != nil || stop < c.DrainTimeout+10*time.Second {
		t.Errorf("the service is killed after %v, but drains for %v: %v", stop, c.DrainTimeout, err)
	}
}

// A worker that crashed is started again, as one that failed is; one with wrong settings is not.
func TestRestarts(t *testing.T) {
	unit := lines(read(t, unitFile))
	if restart, never := unit["Restart"], unit["RestartPreventExitStatus"]; !slices.Equal(restart, []string{"on-failure"}) ||
		!slices.Equal(never, []string{strconv.Itoa(config.ExitInvalid)}) {
		t.Errorf("it is started again %s, but not after %s", restart, never)
	}
}

// systemd knows every line, and rates the unit as well confined.
func TestSystemd(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed: on Debian it is in the package systemd")
	}
	// The binary is not installed here, and systemd-analyze wants one.
	unit := filepath.Join(t.TempDir(), "alertworker.service")
	text := strings.Replace(read(t, unitFile), "/usr/local/bin/alertworker", "/bin/true", 1)
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// It also reads the units of this machine that ours depends on, and may complain about those.
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || strings.Contains(string(out), "alertworker.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=20", unit).CombinedOutput() // 2.0
	if strings.Contains(string(out), "unrecognized option") {
		t.Skip("this systemd-analyze is older than 252: it rates only units that are installed")
	}
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
	rating := strings.TrimSpace(string(out))
	t.Log(rating[strings.LastIndex(rating, "\n")+1:])
}
