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
	plantedWithin = flag.Int("planted.within", 0, "how many plans look for each planted bug; 0: see that it can be planted")
	plantedOnly   = flag.String("planted.bug", "", "the one to plant; empty: all")
)

// A planted bug is one that the worker had, or that a line guards against. Each edit replaces what is once in a file
// of internal.
type plantedBug struct {
	name  string
	edits []edit
}

type edit struct{ file, old, new string }

// TestPlanted plants each bug in turn and has the random worlds look for it: make planted. Without a flag it sees
// that each can be planted.
func TestPlanted(t *testing.T) {
	for _, bug := range plantedBugs {
		t.Run(bug.name, func(t *testing.T) {
			changed := map[string]string{} // files by their paths
			for _, e := range bug.edits {
				file, err := filepath.Abs(filepath.Join("..", e.file))
				if err != nil {
					t.Fatal(err)
				}
				source, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if n := strings.Count(string(source), e.old); n != 1 {
					t.Fatalf("%s has what is to be replaced %d times, not once:\n%s", e.file, n, e.old)
				}
				changed[file] = strings.Replace(string(source), e.old, e.new, 1)
			}
			if *plantedWithin > 0 && (*plantedOnly == "" || *plantedOnly == bug.name) {
				bug.search(t, changed)
			}
		})
	}
}

