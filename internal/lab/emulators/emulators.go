// Package emulators starts emulators of Azure services for tests: Node programs, in the
// versions of package-lock.json at the root of the repository.
package emulators

import (
	"errors"
	"net/http"
	"os"
	"regexp"
	"testing"

	"alertworker/internal/azure"
	"alertworker/internal/lab/process"
)

// SkipEnv is the environment variable that, set to 1, skips the tests that need Node.js, or programs for it.
const SkipEnv = "ALERTWORKER_SKIP_NODE"

// NeedNode skips the test if tests that need Node.js are to be skipped.
func NeedNode(tb testing.TB) {
	tb.Helper()
	if os.Getenv(SkipEnv) == "1" {
		tb.Skipf("it needs Node.js, and %s=1", SkipEnv)
	}
}

// started ends the test if err says that a program did not start.
func started(tb testing.TB, err error) {
	tb.Helper()

	switch {
	case errors.Is(err, process.ErrNoNode):
		tb.Fatalf("%v, or set %s=1 to skip the test", err, SkipEnv)
	case err != nil:
		tb.Fatal(err)
	}
}

// newTransport returns what carries requests until tb ends.
func newTransport(tb testing.TB) http.RoundTripper {
	client := azure.NewHTTPClient()
	tb.Cleanup(client.CloseIdleConnections)
	return client.Transport
}

// Cosmos is a Cosmos DB account in memory.
type Cosmos struct {
	*process.Cosmos
	transport http.RoundTripper
}

// StartCosmos starts an empty account that runs until tb ends.
func StartCosmos(tb testing.TB) *Cosmos {
	tb.Helper()
	NeedNode(tb)
	cosmos, err := process.StartCosmos(tb.Context())
	started(tb, err)
	tb.Cleanup(cosmos.Kill)

	return &Cosmos{cosmos, newTransport(tb)}
}

// Transport carries the account's requests.
func (c *Cosmos) Transport() http.RoundTripper { return c.transport }

// Node runs node with args in the root of the repository until tb ends, and returns what
// the first group of ready matched in its output.
func Node(tb testing.TB, ready *regexp.Regexp, args ...string) string {
	tb.Helper()
	NeedNode(tb)
	p, match, err := process.Node(tb.Context(), "node", ready, args...)
	started(tb, err)
	tb.Cleanup(p.Kill)

	return match
}
