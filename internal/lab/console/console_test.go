package console_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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

// A screen is a terminal that understands what a Console may use, and keeps
// everything that scrolled by.
type screen struct {
	lines    [][]rune
	row, col int
	hidden   bool // the cursor
	nowrap   bool
	unknown  []string
}

var sequence = regexp.MustCompile(`^\x1b\[([0-9?]*)([A-Za-z])`)

func (s *screen) Write(p []byte) (int, error) {
	for text := string(p); text != ""; {
		if text[0] == '\x1b' {
			m := sequence.FindStringSubmatch(text)
			if m == nil {
				s.unknown = append(s.unknown, text)
				return len(p), nil
			}
			text = text[len(m[0]):]
			switch m[1] + m[2] {
			case "?25l", "?25h":
				s.hidden = m[2] == "l"
			case "?7l", "?7h":
				s.nowrap = m[2] == "l"
			case "J":
				s.lines = append(s.lines[:s.row:s.row], s.line()[:s.col])
			default:
				n, _ := strconv.Atoi(m[1])
				switch m[2] {
				case "A":
					s.row = max(0, s.row-n)
				case "m":
				default:
					s.unknown = append(s.unknown, m[0])
				}
			}
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		switch r {
		case '\r':
			s.col = 0
		case '\n':
			s.row, s.col = s.row+1, 0
		default:
			line := s.line()
			for len(line) <= s.col {
				line = append(line, ' ')
			}
			line[s.col] = r
			s.lines[s.row] = line
			s.col++
		}
	}
	return len(p), nil
}

func (s *screen) line() []rune {
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, nil)
	}
	return s.lines[s.row]
}

func (s *screen) String() string {
	var b strings.Builder
	for _, line := range s.lines {
		b.WriteString(string(line) + "\n")
	}
	return b.String()
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
	time.Sleep(10 * time.Millisecond) // never when the console redraws
	for i := range 120 {
		c.Reading("press-07", 22+float64(i%5)/2, false)
		c.Reading("line#3/oven%1", 25+float64(i)/8, i >= 40)
		c.Reading("a-device-with-a-rather-long-name-größe", 12, false)
		c.Reading("\x1b[2J\u202eevil\n", 10, false)
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

func TestTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s screen
		c := console.New(&s, console.Options{Live: true, Color: true, Threshold: 30, Width: func() int { return 78 }})
		play(c)
		synctest.Wait()
		golden(t, "terminal.golden", s.String())
		if !s.hidden {
			t.Error("the cursor is not hidden")
		}

		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c.Summary(report)
		golden(t, "terminal-closed.golden", s.String())
		if s.hidden || s.nowrap {
			t.Error("Close does not give the terminal back as it was")
		}
		if len(s.unknown) > 0 {
			t.Errorf("the terminal got %q", s.unknown)
		}
		if err := c.Close(); err != nil {
			t.Errorf("the second Close = %v", err)
		}
	})
}

// What happens to workers stays when the live view has gone.
func TestEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s screen
		c := console.New(&s, console.Options{Live: true, Threshold: 30, Width: func() int { return 78 }})
		time.Sleep(time.Second)
		c.Event("w2", "again\x1b[2J")
		time.Sleep(time.Second)
		c.Close()
		if got := strings.TrimSpace(s.String()); got != "00:01.0  w2     again\ufffd[2J" {
			t.Errorf("the live view left something behind:\n%s", got)
		}
		if c.Err() != nil || len(s.unknown) > 0 {
			t.Errorf("%v, the terminal got %q", c.Err(), s.unknown)
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
		c.Reading("press-07", 31.5, true)
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
			c := console.New(&b, console.Options{Live: true, Color: color, Threshold: 30})
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

func TestNarrowTerminal(t *testing.T) {
	for _, width := range []int{1, 10, 20, 40} {
		synctest.Test(t, func(t *testing.T) {
			var s screen
			c := console.New(&s, console.Options{Live: true, Color: true, Width: func() int { return width }})
			defer c.Close()
			c.Reading("größe@halle=2", 31, true)
			time.Sleep(time.Second)
			synctest.Wait()
			for _, line := range s.lines {
				if len(line) >= width {
					t.Errorf("width %d: line %q", width, string(line))
				}
			}
		})
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

// TestConcurrentUse draws from everywhere at once; each line must come out whole.
func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s screen
		c := console.New(&s, console.Options{Live: true, Threshold: 30})
		const n = 50
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				for range 20 {
					c.Reading(fmt.Sprint("device-", i), 31, true)
					time.Sleep(100 * time.Millisecond)
				}
				c.Alert(notify.Alert{Device: fmt.Sprint("device-", i), Temperature: 31, Threshold: 30}, 0)
				fmt.Fprintf(c, "log line %d", i)
			})
		}
		wg.Wait()
		c.Close()
		out := s.String()
		if got := strings.Count(out, "ALERT"); got != n {
			t.Errorf("%d alert lines, want %d", got, n)
		}
		if got := len(regexp.MustCompile(`(?m)^log line \d+$`).FindAllString(out, -1)); got != n {
			t.Errorf("%d whole log lines, want %d", got, n)
		}
		if got := len(s.lines) - 1; got != 2*n {
			t.Errorf("%d lines, want %d: the live view left something behind", got, 2*n)
		}
	})
}

// TestManyDevices holds the bound on what is remembered of devices.
func TestManyDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s screen
		c := console.New(&s, console.Options{Live: true})
		for i := range 5000 {
			c.Reading(fmt.Sprint(i), float64(i), false)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if out := s.String(); !strings.Contains(out, "5,000 readings") || !strings.Contains(out, "4095.0") || strings.Contains(out, "4999.0") {
			t.Errorf("want all readings counted and the first 4096 devices looked at:\n%s", out)
		}
		c.Close()
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
		c := console.New(&f, console.Options{Live: true})
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

func TestDetect(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if o := console.Detect(f, func(string) string { return "" }); o.Live || o.Color {
		t.Errorf("Detect of a file = %+v", o)
	}
}
