package partition

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// Who has no partition, such as the HTTP trigger, takes each event as if no rule had state: a Message says what of it alerts,
// and which sensors it is of.
func TestMessageWithoutAPartition(t *testing.T) {
	set := rules.Threshold("t", 30, time.Minute)
	r := &set.Rules[0]
	r.Each, r.Sensor, r.Resolved = "r", []string{"s"}, true
	r.Levels[0].For = time.Hour
	r.Only = []rules.Condition{{Name: "mode", Values: []string{"run"}}}
	set.Show = []string{"mode"}
	ev := benchRules(t, set).config.Evaluator
	counters := ev.book.Counters
	m := ev.NewMessage()
	for _, tt := range []struct {
		body    string
		reason  telemetry.Reason
		reaches bool
		alerts  []string
		sensors []string
		over    int64 // events that reach a limit, so far
	}{
		{`{"mode":"run","r":[{"s":"a","t":91},{"s":"b","t":20},{"s":"c"},{"t":5}]}`, telemetry.ReasonOK, true, []string{"a 91 of oven / a"}, []string{"a", "b"}, 1},
		{`{"mode":"run","r":[{"s":"a","t":21},{"s":"b","t":20}]}`, telemetry.ReasonOK, false, nil, []string{"a", "b"}, 1},
		{`{"mode":"run","r":[{"t":92}]}`, telemetry.ReasonOK, true, []string{" 92 of oven"}, nil, 2},
		{`{"mode":"stop","r":[{"s":"a","t":91}]}`, telemetry.ReasonOK, false, nil, nil, 2},
		{`{"mode":"run","r":[]}`, telemetry.ReasonMissing, false, nil, nil, 2},
	} {
		e := exactEvent(1, "oven", "0")
		e.Body = []byte(tt.body)
		before := counters.Events[tt.reason].Load()
		if reason, reaches := m.Read(&e); reason != tt.reason || reaches != tt.reaches || counters.Events[reason].Load() != before+1 {
			t.Errorf("%s: %v, and reaches a limit: %v", tt.body, reason, reaches)
		}
		alerts, over := m.Alerts()
		if over != tt.reaches || counters.Over.Load() != tt.over {
			t.Errorf("%s: over %v, counted %d", tt.body, over, counters.Over.Load())
		}
		var got []string
		for i := range alerts {
			a := &alerts[i]
			got = append(got, fmt.Sprintf("%s %v of %s", a.Sensor, a.Reading.Value, a.Key.About))
			if more := a.More(); more == nil || more.Shown == "" || more.Of != (sensor.ID{}) || more.Arrival != nil {
				t.Errorf("%s: %+v", tt.body, more)
			}
			a.Arrival = &delivery.Arrival{ID: "x"}
			if a.More().Arrival != a.Arrival {
				t.Errorf("%s: it does not say when it came", tt.body)
			}
		}
		if !slices.Equal(got, tt.alerts) {
			t.Errorf("%s: alerts are %q, want %q", tt.body, got, tt.alerts)
		}
		sensors := m.Sensors()
		for _, v := range sensors {
			if v != telemetry.VerdictNormal {
				t.Errorf("%s: %v", tt.body, v)
			}
		}
		if got := slices.Sorted(maps.Keys(sensors)); !slices.Equal(got, tt.sensors) {
			t.Errorf("%s: sensors are %q, want %q", tt.body, got, tt.sensors)
		}
	}
}

// In a ledger of version 1.0 nothing says that a milder level was held back by a higher one: when that ends, the milder one
// alerts all the same.
func TestMilderLevelOfAnOldLedger(t *testing.T) {
	r := newExactReader(exactEvaluator(t), func(telemetry.Position, telemetry.Position) {})
	for _, level := range []string{"warning", "critical"} {
		since := exactPosition(1).Time
		r.register.restore(ledger.Alarm{Device: "oven", Rule: "temperature", Level: level, Open: true, Since: since, Value: 90, Limit: 30, Measured: r.register.evaluator.levels[0].id.measured}, false)
	}
	r.register.take([]telemetry.Event{exactEvent(2, "oven", "27")})
	if want := []string{"000002 oven warning"}; !slices.Equal(r.out.alerts, want) {
		t.Errorf("alerts are %q, want %q", r.out.alerts, want)
	}
}

