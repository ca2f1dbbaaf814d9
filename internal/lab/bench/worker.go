package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/lab/process"
)

// A program is a process that is measured.
type program struct {
	*process.Process
	addr string // where a worker serves HTTP
}

// start starts a program with settings besides the environment that all have.
func start(cores int, path string, args []string, settings map[string]string) (*program, error) {
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), fmt.Sprint("GOMAXPROCS=", cores)}
	for name, value := range settings {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	p, err := process.Start(filepath.Base(path), cmd, func(string) {}) // warnings about stores in memory, say
	return &program{Process: p}, err
}

// worker starts a worker with stores in memory, unless settings say otherwise.
func (b *bench) worker(cores int, settings map[string]string) (*program, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	all := map[string]string{
		"TEMPERATURE_THRESHOLD": "80", "NOTIFY_URLS": "log:", "EVENTHUB_START": "earliest", "LOG_LEVEL": "error",
		"THROTTLE_STORE": "memory", "CHECKPOINT_STORE": "memory", "HTTP_ADDR": addr,
	}
	maps.Copy(all, settings)
	p, err := start(cores, b.binary, nil, all)
	if err != nil {
		return nil, err
	}
	p.addr = addr
	return p, nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// cost is what a process used.
type cost struct {
	cpu  time.Duration
	peak int // resident bytes
}

// stop ends a worker and returns what it used.
func (p *program) stop() (cost, error) {
	peak := p.peak()
	err := p.Stop()
	return cost{p.CPU(), peak}, err
}

// peak returns the most memory that a running process has had. What wait4 says of a child's memory
// includes ours before the exec.
func (p *program) peak() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.OS().Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	kB, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	n, _ := strconv.Atoi(kB)
	return n << 10
}

// counter returns the sum of a counter's series, 0 while the worker starts.
func (p *program) counter(name string) int {
	resp, err := http.Get("http://" + p.addr + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	sum := 0.0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		series, value, ok := strings.Cut(lines.Text(), " ")
		if ok && (series == name || strings.HasPrefix(series, name+"{")) {
			v, _ := strconv.ParseFloat(value, 64)
			sum += v
		}
	}
	return int(sum)
}

// wait asks every interval until done, at most for limit.
func wait(ctx context.Context, interval, limit time.Duration, done func() bool) error {
	end := time.Now().Add(limit)
	for !done() {
		if time.Now().After(end) {
			return fmt.Errorf("not done within %v", limit)
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
