//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/ops/status"
)

var updateDocs = flag.Bool("update", false, "write the table of faults into docs/dev/faults.md")

// A fault is one row of the table in docs/dev/faults.md: what is broken, what the page, /readyz, /status, the
// heartbeat, check, the metrics and the log say then, and how soon /readyz does while devices are hot, and which alert
// rules fire if it goes on.
type fault struct {
	name   string
	begin  func(*faulty)
	end    func(*faulty)
	ready  int    // what /readyz answers
	says   string // the headline begins with it, or has it
	by     string // alertworker_blocked's label, or the reason of alertworker_receiver_down
	within time.Duration

	why        string        // what /readyz has besides
	check      string        // what check says; empty: what is in the way in says
	learned    time.Duration // for so long it may say something else first
	goesOut    bool          // alerts about readings that come meanwhile go out, if late, and all is not well at every moment
	prometheus string        // the rule that fires; empty: none has to
	azure      string        // in deploy/azure; likewise
}

const (
	goingOut      = "Alerts are going out"
	noStore       = "No alerts are going out: the throttle store cannot be used"
	noHub         = "No alerts are going out: the hub cannot be read"
	noCheckpoints = "the checkpoint store cannot be used"
	soon          = 30 * time.Second
)

// pause is what receivers ask for, in seconds: more than within which a receiver that takes nothing is said to be down,
// and so little that a test can wait for its end.
const pause = "35"

// cutOff is the fault of a hub that takes nothing from its devices, of which a rule about silence tells.
const cutOff = "hub: cut off from its devices"

// atSlack begins the names of faults of a Slack.
const atSlack = "one receiver, a Slack"

// page answers with a page, as a portal does.
func page(w http.ResponseWriter, _ *http.Request, _ http.Handler, _ <-chan struct{}) {
	w.Header().Set("Content-Type", "text/html")
	_, _ = io.WriteString(w, "<!DOCTYPE html><title>Sign in</title>")
}

