// Package busytest is for tests that take real time, on machines that may be busy
// with something else.
package busytest

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// attempts is how many a test gets, unless its run would end before. Up to the fourth, each has twice the time of the one
// before, and then as much as that.
const attempts = 9

// pause is how long after its fourth attempt a test waits for a quieter machine, then twice as long each time: five
// minutes in all, in which the other tests of a run end.
var pause = 10 * time.Second

// An Attempt is one try of a test, a subtest of its own.
type Attempt struct {
	*testing.T
	factor time.Duration
	missed string
}

// again is held by every attempt but the first: these run one at a time, so that tests
// that are too much for the machine together do not compete.
var again sync.Mutex

// Run runs test until an attempt ends without Missed. It fails t if none of nine does, or if the next one could last until
// the run's timeout, so that a machine that is too slow never passes, and says why.
func Run(t *testing.T, test func(a *Attempt)) {
	t.Helper()
	for n := 1; ; n++ {
		a := &Attempt{factor: 1 << min(n-1, 3)}
		start := time.Now()
		t.Run(fmt.Sprintf("attempt %d", n), func(t *testing.T) {
			if n > 1 {
				again.Lock()
				defer again.Unlock()
			}
			a.T = t
			test(a)
		})
		if a.missed == "" || t.Failed() {
			return
		}

		var wait time.Duration
		if n >= 4 {
			wait = pause << (n - 4)
		}
		end, limited := t.Deadline()
		isLast := limited && time.Until(end) < wait+3*time.Since(start)
		if n == attempts || isLast {
			t.Fatalf("this machine was too slow in all %d attempts; in the last, %s", n, a.missed)
		}
		t.Logf("this machine was too slow in attempt %d: %s", n, a.missed)
		time.Sleep(wait)
	}
}

// Time returns d, longer in later attempts: for what a slow machine can miss.
func (a *Attempt) Time(d time.Duration) time.Duration { return d * a.factor }

// Missed ends the attempt: a precondition of the test was not met in time, so it shows
// nothing. Another attempt follows. It must be called by the test's goroutine.
func (a *Attempt) Missed(format string, args ...any) {
	a.Helper()
	a.missed = fmt.Sprintf(format, args...)
	a.Skip("too slow: " + a.missed)
}
