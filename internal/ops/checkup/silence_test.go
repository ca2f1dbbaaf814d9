package checkup

import (
	"testing"
	"time"

	"alertworker/internal/ledger"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
)

// Known devices are those of all rosters that were heard for the rule; silent ones have an alarm at its mildest level.
func TestSilences(t *testing.T) {
	store := &records.Memory{}
	for _, partition := range []string{"0", "1"} {
		r := roster.New([]string{"", "temp"})
		for i, device := range []string{"a", "b", "c"} {
			r.Hear(r.Add(device+partition), i%2, roster.Heard{Sequence: int64(i), Time: 1})
		}
		if err := (&roster.File{Store: store, Name: "group/roster/" + partition}).Write(t.Context(), r.Encode()); err != nil {
			t.Fatal(err)
		}
		l, _, err := ledger.Open(t.Context(), store, "group/ledger/"+partition)
		if err != nil {
			t.Fatal(err)
		}
		var alarms []ledger.Alarm
		for _, level := range []string{"warning", "critical"} {
			alarms = append(alarms, ledger.Alarm{Device: "a" + partition, Rule: "offline", Level: level, Silence: true, Open: true, Since: time.Unix(1, 0)})
		}
		alarms = append(alarms, ledger.Alarm{Device: "b" + partition, Rule: "offline", Level: "warning", Open: true, Since: time.Unix(1, 0)})
		if err := l.Write(t.Context(), ledger.Content{Alarms: alarms}); err != nil {
			t.Fatal(err)
		}
	}
	offline := rules.Rule{Name: "offline", Levels: []rules.Level{{Name: "warning", Silent: time.Minute}, {Name: "critical", Silent: time.Hour}}}
	for field, want := range map[string][3]int{"": {4, 2, 2}, "temp": {2, 2, 2}, "other": {0, 2, 0}} {
		offline.Field = field
		known, silent, partitions, err := silences(t.Context(), store, "group", &offline)
		if got := [3]int{known, silent, partitions}; got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", field, got, err, want)
		}
	}
}
