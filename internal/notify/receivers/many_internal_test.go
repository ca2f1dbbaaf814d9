package receivers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf16"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/wording"
)

func unlimited(*testing.T, []byte) {}

func fitsSlack(t *testing.T, body []byte) {
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
}

func fitsNtfy(t *testing.T, body []byte) {
	var m struct{ Title, Message string }
	if err := json.Unmarshal(body, &m); err != nil || len(m.Message) > 4096 || len(m.Title) > 1024 || m.Message == "" {
		t.Errorf("%d bytes under a title of %d, %v", len(m.Message), len(m.Title), err)
	}
}

// within returns what fails a message of more than so many bytes.
func within(bytes int) func(t *testing.T, body []byte) {
	return func(t *testing.T, body []byte) {
		if len(body) > bytes {
			t.Errorf("%d bytes", len(body))
		}
	}
}

// Every channel that takes many alerts in one message is held to that contract, and to what its service takes.
func TestMany(t *testing.T) {
	for _, c := range channels {
		name := strings.TrimSuffix(c.schemes[0], "+http")
		if c.single || name == "smtp" { // whose package has servers to run it with
			continue
		}
		t.Run(name, func(t *testing.T) {
			fits := services[name].fits
			if name == "http" {
				fits = unlimited
			}
			machine := name == "http" || name == "eventgrid" || name == "alertmanager"
			testMany(t, maxBatch, machine, func(t *testing.T, raw string) notify.Notifier {
				if name == "eventgrid" {
					raw = strings.Replace(raw, "://", "://:key@", 1)
				}
				if name != "http" {
					raw = name + "+" + raw
				}
				return start(t, raw+"/a/b", Options{Style: wording.Style{Page: "https://alerts.example.com/"}})
			}, fits)
		})
	}
}

// The receiver's answer settles every alert of a message: so it must name each device, or say how many more there are.
// Lines are as long as names and properties in Japanese, or in bytes that a service writes in more, make them.
func TestMessagesCountWhatTheyDoNotName(t *testing.T) {
	more := regexp.MustCompile(`(\d+) more: ([^"\\` + "`" + `]*)`)
	for _, c := range channels {
		scheme, overHTTP := strings.CutSuffix(c.schemes[0], "+http")
		if !c.people || !overHTTP {
			continue
		}
		for _, count := range []int{10, 40} {
			for _, rules := range []int{1, 3, 20} {
				for _, property := range []string{"東京第二工場・北棟・三階・恒温恒湿室", "<&>\"<&>\"<&>\"<&>\"<&>\"", "berlin"} {
					var alerts []notify.Alert
					for i := range count {
						a := notify.Alert{
							ID: fmt.Sprint("id", i), Device: fmt.Sprintf("oven-%02d-factory-tokyo-second-north-building", i),
							Rule: fmt.Sprint("rule-", i%rules), Temperature: 91.5, Threshold: 80,
						}
						for n := range 6 {
							a.Shown = a.Shown.With(fmt.Sprint("property-", n), property)
						}
						alerts = append(alerts, a)
					}
					body := strings.Replace(bodyOf(t, scheme, alerts), fmt.Sprintf("id0 and %d more", count-1), "", 1) // an id
					missing := 0
					for _, a := range alerts {
						if !strings.Contains(body, a.Device) {
							missing++
						}
					}
					counted := 0
					for _, found := range more.FindAllStringSubmatch(body, -1) {
						n, _ := strconv.Atoi(found[1])
						counted += n - strings.Count(found[2], "oven-")
					}
					if missing != counted {
						t.Errorf("%s: of %d devices under %d rules with %s %d are not named, and %d counted", scheme, count, rules, property, missing, counted)
					}
				}
			}
		}
	}
}

// bodyOf returns what a channel posts about alerts, decoded.
func bodyOf(t *testing.T, scheme string, alerts []notify.Alert) string {
	t.Helper()
	var body []byte
	s := &notifytest.Server{}
	s.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		io.WriteString(w, "ok")
	}))
	if err := start(t, scheme+"+"+s.URL+"/a", Options{}).Notify(t.Context(), alerts...); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// testMany holds a notifier that posts to a URL of several alerts in a message to the contract. open returns a new one. fits
