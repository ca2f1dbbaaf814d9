package simulator

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/lab/console"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/devices"
	"alertworker/internal/lab/inbox"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOptions(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", ""},
		{"--processes --replicas 9 --store blob-lease --window 1m --for 30s --kill 5s", ""},
		{"--replicas 0", "--replicas 0"},
		{"--replicas 17", "--replicas 17"},
		{"--processes --store cosmos --window 90s", ""},
		{"--processes --store memory", "blob, blob-lease or cosmos"},
		{"--store cosmos", "need --processes"},
		{"--processes --store blob-lease --window 14s", "--window 14s"},
		{"--processes --window 4s", "--window 4s"},
		{"--window 999ms", "--window 999ms"},
		{"--for -1s", "--for -1s"},
		{"--processes --kill -1s", "--kill -1s"},
		{"--kill 1s", "need --processes"},
		{"--http 8081", "need --processes"},
		{"--store blob-lease", "need --processes"},
		{"--processes --http 65535", "--http 65535"},
		{"--silent 10s", ""},
		{"--silent 4s", "--silent 4s: want 5s"},
		{"--silent -1s", "--silent -1s"},
		{"--processes --silent 10s", "--silent 10s: want 1m0s"},
		{"--silent 10s --rate 5", "report every 5s"},
		{"--silent 10s --devices 7", "at least 8"},
		{"--silent 10s --rate 0", "the rate"},
		{"--devices 0", "0 devices"},
		{"--rate 0", "the rate"},
		{"--rate NaN", "the rate"},
		{"--never", "-never"},
	} {
		var o Options
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		o.Define(flags)
		err := flags.Parse(strings.Fields(test.args))
		if err == nil {
			err = o.Check()
		}
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%q: %v", test.args, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%q: %v, want %q", test.args, err, test.want)
		}
	}
}

// What people do by hand with devices of their own is not judged.
func TestOthersAreNotJudged(t *testing.T) {
	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry"})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	for device, tooClose := range map[string]int{"oven": 1, "somebody's": 0} {
		view := console.New(io.Discard, console.Options{})
		s := &simulation{view: view, hub: hub, verifyLog: verify.NewLog()}
		if err := s.publish(t.Context(), devices.Message{Message: devhub.Message{Device: "oven", Body: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		for i := range 2 {
			s.delivered(inbox.Delivery{
				At: at.Add(time.Duration(i) * time.Second), Alert: notify.Alert{ID: strings.Repeat("x", i+1), Device: device, Token: int64(i + 1)},
			})
		}
		view.Close()
		report := s.verifyLog.Check(verify.Rules{Window: time.Minute, Bound: time.Minute, Receivers: []string{receiverID}})
		if len(report.TooClose) != tooClose {
			t.Errorf("two alerts of %s: %d too close, want %d", device, len(report.TooClose), tooClose)
		}
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
	case key, open := <-keys:
		if open {
			t.Errorf("got %q", key)
		}
	case <-time.After(50 * time.Millisecond):
	}
}

// fake is a Worker that does nothing. A real one is in internal/lab/e2e.
type fake struct{ err error }

func (f *fake) Page() string      { return "127.0.0.1:1" }
func (f *fake) Ended() bool       { return f.err != nil }
func (f *fake) Unexpected() error { return f.err }
func (f *fake) Stop() error       { return f.err }
func (f *fake) Kill()             {}

// play is what happens to two workers, in either kind of view.
func play(t *testing.T, view *console.Console) {
	s := &simulation{Options: Options{replicas: 2}, view: view, verifyLog: verify.NewLog()}
	s.workers = newWorkers(2, view, func(string, int) (Worker, error) { return &fake{}, nil })
	c := s.workers
	alert := func(worker string, suppressed int64, dropped bool) {
		s.delivered(inbox.Delivery{Dropped: dropped, At: time.Now(), Alert: notify.Alert{
			Replica: worker, Device: "kiln-08", Temperature: 41, Threshold: 30, Enqueued: time.Now(), Suppressed: suppressed,
		}})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(c.start())
	s.show(false)
	c.updateOwners(map[string]string{"0": "w1-x", "10": "w1-x", "2": "w1-x", "1": "w2-y"})
	c.updateLeader("w1")
	c.updateLeader("") // it did not answer in time
	c.updateLeader("w1")
	view.Reading("kiln-08", 41, true)
	view.Reading("kiln-08", 29, false)
	alert("w1", 0, false)
	alert("w2", 0, true)
	alert("somebody else", 0, false)
	s.show(false)
	time.Sleep(400 * time.Millisecond)
	must(c.toggle(0))
	must(c.toggle(7)) // nobody
	must(c.killAny())
	c.updateLeader("w1") // an answer from before
	time.Sleep(3500 * time.Millisecond)
	must(c.restartDue())
	c.updateOwners(map[string]string{"1": "w2-y"}) // the dead one's have expired
	c.updateOwners(map[string]string{"0": "w2-y", "1": "w2-y", "2": "w2-y", "10": "w2-y"})
	alert("w2", 7, false)
	s.show(false)
	time.Sleep(1500 * time.Millisecond)
	time.Sleep(1500 * time.Millisecond)
	must(c.restartDue())
	c.updateOwners(map[string]string{"0": "w1-z", "1": "w2-y", "2": "w1-z", "10": "w2-y"})
	c.updateLeader("w2")
	view.Event("w2", "something \x1b[2J is wrong")
	s.show(true)
	time.Sleep(3300 * time.Millisecond)
	view.Close()
}

func TestPlainView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		play(t, console.New(&out, console.Options{Threshold: 30}))
		const want = `
00:00.0  w1     leads
00:00.0  ALERT  kiln-08          41.0   +11.0 over 30  first alert       w1, 0 ms
00:00.0  w2     again: kiln-08
00:00.0  ALERT  kiln-08          41.0   +11.0 over 30  first alert       somebody else, 0 ms
00:00.4  w1     killed
00:03.9  w2     took 0 2 10 from w1 in 3.5 s
00:03.9  ALERT  kiln-08          41.0   +11.0 over 30  7 suppressed      w2, 0 ms
00:05.0  2 readings  0/s  1 over 30  3 alerts  0 recoveries  0 suppressed
00:05.0  w1     killed, back in 3 s
00:05.0  w2     partitions 0 1 2 10
00:06.9  w1     back
00:06.9  w1     took 0 2 from w2
00:06.9  w2     leads
00:06.9  w2     something ` + "\uFFFD" + `[2J is wrong
00:10.0  2 readings  0/s  1 over 30  3 alerts  0 recoveries  0 suppressed
00:10.0  w1     partitions 0 2
00:10.0  w2     partitions 1 10, leads
`
		if got := "\n" + out.String(); got != want {
			t.Errorf("got:%s\nwant:%s", got, want)
		}
	})
}

