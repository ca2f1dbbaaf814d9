// Package process runs other programs: workers that can be killed, and emulators of
// Azure services, which are Node programs.
package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	startWithin = 3 * time.Minute  // also on a busy machine
	stopWithin  = 15 * time.Second // more than a worker's DRAIN_TIMEOUT
)

// A Process is a child of this program. On Linux it ends with the thread that
// started it: see [runtime.LockOSThread].
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended, once done; nil for exit code 0
}

// Start starts cmd, which must be new, and calls each with every line
// that it prints, on either stream unless cmd has a Stderr, in order.
func Start(name string, cmd *exec.Cmd, each func(line string)) (*Process, error) {
	last := "" // line of output, for the error
	output := &lines{each: func(line string) {
		last = ": " + line
		each(line)
	}}

	cmd.Stdout = output
	if cmd.Stderr == nil {
		cmd.Stderr = output // the same, so that one goroutine writes
	}

	bind(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}

	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if err := cmd.Wait(); err != nil {
			p.err = fmt.Errorf("%s ended: %w%s", name, err, last)
		}
	}()

	return p, nil
}

// StartReady is Start for a program that says when it is ready: it
// returns what the first group of ready matched.
func StartReady(ctx context.Context, name string, cmd *exec.Cmd, ready *regexp.Regexp) (*Process, string, error) {
	found := make(chan string, 1)
	p, err := Start(name, cmd, func(line string) {
		if m := ready.FindStringSubmatch(line); m != nil {
			select {
			case found <- m[1]:
			default:
			}
		}
	})
	if err != nil {
		return nil, "", err
	}

	select {
	case match := <-found:
		return p, match, nil
	case <-p.done:
		return nil, "", p.unexpected()
	case <-ctx.Done():
		err = fmt.Errorf("start %s: %w", name, ctx.Err())
	case <-time.After(startWithin):
		err = fmt.Errorf("start %s: not ready within %v", name, startWithin)
	}

	p.Kill()

	return nil, "", err
}

// OS returns the operating system's process.
func (p *Process) OS() *os.Process { return p.cmd.Process }

// Ended reports whether p has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Err returns how p, which has ended, did that: nil for exit code 0.
func (p *Process) Err() error { return p.err }

// CPU returns the time that p, which has ended, has used of processors.
func (p *Process) CPU() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// unexpected returns the error of a process that has ended but should not have.
func (p *Process) unexpected() error {
	if p.err == nil {
		return fmt.Errorf("%s ended by itself", p.name)
	}
	return p.err
}

// Kill ends p at once and waits for it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails if it has ended
	<-p.done
}

// Stop asks p to end and waits for it. It fails unless p ends in time, with exit code
// 0 or, if it had not installed its handler yet, by the signal itself.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended

	select {
	case <-p.done:
		if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGTERM {
			return nil
		}
		return p.err

	case <-time.After(stopWithin):
		p.Kill()
		return fmt.Errorf("%s did not stop within %v of SIGTERM", p.name, stopWithin)
	}
}

// maxLine is how much of a line is kept.
const maxLine = 8 << 10

// lines is an io.Writer that calls each for every whole line but empty ones.
type lines struct {
	each func(string)
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	for part := range bytes.Lines(p) {
		if line, whole := bytes.CutSuffix(part, []byte("\n")); whole {
			l.keep(line)
			if text := strings.TrimSpace(string(l.rest)); text != "" {
				l.each(text)
			}

			l.rest = l.rest[:0]
		} else {
			l.keep(part)
		}
	}

	return len(p), nil
}

func (l *lines) keep(part []byte) {
	l.rest = append(l.rest, part[:min(len(part), maxLine-len(l.rest))]...)
}
