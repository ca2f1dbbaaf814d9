package partition

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
)

// Who asks about a device by a name in another case is told its name.
func TestDescribeKnowsAnotherCase(t *testing.T) {
	set := rules.Threshold("temperature", 30, time.Minute)
	set.Rules[0].Resolved = true
	set.Rules = append(set.Rules, rules.Rule{Name: "offline", Field: "humidity", Silent: time.Hour, Forget: rules.DefaultForget, Levels: []rules.Level{{}}})
	s := benchRules(t, set)
	defer func() { s.box.Close(); s.box.Wait() }()
	for i, sent := range [][2]string{{"oven-7", `{"temperature":95}`}, {"kiln", `{"humidity":1}`}, {"freezer", `{"humidity":1}`}, {"Freezer", `{"humidity":1}`}, {"pump", `;`}, {"Pump", `{"humidity":1}`}} {
		at := telemetry.Position{Sequence: int64(i), Offset: "x"}
		s.register.take([]telemetry.Event{{Position: at, Enqueued: time.Now(), Device: sent[0], Body: []byte(sent[1])}})
	}
	for asked, want := range map[string]string{"Oven-7": "oven-7", "oven-7": "", "oven-8": "", "KILN": "kiln", "kiln": "", "freezer": "", "Freezer": "", "pump": ""} {
		var d DeviceState
		if s.Describe(sensor.Of(asked), &d); d.Similar != want {
			t.Errorf("%s: did you mean %q?", asked, d.Similar)
		}
	}
}

// Whatever a device sends, people can ask about it, and hear whether its last message could be read.
func TestDescribe(t *testing.T) {
	set := rules.Threshold("temperature", 30, time.Minute)
	set.Rules = append(set.Rules,
		rules.Rule{Name: "warm", Field: "temperature", Per: "site", Window: time.Minute, Levels: []rules.Level{{Limit: 20, Clear: 20}}},
		rules.Rule{Name: "own", Field: "temperature", Per: "line", Window: time.Minute, Levels: []rules.Level{{Limit: 90, Clear: 90, LimitAt: rules.Reference{Name: "max"}}}},
	)
	rapid.Check(t, func(rt *rapid.T) {
		s := benchRules(t, set)
		defer func() { s.box.Close(); s.box.Wait() }()
		for i := range rapid.IntRange(1, 8).Draw(rt, "events") {
			body := rapid.SampledFrom([]string{`{"temperature":10}`, `{"temperature":25}`, `{"temperature":95}`, `{"temperature":10,"temperature":"?"}`, `{"humidity":1}`, `{`}).Draw(rt, "body")
			has := rapid.SampledFrom([]map[string]any{{}, {"site": "berlin"}, {"line": "4"}, {"site": "4", "line": "4", "max": int32(20)}}).Draw(rt, "properties")
			e := telemetry.Event{Position: telemetry.Position{Sequence: int64(i), Offset: "x"}, Enqueued: time.Now(), Device: "oven", Body: []byte(body), Properties: telemetrytest.Properties(has)}
			s.register.take([]telemetry.Event{e})
			var d DeviceState
			s.Describe(sensor.Of("oven"), &d)
			s.Describe(sensor.Of("kiln"), &d)
			if isUnreadable := body == `{` || body == `{"humidity":1}`; isUnreadable != (d.Unreadable != nil) {
				rt.Fatalf("after %s with %v: %+v", body, has, d.Unreadable)
			}
		}
	})
}
