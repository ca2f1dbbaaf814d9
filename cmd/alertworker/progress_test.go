package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// How far something is is said every second in one line of a terminal, and elsewhere every 30 s in a line of its own.
func TestMeter(t *testing.T) {
	for terminal, want := range map[bool]string{
		true:  "\r\x1b[K10 of 90, 80 s left\r\x1b[K20 of 90, 70 s left\r\x1b[K30 of 90, 60 s left\r\x1b[K",
		false: "30 of 90, 60 s left\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			var b strings.Builder
			m := newMeter()
			m.to, m.terminal = &b, terminal
			m.due = m.began.Add(m.every())
			for _, done := range []string{"10 of 90", "20 of 90", "30 of 90"} {
				time.Sleep(10 * time.Second)
				m.say(time.Since(m.began).Seconds()/90, done)
				m.say(1, "too soon")
			}
			m.end()
			if b.String() != want {
				t.Errorf("got %q, want %q", b.String(), want)
			}
		})
	}
}
