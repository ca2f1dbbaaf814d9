package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/inbox"
)

// Whatever is long in a message, its alert is delivered to a receiver that takes 64 KiB, and nothing is a dead letter.
func TestLongTextsAreDelivered(t *testing.T) {
	t.Parallel()
	hub := hubWith(t)
	got := make(chan inbox.Delivery, 100)
	receiver, err := inbox.Listen(func(d inbox.Delivery) { got <- d })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { receiver.Close() })

	const n = 100_000
	long := strings.Repeat("x", n)
	messages := map[string]devhub.Message{
		"device":                {Device: long + "-7"},
		"device, of controls":   {Device: strings.Repeat("\x01", n)},
		"device, of characters": {Device: strings.Repeat("ü<", n/3)},
		"module":                {Device: "m", Annotations: map[string]any{"iothub-connection-module-id": long}},
		"shown properties": {Device: "p", Properties: map[string]any{
			"a": long, "b": strings.Repeat("<", n), "c": strings.Repeat("\x01", n), "d": strings.Repeat("ü", n)}},
		"what devices share": {Device: "s", Properties: map[string]any{"site": long}},
		"shown field":        {Device: "f", Body: []byte(`{"temperature":99,"note":"` + long + `"}`)},
		"a number":           {Device: "n", Body: []byte(`{"temperature":99.` + strings.Repeat("1", n) + `}`)},
	}
	for name, m := range messages {
		if m.Body == nil {
			m.Body = []byte(`{"temperature":99}`)
		}
		if _, err := hub.Publish(m); err != nil {
			t.Fatal(name, err)
		}
	}
	w := runWorker(t,
		"EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "THROTTLE_STORE=memory", "CHECKPOINT_STORE=memory", "STORAGE_CONNECTION_STRING=",
		"NOTIFY_URLS="+receiver.URL, "NOTIFY_WEBHOOK_SECRET="+receiver.Secret, "TEMPERATURE_THRESHOLD=", "NOTIFY_RESOLVED=true",
		`RULES={"show":["a","b","c","d","site","note","$module"],"rules":[
			{"name":"hot","field":"temperature","sensor":"$module","above":80},
			{"name":"shared","field":"temperature","above":90,"per":"site","resolved":false},
			{"name":"only","field":"temperature","above":80,"only":{"kind":"oven"}}]}`)
	for range 2 * len(messages) {
		select {
		case d := <-got:
			if body, err := json.Marshal(d.Alert); err != nil || d.Refused || len(body) > 48<<10 {
				t.Errorf("%v, refused: %v, %d bytes: %.300s", err, d.Refused, len(body), body)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("alerts are missing: %.3000s", w.logged())
		}
	}
}
