package receivers

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf16"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
)

// sizes check that a message is not more than a service takes.
var sizes = map[string]func(t *testing.T, body []byte){
	"slack": func(t *testing.T, body []byte) {
		var m struct {
			Blocks []struct {
				Type     string
				Text     struct{ Text string }
				Elements []struct{ Text string }
			}
		}
		if err := json.Unmarshal(body, &m); err != nil || len(m.Blocks) == 0 || len(m.Blocks) > 50 {
			t.Fatalf("%d blocks, %v", len(m.Blocks), err)
		}
		for _, b := range m.Blocks {
			limit := map[string]int{"header": 150, "section": 3000, "context": 3000}[b.Type]
			for _, e := range append(b.Elements, b.Text) {
				if n := len(utf16.Encode([]rune(e.Text))); n > limit {
					t.Errorf("%d characters in a %s", n, b.Type)
				}
			}
		}
	},
	"teams": func(t *testing.T, body []byte) {
		if len(body) > 28<<10 {
			t.Errorf("%d bytes", len(body))
		}
	},
	"ntfy": func(t *testing.T, body []byte) {
		var m struct{ Title, Message string }
		if err := json.Unmarshal(body, &m); err != nil || len(m.Message) > 4096 || len(m.Title) > 1024 || m.Message == "" {
			t.Errorf("%d bytes under a title of %d, %v", len(m.Message), len(m.Title), err)
		}
	},
	"alertmanager": func(*testing.T, []byte) {},
	"http":         func(*testing.T, []byte) {},
	"eventgrid": func(t *testing.T, body []byte) {
		if len(body) > 1<<20 {
			t.Errorf("%d bytes", len(body))
		}
	},
}

// Every channel that takes many alerts in one message is held to that contract, and to what its service takes.
func TestMany(t *testing.T) {
	for _, c := range channels {
		name := strings.TrimSuffix(c.schemes[0], "+http")
		if c.batch == 0 || name == "smtp" { // whose package has servers to run it with
			continue
		}
		t.Run(name, func(t *testing.T) {
			fits := sizes[name]
			if fits == nil {
				t.Fatal("nothing holds it to its size")
			}
			machine := name == "http" || name == "eventgrid" || name == "alertmanager"
			notifytest.RunMany(t, maxBatch, machine, func(t *testing.T, raw string) notify.Notifier {
				if name == "eventgrid" {
					raw = strings.Replace(raw, "://", "://:key@", 1)
				}
				if name != "http" {
					raw = name + "+" + raw
				}
				rs, err := Open([]string{raw + "/a/b"}, Options{Log: zap.NewNop(), Style: notify.Style{Page: "https://alerts.example.com/"}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(rs[0].Close)
				return rs[0].Notifier
			}, fits)
		})
	}
}
