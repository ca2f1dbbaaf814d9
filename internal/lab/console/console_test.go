package console_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lab/console"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares got with a file, blank ends of lines aside.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = regexp.MustCompile(`(?m) +$`).ReplaceAllString(got, "")
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

var report = verify.Report{
	Rules:    verify.Rules{Window: 10 * time.Second},
	Readings: 1482, Over: 74, Alerts: 12, Suppressed: 62,
}

// A device that is silent has no reading.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		c := console.New(&b, console.Options{Threshold: 30, Silent: true})
		start := time.Now()
		time.Sleep(16 * time.Second)
		a := notify.Alert{Device: "press-07", Threshold: 10, Silent: 10 * time.Second, Replica: "w2", Since: start.Add(4 * time.Second), LastHeard: start.Add(4 * time.Second), Enqueued: start.Add(14 * time.Second)}
		c.Alert(a, 2*time.Second)
		a.Resolved, a.Enqueued = true, start.Add(27*time.Second)
		c.Alert(a, 3*time.Second)
		time.Sleep(5 * time.Second)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"00:16.0  ALERT  press-07                     silent for 10s  heard at 00:04.0  w2, 2000 ms\n",
			"00:16.0  OK     press-07                     heard again     silent for 23s    w2, 3s\n",
			"0 over 30  0 alerts  1 recovery  1 silent  0 suppressed\n",
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}
	})
}

// play lets c show some 6 seconds.
func play(c *console.Console) {
	alert := func(device string, temperature float64, suppressed int64) {
		c.Alert(notify.Alert{
			Device: device, Temperature: temperature, Threshold: 30, Suppressed: suppressed, Replica: "replica-1",
		}, 84*time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond) // never when the console prints a line by itself
	for i := range 120 {
		for range 3 {
			c.Reading(false)
		}
		c.Reading(i >= 40)
		switch i {
		case 41:
			alert("line#3/oven%1", 30.1, 0)
		case 42:
			fmt.Fprintln(c, "partition 1 moved from replica-1 to replica-2")
		case 60:
			alert("a-device-with-a-rather-long-name-größe", 112.5, 1234)
		case 61:
			alert("\x1b[2J\u202eevil\n", 31, 0)
		case 62:
			alert("press-07", 1e9, 3)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		c := console.New(&b, console.Options{Threshold: 30})
		time.Sleep(time.Second)
		c.Event("w2", "again\x1b[2J")
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != "00:01.0  w2     again\ufffd[2J\n" {
			t.Errorf("got %q", got)
		}
	})
}

func TestPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		c := console.New(&b, console.Options{Threshold: 30})
		play(c)
		c.Close()
		c.Summary(report)
		golden(t, "plain.golden", b.String())
		if strings.ContainsAny(b.String(), "\x1b\r") {
			t.Errorf("plain output has escape sequences: %q", b.String())
		}
	})
}

// A recovery has a line of its own, and is counted apart.
func TestRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		c := console.New(&b, console.Options{Threshold: 30})
		at := time.Now()
		c.Reading(true)
		c.Alert(notify.Alert{Device: "press-07", Temperature: 31.5, Threshold: 30, Replica: "w1", Enqueued: at, Since: at}, 3*time.Millisecond)
		time.Sleep(4*time.Second + time.Millisecond)
		ended := notify.Alert{Device: "press-07", Temperature: 27.9, Threshold: 30, Replica: "w2", Resolved: true, Enqueued: at.Add(72 * time.Second), Since: at}
		c.Alert(ended, 41200*time.Millisecond)
		ended.Since = time.Time{}
		c.Alert(ended, 0)
		time.Sleep(time.Second)
		c.Close()
		golden(t, "recovery.golden", b.String())
	})
}

