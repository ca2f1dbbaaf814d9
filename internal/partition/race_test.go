//go:build race

package partition

import "runtime"

const raceEnabled = true

// See race_test.go in internal/worker: timers of a bubble, on two threads at once, crash under the race detector.
func init() { runtime.GOMAXPROCS(1) }
