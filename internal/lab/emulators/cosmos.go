package emulators

import (
	"net/http"
	"testing"

	"alertworker/internal/azure"
	"alertworker/internal/lab/process"
)

// Cosmos is a Cosmos DB account in memory.
type Cosmos struct {
	*process.Cosmos
	client *http.Client
}

// StartCosmos starts an empty account that runs until tb ends.
func StartCosmos(tb testing.TB) *Cosmos {
	tb.Helper()
	cosmos, err := process.StartCosmos(tb.Context())
	started(tb, err)
	tb.Cleanup(cosmos.Kill)
	client := azure.NewHTTPClient()
	tb.Cleanup(client.CloseIdleConnections)
	return &Cosmos{cosmos, client}
}

// Transport returns what carries the account's requests.
func (c *Cosmos) Transport() http.RoundTripper { return c.client.Transport }
