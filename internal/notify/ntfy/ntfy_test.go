package ntfy

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/wording"
)

var link = wording.Style{Page: "https://alerts.example.com/"}

func TestNeedsATopic(t *testing.T) {
	for _, raw := range []string{"https://ntfy.sh", "https://ntfy.sh/", "https://ntfy.sh//"} {
		u, _ := url.Parse(raw)
		if _, err := New(u, wording.Style{}, httppost.Options{}); err == nil || !strings.Contains(err.Error(), "topic") {
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
		m := encode(link.Text(maxMessage, a), "t0pic")
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
		m := encode(link.Text(maxMessage, notify.Alert{Level: test.level, Resolved: test.resolved}), "t0pic")
		if m.Priority != test.priority || len(m.Tags) != 1 || m.Tags[0] != test.tag {
			t.Errorf("%+v: priority %d, %q", test, m.Priority, m.Tags)
		}
	}
}
