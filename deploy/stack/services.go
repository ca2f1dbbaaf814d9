package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// A service is a process that others connect to.
type service struct {
	*process
	address string // the connection string
}

// build builds alertworker into dir and returns its path.
func build(ctx context.Context, root, dir string) (string, error) {
	binary := filepath.Join(dir, "alertworker")
	return binary, tool(ctx, root, "go", "build", "-buildvcs=false", "-o", binary, "./cmd/alertworker")
}

// What every Azurite has, as its documentation says.
const (
	azuriteAccount = "devstoreaccount1"
	azuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

var azuriteReady = regexp.MustCompile(`successfully listens on (http://\S+)`)

// startAzurite starts an empty blob service in memory. It installs it first,
// as package-lock.json says, where it is missing.
func startAzurite(ctx context.Context, root string) (*service, error) {
	if _, err := exec.LookPath("npm"); err != nil {
		return nil, fmt.Errorf("start Azurite: install Node.js 20 or later, with npm: %w", err)
	}
	// npm writes this file last.
	if _, err := os.Stat(filepath.Join(root, "node_modules", ".package-lock.json")); err != nil {
		if err := tool(ctx, root, "npm", "ci"); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("node", "node_modules/azurite/dist/src/blob/main.js",
		"--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck")
	cmd.Dir = root
	p, url, err := startReady(ctx, "Azurite", cmd, azuriteReady)
	if err != nil {
		return nil, err
	}
	return &service{p, fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=%s/%[1]s;", azuriteAccount, azuriteKey, url)}, nil
}

var hubReady = regexp.MustCompile(`^(Endpoint=sb://\S+)$`)

// startHub starts `alertworker devhub`.
func startHub(ctx context.Context, binary string, partitions int) (*service, error) {
	cmd := exec.Command(binary, "devhub", "--addr", "127.0.0.1:0", "--partitions", strconv.Itoa(partitions))
	p, address, err := startReady(ctx, "devhub", cmd, hubReady)
	if err != nil {
		return nil, err
	}
	return &service{p, address}, nil
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
