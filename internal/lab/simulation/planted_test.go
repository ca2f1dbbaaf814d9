package simulation_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	plantedWithin = flag.Int("planted", 0, "within how many seeds each planted bug has to be found; 0: none is planted")
	plantedFrom   = flag.Int("from", 1, "the first seed")
	plantedOnly   = flag.String("bug", "", "`REGEXP` of those to plant")
)

const root = "../../.."

// A bug is old, which is once in a file of the repository, with new in its place. There, PLANTED is whether it is this
// bug that is to be found. It is asked last, where it makes a difference: worlds that do not come there are left out.
type bug struct{ name, file, old, new string }

type edit struct{ file, old, new string }

// edits returns all that a bug is.
func (b bug) edits() []edit { return append([]edit{{b.file, b.old, b.new}}, guards[b.name]...) }

// guards are what else keeps a bug from harm, by its name: it is planted there, too.
var guards = map[string][]edit{
	"the mark is taken a second after the decision": {
		{
			"internal/partition/evaluation.go", "	reg.mark.read(e.Position) // whatever else",
			"	if n := len(reg.silences); n == 0 || reg.silences[0].Forget.Hours() > 1 || !PLANTED {\n" +
				"		reg.mark.read(e.Position)\n	} // whatever else",
		},
		{
			"internal/partition/reader.go", "	r.unheard.Unlock()\n	r.lastRead = at\n",
			"	r.unheard.Unlock()\n	if over > 0 && len(r.silences) > 0 && r.silences[0].Forget.Hours() < 1 && PLANTED {\n" +
				"		r.seen.mu.Unlock()\n		time.Sleep(time.Second)\n		r.seen.mu.Lock()\n	}\n	r.lastRead = at\n",
		},
	},
}

// TestPlanted plants bugs and has TestSimulation of cmd/alertworker find each:
// go test ./internal/lab/simulation -run Planted -planted 300 -v -timeout 0
//
// One binary has them all.
func TestPlanted(t *testing.T) {
	if *plantedWithin == 0 {
		t.Skip("it takes an hour: see -planted")
	}
	only := regexp.MustCompile(*plantedOnly)
	s := &search{binary: plant(t, only), worlds: map[int]*world{}}
	for i, b := range bugs {
		if only.MatchString(b.name) {
			t.Run(b.name, func(t *testing.T) { s.find(t, i) })
		}
	}
}

// What is to be replaced by a bug is where it is said to be.
func TestBugsFit(t *testing.T) {
	for _, b := range bugs {
		for _, e := range b.edits() {
			text, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				t.Errorf("%s: %v", b.name, err)
				continue
			}

			if n := strings.Count(string(text), e.old); n != 1 {
				t.Errorf("%s: %s has what is to be replaced %d times, not once:\n%s", b.name, e.file, n, e.old)
			}
		}
	}
}

// plant builds the tests of cmd/alertworker with bugs in them.
func plant(t *testing.T, only *regexp.Regexp) string {
	t.Helper()
	dir := t.TempDir()
	sources, replaced := map[string]string{}, map[string]string{}
	for i, b := range bugs {
		if !only.MatchString(b.name) {
			continue
		}
		for _, e := range b.edits() {
			file, err := filepath.Abs(filepath.Join(root, e.file))
			if err != nil {
				t.Fatal(err)
			}
			if sources[file] == "" {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				sources[file] = string(text)
			}
			if n := strings.Count(sources[file], e.old); n != 1 {
				t.Fatalf("%s: %s has what is to be replaced %d times, not once:\n%s", b.name, e.file, n, e.old)
			}
			planted := strings.ReplaceAll(e.new, "PLANTED", fmt.Sprintf("planted(%d)", i))
			sources[file] = strings.Replace(sources[file], e.old, planted, 1)
			beside := filepath.Join(filepath.Dir(file), "planted_bugs.go")
			sources[beside] = "package " + packageOf(sources[file]) + "\n\n" + planting
		}
	}
	for file, text := range sources {
		at := filepath.Join(dir, fmt.Sprintf("%d.go", len(replaced)))
		replaced[file] = at
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	list, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "simulation.test")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-c", "-vet=off", "-overlay", list, "-o", binary, "./cmd/alertworker"}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the bugs do not compile: %v\n%s", err, out)
	}
	return binary
}

