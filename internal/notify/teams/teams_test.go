package teams

import (
	"encoding/json"
	"flag"
	"net/url"
	"strings"
	"testing"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/notifytest"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

var link = notify.Style{Page: "https://alerts.example.com/"}

func open(t testing.TB, raw string) *httppost.Channel {
	t.Helper()
	u, err := url.Parse(raw + "/workflows/W/triggers/manual/paths/invoke?sig=K3Y")
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(u, link, httppost.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func TestGolden(t *testing.T) {
	for name, a := range notifytest.Alerts() {
		r := notifytest.Posted(t, 202, func(url string) error { return open(t, url).Notify(t.Context(), a) })
		if r.Path != "/workflows/W/triggers/manual/paths/invoke?sig=K3Y" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("posted to %s as %s", r.Path, r.Header.Get("Content-Type"))
		}
		notifytest.Golden(t, *update, name, r.Body)
	}
	s := notify.Summary{ID: "ns/hub/summary/2026-03-01T08:00:00Z", Days: [2]notify.Day{
		{Date: time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC), Alerts: 14, Devices: 1, MostAlerts: []notify.DeviceCount{{Device: "[x](https://evil.example)", Alerts: 14}}},
		{Date: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)},
	}}
	r := notifytest.Posted(t, 202, func(url string) error { return open(t, url).Report(t.Context(), s) })
	notifytest.Golden(t, *update, "summary", r.Body)
}

// The trigger of a workflow answers like Logic Apps.
func TestAnswers(t *testing.T) {
	notifytest.RunAnswers(t, []notifytest.Answer{
		{Code: 202, Taken: true},
		{Code: 400, Body: `{"error":{"code":"TriggerInputSchemaMismatch","message":"The input body for trigger 'manual' of type 'Request' did not match its schema definition."}}`},
		{Code: 400, Body: `{"error":{"code":"WorkflowTriggerIsNotEnabled","message":"Could not execute workflow 'w' trigger 'manual' with state 'Deleted': trigger is not enabled."}}`},
		{Code: 401, Body: `{"error":{"code":"DirectApiInvalidAuthorizationScheme","message":"The provided authorization token is not valid"}}`},
		{Code: 403, Body: `{"error":{"code":"AuthorizationFailed"}}`},
		{Code: 404, Body: `{"error":{"code":"WorkflowNotFound","message":"The workflow 'w' could not be found."}}`},
		{Code: 413, Body: `{"error":{"code":"RequestEntityTooLarge"}}`, Refused: true},
		{Code: 429, RetryAfter: "10", Body: `{"error":{"code":"WorkflowRunActionThrottled"}}`, Wait: 10 * time.Second},
		{Code: 502, Body: `{"error":{"code":"NoResponse","message":"The server did not receive a response from an upstream server."}}`},
	}, func(t *testing.T, url string) notify.Notifier { return open(t, url) })
}

// What a device is called is only text, and fits.
func FuzzEncode(f *testing.F) {
	f.Add(notifytest.Odd().Device, "warning", "id")
	f.Add(strings.Repeat("\x00", 1000), strings.Repeat("\xff", 1000), strings.Repeat("\x7f", 1000))
	f.Fuzz(func(t *testing.T, device, level, id string) {
		a := notifytest.Alert(1)
		a.Device, a.Level, a.ID, a.Ambiguous = device, level, id, true
		m := encode(a, link)
		for _, l := range m.Attachments[0].Content.Body {
			if l.Type != "RichTextBlock" { // any other reads Markdown
				t.Errorf("text is in a %s", l.Type)
			}
		}
		payload, err := json.Marshal(m)
		if err != nil || len(payload) > 28<<10 {
			t.Errorf("%d bytes: %v", len(payload), err)
		}
	})
}

func TestColor(t *testing.T) {
	for _, test := range []struct {
		a    notify.Alert
		want string
	}{
		{notify.Alert{Level: "hot"}, "Attention"}, {notify.Alert{Level: "warning"}, "Warning"}, {notify.Alert{Level: "info"}, "Accent"},
		{notify.Alert{Level: "critical", Resolved: true}, "Good"}, {notify.Alert{Test: true}, "Accent"},
	} {
		if got := color(test.a.Severity(), test.a.Resolved); got != test.want {
			t.Errorf("%+v is %s, want %s", test.a, got, test.want)
		}
	}
}
