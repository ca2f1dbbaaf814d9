package admin_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/status"
)

// axe is where npm ci puts axe-core, which judges pages by WCAG.
const axe = "../../../node_modules/axe-core/axe.min.js"

// violations has axe-core judge the page by WCAG 2.2 AA, and returns a line for each rule that it breaks.
const violations = `axe.run(document, {
	runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
	rules: { "target-size": { enabled: true } },
	resultTypes: ["violations"],
}).then(({ violations }) => violations.map(({ id, nodes }) =>
	id + " in " + nodes.length + " places, such as " + nodes[0].html.slice(0, 160) + ": " + nodes[0].failureSummary))`

// tooWide is what does not fit on the screen, of which the innermost comes last.
const tooWide = `[...document.querySelectorAll("main *")].filter(e =>
	e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).slice(-3).map(e => e.outerHTML.slice(0, 160))`

// Whatever the page shows, and however, people can read and use it: by WCAG 2.2 AA.
func TestAccessibility(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(axe)
	if err != nil {
		t.Skip("there is no axe-core: run npm ci")
	}
	b := startBrowser(t, 10*time.Minute)
	b.call("Page.enable", nil)
	b.call("Page.setLifecycleEventsEnabled", map[string]any{"enabled": true})
	b.call("Runtime.enable", nil)

	states := map[string]*world{
		"fresh": newWorld(t),
		"busy":  newWorld(t, ruled),
		"fleet": newWorld(t, ruled),
	}
	states["busy"].busy(6)
	states["busy"].alarming()
	states["busy"].admin.Past()
	states["fleet"].busy(100)
	states["fleet"].alarming()
	states["fleet"].fleet()
	for _, s := range []status.State{status.Idle, status.Impaired, status.Partly, status.Blocked, status.Starting, status.Standby, status.Draining} {
		states[string(s)] = newWorld(t, faulty(s))
	}
	if testing.Short() { // the two that show most
		maps.DeleteFunc(states, func(name string, _ *world) bool {
			return name != "busy" && name != string(status.Blocked)
		})
	}

	for name, w := range states {
		var down atomic.Bool
		server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
			if down.Load() {
				answer.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.admin.ServeHTTP(answer, r)
		}))
		b.accessible(name, server.URL, string(script), nil)
		if name == "busy" || name == string(status.Blocked) {
			b.accessible(name+", stale", server.URL, string(script), &down)
		}
		server.Close()
	}
}

// faulty has replicas in a state, with a problem if it is one.
func faulty(s status.State) func(*admin.Options) {
	return func(o *admin.Options) {
		since := time.Now().Add(-3 * time.Minute)
		r := status.Report{State: s, Headline: "No alerts are going out: the throttle store cannot be used.", Waiting: 3}
		for _, what := range []string{"the throttle store cannot be used", "receiver pager.example.net is down"} {
			r.Problems = append(r.Problems, status.Problem{
				By: status.ByStore, What: what, Since: since, Why: "no answer from 10.0.0.4:443: connection refused: check the address in STORAGE_CONNECTION_STRING",
				Effect: "3 alerts wait until it answers.",
			})
		}
		o.Self = func() status.Statement { return status.Statement{Replica: o.Replica, Status: r} }
	}
}

// accessible opens a page and judges it in all colors, on a phone and on a wide screen; if down is not nil, when its server no longer answers.
func (b *browser) accessible(name, url, script string, down *atomic.Bool) {
	b.t.Helper()
	for _, width := range []int{320, 1280} {
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500})
		b.colors("light")
		b.open(url + "/")
		b.eval(script)
		if down != nil {
			down.Store(true)
			b.eval(`document.dispatchEvent(new Event("visibilitychange"))`)
			b.until(`document.querySelector("main.old") !== null`)
			down.Store(false)
		}
		b.eval(`Object.defineProperty(document, "hidden", { value: true })`) // nothing is replaced while it is judged
		if wide := b.eval(tooWide); wide != "[]" {
			b.t.Errorf("%s, %d px: wider than the screen: %s", name, width, wide)
		}
		for _, colors := range []string{"light", "dark", "forced"} {
			b.colors(colors)
			var found []string
			if err := json.Unmarshal([]byte(b.eval(violations)), &found); err != nil {
				b.t.Fatalf("%s: axe-core has no result: %v", name, err)
			}
			if len(found) > 0 {
				b.t.Errorf("%s, %s, %d px:\n%s", name, colors, width, strings.Join(found, "\n"))
			}
			if os.Getenv("ALERTWORKER_SCREENSHOTS") != "" {
				b.screenshot(strings.ReplaceAll(fmt.Sprintf("%s-%s-%d", name, colors, width), " ", "-"))
			}
		}
	}
}

