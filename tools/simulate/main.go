// Command simulate runs one simulated world exactly: the same seed and schedule tell the same story, to the byte.
//
// Natively, two runs of a world differ by Go's scheduler. So the tests of cmd/alertworker are compiled to WebAssembly,
// where there is one thread and no preemption, and the runtime's clock and randomness come from here.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strconv"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

// A world is what is run.
type world struct {
	seed     uint64
	plan     string // JSON, instead of that of the seed; empty: none
	schedule int64  // another one is another run of the same world
	length   string // the most that it takes until everything settles; empty: as the plan says
}

func main() {
	var w world
	flag.Uint64Var(&w.seed, "seed", 1, "`NUMBER` of the world")
	flag.Int64Var(&w.schedule, "schedule", 0, "`NUMBER` of the schedule: the same world, run otherwise")
	flag.StringVar(&w.length, "length", "", "end after this `DURATION` at the latest")
	schedules := flag.Int64("schedules", 1, "try so many `SCHEDULES` until the promise is broken")
	plan := flag.String("plan", "", "`FILE` with a plan in JSON, instead of that of the seed")
	flag.Parse()

	if err := simulate(context.Background(), w, *plan, *schedules); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

// simulate prints the story of the first schedule in which the promise is broken, else of the last one.
func simulate(ctx context.Context, w world, plan string, schedules int64) error {
	if plan != "" {
		text, err := os.ReadFile(plan)
		if err != nil {
			return err
		}
		w.plan = string(text)
	}

	m, err := open(ctx)
	if err != nil {
		return err
	}
	defer m.close(ctx)

	for ; ; w.schedule++ {
		schedules--
		out := io.Writer(os.Stdout)
		if schedules > 0 {
			out = io.Discard
		}

		broken, err := m.run(ctx, w, out)
		if err != nil {
			return err
		}

		if broken && schedules > 0 { // the same again, to be seen
			broken, err = m.run(ctx, w, os.Stdout)
			if err != nil {
				return err
			}
		}

		if broken {
			return fmt.Errorf("the promise is broken under schedule %d", w.schedule)
		}
		if schedules <= 0 {
			return nil
		}
	}
}

// A machine runs worlds.
type machine struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	module  wazero.CompiledModule
}

// open builds the module and compiles it, which takes a minute the first time.
func open(ctx context.Context) (*machine, error) {
	wasm, err := build(ctx)
	if err != nil {
		return nil, err
	}

	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}

	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, err
	}

	m := &machine{cache: cache}
	m.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithCompilationCache(cache))
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, m.runtime); err != nil {
		return nil, errors.Join(err, m.close(ctx))
	}
	if m.module, err = m.runtime.CompileModule(ctx, wasm); err != nil {
		return nil, errors.Join(fmt.Errorf("compile the module: %w", err), m.close(ctx))
	}

	return m, nil
}

func (m *machine) close(ctx context.Context) error {
	return errors.Join(m.runtime.Close(ctx), m.cache.Close(ctx))
}

// run runs a world, writes its story to out, and reports whether the promise was broken.
func (m *machine) run(ctx context.Context, w world, out io.Writer) (broken bool, err error) {
	c := wazero.NewModuleConfig().WithName("").WithStdout(out).WithStderr(os.Stderr).
		WithArgs("simulation", "-test.run=^TestSimulation$", "-test.timeout=0").
		WithRandSource(rand.New(rand.NewSource(int64(w.seed)+w.schedule<<32))).
		WithEnv("SEEDS", "1").WithEnv("FROM", strconv.FormatUint(w.seed, 10)).
		WithEnv("STORY", "-").WithEnv("PLAN", w.plan).WithEnv("LENGTH", w.length)
	instance, err := m.runtime.InstantiateModule(ctx, m.module, c)
	if instance != nil {
		err = errors.Join(err, instance.Close(ctx))
	}

	var exit *sys.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode() != 0, nil
	}

	return false, err
}
