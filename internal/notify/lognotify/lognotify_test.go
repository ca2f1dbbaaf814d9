package lognotify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
		return lognotify.New(zap.New(core(zapcore.AddSync(out), zap.InfoLevel))), out.count
	})
}

func TestLine(t *testing.T) {
	out := &lines{}
	n := lognotify.New(zap.New(core(zapcore.AddSync(out), zap.InfoLevel)).Named("alerts"))
	a := notifytest.Alert(1)
	a.Device = "two\nlines"
	if err := n.Notify(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if out.count() != 1 {
		t.Fatalf("want one line, got\n%s", out.buf.String())
	}
	var got map[string]any
	if err := json.Unmarshal(out.buf.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"level": "warn", "logger": "alerts", "msg": "temperature alert: two\uFFFDlines: 91.5, at or above 80", "id": a.ID,
		"device": a.Device, "rule": "temperature", "value": 91.5, "limit": 80.0, "temperature": 91.5, "threshold": 80.0, "suppressed": 3.0,
	} {
		if got[field] != want {
			t.Errorf("%s is %v, want %v", field, got[field], want)
		}
	}
}

// A line names the rule, and only the rule of temperatures has temperatures.
func TestOtherRules(t *testing.T) {
	for want, a := range map[string]notify.Alert{
		"warn cold-chain alert: cold-store-3: 1.4, at or below 2 (cold-chain)":            notifytest.Below(),
		"warn hot alert: device-7: 91.5, at or above 80 (hot, critical)":                  notifytest.Sustained(),
		"info hot resolved: device-7: 64.5, normal again, below 65 (hot, critical)":       notifytest.Resolved(notifytest.Sustained()),
		"info cold-chain resolved: cold-store-3: 3.5, normal again, above 3 (cold-chain)": notifytest.Resolved(notifytest.Below()),
	} {
		out := &lines{}
		if err := lognotify.New(zap.New(core(zapcore.AddSync(out), zap.ErrorLevel))).Notify(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(out.buf.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if line := fmt.Sprint(got["level"], " ", got["msg"]); line != want {
			t.Errorf("got  %q\nwant %q", line, want)
		}
		_, temperature := got["temperature"]
		_, threshold := got["threshold"]
		_, since := got["since"]
		_, resolved := got["resolved"]
		if temperature || threshold || got["value"] != a.Temperature || got["limit"] != a.Threshold || got["rule"] != a.Rule || got["field"] != a.Field ||
			since == a.Since.IsZero() || resolved != a.Resolved || got["alert_level"] != nil && got["alert_level"] != a.Level {
			t.Errorf("the line is %s", out.buf.String())
		}
	}
}

func TestTestAlertIsMarked(t *testing.T) {
	out := &lines{}
	a := notifytest.Alert(1)
	a.Test = true
	if err := lognotify.New(zap.New(core(zapcore.AddSync(out), zap.InfoLevel))).Notify(t.Context(), a); err != nil {
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
	n := lognotify.New(zap.New(sampled))
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
	err := lognotify.New(zap.New(core(zapcore.AddSync(broken{}), zap.InfoLevel))).Notify(t.Context(), notifytest.Alert(1))
	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v, want the writer's error", err)
	}
}

var _ notify.Reporter = (*lognotify.Logger)(nil)

// A summary is one line for people, also in a log that keeps such lines back.
func TestReport(t *testing.T) {
	out := &lines{}
	n := lognotify.New(zap.New(core(zapcore.AddSync(out), zap.ErrorLevel)))
	two := 2
	s := notify.Summary{
		ID: "ns/hub/summary/2026-03-01T08:00:00Z", Source: "/ns/hub",
		Days: [2]notify.Day{
			{
				Date: time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC), Alerts: 14, Suppressed: 410, Devices: 2, DeadLetters: &two,
				MostAlerts:     []notify.DeviceCount{{Device: "device-7", Alerts: 12, Suppressed: 100}, {Device: "two\nlines", Alerts: 2, Suppressed: 310}},
				MostSuppressed: []notify.DeviceCount{{Device: "two\nlines", Alerts: 2, Suppressed: 310}},
			},
			{Date: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)},
		},
	}
	want := `summary: 2026-02-28 14 alerts of 2 devices, 410 readings suppressed, 2 dead letters (most alerts: "device-7" 12, "two\nlines" 2; most suppressed: "two\nlines" 310)` +
		`; 2026-03-01 0 alerts of 0 devices, 0 readings suppressed so far`
	for _, more := range []string{"", "; more devices than could be counted"} {
		s.More = more != ""
		if err := n.Report(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(out.buf.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got["msg"] != want+more || got["level"] != "info" || got["id"] != s.ID || got["source"] != s.Source {
			t.Errorf("got\n%v, want\n%s", got, want+more)
		}
		out.buf.Reset()
	}

	why := errors.New("the reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := n.Report(ctx, s); !errors.Is(err, why) || !notify.AsError(err).Untaken || out.count() != 0 {
		t.Errorf("after its context: %v, %d lines", err, out.count())
	}
	err := lognotify.New(zap.New(core(zapcore.AddSync(broken{}), zap.InfoLevel))).Report(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "write summary to the log: disk full") {
		t.Errorf("got %v, want the writer's error", err)
	}
}