// faults are in groups that are tested side by side, each with a worker of its own.
var faults = [][]fault{
	{
		storage("throttle store: away", "throttle-", anything, dropped, noStore, "throttle_store"),
		storage("throttle store: hanging", "throttle-", anything, hanging, noStore, "throttle_store"),
		storage("throttle store: no write", "throttle-", writes, refused, noStore, "throttle_store"),
		storage("throttle store: no read", "throttle-", reads, refused, noStore, "throttle_store"),
	},
	{
		storage("checkpoint store: away", "checkpoints-", anything, dropped, noCheckpoints, "checkpoint_store"),
		storage("checkpoint store: hanging", "checkpoints-", anything, hanging, noCheckpoints, "checkpoint_store"),
		storage("checkpoint store: no write", "checkpoints-", writes, refused, noCheckpoints, "checkpoint_store"),
		storage("checkpoint store: no read", "checkpoints-", reads, refused, noCheckpoints, "checkpoint_store"),
	},
	{
		inPart("throttle store: one answer in three", "throttle-", "the throttle store", "throttle_store"),
		inPart("checkpoint store: one answer in three", "checkpoints-", "the checkpoint store", "checkpoint_store"),
	},
	{
		slowStorage("throttle store: slow by 2 s", "throttle-", after2s),
		slowStorage("throttle store: slow by 5 s", "throttle-", after5s),
		slowStorage("storage: slow by 2 s", "", after2s),
		slowStorage("storage: slow by 5 s", "", after5s),
	},
	{
		hubFault("hub: away", func(w *faulty) { w.line.cut(true) }, func(w *faulty) { w.line.cut(false) }, soon),
		hubFault("hub: key", func(w *faulty) { w.devhub.RefuseClaims(1<<30, 401); w.devhub.Reset() },
			func(w *faulty) { w.devhub.RefuseClaims(0, 401) }, soon),
		hubFault("hub: hanging", func(w *faulty) { w.devhub.Stall() },
			func(w *faulty) { w.devhub.Resume(); w.devhub.Reset() }, 90*time.Second),
		{
			name:  "hub: one partition",
			begin: func(w *faulty) { w.devhub.RefuseLinks("0", 1<<30, "another reader"); w.devhub.Detach("0") },
			end:   func(w *faulty) { w.devhub.RefuseLinks("0", 0, "") },
			ready: 503, within: soon, by: "partitions", prometheus: "AlertworkerPartitionsUnread", azure: "blocked",
			says: "Some alerts aren't going out: partition 0 is not being read.",
		},
	},
	{
		{
			name:  cutOff,
			begin: func(w *faulty) { w.quiet.Store(true) },
			end:   func(w *faulty) { w.quiet.Store(false) },
			ready: 200, says: goingOut, check: "✓ alerts", within: soon,
		},
	},
	{
		clockFault("clock: 20 min behind"),
	},
	{
		{
			name:  "a wrong secret is rolled out",
			begin: func(w *faulty) { w.rollOut(wrongKey.ReplaceAllString(w.reached(), "${1}d3Jvbmc=")) },
			end:   func(w *faulty) { w.rollOut(w.reached()) },
			ready: 200, says: "Alerts are going out, but a new secret does not work", by: newSecret, within: soon, goesOut: true,
			check: "the hub cannot be read", prometheus: "AlertworkerNewSecret", azure: "errors",
		},
	},
	{
		receiverFault("one receiver: away", notifytest.Reset, "is down", "failing"),
		receiverFault("one receiver: 400", notifytest.Status(400), "rejects every alert", "rejecting"),
		receiverFault("one receiver: 401", notifytest.Status(401), "is down", "failing"),
		receiverFault("one receiver: 404", notifytest.Status(404), "is down", "failing"),
		receiverFault("one receiver: hanging", notifytest.Hang, "is down", "failing"),
		{
			name: "every receiver: 400", begin: func(w *faulty) { w.answer(notifytest.Status(400), notifytest.Status(400)) },
			end: mended, ready: 200, within: soon, by: "rejecting",
			prometheus: "AlertworkerReceiverDown", azure: "receiver-down",
			says: "No alerts are going out: receiver hook rejects every alert, and receiver other rejects every alert",
		},
		{
			name: "one receiver: one device's alerts", begin: func(w *faulty) { w.answer(refuseOdd, nil) },
			end: mended, ready: 200, within: soon, says: goingOut, check: "✓ alerts",
			prometheus: "AlertworkerDeadLetters", azure: "errors",
		},
		receiverFault("one receiver: 429", notifytest.Status(429), "accepts nothing because of its rate limit", "rate_limited"),
	},
	{
		receiverFault("one receiver: 503 and Retry-After", notifytest.Status(503, "Retry-After", pause), "is down", "failing"),
		receiverFault("one receiver: 403 and Retry-After", notifytest.Status(403, "Retry-After", pause), "is down", "failing"),
		receiverFault("one receiver: 429 and Retry-After", notifytest.Status(429, "Retry-After", pause),
			"accepts nothing because of its rate limit", "rate_limited"),
	},
	{
		receiverFault(atSlack+": a page of HTML with 200", page, "is down", "failing"),
	},
	{
		identityFault("identity: gives no token", refused),
		identityFault("identity: hanging", hanging),
	},
}

// storage is a fault of a container.
func storage(name, container string, kind requestKind, a answers, says, by string) fault {
	return fault{
		name: name, ready: 503, says: says, by: by, within: soon, prometheus: "AlertworkerBlocked", azure: "blocked",
		begin: func(w *faulty) { w.storage.fault.Store(&storageFault{container, kind, a}) },
		end:   func(w *faulty) { w.storage.fault.Store(nil) },
	}
}

// newSecret is what is not in the way of alerts.
const newSecret = "new_secret"