// The live view has a line for each worker. That it leaves the screen is tested in internal/lab/console.
func TestLiveView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		play(t, console.New(&out, console.Options{Live: true, Threshold: 30, Width: func() int { return 100 }}))
		for _, live := range []string{"✗ w1", "● w1", "killed, back in 3 s", "partitions 0 1 2 10", "partitions 1 10, leads", "1 alert  +7", "1-2: kill -9", "q again: at once"} {
			if !strings.Contains(out.String(), live) {
				t.Errorf("it never showed %q", live)
			}
		}
		if !strings.HasPrefix(out.String(), "\x1b[?25l") || !strings.HasSuffix(out.String(), "\x1b[?25h") {
			t.Error("the cursor is not hidden, or not given back")
		}
	})
}

// A worker that somebody kills from outside comes back like one that a key has killed.
func TestAWorkerKilledFromOutsideComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed := exec.Command("sh", "-c", "kill -9 $$").Run()
		var out bytes.Buffer
		view := console.New(&out, console.Options{})
		workers := []*fake{{fmt.Errorf("worker w1 ended: %w", killed)}, {}}
		c := newWorkers(1, view, func(string, int) (Worker, error) { w := workers[0]; workers = workers[1:]; return w, nil })
		for _, step := range []func() error{c.start, c.restartDue, func() error { time.Sleep(backAfter + time.Second); return nil }, c.restartDue, view.Close} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(out.String(), "w1     killed\n") || !strings.Contains(out.String(), "w1     back\n") {
			t.Errorf("it shows\n%s", out.String())
		}
	})
}

func TestAWorkerThatEndsByItselfIsAnError(t *testing.T) {
	view := console.New(io.Discard, console.Options{})
	defer view.Close()
	broken := errors.New("worker w1 ended: exit status 1")
	c := newWorkers(1, view, func(string, int) (Worker, error) { return &fake{broken}, nil })
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	if err := c.restartDue(); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}
