package main

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/simulator"
	"alertworker/internal/lab/verify"
)

// machineTemperature is one industrial machine of the Numenta Anomaly Benchmark, 22,695 readings in °F, 5
// minutes apart.
const machineTemperature = "../../../shared/data/nab/machine_temperature_system_failure.csv"

// replay runs local mode on a recording, on real parts, and returns its report.
func replay(t *testing.T, file string, args ...string) verify.Report {
	t.Helper()
	var o simulator.Options
	flags := flag.NewFlagSet("local", flag.ContinueOnError)
	o.Define(flags)
	if err := flags.Parse(append([]string{"--replay", file}, args...)); err != nil {
		t.Fatal(err)
	}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	nowhere, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer nowhere.Close()
	report, err := simulator.Run(t.Context(), o, inProcess(o), nowhere, nowhere)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// reference returns how many alerts a recording makes, in the ten lines that the promise is.
func reference(t *testing.T, file string, threshold float64, window time.Duration) (alerts int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]time.Time{}
	for _, row := range rows[1:] {
		at, err := time.Parse(time.DateTime, row[0])
		if err != nil {
			t.Fatal(err)
		}
		value, err := strconv.ParseFloat(row[len(row)-1], 64)
		if err != nil {
			t.Fatal(err)
		}
		device := row[1 : len(row)-1]
		if key := fmt.Sprint(device); value >= threshold && at.Sub(last[key]) >= window {
			alerts++
			last[key] = at
		}
	}
	return alerts
}

// In a replay windows run in recorded time, at any speed: the alerts are those of the recording.
func TestReplayInRecordedTime(t *testing.T) {
	small := filepath.Join(t.TempDir(), "small.csv")
	var b strings.Builder
	b.WriteString("timestamp,device,value\n")
	at := time.Date(2014, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 600 { // two devices that are hot all the time, one that is hot now and then; readings exactly at a window's end
		fmt.Fprintf(&b, "%s,oven,%d\n", at.Format(time.DateTime), 31)
		fmt.Fprintf(&b, "%s,kiln,%d\n", at.Add(time.Duration(i%10)*time.Second).Format(time.DateTime), 31)
		fmt.Fprintf(&b, "%s,boiler,%d\n", at.Add(9*time.Second).Format(time.DateTime), 25+i%7)
		at = at.Add(10 * time.Second)
	}
	if err := os.WriteFile(small, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		file      string
		threshold float64
		window    time.Duration
		speed     string
	}{
		{small, 30, time.Minute, "max"},
		{small, 30, 25 * time.Second, "1000"},
		{small, 30, 7 * time.Minute, "600"},
		{machineTemperature, 100, time.Minute, "max"},
		{machineTemperature, 95, 30 * time.Minute, "1000000"},
		{machineTemperature, 90, 7 * time.Hour, "max"},
	} {
		t.Run(fmt.Sprintf("%s at %v, every %v, speed %s", filepath.Base(test.file), test.threshold, test.window, test.speed), func(t *testing.T) {
			if _, err := os.Stat(test.file); errors.Is(err, fs.ErrNotExist) {
				t.Skip("the NAB data set is not here: ", err)
			}
			report := replay(t, test.file, "--speed", test.speed, "--window", test.window.String(), "--threshold", fmt.Sprint(test.threshold))
			want := reference(t, test.file, test.threshold, test.window)
			if report.Alerts != want || !report.OK() || report.Dropped != 0 || report.Suppressed != report.Over-want {
				t.Errorf("%d alerts, the reference gives %d: %+v", report.Alerts, want, report)
			}
			t.Logf("%d readings, %d over, %d alerts", report.Readings, report.Over, report.Alerts)
		})
	}
}
