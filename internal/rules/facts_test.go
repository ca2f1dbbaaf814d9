package rules_test

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

func TestFacts(t *testing.T) {
	set := rules.Set{
		Time: "takenAt",
		Rules: []rules.Rule{
			{
				Name: "hot", Field: "temperature", Window: time.Minute, Resolved: true, Repeat: rules.Never, Unit: "°C", Title: "Hot",
				Valid: &telemetry.Range{From: -50, To: 150}, Only: []rules.Condition{{Name: "mode", Values: []string{"run", "test"}}},
				Levels: []rules.Level{{Name: "warning", Limit: 60, Clear: 55}, {Name: "critical", Limit: 80, Clear: 80, For: 5 * time.Minute}},
			},
			{Name: "cold", Below: true, Window: time.Minute, Levels: []rules.Level{{Limit: -5, Clear: -5, LimitAt: rules.Reference{Name: "setpoint", Plus: true}}}},
			{Name: "lost", Silent: time.Hour, Forget: 24 * time.Hour, Window: time.Minute, Levels: []rules.Level{{}}},
		},
		Mutes: rules.Mutes{{Rule: "hot", Property: "site", Value: "berlin"}},
	}
	want := map[string]string{
		"": "time: takenAt\nmute: rule hot, site=berlin <nil> 0001-01-01 00:00:00 +0000 UTC 0001-01-01 00:00:00 +0000 UTC",
		"hot": "field: temperature\nvalid: from: -50 to: 150\nonly: mode is run or test\nwindow: 1m\nrepeat: never\nresolved: true\nunit: °C\n" +
			"warning above: 60 °C\nwarning clear: 55 °C\ncritical above: 80 °C\ncritical for: 5m",
		"cold": "window: 1m\nbelow: setpoint - 5",
		"lost": "window: 1m\nsilent: 1h\nforget: 24h",
	}
	if got := set.Facts(); !maps.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// Whatever a rule decides by, rules that differ in it have different facts; and nothing else makes them differ.
func TestFactsHaveEveryKey(t *testing.T) {
	forPeople := map[string]bool{"Title": true, "Runbook": true, "Show": true}
	set := func() rules.Set {
		return rules.Set{Rules: []rules.Rule{{Name: "hot", Valid: &telemetry.Range{}, Levels: []rules.Level{{Limit: 1, Clear: 1}}}}}
	}
	plain := set()
	facts := plain.Facts()
	change := func(v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			v.SetString("other")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int64, reflect.Int:
			v.SetInt(7e9)
		case reflect.Float64:
			v.SetFloat(7)
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			v.Elem().Field(0).SetFloat(7)
		case reflect.Struct:
			v.Field(0).SetString("other")
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			if one := v.Index(0); one.Kind() == reflect.String {
				one.SetString("other")
			}
		default:
			t.Fatalf("change a %v too", v.Type())
		}
	}
	of := map[string]func(*rules.Set) reflect.Value{
		"set":   func(s *rules.Set) reflect.Value { return reflect.ValueOf(s).Elem() },
		"rule":  func(s *rules.Set) reflect.Value { return reflect.ValueOf(&s.Rules[0]).Elem() },
		"level": func(s *rules.Set) reflect.Value { return reflect.ValueOf(&s.Rules[0].Levels[0]).Elem() },
	}
	for name, part := range of {
		for i := range part(&plain).NumField() {
			key := part(&plain).Type().Field(i).Name
			if key == "Rules" || key == "Levels" {
				continue
			}
			other := set()
			change(part(&other).Field(i))
			if same := maps.Equal(other.Facts(), facts); same != forPeople[key] {
				t.Errorf("%s of a %s: %q", key, name, other.Facts())
			}
		}
	}
	if again := set(); !maps.Equal(again.Facts(), facts) {
		t.Errorf("the same rules have other facts: %q", again.Facts())
	}
}
