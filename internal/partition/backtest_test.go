package partition_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"alertworker/internal/notify"
	partitions "alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
)

// A sensor is told as silent once its device is heard without it, by each rule, however long the recording had nothing.
func TestBacktestOfASensorWhoseDeviceWasSilent(t *testing.T) {
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	silent := func(name string, limit time.Duration) rules.Rule {
		return rules.Rule{
			Name: name, Silent: limit, Forget: 10 * limit, Window: time.Minute, Resolved: true, Sensor: []string{"s"},
			Levels: []rules.Level{{}},
		}
	}
	var got, alarms []string
	b, err := partitions.NewBacktest(
		rules.Set{Rules: []rules.Rule{silent("short", 5*time.Minute), silent("long", time.Hour)}},
		[]partitions.Receiver{{}},
		partitions.Observer{
			Notice: func(n partitions.BacktestNotice) {
				if n.Rule == "long" && n.Sensor == "A" {
					got = append(got, fmt.Sprint(n.At.Sub(start).Round(time.Minute), n.Recovery))
				}
			},
			Alarm: func(a partitions.BacktestAlarm) {
				if a.Rule == "long" && a.Sensor == "A" {
					alarms = append(alarms, fmt.Sprint(a.At.Sub(start).Round(time.Minute), a.Open, a.Since.Sub(start)))
				}
			},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	sequence := int64(0)
	hear := func(after time.Duration, sensor string) {
		at := start.Add(after)
		sequence++
		b.Take("0", []telemetry.Event{{
			Position:   telemetry.Position{Generation: "g", Sequence: sequence, Offset: fmt.Sprint(sequence), Time: at},
			Device:     "d",
			Enqueued:   at,
			Body:       fmt.Appendf(nil, `{"s":%q}`, sensor),
			Properties: telemetrytest.Properties(map[string]any{}),
		}})
	}
	hear(0, "A")
	for minute := range 51 {
		hear(time.Duration(minute)*time.Minute, "B")
	}
	hear(62*time.Minute, "B")
	hear(65*time.Minute, "A")
	b.Finish()
	if want := []string{"1h2m0s false", "1h5m0s true"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if want := []string{"1h2m0s true 0s", "1h5m0s false 0s"}; !slices.Equal(alarms, want) {
		t.Errorf("the alarms are %q, want %q", alarms, want)
	}
}

// A Backtest says when each receiver gets what, and when alarms open and clear, each at its minute. Incidents have numbers.
func TestWhatABacktestSays(t *testing.T) {
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	hot := rules.Rule{Name: "hot", Field: "t", Window: 10 * time.Minute, Resolved: true, Levels: []rules.Level{{Limit: 30, Clear: 25}}}
	levels, bySite, repeated := hot, hot, hot
	repeated.Repeat = 30 * time.Minute
	levels.Levels = []rules.Level{{Name: "warning", Limit: 30, Clear: 25}, {Name: "critical", Limit: 80, Clear: 75}}
	bySite.Per = "site"
	silent := rules.Rule{Name: "offline", Silent: 5 * time.Minute, Forget: time.Hour, Window: 10 * time.Minute, Resolved: true, Levels: []rules.Level{{}}}
	silentBySite := silent
	silentBySite.Per = "site"
	untold := silentBySite
	untold.Resolved = false
	for _, tt := range []struct {
		name    string
		rule    rules.Rule
		also    []rules.Rule
		mutes   rules.Mutes
		filters []notify.Filters // of receivers
		events  string           // the minute, the partition, the device, and what it says
		want    []string
	}{
		{
			"a recovery waits for the window", hot, nil, nil, nil, "0 0 oven 40, 1 1 kiln 40, 2 0 oven 20, 12 1 kiln 20, 30 0 oven 20",
			[]string{"0 oven opens", "0 oven alert 40 to 0", "1 kiln opens", "1 kiln alert 40 to 0", "2 oven clears", "10 oven recovery 20 to 0", "12 kiln clears", "12 kiln recovery 20 to 0"},
		},
		{
			"what waits at the end comes, too", hot, nil, nil, nil, "0 0 oven 40, 1 1 kiln 40, 2 0 oven 20, 3 1 kiln 20",
			[]string{"0 oven opens", "0 oven alert 40 to 0", "1 kiln opens", "1 kiln alert 40 to 0", "2 oven clears", "3 kiln clears", "10 oven recovery 20 to 0", "11 kiln recovery 20 to 0"},
		},
		{
			"hot again before the recovery", hot, nil, nil, nil, "0 0 oven 40, 2 0 oven 20, 4 0 oven 40, 30 0 oven 20",
			[]string{"0 oven opens", "0 oven alert 40 to 0", "2 oven clears", "4 oven opens", "30 oven clears", "30 oven recovery 20 to 0"},
		},
		{
			"a reading of the time at which a recovery is due comes first", hot, nil, nil, nil, "0 0 oven 40, 2 0 oven 20, 10 0 oven 40, 30 0 oven 20",
			[]string{"0 oven opens", "0 oven alert 40 to 0", "2 oven clears", "10 oven opens", "10 oven alert 40 to 0", "30 oven clears", "30 oven recovery 20 to 0"},
		},
		{
			"of what is due at the same time the first comes first", hot, nil, nil, nil, "0 0 a 40, 0 0 b 40, 0 0 c 40, 0 0 d 40, 1 0 d 20, 2 0 b 20, 3 0 a 20, 4 0 c 20",
			[]string{
				"0 a opens", "0 a alert 40 to 0", "0 b opens", "0 b alert 40 to 0", "0 c opens", "0 c alert 40 to 0", "0 d opens", "0 d alert 40 to 0", "1 d clears", "2 b clears", "3 a clears", "4 c clears",
				"10 d recovery 20 to 0", "10 b recovery 20 to 0", "10 a recovery 20 to 0", "10 c recovery 20 to 0",
			},
		},
		{
			"an alarm that is sent again later", repeated, nil, nil, nil, "0 0 oven 40, 15 0 oven 40, 35 0 oven 40",
			[]string{"0 oven opens", "0 oven alert 40 to 0", "35 oven alert 40 to 0"},
		},
		{
			"receivers of two levels", levels, nil, nil, []notify.Filters{{{Levels: []string{"warning"}}}, {{Levels: []string{"critical"}}}}, "0 0 oven 40, 1 0 oven 90, 30 0 oven 20",
			[]string{"0 oven opens warning", "0 oven alert 40 warning to 0", "1 oven opens critical", "1 oven alert 90 critical to 1", "30 oven clears critical", "30 oven clears warning", "30 oven recovery 20 critical to 1", "30 oven recovery 20 warning to 0"},
		},
		{
			"muted", hot, nil, rules.Mutes{{Device: "oven", From: start, Until: start.Add(time.Hour)}}, nil, "0 0 oven 40, 1 0 kiln 40",
			[]string{"0 oven opens", "1 kiln opens", "1 kiln alert 40 to 0"},
		},
		{
			"an incident", bySite, nil, nil, nil, "0 0 oven@rome 40, 1 1 kiln@rome 40, 12 0 oven@rome 20, 13 1 kiln@rome 20, 14 1 kiln@rome 40, 40 1 kiln@rome 20",
			[]string{
				"0 oven opens", "0 rome 1: oven alert 40 to 0", "1 kiln opens", "12 oven clears", "13 kiln clears", "13 rome 1: kiln recovery 20 to 0",
				"14 kiln opens", "14 rome 2: kiln alert 40 to 0", "40 kiln clears", "40 rome 2: kiln recovery 20 to 0",
			},
		},
		{
			"silence", silent, nil, nil, nil, "0 0 oven 20, 0 0 kiln 20, 2 1 stove 20, 4 1 stove 20, 6 1 stove 20, 8 0 oven 20, 9 1 stove 20",
			[]string{"5 oven opens", "5 kiln opens", "5 oven alert 0 to 0", "5 kiln alert 0 to 0", "8 oven clears", "15 oven recovery 0 to 0"},
		},
		{
			"an incident of silences", silentBySite, nil, nil, nil, "0 0 oven@rome 20, 0 0 kiln@rome 20, 2 1 stove 20, 4 1 stove 20, 6 1 stove 20, 8 0 oven@rome 20, 9 0 kiln@rome 20",
			[]string{"5 oven opens", "5 kiln opens", "5 rome 1: oven alert 0 to 0", "8 oven clears", "9 kiln clears", "15 rome 1: kiln recovery 0 to 0"},
		},
		{
			"another incident waits for the window", untold, nil, nil, nil, "0 0 oven@rome 20, 2 1 a 20, 6 1 a 20, 8 0 oven@rome 20, 12 1 a 20, 14 1 a 20, 18 1 a 20, 20 1 a 20",
			[]string{"6 oven opens", "6 rome 1: oven alert 0 to 0", "8 oven clears", "13 oven opens", "16 rome 2: oven alert 0 to 0"},
		},
		{
			"nothing proves at the end of the window that it lasts", untold, nil, nil, nil, "0 0 oven@rome 20, 2 1 a 20, 6 1 a 20, 8 0 oven@rome 20, 12 1 a 20, 14 1 a 20",
			[]string{"6 oven opens", "6 rome 1: oven alert 0 to 0", "8 oven clears", "13 oven opens"},
		},
		{
			"the end proves a silence", silentBySite, nil, nil, nil, "0 0 oven@rome 20, 3 1 a 20, 5.05 1 a 20",
			[]string{"5 oven opens", "5 rome 1: oven alert 0 to 0"},
		},
		{
			"what is left at the end comes in its order", untold, []rules.Rule{hot}, nil, nil,
			"0 0 oven@rome 20, 2 1 a 20, 6 1 a 20, 8 0 oven@rome 20, 10 1 b 40, 11 1 c 40, 12 1 c 20, 13 1 b 20, 14 1 a 20",
			[]string{
				"6 oven opens", "6 rome 1: oven alert 0 to 0", "8 oven clears", "10 b opens", "10 b alert 40 to 0", "11 c opens", "11 c alert 40 to 0",
				"12 c clears", "13 b clears", "13 oven opens", "20 b recovery 20 to 0", "21 c recovery 20 to 0",
			},
		},
	} {
		if tt.filters == nil {
			tt.filters = []notify.Filters{nil}
		}
		var to []partitions.Receiver
		for _, f := range tt.filters {
			to = append(to, partitions.Receiver{Filters: f})
		}
		var got, incidents []string
		say := func(at time.Time, words ...any) {
			got = append(got, strings.Join(strings.Fields(fmt.Sprintln(append([]any{int(at.Sub(start).Minutes())}, words...)...)), " "))
		}
		b, err := partitions.NewBacktest(rules.Set{Rules: append([]rules.Rule{tt.rule}, tt.also...)}, to, partitions.Observer{
			Mutes: tt.mutes,
			Notice: func(n partitions.BacktestNotice) {
				what, shared := "alert", ""
				if n.Recovery {
					what = "recovery"
				}
				if n.Shared {
					if !slices.Contains(incidents, n.Incident) {
						incidents = append(incidents, n.Incident)
					}
					shared = fmt.Sprintf("%s %d:", n.About.Device, slices.Index(incidents, n.Incident)+1)
				}
				if n.Enqueued.Before(start) || n.Enqueued.After(n.At) {
					t.Errorf("%s: a reading of %v is told at %v", tt.name, n.Enqueued, n.At)
				}
				say(n.At, shared, n.Device, what, n.Value, n.Level, "to", n.Receiver)
			},
			Alarm: func(a partitions.BacktestAlarm) {
				say(a.At, a.Device, map[bool]string{true: "opens", false: "clears"}[a.Open], a.Level)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, event := range strings.Split(tt.events, ", ") {
			var minute, value float64
			var id, device string
			if _, err := fmt.Sscan(event, &minute, &id, &device, &value); err != nil {
				t.Fatal(event, err)
			}
			device, site, _ := strings.Cut(device, "@")
			at := start.Add(time.Duration(minute * float64(time.Minute)))
			b.Take(id, []telemetry.Event{{
				Position:   telemetry.Position{Generation: "g", Sequence: int64(i + 1), Offset: fmt.Sprint(i + 1)},
				Device:     device,
				Enqueued:   at,
				Body:       fmt.Appendf(nil, `{"t":%v}`, value),
				Properties: telemetrytest.Properties(map[string]any{"site": site}),
			}})
		}
		b.Finish()
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: it says %q, want %q", tt.name, got, tt.want)
		}
	}
}
