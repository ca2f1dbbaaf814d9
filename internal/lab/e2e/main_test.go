//go:build unix

// Package e2e_test runs the built command as processes of the operating system,
// ends and freezes them and what they depend on, and has package verify check what
// was published against what arrived.
package e2e_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/lab/busytest"
)

var (
	seed     = flag.Uint64("seed", 1, "`NUMBER` of the random choices of a run, as its log tells; 0: any")
	rounds   = flag.Int("rounds", 1, "`NUMBER` of times that the devices of TestSilence fall silent and come back, and of days of TestTrucks")
	takeover = flag.Bool("takeover", false, "measure how long a killed replica's partitions go unread with default settings")
)

// elsewhere are tests that take minutes, and what proves the same in memory. With -short they are left out, unless -run
// names tests; then there is one short round of what only real processes have: they are killed and frozen, on Azurite, and
// Cosmos DB's stand-in, behind TLS and a proxy, and KEDA counts what they read. make processes runs all of them.
var elsewhere = map[string]string{
	"TestAlarms":                "TestWorlds, and TestSimulation of cmd/alertworker, in which replicas die and freeze at any step",
	"TestSilence":               "the same, and TestModelOfSilence of internal/throttle",
	"TestTrucks":                "TestSimulation, whose worlds have each of it",
	"TestRewinds":               "nothing puts old records back by hand; tests of internal/roster and internal/ledger have what is lost",
	"TestStormAtAPacedReceiver": "TestStormAtManyPlaces of internal/delivery",
	"TestHeartbeat":             "tests of internal/notify/heartbeat, and TestStorageOutage of cmd/alertworker",
	"TestFaults$":               "tests of internal/ops/status, checkup and admin, each of what it says",
	"TestImage":                 "make image, in the workflow CI",
	"TestReproducible":          "nothing: it builds everything twice, without a cache",

	"TestReplicas/^kill$":                 "TestReplicas/kill,_and_audit",
	"TestReplicas/^kill_while_sending$":   "TestSimulation: dead between claim, send and record",
	"TestReplicas/^roll$":                 "TestSimulation, in which replicas stop and hand over",
	"TestReplicas/roll_to_other_settings": "tests of internal/peers, and TestSimulation's rollouts",
	"TestReplicas/hub_breaks_links":       "tests of internal/telemetry/eventhubs, and TestSimulation",
	"TestReplicas/receiver_down":          "tests of internal/delivery",
	"TestReplicas/native_leases":          "tests of internal/lease/bloblease, the contract of leases",
}

// buildDir is where the command is built to. Set by TestMain.
var buildDir string

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	// These tests wait far more than they compute.
	if !given["test.parallel"] {
		_ = flag.Set("test.parallel", fmt.Sprint(max(6, runtime.GOMAXPROCS(0))))
	}
	if testing.Short() && !given["test.run"] && !given["test.skip"] {
		_ = flag.Set("test.skip", strings.Join(slices.Sorted(maps.Keys(elsewhere)), "|"))
	}

	var err error
	if buildDir, err = os.MkdirTemp("", "alertworker-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(buildDir)
		os.Exit(code)
	}))
}

// built builds the command, once, with the race detector if the tests have it and are not to be short: make processes
// has it in all of these processes.
var built = sync.OnceValues(func() (path string, err error) {
	// go test repeats a result from its cache unless something changed that the
	// test itself has looked at.
	for _, dir := range []string{"../../../cmd", "../../../internal"} {
		if err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { return nil }); err != nil {
			return "", err
		}
	}
	path = filepath.Join(buildDir, "alertworker")
	args := []string{"build", "-buildvcs=false", "-o", path}
	if raceEnabled && !testing.Short() {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "alertworker/cmd/alertworker")...)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", build, err, out)
	}
	return path, nil
})

// random returns the random choices of one test, the same for the same seed.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	t.Logf("repeat the random choices with -args -seed=%d", *seed)
	name := fnv.New64()
	name.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(*seed, name.Sum64()))
}

// poll is how often a condition is looked at.
const poll = 20 * time.Millisecond

// within waits until met. If that takes longer than limit, a test fails, and an attempt of one has missed it: what
// works is met by the next one, which has the machine to itself.
func within(t testing.TB, limit time.Duration, what string, met func() bool) {
	t.Helper()
	if eventually(limit, met) {
		return
	}
	if attempt, ok := t.(*busytest.Attempt); ok {
		attempt.Missed("not within %v: %s", limit, what)
	}
	t.Fatalf("not within %v: %s", limit, what)
}

// eventually waits until met. False if that takes longer than limit.
func eventually(limit time.Duration, met func() bool) bool {
	for end := time.Now().Add(limit); !met(); time.Sleep(poll) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
