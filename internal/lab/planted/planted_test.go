// Package planted_test plants bugs in the worker and has searches find them: see docs/dev/planted.md.
package planted_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	plantedWithin = flag.Int("planted.within", 0, "how many random plans of TestWorlds look for each bug; 0: none")
	plantedSeeds  = flag.Int("planted.seeds", 0, "how many seeds of TestSimulation look for each bug, beside its own; 0: none")
	plantedFrom   = flag.Int("planted.from", 1, "the first plan or seed")
	plantedRooms  = flag.Bool("planted.rooms", false, "have the tests of packages find the bugs that stand in them")
	plantedOnly   = flag.String("planted.bug", "", "`REGEXP` of the bugs to look for")
)

// numberOf returns where in bugs one is that is looked for.
func numberOf(name string) (i int, ok bool) {
	i = slices.IndexFunc(bugs, func(b bug) bool { return b.name == name })
	return i, i >= 0 && regexp.MustCompile(*plantedOnly).MatchString(name)
}

// Every bug has a row and a directive, and all of them compile.
func TestBugs(t *testing.T) {
	planted := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.directives {
			planted[d.bug] = true
			if _, ok := numberOf(d.bug); !ok && *plantedOnly == "" {
				t.Errorf("%s has %q, which is no row of bugs", s.name, d.bug)
			}
		}
	}
	var packages []string
	for _, s := range sources(t) {
		packages = append(packages, filepath.Dir(s.name))
	}
	for i, b := range bugs {
		if !planted[b.name] {
			t.Errorf("%q is nowhere in the worker", b.name)
		}
		if first, _ := numberOf(b.name); first >= 0 && first != i {
			t.Errorf("%q has two rows", b.name)
		}
		if b.seed == 0 && !b.worlds && !slices.ContainsFunc(rooms, func(room string) bool { return standsIn(t, room, b.name) }) {
			t.Errorf("%q is not looked for", b.name)
		}
	}
	slices.Sort(packages)
	build(t, numberOf, append([]string{"list", "-export"}, slices.Compact(packages)...)...)
}

// TestWorlds has TestWorlds of internal/worker find each bug: make planted.
func TestWorlds(t *testing.T) {
	if *plantedWithin == 0 {
		t.Skip("it takes hours: see -planted.within")
	}
	s := newSearch(t, "internal/worker")
	for i, b := range bugs {
		if _, ok := numberOf(b.name); ok && b.worlds {
			t.Run(b.name, func(t *testing.T) { s.findPlan(t, i) })
		}
	}
}

// TestSimulation has TestSimulation of cmd/alertworker find each bug:
// go test ./internal/lab/planted -run Simulation -planted.seeds 300 -v -timeout 0
func TestSimulation(t *testing.T) {
	if *plantedSeeds == 0 {
		t.Skip("it takes an hour: see -planted.seeds")
	}
	s := newSearch(t, "cmd/alertworker")
	for i, b := range bugs {
		if _, ok := numberOf(b.name); ok && b.seed > 0 {
			t.Run(b.name, func(t *testing.T) { s.findSeed(t, i) })
		}
	}
}

// rooms are packages whose own tests find the bugs that stand in them, except those that need more than a package.
var rooms = []string{"internal/delivery", "internal/partition", "internal/absence", "internal/throttle"}

// late-mark harms nobody unless an owner dies at the right moment, and claimed-is-sent unless a worker reads on.
var beyondRooms = []string{"late-mark", "claimed-is-sent"}

// TestRooms has the tests of a package find each bug that stands in it:
// go test ./internal/lab/planted -run Rooms -planted.rooms -v -timeout 0
func TestRooms(t *testing.T) {
	if !*plantedRooms {
		t.Skip("it takes minutes: see -planted.rooms")
	}
	for _, room := range rooms {
		t.Run(filepath.Base(room), func(t *testing.T) {
			s := newSearch(t, room)
			for i, b := range bugs {
				if _, ok := numberOf(b.name); ok && standsIn(t, room, b.name) && !slices.Contains(beyondRooms, b.name) {
					t.Run(b.name, func(t *testing.T) { s.findByTests(t, i) })
				}
			}
		})
	}
}

// standsIn reports whether a bug stands in a package and nowhere else.
func standsIn(t *testing.T, dir, name string) (is bool) {
	for _, s := range sources(t) {
		for _, d := range s.directives {
			if d.bug != name {
				continue
			}
			if !strings.HasSuffix(filepath.Dir(s.name), dir) {
				return false
			}
			is = true
		}
	}
	return is
}

var failedLine = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// findByTests has a package's own tests run with a bug of it, until one fails.
func (s *search) findByTests(t *testing.T, bug int) {
	t.Helper()
	began := time.Now()
	out, err := s.run(t, bug+1, nil, "-test.short", "-test.failfast", "-test.timeout=2m")
	took := time.Since(began).Round(time.Second / 10)
	if err == nil {
		t.Errorf("not found, in %v", took)
		return
	}
	by := "what has timed out, or crashed"
	if found := failedLine.FindStringSubmatch(out); found != nil {
		by = found[1]
	}
	t.Logf("found by %s, in %v", by, took)
}

// A search looks for bugs, with a binary that has all of them.
type search struct {
	binary string
	dir    string
	worlds map[int]*world // of the simulation, by seed, as far as they were needed
}

func newSearch(t *testing.T, dir string) *search {
	t.Helper()
	s := &search{binary: filepath.Join(t.TempDir(), "planted.test"), dir: filepath.Join(root, dir), worlds: map[int]*world{}}
	build(t, numberOf, "test", "-c", "-vet=off", "-o", s.binary, "./"+dir)
	return s
}

