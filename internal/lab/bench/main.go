// Bench measures a worker as a process of its own, beside the programs that one would write
// instead of it, over hubs and receivers on this machine:
//
//	go run ./internal/lab/bench throughput   # events per second of CPU time
//	go run ./internal/lab/bench latency      # from a reading to its receiver
//	go run ./internal/lab/bench storm        # every device hot at once
//
// Figures of different runs, and of different machines, do not compare: ratios of one run do.
// It needs Linux, which says what a process used.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "read" { // a process that we started
		return read(ctx, args[1:])
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	var b bench
	flags.IntVar(&b.rounds, "rounds", 5, "how often everything is measured; medians are printed")
	flags.IntVar(&b.events, "events", 409_600, "events in a run of throughput, a multiple of 1024")
	flags.IntVar(&b.devices, "devices", 0, "devices in each run of storm; 0 is 100000 for a webhook without a store and 5000 otherwise")
	flags.StringVar(&b.receiver, "receiver", "", "of storm alone: webhook, alertmanager or slack; empty is all")
	measures := map[string]func(context.Context) error{
		"throughput": b.throughput, "latency": b.latency, "storm": b.storm,
	}
	if len(args) == 0 || measures[args[0]] == nil {
		return fmt.Errorf("say what to measure: throughput, latency or storm")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "alertworker-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.dir, b.binary = dir, filepath.Join(dir, "alertworker")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.binary, "./cmd/alertworker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the worker, in the repository's directory: %w", err)
	}
	fmt.Printf("%s %s/%s, %d processors, medians of %d\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), b.rounds)
	return measures[args[0]](ctx)
}

// bench is what all measures share.
type bench struct {
	dir     string // for files
	binary  string // the worker
	rounds  int
	events  int
	devices int

	receiver string
}

// median returns the middle one of values, which it sorts.
func median[T int | float64 | int64](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}
