package emulators

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"alertworker/internal/azure"
	"alertworker/internal/lab/process"
)

// Cosmos is a Cosmos DB account in memory. It knows ETags; it does not know
// time to live, throttling, accounts' keys or more than one region.
type Cosmos struct {
	ConnectionString string

	client *http.Client
}

var cosmosReady = regexp.MustCompile(`listens on (http://\S+)`)

// The package's own command closes every connection after one request.
const cosmosScript = `
const server = require("@vercel/cosmosdb-server").createHttpServer({keepAlive: true});
server.keepAliveTimeout = 0;
server.listen(0, "127.0.0.1", () => console.log("listens on http://127.0.0.1:" + server.address().port));
`

// StartCosmos starts an empty account that runs until tb ends.
func StartCosmos(tb testing.TB) *Cosmos {
	tb.Helper()
	server, url, err := process.Node(tb.Context(), "the Cosmos DB emulator", cosmosReady, "-e", cosmosScript)
	started(tb, err)
	tb.Cleanup(server.Kill)
	client := azure.NewHTTPClient()
	tb.Cleanup(client.CloseIdleConnections)
	return &Cosmos{
		ConnectionString: "AccountEndpoint=" + url + "/;AccountKey=c3RhbmQtaW4=;",
		client:           client,
	}
}

// Transport returns what carries the account's requests.
func (c *Cosmos) Transport() http.RoundTripper { return cosmosTransport{c.client.Transport} }

type cosmosTransport struct{ next http.RoundTripper }

// RoundTrip works around a fault of the emulator, which does not report that an item
// is missing unless the request is for all partitions.
func (t cosmosTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/docs/") {
		req = req.Clone(req.Context())
		req.Header.Set("X-Ms-Documentdb-Query-Enablecrosspartition", "True")
	}
	return t.next.RoundTrip(req)
}
