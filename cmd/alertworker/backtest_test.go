package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
)

// machineTemperature is one industrial machine of the Numenta Anomaly Benchmark, 22,695 readings in °F, 5
// minutes apart.
const machineTemperature = "../../../shared/data/nab/machine_temperature_system_failure.csv"

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
	last, latest := map[string]time.Time{}, time.Time{}
	for _, row := range rows[1:] {
		at, err := time.Parse(time.DateTime, row[0])
		if err != nil {
			t.Fatal(err)
		}
		if at.Before(latest) {
			at = latest
		}
		latest = at
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

func TestBacktest(t *testing.T) {
	environment(t, nil)
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
	}{
		{small, 30, time.Minute},
		{small, 30, 25 * time.Second},
		{small, 30, 7 * time.Minute},
		{machineTemperature, 100, time.Minute},
		{machineTemperature, 95, 30 * time.Minute},
		{machineTemperature, 90, 7 * time.Hour},
	} {
		t.Run(fmt.Sprintf("%s at %v, every %v", filepath.Base(test.file), test.threshold, test.window), func(t *testing.T) {
			if _, err := os.Stat(test.file); errors.Is(err, fs.ErrNotExist) {
				t.Skip("the NAB data set is not here: ", err)
			}
			t.Setenv("TEMPERATURE_THRESHOLD", "1000")
			var out strings.Builder
			if err := runBacktest(t.Context(), &out, []string{"--file", test.file, "--json", "--set", "THROTTLE_WINDOW=" + test.window.String(), "--set", fmt.Sprintf("TEMPERATURE_THRESHOLD=999,%v", test.threshold)}); err != nil {
				t.Fatal(err)
			}
			var got struct {
				Complete   bool
				Candidates []struct{ Alerts int }
			}
			if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
				t.Fatal(err)
			}
			want := reference(t, test.file, test.threshold, test.window)
			if len(got.Candidates) != 3 || got.Candidates[0].Alerts != 0 || got.Candidates[1].Alerts != 0 || got.Candidates[2].Alerts != want || !got.Complete {
				t.Errorf("%+v, the reference gives %d", got, want)
			}
			if os.Getenv("TEMPERATURE_THRESHOLD") != "1000" {
				t.Error("the environment is another")
			}
		})
	}
}

