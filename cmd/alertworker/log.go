package main

import (
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/config"
)

// newLogger returns a logger that writes to out in LOG_FORMAT from LOG_LEVEL up;
// both must be valid. It drops nothing: sampling could drop the line of an alert
// that nobody received. Messages that can repeat quickly are limited where they are
// logged. The caller ends with Sync, whose error means nothing on a terminal or a
// pipe.
func newLogger(c config.Config, out *os.File) *zap.Logger {
	level, _ := zapcore.ParseLevel(string(c.LogLevel)) // which Load has checked
	sink := zapcore.Lock(out)
	core := zapcore.NewCore(newEncoder(c.LogFormat, c.Zone()), sink, level)
	return zap.New(core, zap.ErrorOutput(sink))
}

// newEncoder returns what writes lines in a format, with times in a zone.
func newEncoder(format config.Choice, zone *time.Location) zapcore.Encoder {
	e := zapcore.EncoderConfig{
		TimeKey:        "time",
		LevelKey:       "level",
		NameKey:        "logger",
		MessageKey:     "msg",
		StacktraceKey:  "stack",
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	}

	in := func(layout string) zapcore.TimeEncoder {
		return func(t time.Time, to zapcore.PrimitiveArrayEncoder) { to.AppendString(t.In(zone).Format(layout)) }
	}
	if format == config.LogJSON {
		e.EncodeTime = in(time.RFC3339Nano)
		return zapcore.NewJSONEncoder(e)
	}

	e.EncodeTime = in("15:04:05.000")
	e.EncodeLevel = zapcore.CapitalLevelEncoder
	e.ConsoleSeparator = "  "

	return zapcore.NewConsoleEncoder(e)
}
