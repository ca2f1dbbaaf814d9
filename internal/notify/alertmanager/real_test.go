package alertmanager

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/wording"
)

// binaryVariable names the program of a real Alertmanager. Building one takes minutes, so
// this test runs only where there is one:
//
//	GOBIN=$PWD/bin go install github.com/prometheus/alertmanager/cmd/alertmanager@v0.28.1
//	ALERTWORKER_ALERTMANAGER=$PWD/bin/alertmanager go test ./internal/notify/alertmanager
const binaryVariable = "ALERTWORKER_ALERTMANAGER"

// What Alertmanager says of an alert.
type seen struct {
	Labels, Annotations map[string]string
	Fingerprint         string
	StartsAt, EndsAt    time.Time
	GeneratorURL        string
	Status              struct{ State string }
}

// A hook is a notification of Alertmanager's.
type hook struct {
	Status string
	Alerts []struct{ Labels map[string]string }
}

// A real Alertmanager takes alert, repeat and resolved as one alert, and tells of its
// beginning and its end.
func TestRealAlertmanager(t *testing.T) {
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		t.Skip(binaryVariable + " is not set")
	}
	hooks := make(chan hook, 100)
	people := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var h hook
		if err := json.NewDecoder(r.Body).Decode(&h); err != nil {
			t.Error(err)
		}
		hooks <- h
	}))
	defer people.Close()
	base := startAlertmanager(t, binary, people.URL)
	n := open(t, base)
	if err := n.Try(t.Context()); err != nil {
		t.Errorf("it does not take a list of no alerts: %v", err)
	}
	send := func(a notify.Alert) {
		t.Helper()
		if err := n.Notify(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	told := func(status string) {
		t.Helper()
		select {
		case h := <-hooks:
			if h.Status != status || len(h.Alerts) != 1 || h.Alerts[0].Labels["device"] != "device-1" {
				t.Fatalf("told %+v, want %s", h, status)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("not told that it is %s", status)
		}
	}

	first := notifytest.Alert(1)
	first.Enqueued, first.Window = time.Now().Add(-time.Second).UTC().Truncate(time.Millisecond), time.Minute
	send(first)
	told("firing")
	a := alerts(t, base, 1)[0]
	if a.Labels["alertname"] != "temperature" || a.Labels["severity"] != "critical" || a.Annotations["summary"] != (wording.Style{}).Message(first) ||
		a.Annotations["value"] != "91.5" || a.GeneratorURL != link.Links(first)[0].URL || a.Status.State != "active" || !a.StartsAt.Equal(first.Enqueued) {
		t.Errorf("arrived as %+v", a)
	}
	if left := time.Until(a.EndsAt); left < 6*time.Minute {
		t.Errorf("it resolves itself in %v", left)
	}

	repeat := first
	repeat.ID, repeat.Temperature, repeat.Enqueued = "ns/hub/0/2/1772366500250", 95, first.Enqueued.Add(500*time.Millisecond)
	send(repeat)
	b := alerts(t, base, 1)[0]
	if b.Fingerprint != a.Fingerprint || !b.StartsAt.Equal(a.StartsAt) || b.Annotations["value"] != "95" || b.EndsAt.Before(a.EndsAt) {
		t.Errorf("after the repeat: %+v", b)
	}

	odd := notifytest.Odd()
	odd.Enqueued, odd.Test = time.Now().UTC(), true
	send(odd)
	all := alerts(t, base, 2)
	if all[0].Labels["device"] != odd.Device && all[1].Labels["device"] != odd.Device {
		t.Errorf("the odd device arrived as %+v", all)
	}

	resolved := repeat
	resolved.ID, resolved.Resolved = "ns/hub/0/3/1772366500250/resolved", true
	send(resolved)
	for status := ""; status != "resolved"; {
		select {
		case h := <-hooks:
			if h.Alerts[0].Labels["device"] == "device-1" {
				status = h.Status
			}
		case <-time.After(30 * time.Second):
			t.Fatal("not told that it is resolved")
		}
	}
	if left := alerts(t, base, 1); left[0].Labels["device"] != odd.Device {
		t.Errorf("after the resolved: %+v", left)
	}
}

// Two levels of a rule are two alerts, of which one can end, and begin again, without the other. They last until they
// are resolved.
func TestRealAlertmanagerKnowsLevels(t *testing.T) {
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		t.Skip(binaryVariable + " is not set")
	}
	base := startAlertmanager(t, binary, "http://127.0.0.1:9/")
	n := open(t, base)
	send := func(a notify.Alert) {
		t.Helper()
		if err := n.Notify(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	critical := notifytest.Sustained()
	critical.Enqueued = time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	critical.Since = critical.Enqueued.Add(-4 * time.Minute)
	warning := critical
	warning.Level, warning.Source = "warning", "/ns/hub/hot/warning"
	send(critical)
	send(warning)
	for _, a := range alerts(t, base, 2) {
		if left := time.Until(a.EndsAt); left < 24*time.Hour || !a.StartsAt.Equal(critical.Since) || a.Annotations["field"] == "" {
			t.Errorf("%+v ends in %v", a, left)
		}
	}
	resolved := notifytest.Resolved(critical)
	resolved.Enqueued = time.Now().UTC()
	send(resolved)
	if left := alerts(t, base, 1)[0]; left.Labels["level"] != "warning" || left.Labels["severity"] != "warning" {
		t.Errorf("after the resolved of critical: %+v", left)
	}
	critical.Since = time.Now().UTC()
	critical.Enqueued = critical.Since
	send(critical)
	alerts(t, base, 2)
}

// startAlertmanager starts one that tells the webhook at people at once, and returns its
// address.
func startAlertmanager(t *testing.T, binary, people string) string {
	t.Helper()
	dir := t.TempDir()
	config := "route: {receiver: people, group_by: [device], group_wait: 0s, group_interval: 1s}\nreceivers: [{name: people, webhook_configs: [{url: " + people + "}]}]\n"
	if err := os.WriteFile(filepath.Join(dir, "config.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "--config.file="+filepath.Join(dir, "config.yml"), "--storage.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+addr, "--cluster.listen-address=")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = cmd.Wait() })
	base := "http://" + addr
	for range 300 {
		if resp, err := http.Get(base + "/-/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return base
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("Alertmanager is not ready after 30 s")
	return ""
}

// alerts returns what Alertmanager has, want alerts.
func alerts(t *testing.T, base string, want int) []seen {
	t.Helper()
	resp, err := http.Get(base + "/api/v2/alerts?active=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all []seen
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	if len(all) != want {
		t.Fatalf("it has %d alerts, want %d: %+v", len(all), want, all)
	}
	return all
}
