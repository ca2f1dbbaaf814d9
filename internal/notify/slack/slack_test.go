package slack

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/wording"
)

var link = wording.Style{Page: "https://alerts.example.com/?a=1&b=2"}

// What a device is called is only text, and fits.
func FuzzEncode(f *testing.F) {
	f.Add(notifytest.Odd().Device, "warning", "id")
	f.Add(strings.Repeat("&", 1000), "", strings.Repeat("<", 1000))
	f.Add(strings.Repeat("\U0001F525", 100), "", "id")
	f.Fuzz(func(t *testing.T, device, level, id string) {
		a := notifytest.Alert(1)
		a.Device, a.Level, a.ID, a.Ambiguous = device, level, id, true
		m := encode(link.Text(room, a))
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

// A bar in a link's URL does not end it.
func TestLink(t *testing.T) {
	a := notify.Alert{Runbook: "https://wiki.example.com/a|b>c"}
	blocks := encode(wording.Style{}.Text(room, a)).Blocks
	elements := blocks[len(blocks)-1].Elements
	if got, want := elements[len(elements)-1].Text, "<https://wiki.example.com/a%7Cb&gt;c|Runbook>"; got != want {
		t.Errorf("got %s, want %s", got, want)
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