func TestColorsAreOptional(t *testing.T) {
	style := regexp.MustCompile(`\x1b\[[0-9]*m`)
	output := func(color bool) (out string) {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			c := console.New(&b, console.Options{Color: color, Threshold: 30})
			play(c)
			c.Close()
			c.Summary(report)
			out = b.String()
		})
		return out
	}
	colored, plain := output(true), output(false)
	if style.MatchString(plain) {
		t.Error("colors without Color")
	}
	if !style.MatchString(colored) {
		t.Error("no colors with Color")
	}
	if style.ReplaceAllString(colored, "") != plain {
		t.Error("colors change more than the colors")
	}
}

func TestSummary(t *testing.T) {
	broken := report
	for range 12 {
		broken.Lost = append(broken.Lost, verify.Violation{Evidence: `"oven\x1b[2J" was at 41.2`})
	}
	broken.TooClose = []verify.Violation{{Evidence: "\"press-07\" had two alerts 3s apart: id hub/0/1\x1b[2J"}}
	broken.Dropped, broken.Open = 2, 1
	recovered := report
	recovered.Opened, recovered.Recoveries = 14, 9
	untrue := recovered
	untrue.Stale = []verify.Violation{{Evidence: `the alarm of "oven" is over`}}
	untrue.Wrong = []verify.Violation{{Evidence: `"inbox" got a recovery of "oven" that is wrong`}}

	for _, tt := range []struct {
		name   string
		report verify.Report
		want   []string // words that scripts look for
	}{
		{"held", report, []string{"lost 0", "too close 0"}},
		{"quiet", verify.Report{Readings: 5}, []string{"lost 0", "too close 0"}},
		{"broken", broken, []string{"BROKEN: lost 12, too close 1"}},
		{"recovered", recovered, []string{"lost 0, too close 0, stale 0, wrong 0: ", "9  recoveries sent", "and every recovery was reported"}},
		{"false", untrue, []string{"BROKEN: lost 0, too close 0, stale 1, wrong 1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, color := range []bool{false, true} {
					var b bytes.Buffer
					c := console.New(&b, console.Options{Threshold: 30, Color: color})
					c.Close()
					c.Summary(tt.report)
					for _, want := range tt.want {
						if !strings.Contains(b.String(), want) {
							t.Errorf("no %q in\n%s", want, b.String())
						}
					}
					if !color {
						golden(t, "summary-"+tt.name+".golden", b.String())
					}
				}
			})
		})
	}
}

// Lines that come from everywhere at once come out whole.
func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		c := console.New(&b, console.Options{Threshold: 30})
		const n = 50
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				for range 60 {
					c.Reading(true)
					time.Sleep(100 * time.Millisecond)
				}
				c.Alert(notify.Alert{Device: fmt.Sprint("device-", i), Temperature: 31, Threshold: 30}, 0)
				fmt.Fprintf(c, "log line %d\n", i)
			})
		}
		wg.Wait()
		c.Close()
		alerts, lines := 0, 0
		for line := range strings.Lines(b.String()) {
			switch {
			case strings.Contains(line, "ALERT  device-") && strings.HasSuffix(line, "0 ms\n"):
				alerts++
			case regexp.MustCompile(`^log line \d+\n$`).MatchString(line):
				lines++
			case !strings.Contains(line, " readings  "): // every few seconds
				t.Errorf("there is %q", line)
			}
		}
		if alerts != n || lines != n {
			t.Errorf("%d alerts and %d lines of a log, want %d of each", alerts, lines, n)
		}
	})
}

type full struct{ writes int }

func (f *full) Write([]byte) (int, error) {
	f.writes++
	return 0, errors.New("disk full")
}

func TestWriteError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f full
		c := console.New(&f, console.Options{})
		time.Sleep(time.Minute)
		if _, err := c.Write([]byte("x\n")); err == nil {
			t.Error("Write gave no error")
		}
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("Close = %v, want the writer's error", err)
		}
		if f.writes != 1 {
			t.Errorf("%d writes, want none after the first failed", f.writes)
		}
	})
}

func TestHasColors(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if console.HasColors(f, func(string) string { return "" }) {
		t.Error("a file has colors")
	}
}
