package teams

import (
	"encoding/json"
	"strings"
	"testing"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/wording"
)

var link = wording.Style{Page: "https://alerts.example.com/"}

// What a device is called is only text, and fits.
func FuzzEncode(f *testing.F) {
	f.Add(notifytest.Odd().Device, "warning", "id")
	f.Add(strings.Repeat("\x00", 1000), strings.Repeat("\xff", 1000), strings.Repeat("\x7f", 1000))
	f.Fuzz(func(t *testing.T, device, level, id string) {
		a := notifytest.Alert(1)
		a.Device, a.Level, a.ID, a.Ambiguous = device, level, id, true
		m := encode(link.Text(room, a))
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
