package simulator

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
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
		{"--replicas 9 --window 1m --for 30s", ""},
		{"--replicas 0", "--replicas 0"},
		{"--replicas 17", "--replicas 17"},
		{"--window 999ms", "--window 999ms"},
		{"--for -1s", "--for -1s"},
		{"--silent 10s", ""},
		{"--silent 4s", "--silent 4s: want 5s"},
		{"--silent -1s", "--silent -1s"},
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

// fake is a Worker that does nothing. A real one is in internal/lab/e2e.
type fake struct {
	err   error
	ended chan struct{}
}

func (f *fake) Page() string           { return "127.0.0.1:1" }
func (f *fake) Ended() <-chan struct{} { return f.ended }
func (f *fake) Stop() error            { return f.err }

func TestAWorkerThatEndsByItselfIsAnError(t *testing.T) {
	view := console.New(io.Discard, console.Options{})
	defer view.Close()
	broken := errors.New("the hub is gone")
	w := &fake{broken, make(chan struct{})}
	s := &simulation{view: view, workers: []Worker{w}}
	if err := s.tick(); err != nil {
		t.Fatal(err)
	}
	close(w.ended)
	if err := s.tick(); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

// An alert that the receiver had before is an event of its worker, others have lines of their own.
func TestDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		view := console.New(&out, console.Options{Threshold: 30})
		s := &simulation{view: view, verifyLog: verify.NewLog()}
		for _, dropped := range []bool{false, true} {
			s.delivered(inbox.Delivery{Dropped: dropped, At: time.Now(), Alert: notify.Alert{
				Replica: "w2", Device: "kiln-08", Sensor: "inlet", Temperature: 41, Threshold: 30, Enqueued: time.Now(), Suppressed: 7,
			}})
		}
		view.Close()
		const want = `
00:00.0  ALERT  kiln-08 / inlet        41.0   +11.0 over 30  7 suppressed      w2, 0 ms
00:00.0  w2     again: kiln-08 / inlet
`
		if got := "\n" + out.String(); got != want {
			t.Errorf("got:%s\nwant:%s", got, want)
		}
	})
}
