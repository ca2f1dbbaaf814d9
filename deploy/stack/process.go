package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	startWithin = time.Minute
	stopWithin  = 15 * time.Second // more than a worker's DRAIN_TIMEOUT
)

// A process is a child of this program.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended, once done; nil for exit code 0
}

// startProcess starts cmd, which must be new, and calls each with every line
// that it prints, on either stream, in order.
func startProcess(name string, cmd *exec.Cmd, each func(line string)) (*process, error) {
	last := "" // of what it said, for the error
	output := &lines{each: func(line string) {
		last = ": " + line
		each(line)
	}}
	cmd.Stdout, cmd.Stderr = output, output // the same, so that one goroutine writes
	bind(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if err := cmd.Wait(); err != nil {
			p.err = fmt.Errorf("%s ended: %w%s", name, err, last)
		}
	}()
	return p, nil
}

// startReady is startProcess for a program that says when it is ready: it
// returns what the first group of ready matched.
func startReady(ctx context.Context, name string, cmd *exec.Cmd, ready *regexp.Regexp) (*process, string, error) {
	found := make(chan string, 1)
	p, err := startProcess(name, cmd, func(line string) {
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
	p.kill()
	return nil, "", err
}

// ended reports whether p is gone.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// unexpected is the error of a p that has ended and should not have.
func (p *process) unexpected() error {
	if p.err == nil {
		return fmt.Errorf("%s ended by itself", p.name)
	}
	return p.err
}

// kill ends p at once and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if it has ended
	<-p.done
}

// stop asks p to end and waits for it. It fails unless p ends in time, with
// exit code 0 or, if it was too young to hear us, by the signal itself.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	select {
	case <-p.done:
		if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGTERM {
			return nil
		}
		return p.err
	case <-time.After(stopWithin):
		p.kill()
		return fmt.Errorf("%s did not stop within %v of SIGTERM", p.name, stopWithin)
	}
}

// tool runs a program to its end, in dir. The error has what it printed.
func tool(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	bind(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("run %s: %w", program, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("run %s in %s: %w\n%s", strings.Join(cmd.Args, " "), dir, err, bytes.TrimSpace(out))
	}
	return nil
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
