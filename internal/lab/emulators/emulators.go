// Package emulators starts emulators of Azure services for tests: Node programs, in the
// versions of package-lock.json at the root of the repository.
package emulators

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	"alertworker/internal/azure"
)

// newTransport returns what carries requests until tb ends.
func newTransport(tb testing.TB) http.RoundTripper {
	client := azure.NewHTTPClient()
	tb.Cleanup(client.CloseIdleConnections)
	// Node closes what is idle for 5 s, also if a request comes just then: who writes gets no answer.
	client.Transport.(*http.Transport).IdleConnTimeout = 2 * time.Second
	return client.Transport
}

// Cosmos is a Cosmos DB account in memory. It knows ETags; it does not know
// time to live, throttling, accounts' keys or more than one region.
type Cosmos struct {
	ConnectionString string

	transport http.RoundTripper
}

// The package's own command closes every connection after one request, and it does not
// report that an item is missing unless the request is for all partitions.
const cosmosScript = `
const server = require("@vercel/cosmosdb-server").createHttpServer({keepAlive: true});
server.keepAliveTimeout = 0;
server.prependListener("request", request => {
	if (request.method === "GET" && request.url.includes("/docs/")) {
		request.headers["x-ms-documentdb-query-enablecrosspartition"] = "True";
	}
});
server.listen(0, "127.0.0.1", () => console.log("listens on http://127.0.0.1:" + server.address().port));
`

// StartCosmos starts an empty account that runs until tb ends.
func StartCosmos(tb testing.TB) *Cosmos {
	tb.Helper()
	url := Node(tb, regexp.MustCompile(`listens on (http://\S+)`), "-e", cosmosScript)

	return &Cosmos{"AccountEndpoint=" + url + "/;AccountKey=c3RhbmQtaW4=;", newTransport(tb)}
}

// Transport carries the account's requests.
func (c *Cosmos) Transport() http.RoundTripper { return c.transport }