// per shares a window by a column of a CSV file as by a property.
func TestBacktestPerColumn(t *testing.T) {
	environment(t, nil)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rules.yaml": "rules: [{name: cold, field: flow, below: 60, window: 1h, per: site}]",
		"column.csv": "timestamp,device,flow,site\n2026-10-15T10:00:00Z,a,50,s01\n2026-10-15T10:00:00Z,b,50,s01\n2026-10-15T10:00:00Z,c,50,s02\n",
		"property.json": `{"timestamp":"2026-10-15T10:00:00Z","device":"a","body":{"flow":50},"properties":{"site":"s01"}}
{"timestamp":"2026-10-15T10:00:00Z","device":"b","body":{"flow":50},"properties":{"site":"s01"}}
{"timestamp":"2026-10-15T10:00:00Z","device":"c","body":{"flow":50},"properties":{"site":"s02"}}`,
		"name.json": `{"timestamp":"2026-10-15T10:00:00Z","device":"a","flow":50,"site":"s01"}
{"timestamp":"2026-10-15T10:00:00Z","device":"b","flow":50,"site":"s01"}
{"timestamp":"2026-10-15T10:00:00Z","device":"c","flow":50,"site":"s02"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"column.csv", "property.json", "name.json"} {
		var out strings.Builder
		err := runBacktest(t.Context(), &out, []string{"--file", filepath.Join(dir, name), "--rules", filepath.Join(dir, "rules.yaml"), "--json"})
		var got struct {
			Candidates []struct{ Alerts int }
		}
		if err != nil || json.Unmarshal([]byte(out.String()), &got) != nil || len(got.Candidates) != 1 || got.Candidates[0].Alerts != 2 {
			t.Errorf("%s: %v, %+v, want 2 alerts", name, err, got)
		}
	}
}

func TestBacktestRefuses(t *testing.T) {
	environment(t, nil)
	dir := t.TempDir()
	name := func(file, text string) string {
		file = filepath.Join(dir, file)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := name("good.csv", "timestamp,value\n2014-01-01 00:00:00,31\n")
	rules := name("rules.yaml", "rules:\n- {name: hot, field: temperature, abvoe: 80}\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "read a recording with --file, or the hub with --since"},
		{[]string{"--file", good, "--since", "1h"}, "read a recording with --file, or the hub with --since"},
		{[]string{"--since", "1h", "--set", "TEMPERATURE_THRESHOLD=80"}, "EVENTHUB_CONNECTION_STRING  is missing"},
		{[]string{"--file", good}, "TEMPERATURE_THRESHOLD  is missing"},
		{[]string{"--file", good, "--rules", rules}, "did you mean above?"},
		{[]string{"--file", good, "--rules", "nowhere.yaml"}, "candidate nowhere.yaml: "},
		{[]string{"--file", good, "--set", "TEMPERATURE_THRESHOLD=80,hot"}, "candidate TEMPERATURE_THRESHOLD=hot: "},
		{[]string{"--file", good, "--set", "HTTP_ADMIN_TOKEN=hot"}, "must be NAME=VALUE,VALUE"},
		{[]string{"--file", good, "--set", "TEMPERATURE_THRESHOLD=1,2,3,4,5", "--set", "THROTTLE_WINDOW=1m,2m,3m,4m"}, "20 combinations"},
		{[]string{"--file", rules, "--set", "TEMPERATURE_THRESHOLD=80"}, "must name the columns"},
		{[]string{"--file", good, "--set", "TEMPERATURE_THRESHOLD=80", "--time", "When"}, "has no When; it has timestamp, value"},
		{[]string{"--file", good, "--set", "TEMPERATURE_THRESHOLD=80", "--device", "Machine"}, "has no Machine; it has timestamp, value"},
		{[]string{"--since", "1h", "--device", "Machine"}, "--time and --device say what the file of --file has"},
	} {
		var out strings.Builder
		err := runBacktest(t.Context(), &out, tt.args)
		var coded interface{ ExitCode() int }
		if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.As(err, &coded) || coded.ExitCode() != exitUsage || out.Len() > 0 {
			t.Errorf("%q: %v, %q; want %q and the exit code of a wrong command line", tt.args, err, out.String(), tt.want)
		}
	}
}

// docs/questions.md shows what its own program gives, and README.md how that begins.
func TestBacktestIsDocumented(t *testing.T) {
	if _, err := exec.LookPath("awk"); err != nil {
		t.Skip("awk is not installed")
	}
	page, err := os.ReadFile("../../docs/questions.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```sh\n(awk .*?)\nexport (.*?)\n```.*?```console\n\\$ alertworker backtest (.*?)\n(.*?)```").FindStringSubmatch(string(page))
	if found == nil {
		t.Fatal("there is no program with what it gives")
	}
	settings := map[string]string{}
	for setting := range strings.FieldsSeq(found[2]) {
		name, value, _ := strings.Cut(setting, "=")
		settings[name] = value
	}
	environment(t, settings)
	t.Chdir(t.TempDir())
	cmd := exec.Command("sh", "-c", found[1])
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var out strings.Builder
	shown := regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(found[4]), "…\n", ".*") + "$") // an ellipsis leaves lines out
	if err := runBacktest(t.Context(), &out, strings.Fields(found[3])); err != nil || !shown.MatchString(out.String()) {
		t.Errorf("%v: the page has other words than\n%s", err, out.String())
	}
	begins, _, _ := strings.Cut(out.String(), "\n\nmessages")
	if !strings.Contains(string(readme), begins) {
		t.Errorf("README.md has other words than\n%s", begins)
	}
}

// What the hub holds is read beside a worker's consumer group, and never in it.
func TestBacktestOfAHub(t *testing.T) {
	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	environment(t, map[string]string{"EVENTHUB_CONNECTION_STRING": hub.ConnectionString()})
	backtest := func(args ...string) (string, error) {
		var out strings.Builder
		err := runBacktest(t.Context(), &out, append([]string{"--since", "1h", "--set", "TEMPERATURE_THRESHOLD=80"}, args...))
		return out.String(), err
	}
	if _, err := backtest("--group", "others"); err == nil || !strings.Contains(err.Error(), "holds no events from the last 60 min") {
		t.Errorf("of an empty hub: %v", err)
	}
	start := time.Now().Add(-30 * time.Minute)
	for i := range 600 {
		m := devhub.Message{Device: fmt.Sprint("oven-", i%7), Body: fmt.Appendf(nil, `{"temperature":%d}`, 60+i%30), Enqueued: start.Add(time.Duration(i) * time.Second)}
		if _, err := hub.Publish(m); err != nil {
			t.Fatal(err)
		}
	}
	out, err := backtest("--group", "others", "--rate", "0", "--json")
	var got struct {
		Events     int
		Complete   bool
		Candidates []struct{ Alarms, Alerts, Devices int }
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &got)
	}
	if err != nil || got.Events != 600 || !got.Complete || len(got.Candidates) != 1 || got.Candidates[0].Devices != 7 || got.Candidates[0].Alerts < 7*5 {
		t.Errorf("%v: %s", err, out)
	}
	if hub.Readers("") != 0 {
		t.Errorf("%d readers are left", hub.Readers(""))
	}
	var usage *usageError
	if _, err := backtest(); !errors.As(err, &usage) || !strings.Contains(err.Error(), "name it with --group") {
		t.Errorf("in the worker's consumer group: %v", err)
	}
	hub.Close()
	if _, err := backtest("--group", "others"); err == nil || !strings.Contains(err.Error(), "nothing listens at") {
		t.Errorf("without a hub: %v", err)
	}
}
