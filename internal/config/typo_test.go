package config

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMisspelled(t *testing.T) {
	for name, want := range map[string]string{
		"THROTLE_WINDOW":                  "did you mean THROTTLE_WINDOW?",
		"THROTTLE_WINODW":                 "did you mean THROTTLE_WINDOW?",
		"throttle_window":                 "did you mean THROTTLE_WINDOW?",
		"ALERTWORKER_THROTTLE_WINDOW":     "did you mean THROTTLE_WINDOW?",
		"THROTTLE_WINDOW_SECONDS":         "there is no such setting",
		"EVENTHUBS_CONNECTION_STRING":     "did you mean EVENTHUB_CONNECTION_STRING?",
		"EVENT_HUB_CONNECTION_STRING":     "did you mean EVENTHUB_CONNECTION_STRING?",
		"STORAGE_CONNECTIONSTRING":        "did you mean STORAGE_CONNECTION_STRING?",
		"STORAGE_CONNECTION_STRING_FILES": "did you mean STORAGE_CONNECTION_STRING_FILE?",
		"NOTIFY_URL":                      "did you mean NOTIFY_URLS?",
		"LOGLEVEL":                        "did you mean LOG_LEVEL?",
		"TEMPERATURE_LIMIT":               "there is no such setting",
		"EVENTHUB_NAME_FILE":              "only secrets, with a *, have a _FILE",

		"THROTTLE_WINDOW":                    "",
		"NOTIFY_URLS_FILE":                   "",
		"NOTIFY_SOCKET":                      "",
		"NOTIFY_SERVICE_HOST":                "",
		"NOTIFY_PORT":                        "",
		"NOTIFY_PORT_80_TCP_ADDR":            "",
		"NOTIFY_SERVICE_PORT_HTTP":           "",
		"STORAGE_ACCOUNT":                    "",
		"STORAGE_KEY":                        "",
		"AZURE_CLIENT_ID":                    "",
		"HTTP_PROXY":                         "",
		"LOG_DIR":                            "",
		"ROLE":                               "",
		"PATH":                               "",
		"THROTTLE_" + "WINDOW\nX":            "",
		strings.Repeat("NOTIFY_", 9) + "URL": "",
	} {
		got := fmt.Sprint(misspelled([]string{name + "=hunter2"}))
		if want == "" && got != "[]" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if strings.Contains(got, "hunter2") {
			t.Errorf("%s: the value is shown", name)
		}
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("THROTTLE_%d=x", i))
	}
	if got := len(misspelled(many)); got != maxNameWarnings {
		t.Errorf("%d warnings, want %d", got, maxNameWarnings)
	}
	if got := misspelled([]string{"THROTLE_WINDOW="}); len(got) != 0 {
		t.Errorf("an empty variable is as good as none, got %v", got)
	}
}

func TestEditDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "ac", 1}, {"abc", "abxc", 1}, {"abc", "axc", 1}, {"abc", "acb", 1}, {"abcd", "badc", 2}, {"kitten", "sitting", 3},
	} {
		if got := editDistance(test.a, test.b); got != test.want {
			t.Errorf("%q to %q is %d, want %d", test.a, test.b, got, test.want)
		}
	}
	word := rapid.StringMatching(`[A-C]{0,8}`)
	rapid.Check(t, func(r *rapid.T) {
		a, b := word.Draw(r, "a"), word.Draw(r, "b")
		if d := editDistance(a, b); d != editDistance(b, a) || (d == 0) != (a == b) || d > max(len(a), len(b)) {
			r.Fatalf("%q to %q is %d, back %d", a, b, d, editDistance(b, a))
		}
	})
}
