package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// ErrNoNode says that Node.js is not installed.
var ErrNoNode = errors.New("install Node.js 20 or later, with npm")

// Node runs node with args in the root of the repository, as StartReady does, until
// it is killed or this process ends in any way.
func Node(ctx context.Context, name string, ready *regexp.Regexp, args ...string) (*Process, string, error) {
	return node(ctx, name, nil, ready, args...)
}

// node is Node with more in the program's environment.
func node(
	ctx context.Context,
	name string,
	env []string,
	ready *regexp.Regexp,
	args ...string,
) (*Process, string, error) {
	root, err := installed()
	if err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}

	// It ends when its standard input, to which nothing is written, is closed.
	cmd := exec.Command(
		"node",
		append(
			[]string{"--import", `data:text/javascript,process.stdin.on("end", () => process.exit()).resume()`},
			args...)...)

	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}

	return StartReady(ctx, name, cmd, ready)
}

// What every Azurite has, as its documentation says.
const (
	AzuriteAccount = "devstoreaccount1"
	AzuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Azurite is an account of a blob service.
type Azurite struct {
	*Process
	URL              string // of the account
	ConnectionString string
}

var azuriteReady = regexp.MustCompile(`successfully listens on (http://\S+)`)

// StartAzurite starts a blob service on loopback, which is empty and saves nothing.
func StartAzurite(ctx context.Context) (*Azurite, error) {
	all, err := StartAzuriteOf(ctx, []string{AzuriteAccount})
	if err != nil {
		return nil, err
	}

	return all[0], nil
}

// StartAzuriteOf is StartAzurite for a service that has accounts of these names. It returns each.
func StartAzuriteOf(ctx context.Context, accounts []string) ([]*Azurite, error) {
	keys := make([]string, len(accounts))
	for i, name := range accounts {
		keys[i] = name + ":" + AzuriteKey
	}

	p, service, err := node(
		ctx,
		"Azurite",
		[]string{"AZURITE_ACCOUNTS=" + strings.Join(keys, ";")},
		azuriteReady,
		"node_modules/azurite/dist/src/blob/main.js",
		"--blobHost",
		"127.0.0.1",
		"--blobPort",
		"0",
		"--silent",
		"--disableTelemetry",
		"--inMemoryPersistence",
	)
	if err != nil {
		return nil, err
	}

	all := make([]*Azurite, len(accounts))
	for i, name := range accounts {
		all[i] = newAzurite(p, service+"/", name)
	}

	return all, nil
}

// newAzurite returns an account of the service that has this URL.
func newAzurite(p *Process, service, account string) *Azurite {
	return &Azurite{
		p,
		service + account,
		fmt.Sprintf(
			"DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;",
			account,
			AzuriteKey,
			service+account,
		),
	}
}

// Cosmos is a Cosmos DB account in memory. It knows ETags; it does not know
// time to live, throttling, accounts' keys or more than one region.
type Cosmos struct {
	*Process
	ConnectionString string
}

var cosmosReady = regexp.MustCompile(`listens on (http://\S+)`)

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

// StartCosmos starts an empty account on loopback.
func StartCosmos(ctx context.Context) (*Cosmos, error) {
	p, url, err := Node(ctx, "the Cosmos DB emulator", cosmosReady, "-e", cosmosScript)
	if err != nil {
		return nil, err
	}

	return &Cosmos{p, "AccountEndpoint=" + url + "/;AccountKey=c3RhbmQtaW4=;"}, nil
}

// installed returns the root of the repository, where node and the Node programs are installed.
func installed() (root string, err error) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNoNode, err)
	}

	if root, err = repository(); err != nil {
		return "", err
	}

	if _, err := os.Stat(filepath.Join(root, "node_modules")); err != nil {
		return "", fmt.Errorf("run npm ci in %s: %w", root, err)
	}

	return root, nil
}

// repository returns the directory at or above the working directory that has
// the go.mod.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}

	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}

		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod at or above the working directory: run it in the repository")
		}

		dir = parent
	}
}
