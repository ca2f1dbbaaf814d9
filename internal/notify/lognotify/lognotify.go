// Package lognotify writes alerts to the log. It is for trying things out:
// an alert counts as delivered whether or not anybody reads the log.
package lognotify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/notify"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

// A Logger is a [notify.Notifier] that writes each alert as one line: a sentence, and the event that webhooks get.
type Logger struct {
	log   *zap.Logger
	style wording.Style
}

// New returns a Logger that writes to log.
func New(log *zap.Logger, style wording.Style) *Logger { return &Logger{log, style} }

// Notify writes one alert at warn level, or at info level if it is resolved, even if log's level or
// sampling would drop the line: an alert that is reported as taken must be there. It blocks
// while the writer does.
func (l *Logger) Notify(ctx context.Context, alerts ...notify.Alert) error {
	a := alerts[0]
	level, what := zapcore.WarnLevel, " alert: "
	if a.Resolved {
		level, what = zapcore.InfoLevel, " resolved: "
	}

	event, err := webhook.Encode(a, l.style)
	switch {
	case err != nil:
		return &notify.Error{Refused: true, Untaken: true, Err: err}
	case ctx.Err() != nil:
		return &notify.Error{Untaken: true, Err: notify.Ended(ctx, "write alert to the log")}
	}

	// Core.Write, unlike the Logger's methods, neither filters nor hides a failure.
	message := a.Rule + what + l.style.Message(a)
	entry := zapcore.Entry{Level: level, Time: time.Now().In(cmp.Or(l.style.Zone, time.UTC)), LoggerName: l.log.Name(), Message: message}
	if err := l.log.Core().Write(entry, []zap.Field{zap.Reflect("event", json.RawMessage(event))}); err != nil {
		return &notify.Error{Err: fmt.Errorf("write alert to the log: %w", err)}
	}

	return nil
}
