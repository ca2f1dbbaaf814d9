//go:build race

package worker

import "runtime"

// All timers of a bubble of testing/synctest share one context of the race detector. With Go 1.26.8, a timer that fires
// there and a channel of another one that is asked on a second thread at the same time corrupt it, and the test dies of
// a SIGSEGV in __sanitizer::StackDepot, once in tens of runs. With one thread at a time the detector still sees what is
// not ordered.
func init() { runtime.GOMAXPROCS(1) }
