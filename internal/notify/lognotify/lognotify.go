// Package lognotify writes alerts and summaries to the log. It is for trying things out:
// an alert counts as delivered whether or not anybody reads the log.
package lognotify

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/notify"
)

// A Logger is a [notify.Notifier] and a [notify.Reporter] that writes each alert or summary as one line.
type Logger struct {
	log *zap.Logger
}

// New returns a Logger that writes to log.
func New(log *zap.Logger) *Logger { return &Logger{log: log} }

// Notify writes one alert at warn level, or at info level if it is resolved, even if log's level or
// sampling would drop the line: an alert that is reported as taken must be there. It blocks
// while the writer does.
func (l *Logger) Notify(ctx context.Context, alerts ...notify.Alert) error {
	a := alerts[0]
	level, what := zapcore.WarnLevel, " alert: "
	if a.Resolved {
		level, what = zapcore.InfoLevel, " resolved: "
	}
	temperature := a.Rule == notify.DefaultRule
	return l.write(ctx, "alert", level, a.Rule+what+a.Message(),
		zap.String("id", a.ID),
		zap.String("source", a.Source),
		zap.String("device", a.Device),
		when(a.PerValue != "", zap.String("per", a.PerValue)),
		zap.String("rule", a.Rule),
		when(a.Level != "", zap.String("alert_level", a.Level)),
		when(a.Resolved, zap.Bool("resolved", true)),
		when(a.Field != "", zap.String("field", a.Field)),
		when(a.Silent == 0, zap.Float64("value", a.Temperature)),
		when(a.Silent == 0, zap.Float64("limit", a.Threshold)),
		when(a.Silent > 0, zap.Duration("silent", a.Silent)),
		when(temperature, zap.Float64("temperature", a.Temperature)),
		when(temperature, zap.Float64("threshold", a.Threshold)),
		when(!a.Since.IsZero(), zap.Time("since", a.Since)),
		zap.Time("enqueuedTime", a.Enqueued),
		when(!a.DeviceTime.IsZero(), zap.Time("deviceTime", a.DeviceTime)),
		zap.String("partition", a.Partition),
		zap.Int64("sequence", a.Sequence),
		zap.Duration("window", a.Window),
		zap.Int64("token", a.Token),
		zap.Int64("suppressed", a.Suppressed),
		zap.String("replica", a.Replica),
		zap.Time("expires", a.Expires),
		when(a.Test, zap.Bool("test", true)),
	)
}

// when returns f, or a field that is not written.
func when(there bool, f zap.Field) zap.Field {
	if there {
		return f
	}
	return zap.Skip()
}

// Report writes s at info level, regardless of level and sampling like Notify.
func (l *Logger) Report(ctx context.Context, s notify.Summary) error {
	return l.write(ctx, "summary", zapcore.InfoLevel, s.Message(), zap.String("id", s.ID), zap.String("source", s.Source))
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