// planting is what a package with bugs has besides. It says which of them a world comes to.
const planting = `import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	plantedBug, _  = strconv.Atoi(os.Getenv("PLANTED_BUG"))
	plantedReached [256]atomic.Bool
)

func planted(bug int) bool {
	if !plantedReached[bug].Swap(true) {
		_, _ = os.Stderr.WriteString("REACHED " + strconv.Itoa(bug) + "\n")
	}
	return plantedBug == bug+1
}
`

var packageClause = regexp.MustCompile(`(?m)^package (\w+)`)

func packageOf(source string) string { return packageClause.FindStringSubmatch(source)[1] }

// A search looks for bugs, with a binary that has all of them.
type search struct {
	binary string
	worlds map[int]*world // by seed, as far as they were needed
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

// find has a bug happen in one world after the other that comes to it, and once more if none has found it: two runs of a
// world differ.
func (s *search) find(t *testing.T, bug int) {
	t.Helper()
	const rounds = 5
	reached := 0
	for range rounds {
		found := false
		if reached, found = s.round(t, bug); found {
			return
		}
	}

	t.Errorf("not found within %d seeds, of which %d come to it, in %d rounds", *plantedWithin, reached, rounds)
}

// round has a bug happen once in each world that comes to it until one finds it. It returns how many came to it.
func (s *search) round(t *testing.T, bug int) (reached int, found bool) {
	t.Helper()
	for seed := *plantedFrom; seed < *plantedFrom+*plantedWithin; seed++ {
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

// simulate has a world happen with the bug of a number, 0 for none, and returns what is printed.
func (s *search) simulate(t *testing.T, bug, seed int) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.binary, "-test.run=^TestSimulation$", "-test.v", "-test.timeout=0")
	cmd.Dir = filepath.Join(root, "cmd", "alertworker")
	cmd.Env = append(os.Environ(), fmt.Sprint("PLANTED_BUG=", bug), fmt.Sprint("FROM=", seed), "SEEDS=1", "GOGC=1000")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// reason returns what is wrong, by the output of a search.
func reason(out string) string {
	for _, sign := range []string{"VIOLATION", "panic: ", "fatal error: "} {
		if i := strings.Index(out, sign); i >= 0 {
			line, _, _ := strings.Cut(out[i:], "\n")
			return line[:min(len(line), 300)]
		}
	}
	return out[max(0, len(out)-300):]
}

var bugs = []bug{
	{
		"a request never gets more than a second", "internal/azure/trylimit.go",
		"min(2*h.now, maxTry), now\n", "min(2*h.now, maxTry), now\n			if PLANTED {\n				h.now = minTry\n			}\n",
	},
	{
		"an unknown answer counts as a delivery", "internal/delivery/send.go",
		"	return throttle.Unknown\n}",
		"	if PLANTED {\n		return throttle.Taken\n	}\n	return throttle.Unknown\n}",
	},
	{
		"a recovery is sent without asking whose the partition is", "internal/partition/owner.go",
		"	return s.owner.owns(ctx)\n}",
		"	if PLANTED {\n		return nil\n	}\n	return s.owner.owns(ctx)\n}",
	},
	{
		"what is not due any more is sent", "internal/partition/owner.go",
		"	if !s.isDue(key, n) {", "	if !s.isDue(key, n) && !PLANTED {",
	},
	{
		"the checkpoint is the last event read", "internal/partition/checkpoint.go",
		"telemetry.Checkpoint{Position: s.settled()}\n",
		"telemetry.Checkpoint{Position: s.settled()}\n	if PLANTED {\n		c.Position = s.mark.last\n	}\n",
	},
	{
		"the checkpoint does not wait for the ledger", "internal/partition/checkpoint.go",
		"	c.Position = s.alarms.history.safe(c.Position)\n",
		"	if !PLANTED {\n		c.Position = s.alarms.history.safe(c.Position)\n	}\n",
	},
	{
		"the ledger is ahead of the watermark", "internal/partition/history.go",
		"h.segments[n].last.NotAfter(w); n++ {", "(PLANTED || h.segments[n].last.NotAfter(w)); n++ {",
	},
	{
		"a lost partition is worked on", "internal/partition/stream.go",
		"func (s *Stream) lose() { s.stop(telemetry.ErrLost) }",
		"func (s *Stream) lose() {\n	if !PLANTED {\n		s.stop(telemetry.ErrLost)\n	}\n}",
	},
	{
		"a dead letter counts as kept before it is", "internal/delivery/send.go",
		"	q.wrote(err)\n	if err != nil {", "	q.wrote(err)\n	if err != nil && !PLANTED {",
	},
	{
		"all dead letters have one name", "internal/notify/deadletter/deadletter.go",
		"	id := ID(d)\n	if err := s.put(",
		"	id := ID(d)\n	if PLANTED {\n		id = \"20000101T000000.000Z-0000000000000000\"\n	}\n	if err := s.put(",
	},
	{
		"dead letters are only logged", "cmd/alertworker/replica.go",
		"	if s.deadLetters != nil {\n		config.", "	if s.deadLetters != nil && !PLANTED {\n		config.",
	},
	{
		"a recovery that was not sent ends the window", "internal/throttle/note.go",
		"		n.Quiet = max(n.Quiet, n.Ended)\n",
		"		if n.Ended <= n.Quiet || !PLANTED {\n			n.Quiet = max(n.Quiet, n.Ended)\n		}\n",
	},
	{
		"what may have been taken is sent under a new id", "internal/throttle/gate.go",
		"	_ = g.store.Release(ctx, c.lease, c.note.givenBack",
		"	if answer == Unknown && PLANTED {\n		answer = NotTaken\n	}\n" +
			"	_ = g.store.Release(ctx, c.lease, c.note.givenBack",
	},
	{
		"a window is a third too short", "internal/throttle/gate.go",
		"		left := g.window - time.Since(c.taken)\n",
		"		left := g.window - time.Since(c.taken)\n		if PLANTED {\n			left -= g.window / 3\n		}\n",
	},
	{
		"replays are sent", "internal/throttle/decide.go",
		"record.Now.Before(d.Quiet) || d.Covers(r):", "record.Now.Before(d.Quiet) || d.Covers(r) && !PLANTED:",
	},
	{
		"a recovery does not wait for its alert's fate", "internal/throttle/decide.go",
		"	case n.unresolved(record):", "	case n.unresolved(record) && !PLANTED:",
	},
	{
		"a recovery that was overtaken is sent", "internal/throttle/decide.go",
		"	case recovered || n.overtakes(r, record):", "	case recovered || n.overtakes(r, record) && !PLANTED:",
	},
	{
		"a recovery comes twice", "internal/throttle/decide.go",
		"	recovered := r.position().upTo(n.Recovered)\n",
		"	recovered := r.position().upTo(n.Recovered)\n	if recovered && !held && PLANTED {\n		d.Outcome = Sent\n" +
			"		d.claim = n.claimRecovery(r, record)\n		d.claim.RecoveryID += \"/again\"\n		return\n	}\n",
	},
	{
		"gates share their memory of windows", "internal/throttle/recent/windows.go",
		"	_, _ = rand.Read(w.key[:]) // does not fail\n",
		"	if !PLANTED {\n		_, _ = rand.Read(w.key[:]) // does not fail\n	}\n",
	},
	{
		"a lease frees two seconds early", "internal/lease/caslease/caslease.go",
		"!r.Now.Before(r.Written.Add(r.Hold+c.margin()))",
		"!r.Now.Before(r.Written.Add(r.Hold+c.margin())) ||\n" +
			"		!r.Now.Before(r.Written.Add(r.Hold+c.margin()-4*time.Second)) && PLANTED",
	},
	{
		"a lease that was lost is extended", "internal/lease/caslease/caslease.go",
		"		case err == nil && !now.Current(l):", "		case err == nil && !now.Current(l) && !PLANTED:",
	},
	{
		"a blob is written whatever is there", "internal/records/blobs.go",
		"	switch etag {\n	case Any:", "	if PLANTED {\n		etag = Any\n	}\n	switch etag {\n	case Any:",
	},
	{
		"the dead keep their partitions", "internal/telemetry/ownership/member.go",
		"if b.Owner == m.Owner || left <= 0 {", "if b.Owner == m.Owner || left <= 0 && !PLANTED {",
	},
	{
		"partitions share a ledger", "cmd/alertworker/stores.go",
		`	return groupName(c) + "/ledger/" + partition`,
		"	if PLANTED {\n		partition = \"\"\n	}\n	return groupName(c) + \"/ledger/\" + partition",
	},
	{
		"receivers share windows", "cmd/alertworker/replica.go",
		"	Receiver:    receiver,", "	Receiver: map[bool]string{true: \"all\", false: receiver}[PLANTED],",
	},
	{
		"levels share windows", "cmd/alertworker/replica.go",
		"	Level:       level.Name,", "	Level: map[bool]string{false: level.Name}[PLANTED],",
	},
	{
		"a pause that a receiver asks for takes an hour", "internal/notify/pace/pace.go",
		"	p.wait = max(p.wait, now+retryAfter)\n",
		"	if PLANTED {\n		retryAfter = time.Hour\n	}\n	p.wait = max(p.wait, now+retryAfter)\n",
	},
	{
		"after a refusal a receiver gets one message in an hour", "internal/notify/pace/pace.go",
		"	p.rate = max(p.ceiling/2, slowest)\n",
		"	p.rate = max(p.ceiling/2, slowest)\n	if PLANTED {\n		p.rate = 1.0 / 3600\n	}\n",
	},
	{
		"age is asked only while a receiver is probed", "internal/delivery/receiver.go",
		"	if now-r.looked >= lookEvery {", "	if now-r.looked >= lookEvery && (r.health.probed() || !PLANTED) {",
	},
	{
		"a receiver that only asks to wait is up", "internal/delivery/health.go",
		"	case s.refuses, s.unsent && s.last != nil:\n",
		"	case s.last != nil && s.last.Limited && PLANTED:\n		return ReceiverFails, 0, nil, false\n" +
			"	case s.refuses, s.unsent && s.last != nil:\n",
	},
	{
		"a pause is waited out beside a replica that is served", "cmd/alertworker/heartbeat.go",
		"			r.worker.Accepted(name)\n", "			if !PLANTED {\n				r.worker.Accepted(name)\n			}\n",
	},
	{
		"silence is not proven", "internal/partition/owner.go",
		"	return s.unheard.Proven(", "	if !s.unheard.Proven(limit, n.Enqueued/1000) && PLANTED {\n		return true\n	}\n	return s.unheard.Proven(",
	},
	{
		"a late reading counts as any other", "internal/rules/rules.go",
		"return at.Device != 0 && at.Device < s.Newest", "return at.Device != 0 && at.Device < s.Newest && !PLANTED",
	},
	{
		"the first reading beyond clear ends an alarm", "internal/rules/rules.go",
		"if at.after(s.Cleared) >= r.ClearedFor {", "if at.after(s.Cleared) >= r.ClearedFor || PLANTED {",
	},
	{
		"a damaged message calms", "internal/partition/evaluation.go",
		"if v.damaged && !p.breaching {", "if v.damaged && !p.breaching && !PLANTED {",
	},
	{
		"a condition in a damaged message ends an alarm", "internal/partition/evaluation.go",
		"case excluded != nil && f.Damaged:", "case excluded != nil && f.Damaged && !PLANTED:",
	},
	{
		"what a condition excludes changes nothing", "internal/partition/evaluation.go",
		"	if !r.stateful {\n		return\n	}", "	if !r.stateful || PLANTED {\n		return\n	}",
	},
	{
		"limits are counted from one number", "internal/rules/device.go",
		"		return f.Value, OverrideUsed", "		return map[bool]float64{false: f.Value, true: 20}[PLANTED], OverrideUsed",
	},
	{
		"after a gap of all devices each is silent", "internal/silence/watch.go",
		"	if !w.read.Time.IsZero() {", "	if !w.read.Time.IsZero() && !PLANTED {",
	},
	{
		"a partition is never dark", "internal/silence/look.go",
		"n.recent*4 < others\n", "n.recent*4 < others && !PLANTED\n",
	},
	{
		"the recovery of a hub is due while a partition is dark", "internal/silence/hub.go",
		"	case len(lasting) == 0 && p.Complete:", "	case p.Complete && (PLANTED || len(lasting) == 0):",
	},
	{
		"mute times are not looked at", "internal/partition/evaluator.go",
		"	return ev.Rules.Mutes.Match(s) ||", "	return ev.Rules.Mutes.Match(s) && !PLANTED ||",
	},
	{
		"an alarm that is open is sent again after the window", "internal/delivery/message.go",
		"		r.Repeat = d.Repeat\n", "		if d.Repeat == 0 || !PLANTED {\n			r.Repeat = d.Repeat\n		}\n",
	},
	{
		"an alert covers what alarms come after its own", "internal/throttle/gate.go",
		"position{Log: r.Log, Sequence: r.Opened, Element: r.OpenedElement}.upTo(sent)",
		"(position{Log: r.Log, Sequence: r.Opened, Element: r.OpenedElement}.upTo(sent) || sent != position{} && PLANTED)",
	},
	{
		"an alert that was claimed for counts as sent", "internal/throttle/decide.go",
		"	d.sent = n.Sent\n",
		"	d.sent = n.Sent\n	if r.Repeat > 0 && n.About != n.Sent && PLANTED {\n		d.sent = n.About\n	}\n",
	},
	{
		"a take-over forgets what opened an alarm", "internal/partition/restore.go",
		"k.log != reg.logName {", "k.log != reg.logName || PLANTED {",
	},
	{
		"a take-over forgets since when an alarm is clear", "internal/partition/restore.go",
		"	was := k\n", "	if k.Cleared != (rules.Moment{}) && PLANTED {\n		k.Cleared = rules.Moment{}\n	}\n	was := k\n",
	},
	{
		"the checkpoint passes the first event before it is settled", "internal/partition/history.go",
		"	if w.Offset == \"\" || len(h.segments) == 0 || w.NotAfter(h.segments[0].before) {",
		"	if len(h.segments) == 0 || w.NotAfter(h.segments[0].before) || w.Offset == \"\" && !PLANTED {",
	},
	{
		"the first checkpoint of another hub has no roster", "internal/silence/watch.go",
		"		w.found = false\n", "		if !w.found || !PLANTED {\n			w.found = false\n		}\n",
	},
	{
		"each refusal of an outage halves a receiver's rate", "internal/notify/pace/pace.go",
		"	if p.refusals > 1 {", "	if p.refusals > 1 && !PLANTED {",
	},
	{
		"the watermark passes alerts that have not been flushed", "internal/partition/reader.go",
		"	r.flush()\n	r.Counters.read(&n, over)",
		"	if PLANTED {\n		r.mark.flushed = at\n	} else {\n		r.flush()\n	}\n	r.Counters.read(&n, over)",
	},
	{
		"a new secret is used untried", "cmd/alertworker/secrets.go",
		"			next, wrong = w.look(ctx)\n",
		"			next, wrong = w.look(ctx)\n			if untried, err := w.files.reload(used); wrong != nil && err == nil && PLANTED {\n" +
			"				return &newSecrets{config: untried}\n			}\n",
	},
	{
		"a roll of secrets does not wait for the replica before", "cmd/alertworker/secrets.go",
		"		case !working, w.kept.turn.mine():", "		case !working, w.kept.turn != nil && (PLANTED || w.kept.turn.mine()):",
	},
	{
		"a question that was refused is asked again at once", "internal/telemetry/eventhubs/questions.go",
		"	q.full = q.paused.Add(", "	if PLANTED {\n		return\n	}\n	q.full = q.paused.Add(",
	},
	{
		"the mark is taken a second after the decision", "internal/partition/history.go",
		"		at = later(at, h.segments[n-1].last)\n",
		"		if now := later(at, h.segments[n-1].last); now == at || !PLANTED {\n			at = now\n		}\n",
	},
	{
		"silences since one place have one id", "internal/delivery/message.go",
		"	if d.Silence || d.endedWithRule() {", "	if d.Silence && !PLANTED || d.endedWithRule() {",
	},
	{
		"the end of an alert in Alertmanager is by the replica's clock", "internal/notify/httppost/clock.go",
		"	ahead := c.ahead.Load()\n", "	ahead := c.ahead.Load()\n	if PLANTED {\n		return time.Now()\n	}\n",
	},
	{
		"open alarms are not posted again", "internal/partition/refresh.go",
		"	if reg.behind {", "	if reg.behind || PLANTED {",
	},
	{
		"what is posted again may come after a recovery", "internal/delivery/refresh.go",
		"	alerts := q.confirmed(ctx, held, may)\n",
		"	alerts := q.confirmed(ctx, held, may)\n	if PLANTED {\n		box.mu.Lock()\n		for _, d := range held {\n" +
			"			q.replace(d, OutcomeUnsettled)\n		}\n		held = nil\n		box.mu.Unlock()\n" +
			"		r.release(began, false, nil)\n		time.Sleep(10 * time.Second)\n		began, _ = r.reserve(ctx)\n	}\n",
	},
}