// Sources of alerts tell levels apart, and what they share.
func TestSuffix(t *testing.T) {
	for want, of := range map[string][3]string{
		"":                      {rules.DefaultName, "", ""},
		"/temperature/hot":      {rules.DefaultName, "hot", ""},
		"/temperature/by-a%2Fb": {rules.DefaultName, "", "a/b"},
		"/door":                 {"door", "", ""},
		"/door/open/by-site":    {"door", "open", "site"},
	} {
		if got := suffix(&rules.Rule{Name: of[0], Per: of[2]}, of[1]); got != want {
			t.Errorf("of %q it is %q, want %q", of, got, want)
		}
	}
}

// The keys of a device's notices are those of its own topics, in the order of the levels.
func TestKeysOfADevice(t *testing.T) {
	ev := exactEvaluator(t)
	keys := ev.Keys("oven")
	for i, l := range ev.levels {
		if want := (delivery.Key{About: sensor.Of("oven"), Topic: l.own}); keys[i] != want {
			t.Errorf("%+v, want %+v", keys[i], want)
		}
	}
}

// A flagged is told of alerts, and what they say of their alarm.
type flagged struct {
	unsent
	flags []string
}

func (f *flagged) Alert(a *delivery.Alert) {
	f.flags = append(f.flags, fmt.Sprint(a.Reading.Sequence, " ", a.Key.Topic.Message.Level, " opens ", a.Opens, " reminder ", a.Reminder, " lingers ", a.Lingers))
}

// An alert is a reminder if somebody was told in the same alarm, and lingers if it is short of the limit of one that is sent
// again.
func TestWhatAnAlertSaysOfItsAlarm(t *testing.T) {
	levels := []rules.Level{{Name: "warning", Limit: 30, Clear: 25}, {Name: "critical", Limit: 80, Clear: 75}}
	for name, tt := range map[string]struct {
		change func(*rules.Rule)
		want   []string
	}{
		"with recoveries": {func(r *rules.Rule) { r.Resolved = true }, []string{
			"1 warning opens true reminder false lingers false",
			"2 critical opens true reminder false lingers false",
			"3 critical opens false reminder true lingers false",
			"4 warning opens false reminder false lingers false", // it was held back
			"5 warning opens false reminder true lingers false",
		}},
		"sent again": {func(r *rules.Rule) { r.Repeat = time.Hour }, []string{
			"1 warning opens true reminder false lingers false",
			"2 critical opens true reminder false lingers false",
			"3 critical opens false reminder true lingers false",
			"4 warning opens false reminder false lingers false",
			"5 warning opens false reminder true lingers false",
			"6 warning opens false reminder true lingers true",
		}},
		"without state": {func(r *rules.Rule) { r.Levels[0].Clear, r.Levels[1].Clear = 30, 80 }, []string{
			"1 warning opens false reminder false lingers false",
			"2 critical opens false reminder false lingers false",
			"3 critical opens false reminder false lingers false",
			"5 warning opens false reminder false lingers false",
		}},
	} {
		set := rules.Threshold("temperature", 30, time.Minute)
		set.Rules[0].Levels = slices.Clone(levels)
		tt.change(&set.Rules[0])
		s := benchRules(t, set)
		reg := newRegister(s.config.Evaluator, "0", "log", 20)
		reg.watch(nil, s.log)
		to := &flagged{}
		reg.out = to
		for i, value := range []string{"40", "90", "91", "27", "41", "28", "20"} {
			reg.take([]telemetry.Event{exactEvent(int64(i+1), "oven", value)})
		}
		if !slices.Equal(to.flags, tt.want) {
			t.Errorf("%s: %q, want %q", name, to.flags, tt.want)
		}
	}
}
