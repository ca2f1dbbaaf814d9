// Package standin starts, for tests, the programs that stand in for Azure
// services. They are Node programs, installed as package-lock.json at the root
// of the repository says.
package standin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// SkipEnv is the environment variable that, set to 1, skips the tests that need
// Node where there is none.
const SkipEnv = "ALERTWORKER_SKIP_NODE"

const (
	installWithin = 5 * time.Minute
	startWithin   = time.Minute
	stopWithin    = 5 * time.Second
)

// Node runs node with args in the root of the repository until tb ends, or this
// process does in any way. It installs what is missing first. It returns, once
// the program's standard output has a line that matches ready, what ready's
// first group matched.
func Node(tb testing.TB, ready *regexp.Regexp, args ...string) string {
	tb.Helper()
	root := install(tb)

	// The program ends when its standard input does, so it does not outlive a
	// test process that is killed.
	args = append([]string{"--import", `data:text/javascript,process.stdin.on("end", () => process.exit()).resume()`}, args...)
	cmd := exec.Command("node", args...)
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = stopWithin
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatalf("run node: %v", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatalf("run node: %v", err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("run node: %v", err)
	}
	late := time.AfterFunc(startWithin, func() { _ = cmd.Process.Kill() })
	found := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(found)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if m := ready.FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
				break
			}
		}
		_, _ = io.Copy(io.Discard, stdout)
	}()
	tb.Cleanup(func() {
		_ = stdin.Close()
		late.Reset(stopWithin)
		<-read
		_ = cmd.Wait()
		late.Stop()
	})
	match, ok := <-found
	if !ok {
		tb.Fatalf("run node %q: it ended before it was ready", args[2:])
	}
	late.Stop()
	return match
}

// install makes sure that the Node programs are there and returns the root of
// the repository.
func install(tb testing.TB) string {
	tb.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv(SkipEnv) == "1" {
			tb.Skipf("Node.js is not installed, and %s=1", SkipEnv)
		}
		tb.Fatalf("this test runs against a stand-in that needs Node.js 20 or later, with npm: install it, or set %s=1 to skip the test (%v)", SkipEnv, err)
	}
	root, err := repository()
	if err != nil {
		tb.Fatal(err)
	}
	// npm writes this file last.
	installed := filepath.Join(root, "node_modules", ".package-lock.json")
	unlock, err := lock(filepath.Join(root, "package-lock.json"))
	if err != nil {
		tb.Fatalf("lock package-lock.json: %v", err)
	}
	defer unlock()
	if current(installed, filepath.Join(root, "package-lock.json")) {
		return root
	}
	ctx, cancel := context.WithTimeout(tb.Context(), installWithin)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci")
	npm.Dir = root
	if out, err := npm.CombinedOutput(); err != nil {
		tb.Fatalf("npm ci in %s: %v\n%s", root, err, out)
	}
	return root
}

// current says whether what was installed is no older than the list of what to install.
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
			return "", fmt.Errorf("no go.mod at or above the working directory")
		}
		dir = parent
	}
}
