package main

import (
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"alertworker/internal/config"
)

// newLogger returns a logger that writes to out in LOG_FORMAT from LOG_LEVEL up;
// both must be valid. It drops nothing: sampling could drop the line of an alert
// that nobody received. Messages that can repeat quickly are limited where they are
// logged. The caller ends with Sync, whose error means nothing on a terminal or a
// pipe.
func newLogger(c config.Config, out *os.File) *zap.Logger {
	level, _ := zapcore.ParseLevel(string(c.LogLevel)) // which Load has checked
	coloured := c.LogFormat == config.LogConsole && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(out.Fd()))
	sink := zapcore.Lock(out)
	core := zapcore.NewCore(newEncoder(c.LogFormat, coloured), sink, level)
	return zap.New(core, zap.ErrorOutput(sink), zap.WithClock(clockIn{c.Zone()}))
}

// A clockIn is this machine's clock, in the zone in which people read times.
type clockIn struct{ zone *time.Location }

func (c clockIn) Now() time.Time                         { return time.Now().In(c.zone) }
func (c clockIn) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }

func newEncoder(format config.Choice, coloured bool) zapcore.Encoder {
	e := zapcore.EncoderConfig{
		TimeKey:        "time",
		LevelKey:       "level",
		NameKey:        "logger",
		MessageKey:     "msg",
		StacktraceKey:  "stack",
		EncodeTime:     zapcore.RFC3339NanoTimeEncoder,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	}

	if format == config.LogJSON {
		return zapcore.NewJSONEncoder(e)
	}

	e.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	e.EncodeLevel = zapcore.CapitalLevelEncoder
	if coloured {
		e.EncodeLevel = zapcore.CapitalColorLevelEncoder
	}

	e.ConsoleSeparator = "  "

	return zapcore.NewConsoleEncoder(e)
}
