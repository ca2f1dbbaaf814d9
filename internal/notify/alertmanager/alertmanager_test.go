package alertmanager

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"
	"time"
	"unicode/utf8"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/wording"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

var link = wording.Style{Page: "https://alerts.example.com/"}

func open(t testing.TB, raw string) *Alertmanager {
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
	now := time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)
	for name, a := range notifytest.Alerts() {
		payload, err := json.Marshal([]alert{encode(a, link, now)})
		if err != nil {
			t.Fatal(err)
		}
		notifytest.Golden(t, *update, name, payload)
	}
}

// Alertmanager takes two alerts for one if all their labels are the same.
func TestLabels(t *testing.T) {
	notifytest.RunAlarm(t, func(a notify.Alert) string {
		return fmt.Sprintf("%q", encode(a, link, time.Now()).Labels) // in the order of their names
	})
}

// An alert lasts beyond the next one of a device that stays hot, also after it waited for long; it
// never ends before it starts.
func TestTimes(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		age, since, repeat   time.Duration
		resolved, will, test bool
		start, end           time.Duration // from now
	}{
		{age: time.Second, start: -time.Second, end: 7 * time.Minute},
		{age: time.Second, repeat: 4 * time.Hour, start: -time.Second, end: 8*time.Hour + 5*time.Minute},
		{age: 10 * time.Hour, start: -10 * time.Hour, end: 7 * time.Minute},
		{age: time.Second, resolved: true, start: -10 * time.Second, end: -10 * time.Second},
		{age: -time.Second, resolved: true, start: -10 * time.Second, end: -10 * time.Second},
		{age: time.Minute, resolved: true, start: -time.Minute, end: -time.Minute},
		{age: -time.Hour, start: 7 * time.Minute, end: 7 * time.Minute},
		{age: 0, test: true, start: 0, end: time.Minute},
		{age: time.Second, since: time.Hour, start: -time.Hour, end: 7 * time.Minute},
		{age: time.Second, since: time.Hour, will: true, start: -time.Hour, end: 7 * 24 * time.Hour},
		{age: time.Second, since: time.Hour, resolved: true, start: -time.Hour, end: -5 * time.Minute},
	} {
		a := notify.Alert{Enqueued: now.Add(-tt.age), Window: time.Minute, Repeat: tt.repeat, Resolved: tt.resolved, WillResolve: tt.will, Test: tt.test}
		if tt.since > 0 {
			a.Since = now.Add(-tt.since)
		}
		if e := encode(a, wording.Style{}, now); e.StartsAt.Sub(now) != tt.start || e.EndsAt.Sub(now) != tt.end {
			t.Errorf("%+v: from %v to %v", tt, e.StartsAt.Sub(now), e.EndsAt.Sub(now))
		}
	}
}

// Alertmanager before 0.27, and later ones in classic mode, answer 400 to names that are no label names. What devices send
// replaces nothing that we say.
func TestAnnotations(t *testing.T) {
	classic := regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`) // LabelNameRE of prometheus/common 0.44, which 0.26 has
	a := notifytest.Alert(1)
	a.Runbook, a.Per, a.PerValue = "https://wiki.example.com/hot", "site-id", "berlin"
	a.Shown = a.Shown.With("summary", "all is well").With("runbook_url", "https://evil.example.com/").With("id", "4711").
		With("Value", "20").With("4th line", "x").With("温度", "y").With("site id", "z")
	annotations := encode(a, link, time.Now()).Annotations
	for name := range annotations {
		if !classic.MatchString(name) {
			t.Errorf("%q is no label name", name)
		}
	}
	for name, want := range map[string]string{
		"summary": link.Message(a), "runbook_url": a.Runbook, "id": a.ID, "value": "91.5", "site_id": "berlin",
		"property_summary": "all is well", "property_runbook_url": "https://evil.example.com/", "property_id": "4711", "property_value": "20",
		"_4th_line": "x", "__": "y", "site_id_2": "z",
	} {
		if got := annotations[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// Any device makes labels that Alertmanager takes: names and values of UTF-8.
func FuzzEncode(f *testing.F) {
	f.Add(notifytest.Odd().Device, "warning")
	f.Add("\xff", "")
	f.Fuzz(func(t *testing.T, device, level string) {
		a := notifytest.Alert(1)
		a.Device, a.Level = device, level
		payload, err := json.Marshal(encode(a, link, time.Now()))
		if err != nil || !utf8.Valid(payload) {
			t.Errorf("%s: %v", payload, err)
		}
	})
}

// Alertmanager goes by its own clock, which this machine's may be far from: what it is sent of an open alert has not ended
// when it comes, and what it is sent of a recovery has.
func TestClocks(t *testing.T) {
	for _, ahead := range []time.Duration{8 * time.Minute, -time.Hour, 0} {
		for _, storeKnows := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v ahead of this machine, store asked %t", ahead, storeKnows), func(t *testing.T) {
				clock := func() time.Time { return time.Now().Add(ahead) }
				var ends time.Time
				posts := 0
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var posted []alert
					if err := json.NewDecoder(r.Body).Decode(&posted); err != nil || len(posted) != 1 {
						t.Errorf("posted %v, %v", posted, err)
						return
					}
					posts++
					ends = posted[0].EndsAt
					w.Header().Set("Date", clock().UTC().Format(http.TimeFormat))
				}))
				defer srv.Close()
				n := open(t, srv.URL)
				for i, a := range []notify.Alert{{Rule: "hot"}, {Rule: "hot", Resolved: true}, {Rule: "hot", Test: true}} {
					a.Device, a.Window = "oven", time.Second
					a.Enqueued = clock().Add(-time.Second)
					if storeKnows {
						a.Sent = clock()
					}
					posts = 0
					if err := n.Notify(t.Context(), a); err != nil {
						t.Fatal(err)
					}
					if over := !ends.After(clock()); over != a.Resolved {
						t.Errorf("%+v ends %v after it came", a, ends.Sub(clock()))
					}
					want := 1
					if i == 0 && ahead != 0 && !storeKnows {
						want = 2 // the first answer shows the clock
					}
					if posts != want {
						t.Errorf("message %d was posted %d times, want %d", i, posts, want)
					}
				}
			})
		}
	}
}
