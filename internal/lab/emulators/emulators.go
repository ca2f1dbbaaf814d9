// Package emulators starts emulators of Azure services for tests: Node programs, in the
// versions of package-lock.json at the root of the repository.
package emulators

import (
	"errors"
	"os"
	"regexp"
	"testing"

	"alertworker/internal/lab/process"
)

// SkipEnv is the environment variable that, set to 1, skips the tests that need Node.js
// where it is not installed.
const SkipEnv = "ALERTWORKER_SKIP_NODE"

// started ends the test if err says that a program did not start.
func started(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case errors.Is(err, process.ErrNoNode) && os.Getenv(SkipEnv) == "1":
		tb.Skipf("Node.js is not installed, and %s=1", SkipEnv)
	case errors.Is(err, process.ErrNoNode):
		tb.Fatalf("%v, or set %s=1 to skip the test", err, SkipEnv)
	case err != nil:
		tb.Fatal(err)
	}
}

// Node runs node with args in the root of the repository until tb ends, and returns what
// the first group of ready matched in its output.
func Node(tb testing.TB, ready *regexp.Regexp, args ...string) string {
	tb.Helper()
	p, match, err := process.Node(tb.Context(), "node", ready, args...)
	started(tb, err)
	tb.Cleanup(p.Kill)
	return match
}
