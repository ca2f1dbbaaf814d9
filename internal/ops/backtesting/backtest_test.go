package backtesting_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/ops/backtesting"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

func candidate(name string, limit float64) *backtesting.Candidate {
	set := rules.Threshold("temperature", limit, 10*time.Minute)
	set.Rules[0].Resolved = true
	return &backtesting.Candidate{Name: name, Set: set, To: []partition.Receiver{{To: delivery.Receiver{Name: "hook"}}, {To: delivery.Receiver{Name: "pager"}}}}
}

// take takes a recording through candidates.
func take(t testing.TB, ctx context.Context, file string, candidates ...*backtesting.Candidate) *backtesting.Run {
	t.Helper()
	run, err := backtesting.Start(candidates, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	r, err := backtesting.Open(file, "temperature", backtesting.Names{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := run.Take(ctx, r); err != nil {
		t.Fatal(err)
	}
	run.Finish()
	return run
}

const day = `timestamp,device,value
2026-03-01 00:00:00,oven,85
2026-03-01 00:05:00,oven,86
2026-03-01 00:06:00,kiln,95
2026-03-01 00:12:00,oven,70
2026-03-01 00:16:00,kiln,95
2026-03-02 00:00:00,oven,91
2026-03-02 00:01:00,lamp,none
`

func TestReport(t *testing.T) {
	run := take(t, t.Context(), write(t, "day.csv", day), candidate("in force", 90), candidate("lower", 80), candidate("higher", 92))
	var text, json strings.Builder
	if err := run.Print(&text, backtesting.Skipped{Empty: 1}); err != nil {
		t.Fatal(err)
	}
	const want = `7 events, 2026-03-01 00:00 to 2026-03-02 00:01 UTC (24 h 1 min)
lines: 1 empty, 0 not readable, 0 out of order, taken at the time of the line before

          alarms  incidents  alerts  devices  alerts per day  most in a day  longest alarm
in force  2       0          3       2        3               2 2026-03-01   23 h 55 min kiln, still open
lower     3       0          4       2        4               3 2026-03-01   23 h 55 min kiln, still open
higher    1       0          2       1        2               2 2026-03-01   23 h 55 min kiln, still open

messages  alerts  recoveries
in force  3       0  to hook
in force  3       0  to pager
lower     4       1  to hook
lower     4       1  to pager
higher    2       0  to hook
higher    2       0  to pager

noisiest  device  alerts  alarms
in force  kiln    2       1
in force  oven    1       1
lower     oven    2       2
lower     kiln    2       1
higher    kiln    2       1

compared with  in force
lower          newly reported      none
lower          no longer reported  none
higher         newly reported      none
higher         no longer reported  oven

in force: 1 event without a reading: its reading is not a number
`
	if got := text.String(); got != want {
		t.Errorf("it prints\n%s\nwant\n%s", got, want)
	}
	if err := run.PrintJSON(&json, backtesting.Skipped{Empty: 1}); err != nil || !strings.Contains(json.String(), "\"noLongerReported\": [\n        \"oven\"\n      ]") {
		t.Errorf("%v: %s", err, json.String())
	}
}

// Alarms of a site are one incident: it alerts once, and ends once.
func TestIncidents(t *testing.T) {
	byDevice, bySite := candidate("by device", 80), candidate("by site", 80)
	bySite.Set.Rules[0].Per = "site"
	const day = `timestamp,device,site,value
2026-03-01 00:00:00,oven,berlin,85
2026-03-01 00:01:00,kiln,berlin,95
2026-03-01 00:02:00,stove,bonn,95
2026-03-01 00:12:00,oven,berlin,70
2026-03-01 00:16:00,kiln,berlin,75
2026-03-01 00:17:00,stove,bonn,60
2026-03-01 01:00:00,kiln,berlin,95
`
	run := take(t, t.Context(), write(t, "day.csv", day), byDevice, bySite)
	var text, json strings.Builder
	if err := run.Print(&text, backtesting.Skipped{}); err != nil {
		t.Fatal(err)
	}
	const want = `
           alarms  incidents  alerts  devices  alerts per day  most in a day  longest alarm
by device  4       0          4       3        4               4 2026-03-01   15 min kiln
by site    4       3          3       3        3               3 2026-03-01   15 min kiln

messages   alerts  recoveries
by device  4       3  to hook
by device  4       3  to pager
by site    3       2  to hook
by site    3       2  to pager
`
	if got := text.String(); !strings.Contains(got, want) {
		t.Errorf("it prints\n%s\nwant\n%s", got, want)
	}
	if err := run.PrintJSON(&json, backtesting.Skipped{}); err != nil || !strings.Contains(json.String(), `"incidents": 3,`) {
		t.Errorf("%v: %s", err, json.String())
	}
}

// A run that is stopped prints what is known.
func TestStopped(t *testing.T) {
	var b strings.Builder
	b.WriteString("timestamp,device,value\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "%s,oven,95\n", time.Unix(int64(1772323200+i), 0).UTC().Format(time.DateTime))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run, err := backtesting.Start([]*backtesting.Candidate{candidate("in force", 90)}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	r, err := backtesting.Open(write(t, "day.csv", b.String()), "temperature", backtesting.Names{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := run.Take(ctx, stops{r, cancel}); err != nil {
		t.Fatal(err)
	}
	run.Finish()
	var text strings.Builder
	if err := run.Print(&text, backtesting.Skipped{}); err != nil || !strings.Contains(text.String(), "512 events") || !strings.Contains(text.String(), "stopped: ") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// stops ends a run after its first part.
type stops struct {
	backtesting.Source
	stop func()
}

func (s stops) Next(ctx context.Context) (string, []telemetry.Event, error) {
	partition, events, err := s.Source.Next(ctx)
	s.stop()
	return partition, events, err
}

// BenchmarkBacktest takes readings of a thousand devices, of which one in twenty is hot, through one candidate: a month of
// 1.4 million must not take 15 s, in whatever form people have it.
func BenchmarkBacktest(b *testing.B) {
	const lines = 100_000
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, form := range []struct{ name, header, line string }{
		{"CSV", "timestamp,device,value\n", "%s,oven-%d,%.1f\n"},
		{"lines of JSON", "", `{"enqueuedTime":"%s","deviceId":"oven-%d","temperature":%.1f}` + "\n"},
		{"indented JSON", "", `{
  "event": {
    "origin": "oven",
    "payload": {
      "temperature": %[3]v
    },
    "annotations": {
      "iothub-enqueuedtime": "%[1]s",
      "iothub-connection-device-id": "oven-%[2]d"
    },
    "properties": {
      "application": {
        "site": "berlin"
      }
    }
  }
}
`},
	} {
		b.Run(form.name, func(b *testing.B) {
			var text strings.Builder
			text.WriteString(form.header)
			for i := range lines {
				at := start.Add(time.Duration(i) * 100 * time.Millisecond)
				fmt.Fprintf(&text, form.line, at.Format(time.DateTime), i%1000, 60+float64(i*7919%420)/20)
			}
			file := write(b, "readings", text.String())
			for b.Loop() {
				take(b, b.Context(), file, candidate("in force", 80))
			}
			b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "readings/s")
		})
	}
}

// Devices that fall silent are found while the recording goes on, whoever proves it; skipped lines are no lost messages.
func TestSilenceInARecording(t *testing.T) {
	set := rules.Threshold("temperature", 80, 10*time.Minute)
	set.Rules = append(set.Rules, rules.Rule{Name: "offline", Window: time.Hour, Resolved: true, Forget: rules.DefaultForget, Silent: 15 * time.Minute, Levels: []rules.Level{{}}})
	var notices []string
	c := &backtesting.Candidate{Name: "in force", Set: set, To: []partition.Receiver{{To: delivery.Receiver{Name: "hook"}}}, Notice: func(n partition.BacktestNotice) {
		notices = append(notices, fmt.Sprint(n.At.Format(time.TimeOnly), " ", n.Device, " ", n.Recovery))
	}}
	text := "timestamp,device,value\n"
	line := func(minute int, device string, value any) {
		text += fmt.Sprintf("2026-03-01 %02d:%02d:00,%s,%v\n", minute/60, minute%60, device, value)
	}
	for minute := range 200 {
		if minute%10 == 0 {
			line(minute, "", "") // an empty line
			line(minute, "oven", 70)
		}
		if minute%5 == 2 && (minute < 30 || minute > 70 && minute < 100) {
			line(minute, "kiln", 70)
		}
	}
	run := take(t, t.Context(), write(t, "day.csv", text), c)
	if want := "[00:42:05 kiln false 01:42:05 kiln true 01:52:05 kiln false]"; fmt.Sprint(notices) != want {
		t.Errorf("%v, want %s", notices, want)
	}
	var out strings.Builder
	if err := run.Print(&out, backtesting.Skipped{}); err != nil || !strings.Contains(out.String(), "2 2026-03-01   93 min kiln, still open") {
		t.Errorf("%v: %s", err, &out)
	}
}
