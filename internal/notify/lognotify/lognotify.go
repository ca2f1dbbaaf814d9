// Package lognotify writes alerts and summaries to the log. It is for trying things out:
// an alert counts as delivered whether or not anybody reads the log.
package lognotify

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/notify"
)

// Name is the receiver's name in metrics and keys.
const Name = "log"

// A Logger is a [notify.Notifier] and a [notify.Reporter] that writes each alert or summary as one line.
type Logger struct {
	log *zap.Logger
}

// New returns a Logger that writes to log.
func New(log *zap.Logger) *Logger { return &Logger{log: log} }

// Notify writes a at warn level, even if log's level or sampling would drop the line: an
// alert that is reported as taken must be there. It blocks while the writer does.
func (l *Logger) Notify(ctx context.Context, a notify.Alert) error {
	return l.write(ctx, "alert", zapcore.WarnLevel, "temperature alert: "+a.Message(),
		zap.String("id", a.ID),
		zap.String("source", a.Source),
		zap.String("device", a.Device),
		zap.String("rule", a.Rule),
		zap.String("alert_level", a.Level),
		zap.Bool("resolved", a.Resolved),
		zap.Float64("temperature", a.Temperature),
		zap.Float64("threshold", a.Threshold),
		zap.Time("enqueuedTime", a.Enqueued),
		zap.String("partition", a.Partition),
		zap.Int64("sequence", a.Sequence),
		zap.Duration("window", a.Window),
		zap.Int64("token", a.Token),
		zap.Int64("suppressed", a.Suppressed),
		zap.String("replica", a.Replica),
		zap.Time("expires", a.Expires),
		zap.Bool("test", a.Test),
	)
}

// Report writes s at info level, regardless of level and sampling like Notify.
func (l *Logger) Report(ctx context.Context, s notify.Summary) error {
	message := "summary: " + day(s.Days[0]) + "; " + day(s.Days[1]) + " so far"
	if s.More {
		message += "; more devices than could be counted"
	}
	return l.write(ctx, "summary", zapcore.InfoLevel, message, zap.String("id", s.ID), zap.String("source", s.Source))
}

// day puts d into words.
func day(d notify.Day) string {
	var b strings.Builder
	b.WriteString(d.Date.UTC().Format(time.DateOnly))
	if d.Unknown {
		b.WriteString(" alerts not known")
	} else {
		fmt.Fprintf(&b, " %d alerts of %d devices, %d readings suppressed", d.Alerts, d.Devices, d.Suppressed)
	}
	if d.DeadLetters != nil {
		fmt.Fprintf(&b, ", %d dead letters", *d.DeadLetters)
	}
	for i, c := range d.MostAlerts {
		fmt.Fprintf(&b, "%s %q %d", [...]string{" (most alerts:", ","}[min(i, 1)], c.Device, c.Alerts)
	}
	for i, c := range d.MostSuppressed {
		fmt.Fprintf(&b, "%s %q %d", [...]string{"; most suppressed:", ","}[min(i, 1)], c.Device, c.Suppressed)
	}
	if len(d.MostAlerts) > 0 {
		b.WriteByte(')')
	}
	return b.String()
}

// write adds one line to the log, regardless of level and sampling.
func (l *Logger) write(ctx context.Context, what string, level zapcore.Level, message string, fields ...zap.Field) error {
	if ctx.Err() != nil {
		return &notify.Error{Untaken: true, Err: fmt.Errorf("write %s to the log: %w", what, context.Cause(ctx))}
	}
	// Core.Write, unlike the Logger's methods, neither filters nor hides a failure.
	entry := zapcore.Entry{Level: level, Time: time.Now(), LoggerName: l.log.Name(), Message: message}
	if err := l.log.Core().Write(entry, fields); err != nil {
		return &notify.Error{Err: fmt.Errorf("write %s to the log: %w", what, err)}
	}
	return nil
}
