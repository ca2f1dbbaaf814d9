// Package lognotify writes alerts to the log, for trying things out: it settles
// alerts that perhaps nobody reads.
package lognotify

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/notify"
)

// Name is what the receiver is called in metrics and keys.
const Name = "log"

// A Logger is a [notify.Notifier] that writes each alert as one line.
type Logger struct {
	log *zap.Logger
}

// New returns a Logger that writes to log.
func New(log *zap.Logger) *Logger { return &Logger{log: log} }

// Notify writes a at warn level, also where log keeps such lines back by level
// or sampling: an alert that is reported as taken must be there. A writer that
// blocks blocks Notify, as it blocks everything that logs.
func (l *Logger) Notify(ctx context.Context, a notify.Alert) error {
	if err := ctx.Err(); err != nil {
		return &notify.Error{Untaken: true, Err: fmt.Errorf("write alert to the log: %w", context.Cause(ctx))}
	}
	entry := zapcore.Entry{
		Level:      zapcore.WarnLevel,
		Time:       time.Now(),
		LoggerName: l.log.Name(),
		Message:    "temperature alert",
	}
	if a.Test {
		entry.Message = "temperature alert (test)"
	}
	// Core.Write, unlike the Logger's methods, neither filters nor hides a failure.
	err := l.log.Core().Write(entry, []zapcore.Field{
		zap.String("id", a.ID),
		zap.String("source", a.Source),
		zap.String("device", a.Device),
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
	})
	if err != nil {
		return &notify.Error{Err: fmt.Errorf("write alert to the log: %w", err)}
	}
	return nil
}
