package pagerduty

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/wording"
)

const (
	routingKey = "0123456789abcdef0123456789abcdef"
)

var page = wording.Style{Page: "https://alerts.example.com/"}

func TestKeyAndHost(t *testing.T) {
	for raw, want := range map[string]string{
		"pagerduty://ABCdef123":                            "ABCdef123 events.pagerduty.com",
		"pagerduty://ABCdef123/":                           "ABCdef123 events.pagerduty.com",
		"pagerduty://ABCdef123@events.eu.pagerduty.com":    "ABCdef123 events.eu.pagerduty.com",
		"pagerduty://":                                     "",
		"pagerduty:S3CRET":                                 "",
		"pagerduty://S3CRET/v2":                            "",
		"pagerduty://S3CRET?x":                             "",
		"pagerduty://user:S3CRET@events.eu.pagerduty.com":  "",
		"pagerduty://S3CRET.example.com":                   "",
		"pagerduty://S3CRET-@events.eu.pagerduty.com":      "",
		"pagerduty://@events.eu.pagerduty.com":             "",
		"pagerduty://S3CRET@events.eu.pagerduty.com/#frag": "",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		key, host, err := Split(u)
		if got := strings.TrimSpace(key + " " + host); got != want || (err != nil) != (want == "") {
			t.Errorf("%s is %q, %v; want %q", raw, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "S3CRET") {
			t.Errorf("the key is shown: %v", err)
		}
	}
}

// What devices send replaces nothing that we say.
func TestDetails(t *testing.T) {
	a := notifytest.Alert(1)
	a.Shown = a.Shown.With("id", "4711").With("Value", "20").With("site-id", "berlin")
	details := encode(a, routingKey, page).Payload.CustomDetails
	for name, want := range map[string]string{"id": a.ID, "value": "91.5", "property_id": "4711", "property_value": "20", "site_id": "berlin"} {
		if got := details[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// Reminders and the resolve reach the incident of the first alert; nothing else does.
func TestDedupKey(t *testing.T) {
	notifytest.RunAlarm(t, func(a notify.Alert) string {
		e := encode(a, routingKey, page)
		if want := map[bool]string{false: "trigger", true: "resolve"}[a.Resolved]; e.EventAction != want {
			t.Errorf("%+v: %s, want %s", a, e.EventAction, want)
		}
		if n := len(e.DedupKey); n > 255 {
			t.Errorf("a key of %d characters", n)
		}
		return e.DedupKey
	})
}

// A test's recovery resolves the incident that the test opened.
func TestTestIsClosed(t *testing.T) {
	a := notifytest.Alert(1)
	a.Test = true
	opened, closed := encode(a, routingKey, page), encode(notifytest.Resolved(a), routingKey, page)
	if opened.EventAction != "trigger" || opened.Payload.Severity != notify.Info || closed.EventAction != "resolve" || closed.DedupKey != opened.DedupKey {
		t.Errorf("%+v, %+v", opened, closed)
	}
}

// What a device is called is only text, and fits.
func FuzzEncode(f *testing.F) {
	f.Add(notifytest.Odd().Device, "warning", "id")
	f.Add(strings.Repeat("\x00", 1000), strings.Repeat("\xff", 1000), strings.Repeat("\x7f", 1000))
	f.Fuzz(func(t *testing.T, device, level, id string) {
		a := notifytest.Alert(1)
		a.Device, a.Level, a.ID = device, level, id
		e := encode(a, routingKey, page)
		if n := utf8.RuneCountInString(e.Payload.Summary); n < 1 || n > 1024 || e.Payload.Source == "" || len(e.DedupKey) > 255 {
			t.Errorf("a summary of %d characters, a key of %d bytes, source %q", n, len(e.DedupKey), e.Payload.Source)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Error(err)
		}
	})
}
