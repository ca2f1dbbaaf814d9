package partition

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/roster"
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
	for i, sent := range [][2]string{{"oven-7", `{"temperature":95}`}, {"kiln", `{"humidity":1}`}, {"freezer", `{"humidity":1}`}, {"Freezer", `{"humidity":1}`}, {"pump", `;`}, {"Pump", `{"humidity":1}`}, {"valve", `{"temperature":95,"humidity":1}`}, {"Valve", `{"humidity":1}`}} {
		at := telemetry.Position{Sequence: int64(i), Offset: "x"}
		s.register.take([]telemetry.Event{{Position: at, Enqueued: time.Now(), Device: sent[0], Body: []byte(sent[1])}})
	}
	for asked, want := range map[string]string{"Oven-7": "oven-7", "oven-7": "", "oven-8": "", "KILN": "kiln", "kiln": "", "freezer": "", "Freezer": "", "pump": "", "valve": ""} {
		var d DeviceState
		if s.Describe(sensor.Of(asked), &d); d.Similar != want {
			t.Errorf("%s: did you mean %q?", asked, d.Similar)
		}
	}
}

// A device was heard by a rule about silence as the roster says, and by none of another kind that has come to have its name.
func TestHeardByARuleAboutSilence(t *testing.T) {
	columns := []roster.Column{{Rule: "offline", Limit: time.Hour}, {Rule: "probe", Limit: time.Hour}, {Rule: "hot", Limit: time.Hour}}
	r := roster.New(columns)
	oven := sensor.Of("oven")
	number := r.Add(oven)
	at := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	for _, column := range []int{0, 2} {
		r.Hear(number, column, roster.Heard{Sequence: 1, Time: at.UnixMilli()})
	}
	set := rules.Threshold("temperature", 30, time.Minute)
	set.Rules[0].Name = "hot"
	for _, name := range []string{"offline", "probe"} {
		set.Rules = append(set.Rules, rules.Rule{Name: name, Silent: time.Hour, Levels: []rules.Level{{}}})
	}
	want := []HeardState{{Partition: "7", Rule: "offline", At: at, Deadline: at.Add(time.Hour)}}
	if got := HeardIn(r, "7", oven, &set); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
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