// fails the test if a message is more than the service takes, also if it has most alerts. Where
// machine is true the receiver drops repeats, by the ids of all alerts, which are in the message.
func testMany(t *testing.T, most int, machine bool, open func(t *testing.T, url string) notify.Notifier, fits func(t *testing.T, body []byte)) {
	start := func(t *testing.T) (*notifytest.Server, notify.Notifier, func() []string) {
		var bodies atomic.Value
		bodies.Store([]string{})
		s := &notifytest.Server{}
		s.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies.Store(append(bodies.Load().([]string), string(body)))
			io.WriteString(w, "ok")
		}))
		return s, open(t, s.URL), func() []string { return bodies.Load().([]string) }
	}
	t.Run("NilMeansAllTaken", func(t *testing.T) {
		_, n, taken := start(t)
		for _, count := range []int{1, 2, 40} {
			before := len(taken())
			if err := n.Notify(t.Context(), notifytest.Many(count)...); err != nil {
				t.Fatalf("%d: %v", count, err)
			}
			if got := len(taken()) - before; got != 1 {
				t.Fatalf("%d alerts are %d messages", count, got)
			}
			body := taken()[before]
			fits(t, []byte(body))
			for _, a := range notifytest.Many(count) {
				if !strings.Contains(body, a.Device) || machine && !strings.Contains(body, a.ID) {
					t.Errorf("%d: %s is not there:\n%s", count, a.Device, body)
				}
			}
		}
	})
	t.Run("Size", func(t *testing.T) {
		for i, name := range []string{"\u20ac", "<", "\"", "\U0001F525", "\"", "<"} {
			_, n, taken := start(t)
			rules := []int{1, 40}[i%2]
			alerts := notifytest.Many(most)
			for i := range alerts {
				alerts[i].Level, alerts[i].Resolved = "", false
				alerts[i].Device = strings.Repeat(name, 128-3) + fmt.Sprint(100+i)
				alerts[i].Rule = fmt.Sprint("rule-", i%rules)
				for range notify.MaxShown {
					alerts[i].Shown = alerts[i].Shown.With(strings.Repeat("n", 32), strings.Repeat(name, 128))
				}
			}
			if err := n.Notify(t.Context(), alerts...); err != nil {
				t.Fatal(err)
			}
			fits(t, []byte(taken()[0]))
		}
	})
	for _, tt := range []struct {
		name string
		b    notifytest.Behaviour
		want notify.Error
	}{
		{"422", notifytest.Status(http.StatusUnprocessableEntity), notify.Error{Untaken: true, Status: 422}},
		{"429", notifytest.Status(http.StatusTooManyRequests, "Retry-After", "7"), notify.Error{Untaken: true, Limited: true, RetryAfter: 7 * time.Second, Status: 429}},
		{"503", notifytest.Status(http.StatusServiceUnavailable, "Retry-After", "7"), notify.Error{Limited: true, RetryAfter: 7 * time.Second, Status: 503}},
		{"500", notifytest.Status(http.StatusInternalServerError), notify.Error{Status: 500}},
		{"Reset", notifytest.Reset, notify.Error{}},
		{"TakeThenReset", notifytest.TakeThen(notifytest.Reset), notify.Error{}},
	} {
		t.Run("Fails/"+tt.name, func(t *testing.T) {
			s, n, _ := start(t)
			s.Behave(tt.b)
			err := n.Notify(t.Context(), notifytest.Many(3)...)
			if err == nil {
				t.Fatal("Notify returned nil")
			}
			got := *asError(t, err)
			got.Err, got.Refused = nil, false // which is the channel's to say
			if got != tt.want {
				t.Errorf("got %+v, want %+v: %v", got, tt.want, err)
			}
		})
	}
	t.Run("ContextOver", func(t *testing.T) {
		_, n, taken := start(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the reason")
		cancel(why)
		if err := n.Notify(ctx, notifytest.Many(3)...); !errors.Is(err, why) || !asError(t, err).Untaken || len(taken()) > 0 {
			t.Errorf("%v, %d taken", err, len(taken()))
		}
	})
}
