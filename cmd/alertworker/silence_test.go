package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lab/inbox"
)

// A device dies, and nothing else comes. The worker that had heard it stops, and the next one says that it is silent, no
// earlier than it may, and then that it is heard again.
func TestSilence(t *testing.T) {
	if testing.Short() {
		t.Skip("a silence takes a minute")
	}
	t.Parallel()
	storage, hub := emulators.StartAzurite(t), hubWith(t)
	got := make(chan inbox.Delivery, 10)
	receiver, err := inbox.Listen(func(d inbox.Delivery) { got <- d })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { receiver.Close() })
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules:\n- {name: offline, silent: 1m, resolved: true, window: 1s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"EVENTHUB_CONNECTION_STRING=" + hub.ConnectionString(), "STORAGE_CONNECTION_STRING=" + storage.ConnectionString,
		"NOTIFY_URLS=" + receiver.URL + ",log:", "NOTIFY_WEBHOOK_SECRET=" + receiver.Secret, "RULES_FILE=" + rules, "TEMPERATURE_THRESHOLD=",
	}
	heard := publishHello(t, hub)
	t.Run("the one that heard it", func(t *testing.T) {
		w := runWorker(t, env...)
		for end := time.Now().Add(time.Minute); !strings.Contains(w.metric("alertworker_partition_known_devices"), " 1\n"); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the device is never known")
			}
		}
	})
	t.Run("the next one", func(t *testing.T) {
		w := runWorker(t, env...)
		next := func(what string) inbox.Delivery {
			t.Helper()
			select {
			case d := <-got:
				return d
			case <-time.After(3 * time.Minute):
				t.Fatalf("no %s", what)
				panic("unreachable")
			}
		}
		a := next("silence").Alert
		if a.Resolved || a.Rule != "offline" || a.Silent != time.Minute || a.Device != "oven-7" || time.Since(heard) < time.Minute {
			t.Errorf("%v after it was heard: %+v", time.Since(heard), a)
		}
		w.logs("offline alert") // a receiver that was not notified of the silence gets no recovery
		publishHello(t, hub)
		if a := next("recovery").Alert; !a.Resolved || a.Device != "oven-7" || a.Silent != time.Minute {
			t.Errorf("instead of a recovery: %+v", a)
		}
		w.logs("offline resolved")
		for _, line := range regexp.MustCompile(`"msg":"(offline [^"]*)"`).FindAllStringSubmatch(w.logged(), -1) {
			documented(t, line[1])
		}
	})
}

// publishHello publishes a message without a reading, and returns when.
func publishHello(t *testing.T, hub *devhub.Hub) time.Time {
	t.Helper()
	now := time.Now()
	if _, err := hub.Publish(devhub.Message{Device: "oven-7", Body: []byte(`{"hello":true}`)}); err != nil {
		t.Fatal(err)
	}
	return now
}

// metric returns the lines of a metric.
func (w *runningWorker) metric(name string) (lines string) {
	_, text := w.get("/metrics")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name) {
			lines += line
		}
	}
	return lines
}
