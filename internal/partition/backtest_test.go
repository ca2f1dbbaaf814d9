package partition_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

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
