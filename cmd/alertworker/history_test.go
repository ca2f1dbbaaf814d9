package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// How far something is is said every 10 s.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		m := newMeter()
		m.to = &b
		for _, done := range []string{"5 of 90", "10 of 90", "15 of 90", "20 of 90"} {
			time.Sleep(5 * time.Second)
			m.say(time.Since(m.began).Seconds()/90, done)
			m.say(1, "too soon")
		}
		if want := "10 of 90, 80 s left\n20 of 90, 70 s left\n"; b.String() != want {
			t.Errorf("got %q, want %q", b.String(), want)
		}
	})
}