// colors has the page shown in light, dark or forced colors.
func (b *browser) colors(name string) {
	b.t.Helper()
	scheme, forced := name, "none"
	if name == "forced" {
		scheme, forced = "dark", "active"
	}
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "forced-colors", "value": forced},
	}})
}

// fleet makes it a world with more of everything than fits on a page.
func (w *world) fleet() {
	now := time.Now()
	w.set(func() {
		for i := range 60 {
			p := w.partitions[1]
			p.Partition = fmt.Sprint(20 + i)
			w.partitions = append(w.partitions, p)
			alarm := w.worker.alarms[0]
			alarm.Device, alarm.Since = fmt.Sprint("truck-", i), now.Add(-time.Duration(i)*time.Minute)
			w.worker.alarms = append(w.worker.alarms, alarm)
			r := w.worker.receivers[0]
			r.Name = fmt.Sprint("receiver-", i)
			w.worker.receivers = append(w.worker.receivers, r)
		}
	})
	w.worker.stats.DeadLetters.Store(2_553)
	w.take(notify.Alert{ID: "last", Device: "truck-1", Rule: "hot", Level: "critical", Temperature: 93.5, Threshold: 85, Window: time.Hour, Enqueued: now, Partition: "0"})
}

// What is wrong and the open alarms come first and forms last; long lists show 15 rows and lead to all.
func TestPageOfAFleet(t *testing.T) {
	w := newWorld(t, ruled)
	w.busy(100)
	w.alarming()
	w.fleet()
	page := w.do("GET", "/").Body.String()
	at := 0
	for _, part := range []string{
		`class="headline bad"`, "Receiver pager.example.net is down", "Dead letters since the start: 2,553", "Open alarms", "<h2>Receivers", "Last alerts", `class="plots"`, "<h2>Partitions", `id="forms"`,
	} {
		next := strings.Index(page[at:], part)
		if next < 0 {
			t.Errorf("after the parts before it the page has no %q", part)
			continue
		}
		at += next
	}
	whole := w.do("GET", "/?all").Body.String()
	for what, rows := range map[string]struct {
		row        string
		listed, in int
	}{
		"Show all 100 alerts":    {`<td class="time">`, 15, 100},
		"Show all 64 partitions": {`alertworker-7d9f-k8c2m</td><td class="n">3</td>`, 12, 61},
		"Show all 62 receivers":  {"<small>112 delivered", 14, 61},
		"Show all 67 alarms":     {"not heard from since ", 12, 62},
	} {
		if strings.Count(page, rows.row) != rows.listed || !strings.Contains(page, `<a href="?all">`+what+"</a>") {
			t.Errorf("%s: the page has %d rows, want %d and the link", what, strings.Count(page, rows.row), rows.listed)
		}
		if strings.Count(whole, rows.row) != rows.in || strings.Contains(whole, what) {
			t.Errorf("%s: with all rows the page has %d, want %d and no link", what, strings.Count(whole, rows.row), rows.in)
		}
	}
	quiet := newWorld(t)
	quiet.set(func() { quiet.reading.Running = true })
	quiet.worker.stats.DeadLetters.Store(1)
	if page := quiet.do("GET", "/").Body.String(); strings.Contains(page, "headline good") || !strings.Contains(page, "<strong>Dead letters since the start: 1</strong>") {
		t.Error("with a dead letter all is well")
	}
}
