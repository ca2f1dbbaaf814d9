package worker_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var (
	plantedWithin = flag.Int("planted.within", 0, "how many plans have to find each planted bug; 0: only see that it can be planted")
	plantedOnly   = flag.String("planted.bug", "", "the one to plant; empty: all")
)

// A planted bug is one that the worker had, or that a line guards against: old, which is once in a file of internal,
// becomes new.
type planted struct {
	name, file, old, new string
}

// TestPlanted plants each bug in turn and has the random worlds look for it: go test ./internal/worker -run Planted
// -planted.within 10000 -v
func TestPlanted(t *testing.T) {
	for _, bug := range plantedBugs {
		t.Run(bug.name, func(t *testing.T) {
			file, err := filepath.Abs(filepath.Join("..", bug.file))
			if err != nil {
				t.Fatal(err)
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), bug.old); n != 1 {
				t.Fatalf("%s has what is to be replaced %d times, not once:\n%s", bug.file, n, bug.old)
			}
			if *plantedWithin == 0 || *plantedOnly != "" && *plantedOnly != bug.name {
				return
			}
			bug.search(t, file, strings.Replace(string(source), bug.old, bug.new, 1))
		})
	}
}

// search builds the tests with a file that is replaced by source, and runs the random worlds.
func (b planted) search(t *testing.T, file, source string) {
	dir := t.TempDir()
	changed, overlay, binary := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir,
		"worlds.test")
	content, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{changed: source, overlay: string(content)} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary,
		".").CombinedOutput(); err != nil {
		t.Fatalf("it does not compile: %v\n%s", err, out)
	}
	began := time.Now()
	run := exec.CommandContext(t.Context(), binary, "-test.run=^TestWorlds$", "-test.timeout=0", "-worlds.first=1",
		fmt.Sprint("-worlds.plans=", *plantedWithin), "-worlds.trace")
	run.Env = append(os.Environ(), "GOGC=400")
	out, err := run.CombinedOutput()
	if err == nil {
		t.Errorf("not found within %d plans, in %v", *plantedWithin, time.Since(began).Round(time.Second))
		return
	}
	t.Logf("found by the %s plan, in %v: %s", foundBy(out), time.Since(began).Round(time.Second), reason(out))
}

var (
	foundLine = regexp.MustCompile(`plan \d+, the (\d+)\w+ \(-worlds.first=\d+ -worlds.plans=1\):\n\s*(.*)`)
	beganLine = regexp.MustCompile(`(?m)^plan (\d+) begins$`)
)

// foundBy returns by which plan the output says that a bug was found. If the test has crashed that is one of the last.
func foundBy(out []byte) string {
	if found := foundLine.FindSubmatch(out); found != nil {
		return string(found[1]) + "th"
	}
	if began := beganLine.FindAllSubmatch(out, -1); len(began) > 0 {
		return string(began[len(began)-1][1]) + "th"
	}
	return "first"
}

func reason(out []byte) string {
	if found := foundLine.FindSubmatch(out); found != nil {
		return string(found[2])
	}
	if i := strings.Index(string(out), "panic: "); i >= 0 {
		line, _, _ := strings.Cut(string(out)[i:], "\n")
		return line
	}
	return string(out[max(0, len(out)-500):])
}

var plantedBugs = []planted{
	{
		"a reading joins the delivery of another site of its device", "worker/evaluate.go",
		"		d := q.deliveries[key]\n",
		`		d := q.deliveries[key]
		for _, other := range q.deliveries {
			if d == nil && other.shared && key.shared && other.level == l && other.deviceOf(other.head) == device {
				d = other
			}
		}
`,
	},
	{
		"every reading of a site that is refused is a dead letter", "worker/attempt.go",
		"q.gate(d).Refused(d.about)",
		"q.gate(d).Refused(d.deviceOf(d.head))",
	},
	{
		"a device that is called like a site shares its window", "throttle/key.go",
		`of += "~p" + escape(c.Per)`,
		`of += ""`,
	},
	{
		"devices that waited for another one's alert are not counted", "worker/queue.go",
		"range q.sharing[d] {",
		"range map[string]struct{}{} {",
	},
	{
		"silences since one place have one id", "worker/worker.go",
		"	if d.level.rule.Silence() || ended {",
		"	if ended {",
	},
	{
		"recoveries of a removed rule have one id", "worker/worker.go",
		"	if d.level.rule.Silence() || ended {",
		"	if d.level.rule.Silence() {\n		ended = false",
	},
	{
		"a mute is added again after a lost answer", "muting/muting.go",
		`i := indexOf(all, one.ID); i >= 0 {`,
		`i := -1; i >= 0 {`,
	},
	{
		"a recovery that was not sent ends the window", "throttle/note.go",
		"		n.Quiet = max(n.Quiet, n.Ended)\n",
		"",
	},
	{
		"the checkpoint is the last event read", "worker/stream.go",
		"c, committed := telemetry.Checkpoint{Position: s.mark.position()}, s.committed",
		"c, committed := telemetry.Checkpoint{Position: s.mark.last}, s.committed",
	},
	{
		"an unknown answer counts as a delivery", "worker/attempt.go",
		"		return throttle.Unknown\n	})",
		"		return throttle.Taken\n	})",
	},
	{
		"a recovery is sent without asking who owns the partition", "worker/attempt.go",
		"	return s.owns(ctx)\n}",
		"	return nil\n}",
	},
	{
		"the ledger is ahead of the watermark", "worker/history.go",
		"h.segments[n].last.UpTo(w); n++ {",
		"n < len(h.segments); n++ {",
	},
}
