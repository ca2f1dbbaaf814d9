package main

import (
	"testing"
	"time"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/lab/inbox"
)

// A rule is removed by a rollout, and the alarm that it has opened ends as soon as no replica has the rule any more.
func TestRemovedRule(t *testing.T) {
	if testing.Short() {
		t.Skip("replicas compare their rules for the first time after 10 s")
	}
	t.Parallel()
	storage, hub := emulators.StartAzurite(t), hubWith(t, `{"temperature": 91}`)
	got := make(chan inbox.Delivery, 10)
	receiver, err := inbox.Listen(func(d inbox.Delivery) { got <- d })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { receiver.Close() })
	env := []string{
		"EVENTHUB_CONNECTION_STRING=" + hub.ConnectionString(), "STORAGE_CONNECTION_STRING=" + storage.ConnectionString,
		"NOTIFY_URLS=" + receiver.URL, "NOTIFY_WEBHOOK_SECRET=" + receiver.Secret, "TEMPERATURE_THRESHOLD=",
	}
	next := func(within time.Duration, resolved bool) {
		t.Helper()
		select {
		case d := <-got:
			if d.Alert.Resolved != resolved || d.Alert.Rule != "hot" {
				t.Errorf("got %+v", d.Alert)
			}
		case <-time.After(within):
			t.Fatalf("nothing within %v", within)
		}
	}
	cold := "\n- {name: cold, field: temperature, below: -20, clear: -18, resolved: true, window: 1s}"
	t.Run("with the rule", func(t *testing.T) {
		runWorker(t, append(env, "RULES=rules:\n- {name: hot, field: temperature, above: 80, clear: 75, resolved: true, window: 1s}"+cold)...)
		next(time.Minute, false)
		time.Sleep(2 * time.Second) // CHECKPOINT_INTERVAL, and the ledger has it
	})
	t.Run("without it", func(t *testing.T) {
		runWorker(t, append(env, "RULES=rules:"+cold)...)
		next(3*time.Minute, true)
	})
}