var wrongKey = regexp.MustCompile(`(SharedAccessKey=)[^;]+`)

// clockFault is that the account finds this machine's clock wrong.
func clockFault(name string) fault {
	f := storage(name, "", anything, later, noStore, "throttle_store")
	f.check = "this machine's clock is 20 min behind"
	f.why = f.check
	return f
}

// inPart is a fault of a container that answers one request in three.
func inPart(name, container, says, by string) fault {
	f := storage(name, container, anything, oneInThree, says, by)
	f.goesOut = true
	f.within = 90 * time.Second // at random
	return f
}

// slowStorage is that a container, or each, answers late. So do alerts.
func slowStorage(name, container string, a answers) fault {
	return fault{
		name: name, ready: 200, says: goingOut, check: "✓ alerts", within: 2 * time.Minute, learned: time.Minute,
		begin: func(w *faulty) { w.storage.fault.Store(&storageFault{container, anything, a}) },
		end:   func(w *faulty) { w.storage.fault.Store(nil) },
	}
}

func hubFault(name string, begin, end func(*faulty), within time.Duration) fault {
	return fault{
		name: name, begin: begin, end: end, ready: 503, says: noHub, by: "hub", within: within,
		prometheus: "AlertworkerBlocked", azure: "blocked",
	}
}

// receiverFault is one of the first of two receivers.
func receiverFault(name string, b notifytest.Behaviour, is, reason string) fault {
	return fault{
		name: name, begin: func(w *faulty) { w.answer(b, nil) }, end: mended, ready: 200, by: reason, within: soon,
		says:       "Some alerts aren't going out: receiver hook " + is + ".",
		prometheus: "AlertworkerReceiverDown", azure: "receiver-down",
	}
}

func mended(w *faulty) { w.answer(nil, nil) }

// refuseOdd refuses the alerts of one device.
func refuseOdd(w http.ResponseWriter, r *http.Request, take http.Handler, stop <-chan struct{}) {
	body, _ := io.ReadAll(r.Body)
	if bytes.Contains(body, []byte(`"subject":"odd"`)) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	notifytest.Take(w, r, take, stop)
}

// identityFault is one of the identity with which both stores are used. Its tokens last some seconds more.
func identityFault(name string, how answers) fault {
	return fault{
		name: name, begin: func(w *faulty) { w.identity.set(true, how) }, end: func(w *faulty) { w.identity.set(false, how) },
		ready: 503, says: noStore, by: "throttle_store", within: 45 * time.Second,
		check: "no token for https://storage.azure.com", prometheus: "AlertworkerBlocked", azure: "blocked",
	}
}

// keyless reports whether f needs a worker with an identity.
func (f fault) keyless() bool { return strings.HasPrefix(f.name, "identity") }

// shown are what /metrics answered during each fault.
type shown struct {
	mu      sync.Mutex
	scrapes map[string][]string
}

// Each fault is said in the same words, wherever one looks, and soon; it stays said for as long as it lasts, its end
// is said too, and the alert rules that go by what processes say fire.
func TestFaults(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	shown := &shown{scrapes: map[string][]string{}}
	atATime := make(chan struct{}, 4) // a store that is slow because the machine is says that it cannot be used
	passed := t.Run("said", func(t *testing.T) {
		for _, group := range slices.Backward(faults) { // the longest first
			t.Run(group[0].name, func(t *testing.T) {
				t.Parallel()
				atATime <- struct{}{}
				defer func() { <-atATime }()
				busytest.Run(t, func(t *busytest.Attempt) { suffer(t, azurite, group, shown) })
			})
		}
	})
	if !passed {
		return
	}
	fired := fired(t, shown.scrapes)
	for _, f := range slices.Concat(faults...) {
		if shown.scrapes[f.name] == nil {
			continue // -run left it out
		}
		t.Logf("%-40s fires %s", f.name, strings.Join(fired[f.name], ", "))
		if f.prometheus != "" && !slices.Contains(fired[f.name], f.prometheus) {
			t.Errorf("%s: Prometheus' rule %s does not fire", f.name, f.prometheus)
		}
	}
}

