package emulators

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"alertworker/internal/lab/process"
)

// SkipEnv is the environment variable that, set to 1, skips the tests that need Node.js, or programs for it.
const SkipEnv = "ALERTWORKER_SKIP_NODE"

// needNode skips the test if tests that need Node.js are to be skipped.
func needNode(tb testing.TB) {
	tb.Helper()
	if os.Getenv(SkipEnv) == "1" {
		tb.Skipf("it needs Node.js, and %s=1", SkipEnv)
	}
}

// Node runs node with args in the root of the repository until tb ends, and returns what
// the first group of ready matched in its output.
func Node(tb testing.TB, ready *regexp.Regexp, args ...string) string {
	tb.Helper()
	needNode(tb)
	p, match, err := node(tb.Context(), "node", nil, ready, args...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Kill)

	return match
}

// node runs node with args in the root of the repository, with more in its environment, as process.StartReady does,
// until it is killed or this process ends in any way.
func node(
	ctx context.Context,
	name string,
	env []string,
	ready *regexp.Regexp,
	args ...string,
) (*process.Process, string, error) {
	if _, err := exec.LookPath("node"); err != nil {
		return nil, "", fmt.Errorf("start %s: install Node.js 20 or later, with npm, or set %s=1 to skip the test (%w)", name, SkipEnv, err)
	}

	root, err := repository()
	if err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}

	if _, err := os.Stat(filepath.Join(root, "node_modules")); err != nil {
		return nil, "", fmt.Errorf("start %s: run npm ci in %s: %w", name, root, err)
	}

	// It ends when its standard input, to which nothing is written, is closed.
	ends := `data:text/javascript,process.stdin.on("end", () => process.exit()).resume()`
	cmd := exec.Command("node", append([]string{"--import", ends}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}

	return process.StartReady(ctx, name, cmd, ready)
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
