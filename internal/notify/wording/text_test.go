package wording_test

import (
	"encoding/json"
	"fmt"
	"html"
	"strings"
	"testing"
	"time"
	"unicode"

	"alertworker/internal/notify"
	"alertworker/internal/notify/wording"
)

func hot(n int, level string) notify.Alert {
	return notify.Alert{ID: fmt.Sprint(n), Device: fmt.Sprintf("oven-%d", n), Rule: "hot", Level: level, Temperature: 80 + float64(n), Threshold: 80, Unit: "°C"}
}

// lines returns the sections of a text, as lines.
func lines(t wording.Text) string {
	var all []string
	for _, s := range t.Sections {
		if s.Title != "" {
			all = append(all, s.Title)
		}
		for _, f := range append(s.Facts, s.Lines...) {
			all = append(all, f.String())
		}
	}
	return strings.Join(all, "\n")
}

func TestText(t *testing.T) {
	var alerts []notify.Alert
	for n := range 12 {
		alerts = append(alerts, hot(n, "critical"))
	}
	check := func(wantHeadline, wantText string) {
		t.Helper()
		d := wording.Style{}.Text(4000, alerts...)
		if d.Headline != wantHeadline || lines(d) != wantText {
			t.Errorf("got\n%s\n%s\nwant\n%s\n%s", d.Headline, lines(d), wantHeadline, wantText)
		}
	}
	devices := ""
	for n := 11; n > 1; n-- {
		devices += fmt.Sprintf("oven-%d: %d °C, at or above 80\n", n, 80+n)
	}
	check("hot, critical: 12 devices at or above 80 °C", devices+"2 more: oven-1, oven-0")

	cold := notify.Alert{ID: "c", Device: "truck", Rule: "cold", Below: true, Temperature: -3, Threshold: 2, OwnLimit: true, Ambiguous: true, Shown: notify.Shown("").With("site", "Köln")}
	colder := cold
	colder.Device, colder.Temperature, colder.Threshold, colder.Ambiguous = "van", -4, 3, false
	alerts = append(alerts[:2:2], hot(7, "warning"), cold, colder)
	well := hot(9, "critical")
	well.Resolved, well.Temperature, well.Title = true, 64.5, "Oven too hot"
	alerts = append(alerts, well)
	check("cold: 2 devices at or below their limits, and 4 more", strings.Join([]string{
		"cold: 2 devices at or below their limits", "van: -4, at or below 3, site Köln", "truck: -3, at or below 2, site Köln (possibly a repeat)",
		"hot, critical: 2 devices at or above 80 °C", "oven-1: 81 °C, at or above 80", "oven-0: 80 °C, at or above 80",
		"hot, warning: 1 device at or above 80 °C", "oven-7: 87 °C, at or above 80",
		"Oven too hot, critical: 1 device normal again", "oven-9: 64.5 °C, normal again, below 80",
	}, "\n"))
}