// suffer has a worker suffer from the faults of a group, one after the other.
func suffer(t *busytest.Attempt, azurite *emulators.Azurite, group []fault, shown *shown) {
	w := newFaulty(t, azurite, group[0].keyless())
	if strings.HasPrefix(group[0].name, atSlack) {
		w.useSlack()
	}
	if group[0].name == cutOff {
		w.watchSilence()
	}
	w.start("a")
	w.hot()
	w.until("alerts go out at first", func() bool { return w.says(200, goingOut) })
	for _, f := range group {
		w.suffers(f)
		shown.mu.Lock()
		shown.scrapes[f.name] = w.scrapes
		shown.mu.Unlock()
	}
	w.stop("a")
}

func (w *faulty) suffers(f fault) {
	w.t.Helper()
	began := time.Now()
	logged := len(w.workers["a"].stderr.String())
	f.begin(w)
	w.pass(f.learned)
	said := func() bool {
		return w.says(f.ready, f.says) && w.says(f.ready, f.why) && (!f.keyless() || w.says(f.ready, f.check)) // its tokens last a while
	}
	w.until(f.name+": /readyz says so", said)
	took := time.Since(began)
	if limit := w.t.Time(f.within); took > limit {
		w.t.Missed("%s: said after %v, not within %v", f.name, took, limit)
	}
	w.scrapes = nil
	for range 15 { // it stays said: an alert rule has to hold for minutes
		w.pass(200 * time.Millisecond)
		w.scrape()
		if said() {
			continue
		}
		if _, body := w.readyz(); slow(f, body) {
			w.t.Missed("%s: %s", f.name, body)
		} else {
			w.t.Errorf("%s: it does not stay said: %s", f.name, body)
		}
		break
	}
	differs := ""
	if !eventually(startWithin, func() bool {
		w.pass(200 * time.Millisecond)
		differs = w.differs(f, began, logged)
		return differs == ""
	}) {
		w.t.Missed("%s: not within %v: %s says so", f.name, startWithin, differs)
	}
	all := time.Since(began)
	w.pass(200 * time.Millisecond)
	w.scrape() // with what was logged last
	w.until(f.name+": check says so", func() bool {
		check := alertworker(w.t.T, "check", w.env, "check")
		<-check.done
		return f.checked(check.stdout.String())
	})
	w.t.Logf("%-40s said after %5.1f s, everywhere after %5.1f s, by check after %5.1f s", f.name, took.Seconds(), all.Seconds(),
		time.Since(began).Seconds())
	w.recovers(f)
}

// recovers ends f and waits until everything says so.
func (w *faulty) recovers(f fault) {
	w.t.Helper()
	f.end(w)
	ended := time.Now()
	w.until(f.name+": alerts go out again, and everything says so", func() bool {
		good, bad, _ := w.monitor.last()
		return w.says(200, "ready: "+goingOut) && good.After(ended) && good.After(bad)
	})
}

// until waits until met, looking a few times a second. A machine on which that takes minutes is too slow.
func (w *faulty) until(what string, met func() bool) {
	w.t.Helper()
	if !eventually(startWithin, func() bool {
		w.pass(200 * time.Millisecond)
		return met()
	}) {
		_, body := w.readyz()
		w.t.Missed("not within %v: %s: %s", startWithin, what, body)
	}
}

