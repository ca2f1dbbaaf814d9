//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/ops/status"
)

var updateDocs = flag.Bool("update", false, "write the table of faults into docs/operations.md")

// A fault is one row of the table in docs/operations.md: what is broken, and what the page, /readyz, /status, the
// heartbeat, the metrics and the log say then, and how soon /readyz does while devices are hot.
type fault struct {
	name   string
	begin  func(*faulty)
	end    func(*faulty)
	ready  int    // 0: /readyz and all else change with what the last calls showed, while alerts go out
	says   string // the headline begins with it
	by     string // alertworker_blocked's label, or the reason of alertworker_receiver_down
	within time.Duration
}

const (
	goingOut      = "Alerts are going out"
	noStore       = "No alerts are going out: the throttle store cannot be used"
	noHub         = "No alerts are going out: the hub cannot be read"
	noCheckpoints = "the checkpoint store cannot be used"
	soon          = 30 * time.Second
)

var faults = []fault{
	storage("throttle store: away", "throttle-", anything, dropped, noStore, "throttle_store"),
	storage("throttle store: hanging", "throttle-", anything, hanging, noStore, "throttle_store"),
	storage("throttle store: no write", "throttle-", writes, refused, noStore, "throttle_store"),
	storage("throttle store: no read", "throttle-", reads, refused, noStore, "throttle_store"),
	storage("throttle store: one answer in three", "throttle-", anything, oneInThree, "", ""),
	storage("checkpoint store: away", "checkpoints-", anything, dropped, noCheckpoints, "checkpoint_store"),
	storage("checkpoint store: hanging", "checkpoints-", anything, hanging, noCheckpoints, "checkpoint_store"),
	storage("checkpoint store: no write", "checkpoints-", writes, refused, noCheckpoints, "checkpoint_store"),
	storage("checkpoint store: no read", "checkpoints-", reads, refused, noCheckpoints, "checkpoint_store"),
	{"hub: away", func(w *faulty) { w.line.cut(true) }, func(w *faulty) { w.line.cut(false) }, 503, noHub, "hub", soon},
	{"hub: key", func(w *faulty) { w.devhub.RefuseClaims(1<<30, 401); w.devhub.Reset() },
		func(w *faulty) { w.devhub.RefuseClaims(0, 401) }, 503, noHub, "hub", soon},
	{"hub: hanging", func(w *faulty) { w.devhub.Stall() },
		func(w *faulty) { w.devhub.Resume(); w.devhub.Reset() }, 503, noHub, "hub", 90 * time.Second},
	{"hub: one partition", func(w *faulty) { w.devhub.RefuseLinks("0", 1<<30, "another reader"); w.devhub.Detach("0") },
		func(w *faulty) { w.devhub.RefuseLinks("0", 0, "") }, 503,
		"Some alerts aren't going out: partition 0 is not being read. Those of the other partition", "partitions", soon},
	receiverFault("one receiver: away", notifytest.Reset, "receiver hook is down. Those to other go out.", "failing"),
	receiverFault("one receiver: 400", notifytest.Status(400), "receiver hook rejects every alert. Those to other go out.", "rejecting"),
	receiverFault("one receiver: 401", notifytest.Status(401), "receiver hook is down. Those to other go out.", "failing"),
	receiverFault("one receiver: 404", notifytest.Status(404), "receiver hook is down. Those to other go out.", "failing"),
	receiverFault("one receiver: 429", notifytest.Status(429),
		"receiver hook accepts nothing because of its rate limit. Those to other go out.", "rate_limited"),
	receiverFault("one receiver: hanging", notifytest.Hang, "receiver hook is down. Those to other go out.", "failing"),
	{"every receiver: 400", func(w *faulty) { w.answer(notifytest.Status(400), notifytest.Status(400)) },
		func(w *faulty) { w.answer(nil, nil) }, 200,
		"No alerts are going out: receiver hook rejects every alert, and receiver other rejects every alert", "rejecting", soon},
	{"one receiver: one device's alerts", func(w *faulty) { w.answer(refuseOdd, nil) },
		func(w *faulty) { w.answer(nil, nil) }, 200, goingOut, "", soon},
}

// storage is a fault of a container.
func storage(name, container string, kind requestKind, a answers, says, by string) fault {
	f := fault{name: name, ready: 503, says: says, by: by, within: soon}
	if says == "" {
		f.ready = 0
	}
	f.begin = func(w *faulty) { w.storage.fault.Store(&storageFault{container, kind, a}) }
	f.end = func(w *faulty) { w.storage.fault.Store(nil) }
	return f
}

