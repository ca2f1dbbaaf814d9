package main

import (
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lab/inbox"
)

// The way of docs/from-functions.md: a worker that only logs runs beside what alerted until now, and then gets the receiver.
// What it has logged it does not send again, its open alarms get their recoveries, and what came in between is not lost.
func TestFromShadowToReceiver(t *testing.T) {
	if testing.Short() {
		t.Skip("a window takes its time")
	}
	t.Parallel()
	const window = 20 * time.Second
	storage, hub := emulators.StartAzurite(t), hubWith(t)
	got := make(chan inbox.Delivery, 10)
	receiver, err := inbox.Listen(func(d inbox.Delivery) { got <- d })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { receiver.Close() })
	env := func(urls string) []string {
		return []string{
			"EVENTHUB_CONNECTION_STRING=" + hub.ConnectionString(), "STORAGE_CONNECTION_STRING=" + storage.ConnectionString,
			"NOTIFY_URLS=" + urls, "NOTIFY_WEBHOOK_SECRET=" + receiver.Secret, "NOTIFY_RESOLVED=true", "THROTTLE_WINDOW=" + window.String(),
		}
	}
	publish := func(device, body string) {
		t.Helper()
		if _, err := hub.Publish(devhub.Message{Device: device, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	const hot, normal = `{"temperature":99}`, `{"temperature":20}`

	var alerted time.Time
	t.Run("shadow", func(t *testing.T) {
		w := runWorker(t, env("id=office log:")...)
		publish("oven-7", hot)
		w.logs("temperature alert", `"oven-7"`)
		alerted = time.Now()
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // until the ledger and checkpoints have it
			out, said, code := w.run("audit", "--since", "1h", "--group", "auditors")
			if code == exitStopped && strings.Contains(out, "1  recorded: sent") && strings.Contains(out, "0  missing") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("exit code %d, %s: %s", code, said, out)
			}
		}
	})
	publish("kiln", hot) // nobody runs
	w := runWorker(t, env("id=office "+receiver.URL)...)
	publish("oven-7", hot)
	next := func(what string) inbox.Delivery {
		t.Helper()
		select {
		case d := <-got:
			return d
		case <-time.After(time.Minute):
			t.Fatalf("no %s: %s", what, w.logged())
			panic("unreachable")
		}
	}
	if a := next("alert of what came in between").Alert; a.Device != "kiln" || a.Resolved {
		t.Errorf("instead of the kiln's alert there is %+v", a)
	}
	select {
	case d := <-got:
		t.Errorf("within the window of the logged alert there is %+v", d.Alert)
	case <-time.After(time.Until(alerted.Add(window + time.Second))):
	}
	publish("oven-7", hot) // it reports every few seconds
	if a := next("alert after the window").Alert; a.Device != "oven-7" || a.Resolved {
		t.Errorf("after the window there is %+v", a)
	}
	publish("oven-7", normal)
	if a := next("recovery").Alert; a.Device != "oven-7" || !a.Resolved {
		t.Errorf("instead of a recovery there is %+v", a)
	}
}
