package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	root   = "../.."
	azblob = "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
)

// memory is what azblob lacks for WebAssembly, where nothing can be mapped: its buffers for downloads.
const memory = `package shared

type Mmb []byte

func NewMMB(size int64) (Mmb, error) { return make(Mmb, size), nil }

func (m *Mmb) Delete() { *m = nil }
`

// build compiles the tests of cmd/alertworker to WebAssembly, with a copy of azblob that has what it lacks.
func build(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "simulate")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	copied, err := copyAzblob(ctx)
	if err != nil {
		return nil, err
	}

	modfile := filepath.Join(dir, "go.mod")

	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}

	if _, err := run(ctx, "go", "mod", "edit", "-replace="+azblob+"="+copied, modfile); err != nil {
		return nil, err
	}

	wasm := filepath.Join(dir, "simulation.wasm")
	compile := []string{"test", "-vet=off", "-trimpath", "-modfile=" + modfile, "-ldflags=-s -w", "-c", "-o", wasm}
	if _, err := run(ctx, "go", append(compile, "./cmd/alertworker")...); err != nil {
		return nil, err
	}

	return os.ReadFile(wasm)
}

// cacheDir is where what takes long stays between runs.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "alertworker-simulate"), err
}

// copyAzblob returns the directory of a copy of azblob that compiles. Its path stays the same, so that the build cache
// knows it.
func copyAzblob(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}

	from, err := run(ctx, "go", "list", "-m", "-f", "{{.Dir}}", azblob)
	if err != nil {
		return "", err
	}

	from = strings.TrimSpace(from)
	to := filepath.Join(cache, filepath.Base(from))
	lacks := filepath.Join(to, "internal", "shared", "mmf_wasip1.go")
	if _, err := os.Stat(lacks); err == nil {
		return to, nil
	}

	_ = os.RemoveAll(to)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return "", err
	}

	return to, os.WriteFile(lacks, []byte(memory), 0o600)
}

// run runs a command at the root of the repository, for WebAssembly, and returns what it prints.
func run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOWORK=off")
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errors.Bytes())
	}

	return string(out), nil
}