// differs returns what does not say what f does, which began since then; empty if all agree. The log had so many bytes
// before.
func (w *faulty) differs(f fault, since time.Time, logged int) string {
	var report status.Report
	_, text := try(http.MethodGet, "http://"+w.site+"/status", "")
	if json.Unmarshal([]byte(text), &report) != nil || !strings.Contains(report.Headline, f.says) {
		return "/status"
	}
	_, page := try(http.MethodGet, "http://"+w.site+"/", "")
	page = html.UnescapeString(page)
	if !strings.Contains(page, f.says) && !strings.Contains(page, "</span>"+string(report.State)+"</p>") {
		return "page"
	}
	if !strings.Contains(w.scrape(), f.metric()) {
		return "metrics"
	}
	if rules := azureRules(w.t.T, w.workers["a"].stderr.String(), logged); f.azure != "" && !slices.Contains(rules, f.azure) {
		return fmt.Sprintf("the log, by which Azure's rules %q fire", rules)
	}
	good, bad, why := w.monitor.last()
	switch {
	case f.harmless() && !good.After(since):
		return "heartbeat"
	case !f.harmless() && (!bad.After(since) || !strings.Contains(why, f.says)):
		return "heartbeat"
	case f.name == cutOff && !slices.ContainsFunc(w.receiver.Taken(), func(a notify.Alert) bool { return a.Outage != nil && !a.Resolved }):
		return "receiver"
	case (f.by == "" || f.goesOut) && f.name != cutOff && !w.tookSince(since):
		return "receiver"
	}
	return ""
}

// clause returns what is in the way.
func (f fault) clause() string {
	if f.check != "" {
		return f.check
	}
	_, what, _ := strings.Cut(f.says, ": ")
	if what == "" {
		what = f.says
	}
	what, _, _ = strings.Cut(what, ". ")
	what, _, _ = strings.Cut(what, ", and ")
	return what
}

// checked reports whether check says what f is, in a step that failed unless nothing is wrong.
func (f fault) checked(said string) bool {
	for line := range strings.Lines(said) {
		if strings.Contains(line, f.clause()) && (f.by == "" || strings.HasPrefix(line, "✗")) {
			return true
		}
	}
	return false
}

// receiver reports whether f is of receivers.
func (f fault) receiver() bool {
	return f.by == "failing" || f.by == "rejecting" || f.by == "rate_limited"
}

// harmless reports whether alerts about all devices go out as usual.
func (f fault) harmless() bool { return f.by == "" || f.by == newSecret }

// metric returns the series that is 1 while f lasts.
func (f fault) metric() string {
	switch {
	case f.by == "":
		return "alertworker_partitions_owned 2\n"
	case f.by == newSecret:
		return "alertworker_new_secret_failing 1\n"
	case f.receiver():
		return fmt.Sprintf("alertworker_receiver_down{reason=%q,receiver=\"hook\"} 1\n", f.by)
	}
	return fmt.Sprintf("alertworker_blocked{by=%q} 1\n", f.by)
}

// fired returns which of Prometheus' rules fire if it goes on as was shown, by fault: see tools/rules/fire.
func fired(t *testing.T, scrapes map[string][]string) (fired map[string][]string) {
	t.Helper()
	for _, dir := range []string{"../../../tools/rules", "../../../deploy/prometheus"} { // as in built
		if err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	in, err := json.Marshal(scrapes)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "-C", "../../../tools", "run", "-buildvcs=false", "./rules/fire",
		"../deploy/prometheus/alerts.yaml")
	var out, failed bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &failed
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &failed)
	}
	if err := json.Unmarshal(out.Bytes(), &fired); err != nil {
		t.Fatal(err)
	}
	return fired
}

// problemsQuery is what deploy/azure/alerts.bicep makes of the log, as far as a test can read it.
type problemsQuery struct {
	over, what *regexp.Regexp
}

var azureAlerts = sync.OnceValues(func() (q problemsQuery, err error) {
	text, err := os.ReadFile("../../../deploy/azure/alerts.bicep")
	if err != nil {
		return q, err
	}
	find := func(before string) *regexp.Regexp {
		m := regexp.MustCompile(regexp.QuoteMeta(before) + `"([^"]+)"`).FindSubmatch(text)
		if m == nil {
			err = fmt.Errorf("deploy/azure/alerts.bicep has no %s", before)
			return nil
		}
		return regexp.MustCompile(string(m[1]))
	}
	return problemsQuery{over: find("matches regex "), what: find("extract(")}, err
})