// receiverFault is one of the first of two receivers.
func receiverFault(name string, b notifytest.Behaviour, says, reason string) fault {
	return fault{name, func(w *faulty) { w.answer(b, nil) }, func(w *faulty) { w.answer(nil, nil) },
		200, "Some alerts aren't going out: " + says, reason, soon}
}

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

// A faulty is a worker, a process, of which everything that it needs can break.
type faulty struct {
	*world
	storage *breakableStorage
	line    *line // to the hub
	hook    switchable
	other   switchable
	monitor *monitor
	site    string
}

func newFaulty(t *busytest.Attempt) *faulty {
	w := &faulty{storage: newBreakableStorage(t.T), monitor: newMonitor(t.T)}
	w.world = newWorld(t, w.storage.connectionString, settings{partitions: 2})
	other := &notifytest.Server{}
	other.Start(t.T, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	other.BehaveAlways(w.other.behave)
	w.receiver.BehaveAlways(w.hook.behave)
	w.line = newLine(t.T, w.devhub.Addr())
	w.env = append(w.env,
		"EVENTHUB_CONNECTION_STRING="+strings.Replace(w.hub, w.devhub.Addr(), w.line.address, 1),
		"NOTIFY_URLS=name=hook "+w.receiver.URL+", name=other "+other.URL,
		"HEARTBEAT_URL=interval=4s "+w.monitor.URL+"/token",
		"LOG_FORMAT=json", "LOG_LEVEL=info",
	)
	w.site = freeAddr(t.T)
	w.sites["a"] = w.site
	return w
}

// answer sets how the two receivers answer; nil: normally. What they took before has been answered then.
func (w *faulty) answer(hook, other notifytest.Behaviour) {
	w.hook.set(hook)
	w.other.set(other)
}

// A switchable is a receiver whose behaviour changes between two requests, not while it takes one.
type switchable struct {
	mu  sync.RWMutex
	now notifytest.Behaviour // nil: it takes what comes
}

func (s *switchable) set(b notifytest.Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = b
}

func (s *switchable) behave(w http.ResponseWriter, r *http.Request, take http.Handler, stop <-chan struct{}) {
	s.mu.RLock()
	if b := s.now; b != nil {
		s.mu.RUnlock()
		b(w, r, take, stop)
		return
	}
	defer s.mu.RUnlock()
	notifytest.Take(w, r, take, stop)
	_ = http.NewResponseController(w).Flush()
}

// hot has devices be hot, each for a while, until the test ends.
func (w *faulty) hot() {
	ctx, stop := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			w.publish(fmt.Sprint("oven-", n%50), threshold+1)
			w.publish("odd", threshold+1)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	w.t.Cleanup(func() {
		stop()
		running.Wait()
	})
}

// says reports whether /readyz answers with this code and a headline that contains text.
func (w *faulty) says(code int, text string) bool {
	got, body := try(http.MethodGet, "http://"+w.site+"/readyz", "")
	return got == code && strings.Contains(strings.ToLower(body), strings.ToLower(text))
}

// Each fault is said in the same words, wherever one looks, and soon; it stays said for as long as it lasts, and its end
// is said too.
func TestFaults(t *testing.T) {
	busytest.Run(t, func(t *busytest.Attempt) {
		w := newFaulty(t)
		w.start("a")
		w.hot()
		within(t.T, startWithin, "alerts go out at first", func() bool { w.alive(); return w.says(200, goingOut) })
		for _, f := range faults {
			w.suffers(f)
		}
		w.stop("a")
	})
}

func (w *faulty) suffers(f fault) {
	w.t.Helper()
	began := time.Now()
	f.begin(w)
	if f.ready == 0 {
		w.goesOut(f, began)
		return
	}
	within(w.t.T, startWithin, f.name+": /readyz says so", func() bool { w.alive(); return w.says(f.ready, f.says) })
	took := time.Since(began)
	if limit := w.t.Time(f.within); took > limit {
		w.t.Missed("%s: said after %v, not within %v", f.name, took, limit)
	}
	for range 15 { // it stays said: an alert rule has to hold for minutes
		w.pass(200 * time.Millisecond)
		if !w.says(f.ready, f.says) {
			_, body := try(http.MethodGet, "http://"+w.site+"/readyz", "")
			w.t.Errorf("%s: it does not stay said: %s", f.name, body)
			break
		}
	}
	within(w.t.T, startWithin, f.name+": everything says so", func() bool { w.alive(); return w.agrees(f, began) == "" })
	w.t.Logf("%-40s said after %5.1f s, everywhere after %5.1f s", f.name, took.Seconds(), time.Since(began).Seconds())
	w.recovers(f)
}

// goesOut waits until an alert about a reading that came during f has gone out, and ends f.
func (w *faulty) goesOut(f fault, began time.Time) {
	w.t.Helper()
	within(w.t.T, startWithin, f.name+": an alert goes out", func() bool { w.alive(); return w.tookSince(began) })
	w.t.Logf("%-40s an alert went out after %5.1f s", f.name, time.Since(began).Seconds())
	w.recovers(f)
}

// tookSince reports whether the first receiver took an alert about a reading that came since then.
func (w *faulty) tookSince(then time.Time) bool {
	return slices.ContainsFunc(w.receiver.Taken(), func(a notify.Alert) bool { return a.Enqueued.After(then) })
}

// recovers ends f and waits until everything says so.
func (w *faulty) recovers(f fault) {
	w.t.Helper()
	f.end(w)
	ended := time.Now()
	within(w.t.T, startWithin, f.name+": alerts go out again, and everything says so", func() bool {
		w.alive()
		good, bad, _ := w.monitor.last()
		return w.says(200, "ready: "+goingOut) && good.After(ended) && good.After(bad)
	})
}

// agrees returns what does not say what f does; empty if all agree.
func (w *faulty) agrees(f fault, since time.Time) string {
	var report status.Report
	_, text := try(http.MethodGet, "http://"+w.site+"/status", "")
	if json.Unmarshal([]byte(text), &report) != nil || !strings.Contains(report.Headline, f.says) {
		return "/status"
	}
	_, page := try(http.MethodGet, "http://"+w.site+"/", "")
	if page = html.UnescapeString(page); !strings.Contains(page, f.says) && !strings.Contains(page, "</span>"+string(report.State)+"</p>") {
		return "page"
	}
	if _, metrics := try(http.MethodGet, "http://"+w.site+"/metrics", ""); !strings.Contains(metrics, f.metric()) {
		return "metrics"
	}
	good, bad, why := w.monitor.last()
	if f.by == "" {
		if !good.After(since) {
			return "heartbeat"
		}
		return map[bool]string{false: "alerts"}[w.tookSince(since)]
	}
	if !bad.After(since) || !strings.Contains(why, f.says) {
		return "heartbeat"
	}
	if log := w.workers["a"].stderr.String(); !strings.Contains(log, f.logged()) {
		return "log"
	}
	return ""
}

// receiver reports whether f is of receivers.
func (f fault) receiver() bool {
	return f.by == "failing" || f.by == "rejecting" || f.by == "rate_limited"
}

// metric returns the series that is 1 while f lasts.
func (f fault) metric() string {
	switch {
	case f.by == "":
		return "alertworker_partitions_owned 2\n"
	case f.receiver():
		return fmt.Sprintf("alertworker_receiver_down{reason=%q,receiver=\"hook\"} 1\n", f.by)
	}
	return fmt.Sprintf("alertworker_blocked{by=%q} 1\n", f.by)
}

// logged returns the message by which Azure's alert rules find f.
func (f fault) logged() string {
	switch {
	case f.receiver():
		return `"msg":"receiver is down"`
	case f.by == "partitions":
		return `"msg":"partitions that this replica owns are not being read"`
	case f.by == "hub":
		return `"msg":"the hub cannot be read"`
	case f.by == "throttle_store":
		return `"msg":"the throttle store cannot be used"`
	}
	return `"msg":"the checkpoint store cannot be used"`
}

// alerts returns the rules of Prometheus and of Azure that fire, and after how long.
func (f fault) alerts() string {
	switch {
	case f.by == "":
		return "none"
	case f.receiver():
		return "AlertworkerReceiverDown, 5 min; `receiver-down`, 5 min"
	case f.by == "partitions":
		return "AlertworkerPartitionsUnread, 2 min; `blocked`, 10 min"
	}
	return "AlertworkerBlocked, 2 min; `blocked`, 10 min"
}

// The table in the documents is this one.
func TestFaultsAreDocumented(t *testing.T) {
	const file, begin, end = "../../../docs/operations.md", "<!-- faults -->\n", "<!-- /faults -->"
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
	for _, f := range faults {
		by := "`blocked{by=\"" + f.by + "\"}`: "
		if f.receiver() {
			by = "`receiver_down{reason=\"" + f.by + "\"}`: "
		} else if f.by == "" {
			by = ""
		}
		if f.ready == 0 {
			fmt.Fprintf(&want, "| %s | 200 or 503 | changes with the last calls: alerts go out, later | | AlertworkerStoreFailing, 5 min |\n", f.name)
			continue
		}
		fmt.Fprintf(&want, "| %s | %d | … %s … | %.0f s | %s%s |\n", f.name, f.ready, f.says, f.within.Seconds(), by, f.alerts())
	}
	if *updateDocs {
		if err := os.WriteFile(file, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want.String() {
		t.Errorf("the table differs: go test ./internal/lab/e2e -run Documented -update")
	}
}