// search builds the tests with files that are changed, and runs the random worlds.
func (b plantedBug) search(t *testing.T, changed map[string]string) {
	dir := t.TempDir()
	overlay, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "worlds.test")
	replace := map[string]string{}
	for file, source := range changed {
		replace[file] = filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		if err := os.WriteFile(replace[file], []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
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

var plantedBugs = []plantedBug{
	{"a take-over forgets since when an alarm is clear", []edit{{
		"partition/restore.go", "Cleared: rules.Moment{Hub: micros0(from.Cleared), Device: micros0(from.DeviceCleared)},", "",
	}}},
	{"a late reading counts as any other", []edit{{
		"rules/rules.go", "at.Device != 0 && at.Device < s.Newest", "false",
	}}},
	{"a reading that a condition excludes changes nothing", []edit{{
		"partition/evaluation.go", "			v.exclude(r, excluded, f.Value)\n", "",
	}}},
	{"a reading over HTTP is settled although no receiver took its alert", []edit{{
		"worker/intake.go", `	case r.Reason != "":`, `	case r.Reason == "dead_letter":`,
	}}},
	// Messages that are not quite JSON.
	{"a damaged message calms", []edit{{"partition/evaluation.go", "if v.damaged && !p.breaching {", "if false {"}}},
	{"a condition in a damaged message ends an alarm", []edit{{
		"partition/evaluation.go", "case excluded != nil && f.Damaged: // it ends nothing\n", "",
	}}},
	{"a damaged message says that nothing is expected", []edit{{
		"rules/rules.go", "		case found[only[i]].Damaged:\n			all = false // it never ends anything\n", "",
	}}},
	{"a damaged message counts as whole", []edit{{"telemetry/decode.go", "f.Damaged = damaged", "f.Damaged = false"}}},
	{"what breaks off counts", []edit{{
		"telemetry/repair.go", "		if r.at == len(r.in) { // a name as far as the body goes\n			r.held = -1\n		}\n	}\n\n	r.drop()\n",
		"	}\n	r.held = -1\n",
	}}},
	{"a clear reading ends an alarm at once", []edit{{"rules/rules.go", "at.after(s.Cleared) >= r.ClearedFor", "true"}}},
	// Alarms that are not sent again as soon as the window is over.
	{"an alert that was claimed for counts as taken", []edit{{"throttle/decide.go", "d.sent = n.Sent", "d.sent = n.About"}}},
	{"an alert counts as one about every alarm", []edit{{
		"throttle/gate.go", "position{Log: r.Log, Sequence: r.Opened, Element: r.OpenedElement}.upTo(sent)", "sent != position{}",
	}}},
	{"a take-over forgets what opened an alarm", []edit{{"partition/restore.go", "k.log != reg.logName {", "true {"}}},
	{"an alarm that was sent is sent after the window", []edit{{
		"delivery/message.go", "		r.Repeat = d.Repeat\n", "",
	}}},

	// Sites.
	{"a reading joins the delivery of another site of its device", []edit{{
		"delivery/outbox.go", "		d := q.deliveries[a.Key]\n", `		d := q.deliveries[a.Key]
		for key, other := range q.deliveries {
			same := other.Shared && a.Shared && key.Topic == a.Topic
			if d == nil && same && other.device(&other.head) == a.Sender {
				d = other
			}
		}
`,
	}}},
	{"every reading of a site that is refused is a dead letter", []edit{
		{"delivery/send.go", "q.gate(d).Refused(d.About)", "q.gate(d).Refused(d.of(&d.head))"},
	}},
	{"a device that is called like a site shares its window", []edit{{"throttle/key.go", `of += "~p" + escape(c.Per)`,
		`of += ""`}}},
	{"devices that waited for another one's alert are not counted", []edit{
		{"delivery/settle.go", "range q.sharing[d] {", "range map[string]struct{}{} {"},
	}},

	// Rules and levels that are removed.
	{"a silence of a renamed rule is sent although its device was heard", []edit{
		{"partition/alarms.go", "(!n.saved || !l.removed.IsZero())", "!n.saved"},
		{"partition/owner.go", "	if key.Message.Removed {", "	if false {"},
	}},
	{"the recovery of a removed rule is as old as the last event", []edit{
		{"delivery/settle.go", "	if n != nil && n.Opened > 0 {", "	if n.Silent() {"},
	}},
	{"a milder level below a removed one is not sent", []edit{
		{"partition/evaluation.go", "(p.is.untold || above || ended)", "(p.is.untold || ended)"},
	}},
	{"a late reading tells of what was held back", []edit{
		{"partition/evaluation.go", "	case p.outdated:\n", "	case p.outdated && !p.is.untold:\n"},
	}},
	{"an alert that was muted is not sent later", []edit{
		{"partition/evaluation.go", "	p.is.untold = p.followed // unless it is told now\n", ""},
	}},
	{"who gets a recovery follows from the filters", []edit{
		{"partition/register.go", "	receivers := was.told & reg.everybody()\n", "	receivers := reg.wanting(l)\n"},
		{"partition/restore.go", "		k.due.becomeDue(reg.everybody())\n", "		k.due.becomeDue(reg.wanting(l))\n"},
	}},
	{"an alarm between clear and limit is not sent again", []edit{
		{"partition/evaluation.go", "	p.repeats = l.rule.Repeat > 0\n", ""},
	}},
	{"a recovery comes after an alert of another partition", []edit{
		{"throttle/note.go", "		return posted || when <= n.aboutAt(prev)\n", "		return posted\n"},
	}},
	{"recoveries of a removed rule have one id", []edit{
		{"delivery/message.go", "if d.Silence || d.endedWithRule() {", "if d.Silence {"},
	}},

	// Silence.
	{"silences since one place have one id", []edit{
		{"delivery/message.go", "if d.Silence || d.endedWithRule() {", "if d.endedWithRule() {"},
	}},
	{"who was heard for a rule that is missing for a minute is forgotten", []edit{
		{"roster/codec.go", "now-c.Idle < KeepIdle.Milliseconds()", "false"},
	}},
	{"a rule forgets by the longest time of all", []edit{
		{"silence/look.go", "	forget := w.rules[rule].Forget.Milliseconds()\n",
			`	forget := w.rules[rule].Forget.Milliseconds()
	for _, other := range w.rules {
		forget = max(forget, other.Forget.Milliseconds())
	}
`},
	}},
	{"a gap before an undecodable message is none", []edit{
		{"silence/watch.go", "	if at.Sequence > w.expected && !e.Enqueued.IsZero() {", "	if false {"},
	}},
	{"an event that stands for expired ones is no gap", []edit{
		{"silence/watch.go", "		w.roster.Raise(at)\n", ""},
	}},
	{"a device of which nothing is expected is silent", []edit{
		{"silence/watch.go", "excluded := says == Excluded", "excluded := false"},
	}},
	{"a message that says nothing of what is expected changes that", []edit{
		{"silence/watch.go", "excluded = !w.roster.Heard(device, rule).Expected()", "excluded = true"},
	}},
	{"the recovery of a hub is due while a partition is dark", []edit{
		{"silence/hub.go", "	case len(lasting) == 0 && p.Complete:", "	case len(lasting) < p.All:"},
	}},
	{"on a compacted hub nobody is silent", []edit{
		{"roster/roster.go", "		if to.Time-from > c.Limit.Milliseconds() {", "		if true {"},
	}},

	// Devices that people remove.
	{"alarms of a removed device stay open", []edit{
		{"partition/removal.go", "	if !reg.endAlarms(name) && !known {", "	if !known {"},
	}},
	{"an alarm of a removed device is open again after a crash", []edit{
		{"partition/removal.go", "		reg.mark.read(before) // where an alarm ends\n		reg.endAlarms(device)\n", "		_ = before\n"},
	}},
	{"a silence of a removed device that had ended is open again after a crash", []edit{
		{"partition/removal.go", "		reg.alarms.history.replace(key, reg.alarms.byKey[key])\n", "		_ = key\n"},
	}},

	{"the mark is taken a second after the decision", []edit{
		{"partition/evaluation.go", "	reg.mark.read(e.Position) // whatever else is decided comes after it: see endRead\n", ""},
		{"partition/history.go", "		at = later(at, h.segments[n-1].last)\n", ""},
		{"partition/reader.go", "	r.unheard.Unlock()\n	r.lastRead = at\n",
			"	r.unheard.Unlock()\n	r.seen.mu.Unlock()\n	if over > 0 {\n		time.Sleep(time.Second)\n	}\n	r.seen.mu.Lock()\n	r.lastRead = at\n"},
	}},

	// Mutes and the gate.
	{"a mute time over midnight ends at midnight", []edit{
		{"rules/mute.go", "w.Days[yesterday] && minute < w.To", "w.Days[yesterday] && false"},
	}},
	{"a mute is added again after a lost answer", []edit{
		{"muting/muting.go", "i := indexOf(all, one.ID); i >= 0 {", "i := -1; i >= 0 {"},
	}},
	{"a recovery that was not sent ends the window", []edit{
		{"throttle/note.go", "		n.Quiet = max(n.Quiet, n.Ended)\n", ""},
	}},

	// Messages for many.
	{"an alert that a receiver fails because of takes others with it", []edit{
		{"delivery/receiver.go", "		d.sendAlone = true // the others in its message do not fail with it again\n", ""},
	}},

	// What waits.
	{"age is asked only while a receiver is probed", []edit{{
		"delivery/receiver.go", "	if now-r.looked >= lookEvery {", "	if now-r.looked >= lookEvery && r.health.probed() {",
	}}},
	{"classes do not age", []edit{{"delivery/delivery.go", "int64(d.class())*worth }", "int64(d.class())<<40 }"}}},
	{"an alert that was refused for rate goes after all others", []edit{{
		"delivery/delivery.go", "class(d.limited)", "class(d.limited)<<40",
	}}},
	{"a receiver that only asks to wait is up", []edit{{
		"delivery/health.go", "	case s.refuses, s.unsent && s.last != nil:\n", `	case s.last != nil && s.last.Limited:
		return ReceiverFails, 0, nil, false
	case s.unsent && s.last != nil:
`}}},

	// What never was a defect.
	{"what a removed device has due is lost with its replica", []edit{
		{"partition/removal.go", "	if last.NotAfter(reg.alarms.history.position) {", "	if true {"},
	}},
	{"the checkpoint is the last event read", []edit{
		{"partition/checkpoint.go", "telemetry.Checkpoint{Position: s.settled()}", "telemetry.Checkpoint{Position: s.mark.last}"},
	}},
	{"an unknown answer counts as a delivery", []edit{
		{"delivery/send.go", "	return throttle.Unknown\n}", "	return throttle.Taken\n}"},
	}},
	{"a recovery is sent without asking who owns the partition", []edit{
		{"partition/owner.go", "	return s.owner.owns(ctx)\n}", "	return nil\n}"},
	}},
	{"the watermark passes alerts that have not been flushed", []edit{
		{"partition/reader.go", "	r.flush()\n	r.Counters.read(&n, over)", "	r.mark.flushed = at\n	r.Counters.read(&n, over)"},
	}},
	{"the ledger is ahead of the watermark", []edit{
		{"partition/history.go", "h.segments[n].last.NotAfter(w); n++ {", "n < len(h.segments); n++ {"},
	}},
}