// azureRules returns which of the rules in deploy/azure/alerts.bicep a worker's log fulfils, if what it says last goes
// on; of errors, those after so many bytes.
func azureRules(t *testing.T, log string, after int) (rules []string) {
	t.Helper()
	q, err := azureAlerts()
	if err != nil {
		t.Fatal(err)
	}
	lasts := map[string]bool{} // by the rule, a thing and its receiver
	for line := range strings.Lines(log) {
		after -= len(line)
		var l struct{ Level, Msg, Effect, Receiver string }
		if json.Unmarshal([]byte(line), &l) != nil {
			continue
		}
		over := q.over.MatchString(l.Msg)
		if !over && l.Effect == "" {
			if l.Level == "error" && after < 0 {
				lasts["errors"] = true
			}
			continue
		}
		rule, what := "blocked", ""
		if m := q.what.FindStringSubmatch(l.Msg); m != nil {
			what = m[1]
		}
		switch what {
		case "receiver":
			rule = "receiver-down"
		case "the devices":
			rule = "no-readings"
		case "replicas":
			rule = "rules-differ"
		}
		lasts[rule+"/"+what+"/"+l.Receiver] = !over
	}
	for key, is := range lasts {
		if rule, _, _ := strings.Cut(key, "/"); is && !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	slices.Sort(rules)
	return rules
}

// holds returns for how long a rule has to hold, as its file says.
func holds(t *testing.T, rule string) string {
	t.Helper()
	prometheus, err := os.ReadFile("../../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	azure, err := os.ReadFile("../../../deploy/azure/alerts.bicep")
	if err != nil {
		t.Fatal(err)
	}
	_, of, found := strings.Cut(string(prometheus), "alert: "+rule+"\n")
	of, _, _ = strings.Cut(of, "- alert: ")
	pattern := regexp.MustCompile(`\n +for: (\d+)m\n`)
	if !found {
		_, of, found = strings.Cut(string(azure), "name: '"+rule+"'\n")
		of, _, _ = strings.Cut(of, "name: '")
		pattern = regexp.MustCompile(`, '(\d+)m'\)`)
	}
	if !found {
		t.Fatalf("there is no rule %s", rule)
	}
	if m := pattern.FindStringSubmatch(of); m != nil {
		return m[1] + " min"
	}
	return "at once"
}

// The table in the documents is this one.
func TestFaultsAreDocumented(t *testing.T) {
	const file, begin, end = "../../../docs/dev/faults.md", "<!-- faults -->\n", "<!-- /faults -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), begin)
	table, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no table of faults", file)
	}
	var want strings.Builder
	want.WriteString("| fault | `/readyz` | it, the page, `/status` and the heartbeat say | within | alert rules |\n|---|---|---|---|---|\n")
	for _, f := range slices.Concat(faults...) {
		by := "`blocked{by=\"" + f.by + "\"}`: "
		if f.receiver() {
			by = "`receiver_down{reason=\"" + f.by + "\"}`: "
		} else if f.by == newSecret {
			by = "`new_secret_failing`: "
		} else if f.by == "" {
			by = ""
		}
		fires := "–"
		if f.prometheus != "" {
			fires = fmt.Sprintf("%s%s, %s; `%s`, %s", by, f.prometheus, holds(t, f.prometheus), f.azure, holds(t, f.azure))
		}
		fmt.Fprintf(&want, "| %s | %d | … %s … | %.0f s | %s |\n", f.name, f.ready, f.says, f.within.Seconds(), fires)
	}
	if *updateDocs {
		if err := os.WriteFile(file, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want.String() {
		t.Errorf("the table differs: go test ./internal/lab/e2e -run Documented -update")
	}
}