// run runs the binary with the bug of a number, 0 for none, and returns what is printed.
func (s *search) run(t *testing.T, bug int, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.binary, args...)
	cmd.Dir = s.dir
	cmd.Env = append(append(os.Environ(), fmt.Sprint("PLANTED_BUG=", bug)), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// findPlan has the random worlds of internal/worker happen with a bug until one finds it that keeps the promise without.
func (s *search) findPlan(t *testing.T, bug int) {
	t.Helper()
	began := time.Now()
	for first, end := *plantedFrom, *plantedFrom+*plantedWithin; first < end; {
		out, err := s.play(t, bug+1, first, end-first)
		if err == nil {
			break
		}
		plan := planThatFound(out, first)
		if out, err := s.play(t, 0, plan, 1); err != nil {
			t.Errorf("plan %d breaks the promise without any bug: %s", plan, reason(out))
			first = plan + 1
			continue
		}
		t.Logf("found by plan %d, in %v: %s", plan, time.Since(began).Round(time.Second), reason(out))
		return
	}
	t.Errorf("not found within %d plans, in %v", *plantedWithin, time.Since(began).Round(time.Second))
}

// play has n plans of TestWorlds happen with the bug of a number, 0 for none.
func (s *search) play(t *testing.T, bug, first, n int) (string, error) {
	t.Helper()
	return s.run(t, bug, []string{"GOGC=400"}, "-test.run=^TestWorlds$", "-test.timeout=0", "-worlds.trace",
		fmt.Sprint("-worlds.first=", first), fmt.Sprint("-worlds.plans=", n))
}

var (
	foundLine = regexp.MustCompile(`plan (\d+), the \d+\w+ \(-worlds.first=\d+ -worlds.plans=1\):\n\s*(.*)`)
	beganLine = regexp.MustCompile(`(?m)^plan (\d+) begins$`)
)

// planThatFound returns the plan by which the output says that a bug was found. If the test has crashed that is one of the
// last.
func planThatFound(out string, first int) (plan int) {
	if found := foundLine.FindStringSubmatch(out); found != nil {
		plan, _ = strconv.Atoi(found[1])
		return plan
	}
	if began := beganLine.FindAllStringSubmatch(out, -1); len(began) > 0 {
		plan, _ = strconv.Atoi(began[len(began)-1][1])
		return first + plan - 1
	}
	return first
}

// A world is what its run without any bug showed.
type world struct {
	broken  bool         // it breaks the promise by itself, and finds nothing
	reached map[int]bool // the bugs that would have made a difference, or may have
}

var reachedLine = regexp.MustCompile(`(?m)^REACHED (\d+)$`)

// world returns the world of a seed without any bug.
func (s *search) world(t *testing.T, seed int) *world {
	t.Helper()
	if w := s.worlds[seed]; w != nil {
		return w
	}

	out, err := s.simulate(t, 0, seed)
	w := &world{broken: err != nil, reached: map[int]bool{}}
	s.worlds[seed] = w
	if w.broken {
		t.Errorf("seed %d breaks the promise without any bug: %s", seed, reason(out))
	}
	for _, line := range reachedLine.FindAllStringSubmatch(out, -1) {
		bug, _ := strconv.Atoi(line[1])
		w.reached[bug] = true
	}

	return w
}

// findSeed has a bug happen in one world after the other that comes to it, and once more if none has found it: two runs of a
// world differ.
func (s *search) findSeed(t *testing.T, bug int) {
	t.Helper()
	const rounds = 5
	reached := 0
	for range rounds {
		found := false
		if reached, found = s.round(t, bug); found {
			return
		}
	}

	t.Errorf("not found within %d seeds, of which %d come to it, in %d rounds", *plantedSeeds, reached, rounds)
}

// round has a bug happen once in each world that comes to it until one finds it, first in that of its own seed. It returns
// how many came to it.
func (s *search) round(t *testing.T, bug int) (reached int, found bool) {
	t.Helper()
	seeds := []int{bugs[bug].seed}
	for i := range *plantedSeeds {
		seeds = append(seeds, *plantedFrom+i)
	}
	for _, seed := range seeds {
		w := s.world(t, seed)
		if w.broken || !w.reached[bug] {
			continue
		}

		reached++
		out, err := s.simulate(t, bug+1, seed)
		if err != nil && s.clean(t, seed) {
			t.Logf("found by seed %d, the %d. world that comes to it: %s", seed, reached, reason(out))
			return reached, true
		}
	}

	return reached, false
}

// clean reports whether the world of a seed keeps the promise without the bug again: two runs of it differ.
func (s *search) clean(t *testing.T, seed int) bool {
	t.Helper()
	const runs = 2
	for range runs {
		if out, err := s.simulate(t, 0, seed); err != nil {
			s.worlds[seed].broken = true
			t.Errorf("seed %d breaks the promise without any bug: %s", seed, reason(out))
			return false
		}
	}

	return true
}

func (s *search) simulate(t *testing.T, bug, seed int) (string, error) {
	t.Helper()
	return s.run(t, bug, []string{fmt.Sprint("FROM=", seed), "SEEDS=1", "GOGC=1000"},
		"-test.run=^TestSimulation$", "-test.v", "-test.timeout=0")
}

// reason returns what is wrong, by the output of a search.
func reason(out string) string {
	if found := foundLine.FindStringSubmatch(out); found != nil {
		return found[2]
	}
	for _, sign := range []string{"VIOLATION", "panic: ", "fatal error: "} {
		if i := strings.Index(out, sign); i >= 0 {
			line, _, _ := strings.Cut(out[i:], "\n")
			return line[:min(len(line), 300)]
		}
	}
	return out[max(0, len(out)-300):]
}
