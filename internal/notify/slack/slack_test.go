package slack

import (
	"encoding/json"
	"flag"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/notifytest"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

var link = notify.Style{Page: "https://alerts.example.com/?a=1&b=2"}

func open(t testing.TB, raw string) *httppost.Channel {
	t.Helper()
	u, err := url.Parse(raw + "/services/T0/B0/K3Y")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(u, link, httppost.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestGolden(t *testing.T) {
	for name, a := range notifytest.Alerts() {
		r := notifytest.Posted(t, 200, func(url string) error { return open(t, url).Notify(t.Context(), a) })
		if r.Path != "/services/T0/B0/K3Y" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("posted to %s as %s", r.Path, r.Header.Get("Content-Type"))
		}
		notifytest.Golden(t, *update, name, r.Body)
	}
	storm := notifytest.Posted(t, 200, func(url string) error { return open(t, url).NotifyMany(t.Context(), notifytest.Storm()) })
	notifytest.Golden(t, *update, "storm", storm.Body)
	s := notify.Summary{ID: "ns/hub/summary/2026-03-01T08:00:00Z", Days: [2]notify.Day{
		{Date: time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC), Alerts: 14, Devices: 1, MostAlerts: []notify.DeviceCount{{Device: "<!channel>", Alerts: 14}}},
		{Date: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)},
	}}
	r := notifytest.Posted(t, 200, func(url string) error { return open(t, url).Report(t.Context(), s) })
	notifytest.Golden(t, *update, "summary", r.Body)
}

// https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks
func TestAnswers(t *testing.T) {
	notifytest.RunAnswers(t, []notifytest.Answer{
		{Code: 200, Body: "ok", Taken: true},
		{Code: 400, Body: "invalid_payload", Refused: true},
		{Code: 400, Body: "invalid_blocks", Refused: true},
		{Code: 400, Body: "no_text", Refused: true},
		{Code: 400, Body: "user_not_found"},
		{Code: 403, Body: "action_prohibited"},
		{Code: 403, Body: "invalid_token"},
		{Code: 404, Body: "channel_not_found"},
		{Code: 404, Body: "no_service"},
		{Code: 410, Body: "channel_is_archived"},
		{Code: 429, RetryAfter: "30", Body: "rate_limited", Wait: 30 * time.Second},
		{Code: 500, Body: "rollup_error"},
	}, func(t *testing.T, url string) notify.Notifier { return open(t, url) })
}

// What a device is called is only text, and fits.
func FuzzEncode(f *testing.F) {
	f.Add(notifytest.Odd().Device, "warning", "id")
	f.Add(strings.Repeat("&", 1000), "", strings.Repeat("<", 1000))
	f.Add(strings.Repeat("\U0001F525", 100), "", "id")
	f.Fuzz(func(t *testing.T, device, level, id string) {
		a := notifytest.Alert(1)
		a.Device, a.Level, a.ID, a.Ambiguous = device, level, id, true
		m := encode(a, link)
		if n := len(utf16.Encode([]rune(m.Blocks[0].Text.Text))); n > 150 {
			t.Errorf("a header of %d characters", n)
		}
		if len(m.Blocks[1].Fields) > 10 {
			t.Errorf("%d fields", len(m.Blocks[1].Fields))
		}
		inert(t, m.Text)
		for _, field := range m.Blocks[1].Fields {
			code(t, strings.SplitN(field.Text, "\n", 2)[1], 1900)
		}
		code(t, m.Blocks[2].Elements[0].Text, 2900)
		if _, err := json.Marshal(m); err != nil {
			t.Error(err)
		}
	})
}

// code checks that all of s is code.
func code(t *testing.T, s string, limit int) {
	t.Helper()
	if inside := strings.Trim(s, "`"); len(s) != len(inside)+2 || strings.Contains(inside, "`") {
		t.Errorf("not all of %q is code", s)
	}
	if utf8.RuneCountInString(s) > limit {
		t.Errorf("%d characters", utf8.RuneCountInString(s))
	}
	inert(t, s)
}

// inert checks that s has no control sequence of Slack's.
func inert(t *testing.T, s string) {
	t.Helper()
	rest := strings.NewReplacer("&amp;", "", "&lt;", "", "&gt;", "").Replace(s)
	if strings.ContainsAny(rest, "<>&") {
		t.Errorf("control characters in %q", s)
	}
}

func TestMark(t *testing.T) {
	for want, a := range map[string]notify.Alert{
		"🔴": {Level: "hot"}, "🟠": {Level: "warning"}, "🔵": {Level: "info"}, "🟢": {Level: "critical", Resolved: true}, "⚪": {Test: true},
	} {
		if got := mark(a.Severity(), a.Resolved, a.Test); got != want {
			t.Errorf("%+v is %s, want %s", a, got, want)
		}
	}
}