// A milder level that is still open after the higher one is not "at or above" a limit that its value is short of.
func TestTextOfLingering(t *testing.T) {
	hotter, lingering := hot(7, "warning"), hot(8, "warning")
	lingering.Temperature = 77
	d := wording.Style{}.Text(4000, hotter, lingering)
	want := strings.Join([]string{
		"hot, warning: 1 device at or above 80 °C", "oven-7: 87 °C, at or above 80",
		"hot, warning: 1 device not normal yet after reaching 80 °C", "oven-8: 77 °C, not normal yet after reaching 80",
	}, "\n")
	if got := lines(d); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Incidents are counted as such.
func TestTextOfIncidents(t *testing.T) {
	berlin := hot(7, "critical")
	berlin.Per, berlin.PerValue, berlin.Incident = "site", "berlin", &notify.Incident{ID: "B", Members: 12, First: "oven-7"}
	bonn := hot(5, "critical")
	bonn.Per, bonn.PerValue, bonn.Incident = "site", "bonn", &notify.Incident{ID: "C", Members: 2, AtLeast: true, First: "oven-3"}
	gw := notify.Alert{ID: "g", Device: "meter", Rule: "offline", Silent: time.Minute, Since: time.Unix(0, 0), Per: "gateway", PerValue: "gw-1",
		Incident: &notify.Incident{ID: "G", Members: 30, First: "meter"}}
	kiel := hot(6, "critical")
	kiel.Per, kiel.PerValue, kiel.Resolved = "site", "kiel", true
	kiel.Incident = &notify.Incident{ID: "K", Began: time.Unix(0, 0)}
	kiel.Since, kiel.Enqueued = time.Unix(60, 0), time.Unix(2580, 0)
	for _, test := range []struct {
		alerts   []notify.Alert
		headline string
		lines    []string
	}{
		{[]notify.Alert{bonn, berlin, hot(1, "critical"), gw, kiel}, "hot, critical: 1 device at or above 80 °C, and 4 more", []string{
			"hot, critical: 1 device at or above 80 °C", "oven-1: 81 °C, at or above 80",
			"hot, critical: 2 incidents of devices at or above 80 °C",
			"berlin: 12 devices at or above 80 °C, first oven-7: 87 °C", "bonn: at least 2 devices at or above 80 °C, first oven-3",
			"offline: 1 incident of devices not heard for 1m", "gw-1: 30 devices not heard for 1m, first meter, since 1970-01-01 00:00 UTC",
			"hot, critical: 1 incident over", "kiel: all devices normal again after 43 min",
		}},
		{[]notify.Alert{bonn, berlin}, "hot, critical: 2 incidents of devices at or above 80 °C", []string{
			"berlin: 12 devices at or above 80 °C, first oven-7: 87 °C", "bonn: at least 2 devices at or above 80 °C, first oven-3",
		}},
	} {
		text := wording.Style{}.Text(4000, test.alerts...)
		if got, want := lines(text), strings.Join(test.lines, "\n"); got != want || text.Headline != test.headline {
			t.Errorf("got\n%s\n%s\nwant\n%s\n%s", text.Headline, got, test.headline, want)
		}
	}
}

// Every time that people read is in their zone.
func TestZone(t *testing.T) {
	style := wording.Style{Zone: time.FixedZone("CET", 3600)}
	silent := notify.Alert{Device: "oven", Rule: "offline", Silent: 15 * time.Minute, Since: time.Unix(1e9, 0), LastHeard: time.Unix(1e9-3600, 0), Enqueued: time.Unix(1e9+900, 0)}
	said := style.Message(silent)
	for _, text := range []wording.Text{style.Text(4000, silent), style.Text(4000, silent, silent)} {
		said += "\n" + text.Headline + "\n" + lines(text)
	}
	if strings.Contains(said, "UTC") || strings.Count(said, "CET") < 5 {
		t.Error(said)
	}
}

// However many alerts there are, of whatever, a message has bounds, and counts every device.
func FuzzText(f *testing.F) {
	f.Add("oven", "hot", 100, 3900)
	f.Add("\xff\n\u202e", "a", 30, 500)
	f.Fuzz(func(t *testing.T, device, rule string, n, limit int) {
		n, limit = 2+abs(n)%200, 1000+abs(limit)%4000
		var alerts []notify.Alert
		for i := range n {
			alerts = append(alerts, notify.Alert{Device: fmt.Sprint(device, i), Rule: fmt.Sprint(rule, i%(1+n/3)), Resolved: i%7 == 0, Temperature: float64(i)})
		}
		text := wording.Style{}.Text(limit, alerts...)
		counted := 0
		for _, s := range text.Sections {
			for _, line := range s.Lines {
				more := 1
				if line.Name == "" {
					if _, err := fmt.Sscanf(line.Value, "%d more: ", &more); err != nil {
						t.Errorf("%q: %v", line.Value, err)
					}
				}
				counted += more
			}
		}
		said := lines(text)
		if strings.ContainsFunc(said, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%q is not lines of printable characters", said)
		}
		if size := len(html.EscapeString(said)); counted != n || len(text.Sections) > 16 || len([]rune(text.Headline)) > 250 || size > limit {
			t.Errorf("%d of %d devices in %d sections; %d bytes, want at most %d", counted, n, len(text.Sections), size, limit)
		}
	})
}

func abs(n int) int { return max(n, -(n + 1)) }

func TestShown(t *testing.T) {
	s := notify.Shown("").With("site", "Köln\x00").With("a\"", "").With("", "\xff")
	text, err := json.Marshal(s)
	if err != nil || string(text) != "{\"site\":\"Köln\uFFFD\",\"a\\\"\":\"\",\"\":\"\uFFFD\"}" {
		t.Errorf("%s, %v", text, err)
	}
	var again notify.Shown
	if err := json.Unmarshal(text, &again); err != nil || again != notify.Shown("").With("site", "Köln\uFFFD").With("a\"", "").With("", "\uFFFD") {
		t.Errorf("%q, %v", again, err)
	}
	long := strings.Repeat("<", 100_000) + "end"
	if s := notify.Shown("").With("note", long); len(s) > 300 || !strings.HasSuffix(string(s), "end\x00") || s != notify.Shown("").With("note", long) {
		t.Errorf("a long value is shown as %q", s)
	}
	for _, bad := range []string{"[]", "1", `{"a": 1}`, `{"a"`} {
		if err := json.Unmarshal([]byte(bad), &again); err == nil && again != "" {
			t.Errorf("%s is %q", bad, again)
		}
	}
}
