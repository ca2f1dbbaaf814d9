package ntfy

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
	u, err := url.Parse(raw)
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
		r := notifytest.Posted(t, 200, func(url string) error {
			return open(t, strings.Replace(url, "://", "://:tk_K3Y@", 1)+"/base/t0pic").Notify(t.Context(), a)
		})
		if r.Path != "/base/" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Basic OnRrX0szWQ==" {
			t.Errorf("posted to %s with %v", r.Path, r.Header)
		}
		notifytest.Golden(t, *update, name, r.Body)
	}
	s := notify.Summary{ID: "ns/hub/summary/2026-03-01T08:00:00Z", Days: [2]notify.Day{
		{Date: time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC), Alerts: 14, Devices: 1},
		{Date: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)},
	}}
	r := notifytest.Posted(t, 200, func(url string) error { return open(t, url+"/t0pic/").Report(t.Context(), s) })
	if r.Path != "/" {
		t.Errorf("posted to %s", r.Path)
	}
	notifytest.Golden(t, *update, "summary", r.Body)
}

// As in server/errors.go of ntfy.
func TestAnswers(t *testing.T) {
	notifytest.RunAnswers(t, []notifytest.Answer{
		{Code: 200, Body: `{"id":"x","event":"message","topic":"t0pic"}`, Taken: true},
		{Code: 400, Body: `{"code":40017,"http":400,"error":"invalid request: request body must be message JSON"}`, Refused: true},
		{Code: 400, Body: `{"code":40009,"http":400,"error":"invalid request: topic invalid"}`},
		{Code: 400, Body: `{"code":40010,"http":400,"error":"invalid request: topic name is disallowed"}`},
		{Code: 401, Body: `{"code":40101,"http":401,"error":"unauthorized"}`},
		{Code: 403, Body: `{"code":40301,"http":403,"error":"forbidden"}`},
		{Code: 413, Body: `{"code":41303,"http":413,"error":"JSON body too large"}`, Refused: true},
		{Code: 429, Body: `{"code":42908,"http":429,"error":"limit reached: too many messages"}`},
		{Code: 500, Body: `{"code":50001,"http":500,"error":"internal server error"}`},
	}, func(t *testing.T, url string) notify.Notifier { return open(t, url+"/t0pic") })
}

// That the topic is left out of errors does not change what an answer means.
func TestTopicThatIsInTheAnswer(t *testing.T) {
	notifytest.RunAnswers(t, []notifytest.Answer{
		{Code: 400, Body: `{"code":40009,"http":400,"error":"invalid request: topic invalid"}`},
	}, func(t *testing.T, url string) notify.Notifier { return open(t, url+"/topic") })
}

func TestNeedsATopic(t *testing.T) {
	for _, raw := range []string{"https://ntfy.sh", "https://ntfy.sh/", "https://ntfy.sh//"} {
		u, _ := url.Parse(raw)
		if _, err := New(u, notify.Style{}, httppost.Options{}); err == nil || !strings.Contains(err.Error(), "topic") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// What a device is called is only text, and fits.
func FuzzEncode(f *testing.F) {
	f.Add(notifytest.Odd().Device, "warning")
	f.Add(strings.Repeat("\U0001F525", 1000), strings.Repeat("\xff", 1000))
	f.Fuzz(func(t *testing.T, device, level string) {
		a := notifytest.Alert(1)
		a.Device, a.Level, a.Ambiguous = device, level, true
		m := encode(a, "t0pic", link)
		if len(m.Message) > 4096 || len(m.Title) > 1024 || m.Priority < 1 || m.Priority > 5 {
			t.Errorf("a message of %d bytes, a title of %d, priority %d", len(m.Message), len(m.Title), m.Priority)
		}
		if _, err := json.Marshal(m); err != nil {
			t.Error(err)
		}
	})
}

// That a device is normal again is never louder than the alert was.
func TestPriority(t *testing.T) {
	for _, test := range []struct {
		level    string
		resolved bool
		priority int
		tag      string
	}{
		{"", false, 5, "rotating_light"}, {"hot", false, 5, "rotating_light"}, {"error", false, 4, "warning"}, {"warning", false, 3, "warning"}, {"info", false, 2, "information_source"},
		{"", true, 3, "white_check_mark"}, {"warning", true, 3, "white_check_mark"}, {"info", true, 2, "white_check_mark"},
	} {
		m := encode(notify.Alert{Level: test.level, Resolved: test.resolved}, "t0pic", link)
		if m.Priority != test.priority || len(m.Tags) != 1 || m.Tags[0] != test.tag {
			t.Errorf("%+v: priority %d, %q", test, m.Priority, m.Tags)
		}
	}
}
