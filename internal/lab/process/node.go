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
	"time"
)

// installWithin is for npm, which downloads packages: a minute, or many on a busy machine, where
// giving up would only mean beginning again.
const installWithin = 20 * time.Minute

// ErrNoNode says that Node.js is not installed.
var ErrNoNode = errors.New("install Node.js 20 or later, with npm")

// Node runs node with args in the root of the repository, as StartReady does, until
// it is killed or this process ends in any way. It first installs the packages of
// package-lock.json if they are missing.
func Node(ctx context.Context, name string, ready *regexp.Regexp, args ...string) (*Process, string, error) {
	root, err := install(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}
	// It ends when its standard input, to which nothing is written, is closed.
	cmd := exec.Command("node", append([]string{"--import", `data:text/javascript,process.stdin.on("end", () => process.exit()).resume()`}, args...)...)
	cmd.Dir = root
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

// Azurite is a blob service in memory.
type Azurite struct {
	*Process
	URL              string // of the account
	ConnectionString string
}

var azuriteReady = regexp.MustCompile(`successfully listens on (http://\S+)`)

// StartAzurite starts an empty blob service on loopback.
func StartAzurite(ctx context.Context) (*Azurite, error) {
	return startAzurite(ctx, "0", "--inMemoryPersistence")
}

// StartAzuriteAt starts a blob service at that port of loopback, or any if it is 0. It has what is in dir, and
// saves what it gets there every 5 s: being killed costs it no more.
func StartAzuriteAt(ctx context.Context, port, dir string) (*Azurite, error) {
	return startAzurite(ctx, port, "--location", dir)
}

func startAzurite(ctx context.Context, port string, args ...string) (*Azurite, error) {
	p, url, err := Node(ctx, "Azurite", azuriteReady, append([]string{"node_modules/azurite/dist/src/blob/main.js",
		"--blobHost", "127.0.0.1", "--blobPort", port, "--silent", "--disableTelemetry"}, args...)...)
	if err != nil {
		return nil, err
	}
	url += "/" + AzuriteAccount
	return &Azurite{p, url, fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;", AzuriteAccount, AzuriteKey, url)}, nil
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
	if (request.method === "GET" && request.url.includes("/docs/")) request.headers["x-ms-documentdb-query-enablecrosspartition"] = "True";
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

// install makes sure that the Node programs are there and returns the root of
// the repository.
func install(ctx context.Context) (root string, err error) {
	if _, err := exec.LookPath("npm"); err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNoNode, err)
	}
	if root, err = repository(); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(root, "package-lock.json"))
	if err != nil {
		return "", fmt.Errorf("lock package-lock.json: %w", err)
	}
	defer unlock()
	if current(filepath.Join(root, "node_modules", ".package-lock.json"), filepath.Join(root, "package-lock.json")) {
		return root, nil
	}
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	npm.Dir = root
	npm.WaitDelay = time.Second
	bind(npm)
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("run npm ci in %s: %w\n%s", root, errors.Join(err, ctx.Err()), strings.TrimSpace(string(out)))
	}
	return root, nil
}

// current reports whether what npm installed, which it records last, is no older than the
// list of what to install.
func current(installed, list string) bool {
	is, err := os.Stat(installed)
	if err != nil {
		return false
	}
	wanted, err := os.Stat(list)
	return err == nil && !is.ModTime().Before(wanted.ModTime())
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
