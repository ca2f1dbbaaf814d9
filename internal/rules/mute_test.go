package rules_test

import (
	"testing"
	"time"

	"alertworker/internal/rules"
)

func TestMute(t *testing.T) {
	from := time.Date(2026, 3, 1, 14, 0, 0, 0, time.UTC)
	site := func(name string) string { return map[string]string{"site": "berlin"}[name] }
	for _, tt := range []struct {
		mute rules.Mute
		at   time.Duration
		want bool
	}{
		{rules.Mute{}, 0, true},
		{rules.Mute{}, -1, false},
		{rules.Mute{}, time.Hour - 1, true},
		{rules.Mute{}, time.Hour, false},
		{rules.Mute{Rule: "hot"}, 0, true},
		{rules.Mute{Rule: "cold"}, 0, false},
		{rules.Mute{Property: "site", Value: "berlin"}, 0, true},
		{rules.Mute{Property: "site", Value: "paris"}, 0, false},
		{rules.Mute{Property: "line", Value: "1"}, 0, false},
		{rules.Mute{Device: "oven-7", Rule: "hot", Property: "site", Value: "berlin"}, 0, true},
		{rules.Mute{Device: "oven-7", Rule: "hot", Property: "site", Value: "paris"}, 0, false},
		{rules.Mute{Device: "oven"}, 0, false},
		{rules.Mute{Device: "oven-*"}, 0, true},
		{rules.Mute{Device: "*-7"}, 0, true},
		{rules.Mute{Device: "*"}, 0, true},
		{rules.Mute{Device: "o*n*7"}, 0, true},
		{rules.Mute{Device: "oven-7*7"}, 0, false}, // one character is not two
		{rules.Mute{Device: "*n*v*"}, 0, false},
		{rules.Mute{Device: "OVEN-*"}, 0, false},
	} {
		tt.mute.From, tt.mute.Until = from, from.Add(time.Hour)
		if got := tt.mute.Matches("oven-7", "hot", from.Add(tt.at), site); got != tt.want {
			t.Errorf("%+v matches at %v: %t", tt.mute, tt.at, got)
		}
	}
}
