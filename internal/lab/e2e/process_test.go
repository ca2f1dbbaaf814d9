//go:build unix

package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// exitWithin is for a process that has been asked to end and has nothing to do.
const exitWithin = time.Minute

// A process is one that the test started. It ends with the test at the latest.
type process struct {
	t              *testing.T
	name           string
	cmd            *exec.Cmd
	stdout, stderr output
	done           chan struct{} // closed when it has ended
}

// alertworker starts the command with no environment but env.
func alertworker(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, name, env, path, args...)
}

func start(t *testing.T, name string, env []string, path string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append([]string{}, env...) // not nil: that means ours
	return run(t, name, cmd)
}

func run(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = attributes()
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(p.close)
	return p
}

// close kills the process if it runs, and looks for what it must never say.
func (p *process) close() {
	p.signal(syscall.SIGKILL)
	<-p.done
	for _, bad := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if strings.Contains(p.stderr.String(), bad) {
			_, after, _ := strings.Cut(p.stderr.String(), bad)
			p.t.Errorf("%s says %q%s", p.name, bad, after[:min(len(after), 4000)])
		}
	}
	if p.t.Failed() {
		p.t.Logf("%s: %v\n%s%s", p.name, p.cmd.ProcessState, p.stdout.last(10), p.stderr.last(40))
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends the process without asking.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *process) freeze() {
	p.t.Helper()
	freeze(p.t, p.cmd.Process)
}

// thaw lets a frozen process go on.
func (p *process) thaw() { p.signal(syscall.SIGCONT) }

// freeze stops a process and returns once it does nothing any more: on a busy
// machine its threads go on for a while after the signal.
func freeze(t *testing.T, p *os.Process) {
	t.Helper()
	_ = p.Signal(syscall.SIGSTOP)
	within(t, exitWithin, fmt.Sprintf("process %d stops", p.Pid), func() bool {
		yes, err := stopped(p.Pid)
		if err != nil {
			t.Fatalf("ask for the state of process %d: %v", p.Pid, err)
		}
		return yes
	})
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// wait waits for the end of the process and checks its exit code.
func (p *process) wait(limit time.Duration, code int) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("%s did not end within %v", p.name, limit)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Fatalf("%s: %v, want exit code %d", p.name, p.cmd.ProcessState, code)
	}
}

// find waits until standard output has what re matches, and returns its first group.
func (p *process) find(limit time.Duration, re *regexp.Regexp) string {
	p.t.Helper()
	var found []string
	if !eventually(limit, func() bool {
		ended := !p.running()
		found = re.FindStringSubmatch(p.stdout.String())
		return found != nil || ended
	}) || found == nil {
		p.t.Fatalf("%s did not write %v within %v", p.name, re, limit)
	}
	return found[1]
}

// An output is what a process has written, up to a bound. It is safe for
// concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const maxOutput = 16 << 20

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Len()+len(b) > maxOutput {
		return 0, errors.New("a process writes too much")
	}
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// last returns the last n lines.
func (o *output) last(n int) string {
	lines := strings.SplitAfter(o.String(), "\n")
	if left := len(lines) - n; left > 0 {
		return fmt.Sprintf("[%d lines]\n", left) + strings.Join(lines[left:], "")
	}
	return strings.Join(lines, "")
}
