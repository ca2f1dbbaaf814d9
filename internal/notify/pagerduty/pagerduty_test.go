package pagerduty

import (
	"context"
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/notifytest"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

const (
	routingKey = "0123456789abcdef0123456789abcdef"
)

var page = notify.Style{Page: "https://alerts.example.com/"}

// open returns a PagerDuty whose API is the server at raw, without TLS.
func open(t testing.TB, raw string) *PagerDuty {
	t.Helper()
	u, err := url.Parse("pagerduty://" + routingKey)
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(u, page, httppost.Options{Transport: &http.Transport{DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != "events.pagerduty.com:443" {
			t.Errorf("connects to %s", addr)
		}
		return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(raw, "http://"))
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func TestGolden(t *testing.T) {
	for name, a := range notifytest.Alerts() {
		r := notifytest.Posted(t, 202, func(url string) error { return open(t, url).Notify(t.Context(), a) })
		if r.Path != "/v2/enqueue" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("posted to %s as %s", r.Path, r.Header.Get("Content-Type"))
		}
		notifytest.Golden(t, *update, name, r.Body)
	}
}

// https://developer.pagerduty.com/docs/events-api-v2/overview/#response-codes--retry-logic
func TestAnswers(t *testing.T) {
	notifytest.RunAnswers(t, []notifytest.Answer{
		{Code: 202, Body: `{"status":"success","message":"Event processed","dedup_key":"x"}`, Taken: true},
		{Code: 400, Body: `{"status":"invalid event","message":"Event object is invalid","errors":["Length of 'summary' is incorrect (should be between 1 and 1024)"]}`, Refused: true},
		{Code: 400, Body: `{"status":"invalid event","message":"Event object is invalid","errors":["Length of 'routing_key' is incorrect (should be 32 characters)"]}`},
		{Code: 400, Body: `{"status":"invalid event","message":"Event object is invalid","errors":["Invalid routing key"]}`},
		{Code: 413, Refused: true},
		{Code: 429},
		{Code: 429, RetryAfter: "60", Wait: time.Minute},
		{Code: 500},
	}, func(t *testing.T, url string) notify.Notifier { return open(t, url) })
}

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
