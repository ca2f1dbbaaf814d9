package checkup_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/ops/checkup"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
)

// What becomes of a test's reading is said.
func TestFollow(t *testing.T) {
	for name, test := range map[string]struct {
		send   func(gate *throttle.Gate, body string) (string, error)
		passed bool
		want   []string
	}{
		"all well": {func(gate *throttle.Gate, body string) (string, error) {
			go work(gate, body, throttle.Taken)
			return "taken", nil
		}, true, []string{"✓ sent", "claimed by w1 after", "accepted after 2.", "✓ recovery", "accepted after 6"}},
		"a window is over between two looks": {func(gate *throttle.Gate, body string) (string, error) {
			time.Sleep(100 * time.Millisecond) // they are every 200
			go work(gate, body, throttle.Taken)
			return "taken", nil
		}, true, []string{"✓ sent", "claimed by w1 after", "accepted after 2.", "✓ recovery", "accepted after"}},
		"over HTTP": {func(gate *throttle.Gate, body string) (string, error) {
			work(gate, body, throttle.Taken)
			return "alerted", nil
		}, true, []string{"✓ sent", "accepted after 2."}},
		"nobody reads": {func(*throttle.Gate, string) (string, error) { return "taken", nil }, false, []string{"✓ sent", "✗ r", "no worker has claimed it within 50 s"}},
		"refused": {func(gate *throttle.Gate, body string) (string, error) {
			go work(gate, body, throttle.NotTaken)
			return "taken", nil
		}, false, []string{"✗ r", "claimed by w1", "not accepted within 50 s"}},
		"not sent": {func(*throttle.Gate, string) (string, error) { return "", errors.New("no right to send") }, false, []string{"✗ sent", "no right to send"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rule := rules.Rule{Name: "hot", Field: "machine.temp, temp", Levels: []rules.Level{{Limit: 80, Clear: 75}}, Window: time.Minute, Resolved: true}
				if strings.Contains(name, "between two looks") {
					rule.Window = time.Millisecond
				}
				gate := throttle.New(throttle.Config{Store: memlease.New(), Scope: "s", Receiver: "r", Rule: "hot", Replica: "w1", Window: rule.Window, SendTimeout: 10 * time.Second})
				var out bytes.Buffer
				rule.Resolved = name != "over HTTP"
				c := checkup.Test{
					Device: "d", Rule: rule, Gates: []checkup.Gate{{Name: "r", Gate: gate}}, Timeout: 10 * time.Second,
					Send: func(_ context.Context, body []byte) (string, error) { return test.send(gate, string(body)) },
				}
				if got := c.Run(t.Context(), &out); got != test.passed {
					t.Errorf("passed %t", got)
				}
				for _, want := range test.want {
					if !strings.Contains(out.String(), want) {
						t.Errorf("it does not say %q:\n%s", want, out.String())
					}
				}
				time.Sleep(time.Hour) // until nothing runs any more
			})
		})
	}
}

// work is a worker that reads a body.
func work(gate *throttle.Gate, body string, answer throttle.Answer) {
	r := throttle.Request{Device: "d", ID: "1", Enqueued: time.Now(), Log: "l", Sequence: 1}
	switch body {
	case `{"machine":{"temp":80}}`:
	case `{"machine":{"temp":74}}`:
		r.ID, r.Sequence, r.Recovery = "1/resolved", 2, true
	default:
		panic(body)
	}
	for {
		time.Sleep(time.Second)
		result, err := throttletest.Do(context.Background(), gate, r, func(context.Context, throttle.Grant) throttle.Answer {
			time.Sleep(time.Second)
			return answer
		})
		if err == nil && result.Outcome != throttle.Busy {
			return
		}
	}
}

// What a test calls normal is so to the rule, or nothing is sent.
func TestNormalReadingIsValid(t *testing.T) {
	for name, test := range map[string]struct {
		rule rules.Rule
		want string
	}{
		"a narrow range":  {rules.Rule{Valid: &telemetry.Range{From: 0, To: 1}, Levels: []rules.Level{{Limit: 0.5, Clear: 0.5}}}, `{"leak":0}`},
		"a wide range":    {rules.Rule{Valid: &telemetry.Range{From: -60, To: 60}, Levels: []rules.Level{{Limit: 8, Clear: 6}}}, `{"leak":5}`},
		"below":           {rules.Rule{Below: true, Valid: &telemetry.Range{From: -1, To: 3}, Levels: []rules.Level{{Limit: 2, Clear: 2.5}}}, `{"leak":3}`},
		"nothing is left": {rules.Rule{Valid: &telemetry.Range{From: 0, To: 1}, Levels: []rules.Level{{Limit: 0, Clear: 0}}}, ""},
		"words":           {rules.Rule{Is: []string{"open"}, Levels: []rules.Level{{Limit: 1, Clear: 1}}}, `{"leak":"normal again"}`},
	} {
		test.rule.Name, test.rule.Field = "leak", "leak"
		set := rules.Set{Rules: []rules.Rule{test.rule}}
		reader, err := set.Reader()
		if err != nil {
			t.Fatal(err)
		}
		got := checkup.Body(&test.rule, false)
		if string(got) != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if got == nil {
			continue
		}
		views, _ := reader.Read(&telemetry.Event{Device: "d", Body: got})
		if !views[0].Counts() || !test.rule.Cleared(views[0].Value, test.rule.Levels[0].Clear) {
			t.Errorf("%s: %s is not normal: %+v", name, got, views[0])
		}
	}
}

// The way of an alert is tried with a rule that a single reading opens, and not with one about silence.
func TestTestRule(t *testing.T) {
	silent := rules.Rule{Name: "offline", Silent: time.Hour, Levels: []rules.Level{{}}}
	slow := rules.Rule{Name: "slow", Field: "temp", Levels: []rules.Level{{Limit: 80, Clear: 80, For: time.Minute}}}
	hot := rules.Rule{Name: "hot", Field: "temp", Levels: []rules.Level{{Limit: 80, Clear: 80}}}
	if r, err := checkup.TestRule(rules.Set{Rules: []rules.Rule{silent, slow, hot}}); err != nil || r.Name != "hot" {
		t.Errorf("got %q, %v", r.Name, err)
	}
	if r, err := checkup.TestRule(rules.Set{Rules: []rules.Rule{silent, slow}}); err == nil {
		t.Errorf("got %q, want an error", r.Name)
	}
}
