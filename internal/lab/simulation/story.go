package simulation

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// A Story is what happened in a world, line by line: readings, faults, what replicas decided and asked, and messages.
// A nil one is not written. It is safe for concurrent use.
type Story struct {
	mu    sync.Mutex
	began time.Time
	text  bytes.Buffer
}

// Bytes returns what has been told so far.
func (s *Story) Bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.text.Bytes())
}

func (s *Story) say(who, format string, a ...any) {
	if s == nil {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	fmt.Fprintf(&s.text, "%11.6f %-9s ", time.Since(s.began).Seconds(), who)
	fmt.Fprintf(&s.text, format, a...)
	s.text.WriteByte('\n')
}

// logger returns the log of a replica, as far as that is a part of the story.
func (s *Story) logger(b *body) *zap.Logger {
	if s == nil {
		return zap.NewNop()
	}

	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{
		MessageKey:       "m",
		LevelKey:         "l",
		ConsoleSeparator: " ",
		SkipLineEnding:   true,
		EncodeLevel:      zapcore.LowercaseLevelEncoder,
		EncodeTime:       zapcore.ISO8601TimeEncoder,
		EncodeDuration:   zapcore.StringDurationEncoder,
	})

	return zap.New(zapcore.NewCore(encoder, teller{s, b}, zap.DebugLevel))
}

// A teller is what a replica's log is written to.
type teller struct {
	story *Story
	of    *body
}

func (t teller) Write(line []byte) (int, error) {
	if t.of.alive() {
		t.story.say(t.of.name, "%s", bytes.TrimSpace(line))
	}
	return len(line), nil
}

func (teller) Sync() error { return nil }
