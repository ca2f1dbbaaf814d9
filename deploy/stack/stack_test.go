package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/audit"
	"alertworker/internal/notify"
	"alertworker/internal/notify/inbox"
	"alertworker/internal/standin"
)

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) == "1" {
		beParent()
		return
	}
	goleak.VerifyTestMain(m)
}

// All of it, with a worker killed by hand at once and others by itself.
func TestStack(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes ten seconds")
	}
	if _, err := exec.LookPath("npm"); err != nil && os.Getenv(standin.SkipEnv) == "1" {
		t.Skipf("Node.js is not installed, and %s=1", standin.SkipEnv)
	}
	// go test repeats a result from its cache unless something changed that the
	// test itself has looked at.
	for _, dir := range []string{"../../cmd", "../../internal"} {
		if err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	o, err := parse([]string{"--for", "6s", "--kill", "2s", "--window", "5s", "--devices", "20", "--rate", "100", "--http", "0"})
	if err != nil {
		t.Fatal(err)
	}

	report, err := run(t.Context(), o, strings.NewReader("1\n"), out)
	printed, _ := os.ReadFile(out.Name())
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	if !report.OK() || report.Alerts == 0 || report.Open > 0 {
		t.Errorf("%+v", report)
	}
	for _, want := range []string{"one    killed", "ALERT", " from ", "lost 0, too close 0", "status pages: http://127.0.0.1:"} {
		if !strings.Contains(string(printed), want) {
			t.Errorf("it did not say %q", want)
		}
	}
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("it left %v behind", left)
	}
	if t.Failed() {
		t.Logf("%s", printed)
	}
}

// What people do by hand with devices of their own is not judged.
func TestOthersAreNotJudged(t *testing.T) {
	for device, tooClose := range map[string]int{"oven": 1, "somebody's": 0} {
		judge := &audit.Log{}
		at := time.Now()
		for i := range 2 {
			tell(judge, []string{"fridge", "oven"}, inbox.Delivery{
				At: at.Add(time.Duration(i) * time.Second), Alert: notify.Alert{ID: strings.Repeat("x", i+1), Device: device, Token: int64(i + 1)},
			})
		}
		report := judge.Check(audit.Rules{Window: time.Minute, Bound: time.Minute, Receivers: []string{receiverName}})
		if len(report.TooClose) != tooClose {
			t.Errorf("two alerts of %s: %d too close, want %d", device, len(report.TooClose), tooClose)
		}
	}
}

func TestParse(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", ""},
		{"--workers 9 --store blob-lease --window 1m --for 30s --kill 5s", ""},
		{"--workers 0", "--workers 0"},
		{"--workers 10", "--workers 10"},
		{"--store cosmos", "blob or blob-lease"},
		{"--store blob-lease --window 14s", "--window 14s"},
		{"--window 4s", "--window 4s"},
		{"--for -1s", "--for -1s"},
		{"--kill -1s", "--kill -1s"},
		{"--http 65535", "--http 65535"},
		{"--devices 0", "0 devices"},
		{"--rate 0", "the rate"},
		{"--rate NaN", "the rate"},
		{"now", `unexpected "now"`},
		{"--never", "-never"},
	} {
		_, err := parse(strings.Fields(test.args))
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%q: %v", test.args, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%q: %v, want %q", test.args, err, test.want)
		}
	}
	if _, err := parse([]string{"--help"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", maxLine+100)
	text := "first\n\n  second\r\nthird, cut" // the last never ends
	var got []string
	l := &lines{each: func(line string) { got = append(got, line) }}
	for _, piece := range strings.SplitAfter(text+"\n"+long+"\nlast\nrest", "") {
		if n, err := l.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", piece, n, err)
		}
	}
	want := []string{"first", "second", "third, cut", long[:maxLine], "last"}
	if !slices.Equal(got, want) {
		t.Errorf("got %.200q", got)
	}
}

func TestKeys(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	keys := readKeys(ctx, iotest.DataErrReader(strings.NewReader("12\nq")))
	for _, want := range []byte("12\nq") {
		if got := <-keys; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	keys = readKeys(ctx, strings.NewReader("\x1b[1;5A")) // an arrow kills nobody
	select {
	case key := <-keys:
		t.Errorf("got %q", key)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestProcessSaysHowItEnded(t *testing.T) {
	for _, test := range []struct{ script, want string }{
		{"exit 0", "stand-in ended by itself"},
		{"echo oh; echo dear >&2; exit 3", "stand-in ended: exit status 3: dear"},
		{"kill -9 $$", "stand-in ended: signal: killed"},
	} {
		p, err := startProcess("stand-in", exec.Command("sh", "-c", test.script), func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		<-p.done
		if got := p.unexpected().Error(); !p.ended() || got != test.want {
			t.Errorf("%s: %q, want %q", test.script, got, test.want)
		}
	}
}

func TestStop(t *testing.T) {
	for _, test := range []struct{ script, want string }{
		{"trap 'exit 0' TERM; echo; echo ready; while :; do sleep 0.01; done", ""},
		{"echo ready; exec sleep 60", ""},
		{"trap 'echo no; exit 7' TERM; echo ready; while :; do sleep 0.01; done", "stand-in ended: exit status 7: no"},
	} {
		p, _, err := startReady(t.Context(), "stand-in", exec.Command("sh", "-c", test.script), regexp.MustCompile("^(ready)$"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := p.stop(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.script, got, test.want)
		}
		p.kill() // does nothing
	}
}
