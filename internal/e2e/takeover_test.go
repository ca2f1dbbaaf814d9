//go:build unix

package e2e_test

import (
	"slices"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/standin"
)

// How long do partitions go unread when their worker ends, with the default
// OWNERSHIP_EXPIRY and BALANCE_INTERVAL?
//
//	go test -run TakeoverTime -v ./internal/e2e -takeover
func TestTakeoverTime(t *testing.T) {
	if !*takeover {
		t.Skip("takes minutes: set -takeover to measure")
	}
	busytest.Run(t, measureTakeover)
}

func measureTakeover(t *busytest.Attempt) {
	w := newWorld(t, standin.StartAzurite(t.T).ConnectionString, settings{env: []string{"OWNERSHIP_EXPIRY=30s", "BALANCE_INTERVAL=5s"}})
	w.start("a", "b", "c")
	w.ready()
	for _, how := range []struct {
		name string
		end  func(name string)
	}{
		{"kill -9", w.kill},
		{"SIGTERM", func(name string) { w.stop(name) }},
	} {
		var times []time.Duration
		for range 5 {
			w.pass(w.between(0, 5*time.Second))
			began := time.Now()
			how.end("a")
			within(t.T, startWithin, "the partitions are read again", func() bool { w.alive(); return w.devhub.Readers("") == 8 })
			times = append(times, time.Since(began).Round(10*time.Millisecond))
			w.start("a")
			w.ready()
		}
		slices.Sort(times)
		t.Logf("after %s all partitions are read again within %v", how.name, times)
	}
}
