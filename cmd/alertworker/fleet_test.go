package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
	"alertworker/internal/ops/status"
)

// The fleet in docs/setup.md is alerted about as that page says: by kind, by the time of the trucks, once for each depot.
func TestFleet(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/setup.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, _ := strings.Cut(string(page), "```yaml\n")
	rules, _, _ = strings.Cut(rules, "```")
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	hub := hubWith(t)
	receiver := notifytest.NewReceiver(t, webhook.Secret{})
	w := runWorker(t,
		"EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "TEMPERATURE_THRESHOLD=", "RULES_FILE="+file, "TIME_PROPERTY=body:takenAt",
		"THROTTLE_STORE=memory", "CHECKPOINT_STORE=memory", "STORAGE_CONNECTION_STRING=", "NOTIFY_URLS="+receiver.URL,
	)
	w.becomes(status.GoingOut, http.StatusOK)

	// All that was measured while a truck was on a ferry comes at once.
	now := time.Now()
	burst := func(truck, kind, depot string, temperatures ...float64) {
		t.Helper()
		for i, temperature := range temperatures {
			taken := now.Add(-95*time.Minute - time.Duration(len(temperatures)-1-i)*6*time.Minute)
			_, err := hub.Publish(devhub.Message{
				Device:     truck,
				Body:       fmt.Appendf(nil, `{"takenAt": %q, "cargo": {"temp": %v}}`, taken.UTC().Format(time.RFC3339), temperature),
				Properties: map[string]any{"kind": kind, "depot": depot},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	burst("truck-1", "freezer", "berlin", -20, -12, -20)       // a door
	burst("truck-2", "freezer", "berlin", 850, 850, 850)       // a broken probe
	burst("truck-3", "cooler", "berlin", 5, 5, 5)              // fine for its kind
	burst("truck-4", "cooler", "bonn", 9, 9, 9)                // too warm for 12 minutes
	burst("truck-7", "freezer", "berlin", -12.5, -12.5, -12.5) // likewise
	want := []string{
		"berlin, truck-7: -12.5 °C, at or above -15 (freezer)",
		"bonn, truck-4: 9 °C, at or above 8 (cooler)",
	}
	var got []string
	for end := time.Now().Add(time.Minute); len(got) < len(want) && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		got = nil
		for _, a := range receiver.Taken() {
			message, _, late := strings.Cut(wording.Style{}.Message(a), ", arrived 1h3")
			if !late {
				t.Errorf("it does not say that it is late: %s", message)
			}
			got = append(got, message)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
