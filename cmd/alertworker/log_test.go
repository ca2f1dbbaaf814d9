package main

import (
	stdjson "encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/config"
	"alertworker/internal/notify"
)

// logged returns what write logs with LOG_FORMAT and LOG_LEVEL.
func logged(t *testing.T, format, level config.Choice, write func(*zap.Logger)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	log := newLogger(config.Config{LogFormat: format, LogLevel: level}, out)
	write(log)
	if err := log.Sync(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// The log is in TIME_ZONE, as everything else that people read.
func TestLogZone(t *testing.T) {
	for zone, ends := range map[string]string{"": "Z", "UTC": "Z", "Asia/Tokyo": "+09:00"} {
		path := filepath.Join(t.TempDir(), "log")
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		newLogger(config.Config{LogFormat: config.LogJSON, LogLevel: "info", TimeZone: zone}, out).Info("x")
		out.Close()
		content, err := os.ReadFile(path)
		var line struct {
			Time string `json:"time"`
		}
		if err == nil {
			err = json.Unmarshal(content, &line)
		}
		if err != nil || !strings.HasSuffix(line.Time, ends) {
			t.Errorf("in %q: %s, %v", zone, content, err)
		}
	}
}

func TestLogJSON(t *testing.T) {
	out := logged(t, config.LogJSON, "info", func(log *zap.Logger) {
		log.Debug("too quiet")
		log.Named("worker").Error("send failed", zap.Duration("after", 1500*time.Millisecond), zap.Error(errors.New("refused")))
	})
	var line map[string]any
	if err := json.Unmarshal([]byte(out), &line); err != nil {
		t.Fatalf("not one JSON object: %v: %s", err, out)
	}
	if at, err := time.Parse(time.RFC3339Nano, line["time"].(string)); err != nil || time.Since(at) < 0 {
		t.Errorf("time is %v: %v", line["time"], err)
	}
	delete(line, "time")
	want := map[string]any{"level": "error", "logger": "worker", "msg": "send failed", "after": "1.5s", "error": "refused"}
	for key := range line {
		if line[key] != want[key] {
			t.Errorf("%s is %v, want %v", key, line[key], want[key])
		}
	}
	if len(line) != len(want) {
		t.Errorf("got %v, want %v", line, want)
	}
}

func TestLogConsole(t *testing.T) {
	out := logged(t, config.LogConsole, "warn", func(log *zap.Logger) {
		log.Info("too quiet")
		log.Warn("slow receiver", zap.Int("tries", 3))
	})
	if !strings.HasSuffix(out, `  WARN  slow receiver  {"tries": 3}`+"\n") || strings.Count(out, "\n") != 1 {
		t.Errorf("got %q", out)
	}
}

// The same line many times over: sampling would drop most of them.
func TestLogDropsNothing(t *testing.T) {
	const lines = 5000
	out := logged(t, config.LogJSON, "info", func(log *zap.Logger) {
		for range lines {
			log.Error("dead letter")
		}
	})
	if got := strings.Count(out, "\n"); got != lines {
		t.Errorf("%d lines, want %d", got, lines)
	}
}

// A dead letter that is only in the log has the whole alert, or if that cannot be encoded, at least whose it is.
func TestDeadLetterLog(t *testing.T) {
	core, lines := observer.New(zap.ErrorLevel)
	for _, value := range []float64{81, math.NaN()} {
		alert := notify.Alert{ID: "ns/hub/0/1", Source: "/ns/hub", Device: "oven", Rule: "temperature", Temperature: value, Threshold: 80, Token: 7}
		if err := (deadLetterLog{zap.New(core)}).Keep(t.Context(), notify.DeadLetter{Name: "ops", Reason: "refused", Alert: alert}); err != nil {
			t.Fatal(err)
		}
	}
	for i, line := range lines.All() {
		fields := line.ContextMap()
		if fields["id"] != "ns/hub/0/1" || fields["device"] != "oven" || fields["receiver"] != "ops" || fields["reason"] != "refused" {
			t.Errorf("got %v", fields)
		}
		event, _ := fields["event"].(stdjson.RawMessage)
		if whole := strings.Contains(string(event), `"token":7`); whole != (i == 0) || (fields["error"] != nil) == whole {
			t.Errorf("the event is %s, the error %v", event, fields["error"])
		}
	}
	if lines.Len() != 2 {
		t.Errorf("%d lines, want 2", lines.Len())
	}
}
