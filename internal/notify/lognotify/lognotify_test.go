package lognotify_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/notify"
	"alertworker/internal/notify/lognotify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is a log that counts its lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte("\n"))
}

func core(w zapcore.WriteSyncer, level zapcore.Level) zapcore.Core {
	return zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), w, level)
}

func TestContract(t *testing.T) {
	notifytest.Run(t, func(t *testing.T) (notify.Notifier, func() int) {
		out := &lines{}
		return lognotify.New(zap.New(core(zapcore.AddSync(out), zap.InfoLevel)), wording.Style{}), out.count
	})
}

// A line is one of the log.
type line struct {
	Level, Logger, Msg string
	Event              json.RawMessage
}

func parse(t *testing.T, out *lines) (l line) {
	t.Helper()
	if err := json.Unmarshal(out.buf.Bytes(), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// A line has the event that webhooks get.
func TestLine(t *testing.T) {
	out := &lines{}
	n := lognotify.New(zap.New(core(zapcore.AddSync(out), zap.InfoLevel)).Named("alerts"), wording.Style{})
	a := notifytest.Alert(1)
	a.Device = "two\nlines"
	if err := n.Notify(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if out.count() != 1 {
		t.Fatalf("want one line, got\n%s", out.buf.String())
	}
	got := parse(t, out)
	if again, err := webhook.Decode(got.Event); got.Level != "warn" || got.Logger != "alerts" || got.Msg != "temperature alert: two\uFFFDlines: 91.5, at or above 80" || err != nil || again != a {
		t.Errorf("the line is %s: %+v, %v", out.buf.String(), again, err)
	}
}

// A line names the rule.
func TestOtherRules(t *testing.T) {
	for want, a := range map[string]notify.Alert{
		"warn cold-chain alert: cold-store-3: 1.4, at or below 2 (cold-chain)":            notifytest.Below(),
		"warn hot alert: device-7: 91.5, at or above 80 (hot, critical)":                  notifytest.Sustained(),
		"info hot resolved: device-7: 64.5, normal again, below 65 (hot, critical)":       notifytest.Resolved(notifytest.Sustained()),
		"info cold-chain resolved: cold-store-3: 3.5, normal again, above 3 (cold-chain)": notifytest.Resolved(notifytest.Below()),
	} {
		out := &lines{}
		if err := lognotify.New(zap.New(core(zapcore.AddSync(out), zap.ErrorLevel)), wording.Style{}).Notify(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		got := parse(t, out)
		if line := got.Level + " " + got.Msg; line != want {
			t.Errorf("got  %q\nwant %q", line, want)
		}
	}
}

func TestTestAlertIsMarked(t *testing.T) {
	out := &lines{}
	a := notifytest.Alert(1)
	a.Test = true
	if err := lognotify.New(zap.New(core(zapcore.AddSync(out), zap.InfoLevel)), wording.Style{}).Notify(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.buf.String(), "temperature alert: device-1: 91.5, at or above 80 (test)") {
		t.Errorf("not marked: %s", out.buf.String())
	}
}

// What is reported as taken must be in the log, even one that is quiet.
func TestNothingIsFiltered(t *testing.T) {
	out := &lines{}
	quiet := core(zapcore.AddSync(out), zap.ErrorLevel)
	sampled := zapcore.NewSamplerWithOptions(quiet, 1e9, 1, 0)
	n := lognotify.New(zap.New(sampled), wording.Style{})
	for i := range 10 {
		if err := n.Notify(t.Context(), notifytest.Alert(i)); err != nil {
			t.Fatal(err)
		}
	}
	if out.count() != 10 {
		t.Errorf("10 alerts made %d lines", out.count())
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestFailedWrite(t *testing.T) {
	err := lognotify.New(zap.New(core(zapcore.AddSync(broken{}), zap.InfoLevel)), wording.Style{}).Notify(t.Context(), notifytest.Alert(1))
	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v, want the writer's error", err)
	}
}

// A line has the time in the zone of all others.
func TestZone(t *testing.T) {
	out, zone := &lines{}, time.FixedZone("", 5*60*60)
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.TimeEncoderOfLayout("ts-07:00")
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(e), zapcore.AddSync(out), zap.InfoLevel))
	if err := lognotify.New(log, wording.Style{Zone: zone}).Notify(t.Context(), notifytest.Alert(1)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.buf.String(), `"ts":"ts+05:00"`) {
		t.Errorf("got %s", out.buf.String())
	}
}
