package wording_test

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"alertworker/internal/notify"
	"alertworker/internal/notify/wording"
)

func TestFacts(t *testing.T) {
	a := notify.Alert{Device: "oven\n7", Rule: notify.DefaultRule, Temperature: 91.5, Threshold: 80, Enqueued: time.Date(2026, 3, 1, 13, 0, 0, 9, time.FixedZone("", 3600)), Suppressed: 1}
	check := func(want string) {
		t.Helper()
		var got strings.Builder
		for _, f := range (wording.Style{}).Facts(a) {
			got.WriteString(f.Name + ": " + f.Value + "\n")
		}
		if strings.TrimSpace(got.String()) != want {
			t.Errorf("got\n%s\nwant\n%s", got.String(), want)
		}
	}
	check("Device: oven\uFFFD7\nValue: 91.5\nLimit: 80\nTime: 2026-03-01 12:00:00 UTC\nSuppressed: 1 reading since the last alert")
	a.Level, a.Ambiguous, a.Suppressed = "critical", true, 3
	check("Device: oven\uFFFD7\nValue: 91.5\nLimit: 80\nLevel: critical\nTime: 2026-03-01 12:00:00 UTC\nSuppressed: 3 readings since the last alert\nRepeat: possible: an earlier attempt may have arrived")
	a.Level, a.Ambiguous, a.Resolved = "", false, true
	check("Device: oven\uFFFD7\nValue: 91.5\nLimit: 80\nTime: 2026-03-01 12:00:00 UTC")
	a.Rule, a.Level, a.Field, a.Since = "hot", "critical", "temperature, temp", a.Enqueued.Add(-10*time.Minute)
	check("Device: oven\uFFFD7\nValue: 91.5\nLimit: 80\nRule: hot\nLevel: critical\nField: temperature, temp\nTime: 2026-03-01 12:00:00 UTC\nSince: 2026-03-01 11:50:00 UTC, for 10m")
	a.Rule, a.Level, a.Field = notify.DefaultRule, "", ""
	a.DeviceTime, a.Since = a.Enqueued.Add(-388*time.Minute), a.Enqueued.Add(-400*time.Minute)
	check("Device: oven\uFFFD7\nValue: 91.5\nLimit: 80\nTime: 2026-03-01 05:32:00 UTC, arrived 2026-03-01 12:00:00 UTC\nSince: 2026-03-01 05:20:00 UTC, for 12m")
	a.DeviceTime, a.Since = a.Enqueued.Add(-59*time.Second), time.Time{}
	check("Device: oven\uFFFD7\nValue: 91.5\nLimit: 80\nTime: 2026-03-01 11:59:01 UTC")
	a.DeviceTime = time.Time{}
	b := a
	a.Per, a.PerValue, a.Resolved, a.Suppressed, a.Shown = "site", "berlin", false, 99, a.Shown.With("site", "berlin").With("rack", "4")
	check("Device: oven\uFFFD7\nsite: berlin\nValue: 91.5\nLimit: 80\nrack: 4\nTime: 2026-03-01 12:00:00 UTC\nSuppressed: at least 99 devices since the last alert")
	if a.About() != "berlin" || b.About() != b.Device || a.Alarm() == b.Alarm() {
		t.Errorf("%s and %s, %s and %s", a.About(), b.About(), a.Alarm(), b.Alarm())
	}
	a = b
	for lasted, want := range map[time.Duration]string{
		-time.Minute: "", 0: "", 400 * time.Millisecond: "", 1500 * time.Millisecond: "11:59:58 UTC, for 2s",
		time.Hour: "11:00:00 UTC, for 1h", 2*time.Hour + 3*time.Second: "09:59:57 UTC, for 2h0m3s", 90 * time.Minute: "10:30:00 UTC, for 1h30m",
	} {
		a.Since = a.Enqueued.Add(-lasted)
		if want != "" {
			want = "\nSince: 2026-03-01 " + want
		}
		check("Device: oven\uFFFD7\nValue: 91.5\nLimit: 80\nTime: 2026-03-01 12:00:00 UTC" + want)
	}
}

// Whatever facts an alert has, their names are taken: a property of that name has another.
func TestFieldNames(t *testing.T) {
	own := notify.Alert{
		Sensor: "probe", Rule: "hot", Level: "critical", Field: "temp", Since: time.Unix(1, 0), Enqueued: time.Unix(60, 0), Ambiguous: true,
	}
	shared, ofSensors := own, own
	shared.Sensor = ""
	for _, a := range []*notify.Alert{&shared, &ofSensors} {
		a.Per, a.PerValue, a.Incident = "site", "berlin", &notify.Incident{ID: "I", Members: 2}
	}
	for _, own := range []notify.Alert{own, shared, ofSensors} {
		for name, value := range (wording.Style{}).Fields(own) {
			shown := notify.Alert{Shown: notify.Shown("").With(name, "a device's")}
			if fields := (wording.Style{}).Fields(shown); name != own.Per && (fields[name] == "a device's" || fields["property_"+name] != "a device's") {
				t.Errorf("a property %s stands beside our %s: %v", name, value, fields)
			}
		}
	}
}

