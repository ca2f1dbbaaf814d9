package checkup

import (
	"strings"
	"testing"
	"time"

	"alertworker/internal/ledger"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
)

// Known devices are those of all rosters that were heard for the rule; silent ones have an alarm.
func TestSilences(t *testing.T) {
	store := &records.Memory{}
	for _, partition := range []string{"0", "1"} {
		r := roster.New([]roster.Column{{Rule: "offline"}, {Rule: "dead"}})
		for i, device := range []string{"a", "b", "c"} {
			r.Hear(r.Add(sensor.Of(device+partition)), i%2, roster.Heard{Sequence: int64(i), Time: 1})
		}
		r.Hear(r.Add(sensor.Of("d"+partition)), 0, roster.Heard{Sequence: 5, Time: 1, Quiet: roster.Excluded}) // not expected by offline
		if err := (&roster.File{Store: store, Name: "group/roster/" + partition}).Write(t.Context(), r.Encode(), roster.Expected{}); err != nil {
			t.Fatal(err)
		}
		l, _, err := ledger.Open(t.Context(), store, "group/ledger/"+partition)
		if err != nil {
			t.Fatal(err)
		}
		alarms := []ledger.Alarm{
			{Device: ledger.Text("a" + partition), Rule: "offline", Silence: true, Open: true, Since: time.Unix(1, 0)},
			{Device: ledger.Text("b" + partition), Rule: "offline", Open: true, Since: time.Unix(1, 0)},
		}
		if err := l.Write(t.Context(), ledger.Content{Alarms: alarms}); err != nil {
			t.Fatal(err)
		}
	}
	offline := rules.Rule{Name: "offline", Silent: time.Minute, Levels: []rules.Level{{}}}
	for rule, want := range map[string]string{
		"offline": "4 devices known in 2 partitions, 2 silent now", "dead": "2 devices known in 2 partitions, 0 silent now", "other": "no device is known yet",
	} {
		offline.Name = rule
		got, err := silence(t.Context(), store, "group", &offline)
		if outcomeOf(err) == open {
			got, err = err.Error(), nil
		}
		if err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, %v; want %s", rule, got, err, want)
		}
	}
}