// The facts of an incident are about its members, and the first one's reading. Its end is about none of them.
func TestFactsOfIncident(t *testing.T) {
	a := notify.Alert{Device: "freezer-7", Per: "site", PerValue: "berlin", Rule: "freezer", Temperature: -12.5, Threshold: -15, Suppressed: 3,
		Enqueued: time.Unix(600, 0), Since: time.Unix(0, 0), Incident: &notify.Incident{ID: "I", Members: 12, AtLeast: true, First: "freezer-7"}}
	a.Shown = a.Shown.With("site", "berlin").With("rack", "4")
	other, over := a, a
	other.Incident = &notify.Incident{ID: "I", Members: 12, First: "freezer-1"}
	over.Resolved, over.Incident = true, &notify.Incident{ID: "I", Began: a.Since}
	const end = "\nRule: freezer\nTime: 1970-01-01 00:10:00 UTC\nSince: 1970-01-01 00:00:00 UTC, for 10m"
	for _, test := range []struct {
		a    notify.Alert
		want string
	}{
		{a, "site: berlin\nDevices: at least 12\nFirst: freezer-7\nValue: -12.5\nLimit: -15\nrack: 4" + end},
		{other, "site: berlin\nDevices: 12\nFirst: freezer-1" + end},
		{over, "site: berlin" + end},
	} {
		var got []string
		for _, f := range (wording.Style{}).Facts(test.a) {
			got = append(got, f.Name+": "+f.Value)
		}
		if got := strings.Join(got, "\n"); got != test.want {
			t.Errorf("got\n%s\nwant\n%s", got, test.want)
		}
	}
	for page, want := range map[string]string{"https://x.example.com/": "https://x.example.com/?incident=I#incidents", "": ""} {
		links := wording.Style{Page: page}.Links(a)
		if got := append(links, wording.Link{})[0].URL; got != want {
			t.Errorf("the link is %q, want %q", got, want)
		}
	}
}

func TestSeverity(t *testing.T) {
	for level, want := range map[string]notify.Severity{"": notify.Critical, "warning": notify.Warning, "info": notify.Info, "error": notify.Serious, "critical": notify.Critical, "P1": notify.Critical} {
		if got := (notify.Alert{Level: level}).Severity(); got != want {
			t.Errorf("level %q is %s, want %s", level, got, want)
		}
	}
	if got := (notify.Alert{Level: "critical", Test: true}).Severity(); got != notify.Info {
		t.Errorf("a test is %s", got)
	}
}

func FuzzFacts(f *testing.F) {
	f.Add("oven", "hot", "critical", "temperature, temp", 91.5, int64(60), int64(0), int64(3))
	f.Fuzz(func(t *testing.T, device, rule, level, field string, value float64, at, since, suppressed int64) {
		facts := wording.Style{}.Facts(notify.Alert{
			Device: device, Rule: rule, Level: level, Field: field, Temperature: value, Threshold: value,
			Enqueued: time.Unix(at, 0), Since: time.Unix(since, 0), Suppressed: suppressed, Ambiguous: true,
		})
		for _, fact := range facts {
			if n := utf8.RuneCountInString(fact.Value); n == 0 || n > 200 || len(facts) > wording.MaxFacts {
				t.Errorf("%d facts, one of %d characters", len(facts), n)
			}
			if strings.ContainsFunc(fact.Value, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("not one printable line: %q", fact.Value)
			}
		}
	})
}

func TestCut(t *testing.T) {
	for _, test := range []struct {
		s     string
		limit int
		want  string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"äöü", 3, "äöü"},
		{"äöüß", 3, "äö…"},
		{"\U0001F525b", 3, "\U0001F525b"}, // 🔥 is two units
		{"\U0001F525bc", 3, "\U0001F525…"},
		{"a\U0001F525\U0001F525", 3, "a…"},
		{"\U0001F525\U0001F525", 3, "\U0001F525…"},
	} {
		if got := wording.Cut(test.s, test.limit); got != test.want {
			t.Errorf("%q in %d is %q, want %q", test.s, test.limit, got, test.want)
		}
	}
}

// Services refuse long addresses: Slack an element of 3,000 characters, ntfy a click of 2,048 bytes. Names that differ
// at their end alone still have links of their own.
func TestLinksOfLongNames(t *testing.T) {
	s := wording.Style{Page: "https://alerts.example.com/?a=1"}
	seen := map[string]bool{}
	for _, device := range []string{strings.Repeat("x", 1024) + "1", strings.Repeat("x", 1024) + "2", strings.Repeat("\U0001F525", 100_000)} {
		link := s.Links(notify.Alert{Device: device, Sensor: device})[0].URL
		if len(link) > 1100 || seen[link] {
			t.Errorf("%d bytes, a second time: %v", len(link), seen[link])
		}
		seen[link] = true
	}
	if got := s.Links(notify.Alert{Device: "kiln/north"})[0].URL; got != "https://alerts.example.com/?a=1&device=kiln%2Fnorth" {
		t.Errorf("a short name leads to %s", got)
	}
}
