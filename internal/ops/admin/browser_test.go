package admin_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/muting"
	"alertworker/internal/notify"
	"alertworker/internal/ops/admin"
	"alertworker/internal/partition"
	"alertworker/internal/records"
)

// TestInABrowser looks at the status page as people do. ALERTWORKER_SCREENSHOTS names a
// directory that keeps what it sees.
func TestInABrowser(t *testing.T) {
	t.Parallel()
	b := startBrowser(t, 10*time.Minute)
	w := newWorld(t)
	w.busy(14)
	w.set(func() {
		w.worker.receivers = append(w.worker.receivers, delivery.ReceiverState{Name: "webhook-" + strings.Repeat("x", 120), Taken: 12_345_678})
	})
	w.admin.Past()
	w.take(notify.Alert{
		ID: "long", Device: strings.Repeat("Feuerungsautomat", 8), Temperature: 12345.5, Partition: "31", Sequence: 123_456_789_012,
		Suppressed: 1_234_567, Window: time.Minute, Enqueued: time.Now(),
	})
	server := httptest.NewServer(w.admin)
	defer server.Close()
	cache := muting.NewCache(muting.Store{Records: &records.Memory{}, Name: "silences"}, zap.NewNop())
	long := muting.Mute{Device: strings.Repeat("Feuerungsautomat", 8), Rule: "hot", Property: "site", Value: "berlin", Why: strings.Repeat("service ", 20), Who: strings.Repeat("x", 120)}
	if _, err := cache.Add(t.Context(), long, time.Hour); err != nil {
		t.Fatal(err)
	}
	ofRules := newWorld(t, ruled, func(o *admin.Options) { o.Silences = cache })
	ofRules.busy(6)
	ofRules.alarming()
	ofRules.admin.Past()
	rules := httptest.NewServer(ofRules.admin)
	defer rules.Close()

	b.call("Page.enable", nil)
	b.call("Page.setLifecycleEventsEnabled", map[string]any{"enabled": true})
	b.call("Log.enable", nil)
	b.call("Runtime.enable", nil)
	b.call("Network.enable", nil)

	b.call("Emulation.setScrollbarsHidden", map[string]any{"hidden": true})

	// Without JavaScript the page asks to be loaded again.
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
	b.open(server.URL + "/")
	var document struct{ Root json.RawMessage }
	b.result(b.call("DOM.getDocument", map[string]any{"depth": -1}), &document)
	for _, want := range []string{`"refresh"`, `"oven-3: `} {
		if !strings.Contains(string(document.Root), want) {
			t.Errorf("without JavaScript the page has no %s", want)
		}
	}
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": false})

	type view struct {
		name          string
		width, height int
		dark          bool
	}
	views := []view{
		{"light", 1280, 800, false},
		{"phone-dark", 390, 844, true},
		{"dark", 1280, 800, true},
		{"phone", 390, 844, false},
		{"tablet", 800, 1000, false},
	}
	if testing.Short() {
		views = views[:2]
	}
	for _, view := range views {
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": view.width, "height": view.height, "deviceScaleFactor": 2, "mobile": view.width < 500})
		scheme := "light"
		if view.dark {
			scheme = "dark"
		}
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
		for _, page := range []struct{ name, url string }{{"", server.URL}, {"rules-", rules.URL}} {
			b.open(page.url + "/")

			if over := b.eval(`document.documentElement.scrollWidth - document.documentElement.clientWidth`); over != "0" {
				t.Errorf("%s: the page is %s px wider than the screen", view.name, over)
			}
			if clipped := b.eval(overflowing); clipped != "[]" {
				t.Errorf("%s: out of their cards: %s", view.name, clipped)
			}
			if ground := b.eval(`getComputedStyle(document.body).backgroundColor`); (ground == `"rgb(19, 18, 16)"`) != view.dark {
				t.Errorf("%s: the ground is %s", view.name, ground)
			}
			if rows := b.eval(`document.querySelectorAll("tbody tr").length`); rows == "0" {
				t.Errorf("%s: no rows", view.name)
			}
			b.screenshot(page.name + view.name)
		}
	}

	// A page with nothing on it yet.
	empty := newWorld(t)
	empty.set(func() { empty.worker.receivers = []delivery.ReceiverState{{Name: "log"}} })
	empty.set(func() { empty.reading.Running = true })
	nothing := httptest.NewServer(empty.admin)
	defer nothing.Close()
	b.open(nothing.URL + "/")
	b.screenshot("empty")

	// It silences, and ends that.
	b.open(rules.URL + "/")
	b.eval(`{
		const form = document.querySelector("#silence");
		form.device.value = "oven-*";
		form.rule.value = "cold-chain";
		form.for.value = "2h";
		form.why.value = "service";
		form.who.value = "<ann>";
		document.querySelector("#lookup").token.value = "` + token + `";
		document.querySelector("#lookup").token.dispatchEvent(new Event("input", { bubbles: true }));
		form.requestSubmit();
	}`)
	b.until(`document.querySelector("#silence .answer").textContent.startsWith("Silenced until ") && document.querySelectorAll("[data-end]").length === 2`)
	if s := cache.Silences()[1]; s.Device != "oven-*" || s.Rule != "cold-chain" || s.Why != "service" || s.Who != "<ann>" || s.Until.Sub(s.From) != 2*time.Hour {
		t.Errorf("the form has silenced %+v", s)
	}
	b.screenshot("silence")
	b.eval(`document.querySelectorAll("[data-end]")[1].click()`)
	b.until(`document.querySelector("#silence .answer").textContent.startsWith("Ended") && document.querySelectorAll("[data-end]").length === 1`)
	b.eval(`document.querySelector("#silence").for.value = "1s"; document.querySelector("#silence").requestSubmit()`)
	b.until(`document.querySelector("#silence .answer").textContent.startsWith("a silence lasts")`)

	b.open(server.URL + "/")

	// It looks up a device.
	w.worker.devices = map[string]partition.DeviceState{"a.b <#1>": {Alarms: []partition.AlarmState{{Partition: "2", Rule: "temperature", Value: 91.5, Limit: 80, Since: time.Now(), Phase: 2}}}}
	b.eval(`{
		const form = document.querySelector("#lookup");
		form.device.value = "a.b <#1>";
		form.token.value = "` + token + `";
		form.device.focus();
		form.requestSubmit();
	}`)
	b.until(`document.querySelector("#lookup .answer").checkVisibility() && document.querySelector("#lookup .answer p").textContent.includes("its alarm is open\n  alarm    open since ")`)
	b.eval(`document.querySelector("#lookup details").open = true`)
	b.screenshot("lookup")

	// It refreshes by itself, but for what was typed, and says when nobody answers.
	w.monitor.Drain()
	b.until(`document.title.startsWith("draining") && document.querySelector("header .state").textContent === "draining"`)
	if kept := b.eval(`document.activeElement.value + document.querySelectorAll("#lookup, #silence").length + document.querySelectorAll("header, footer").length`); kept != `"a.b <#1>22"` {
		t.Errorf("after a refresh the forms, the header and the footer are %s", kept)
	}
	if order := b.eval(`[...document.querySelector("main").children].map(e => e.id || e.localName).join(" ")`); !strings.Contains(order, "section section forms footer") {
		t.Errorf("after a refresh the page is %s", order)
	}
	server.Close()
	b.eval(`document.dispatchEvent(new Event("visibilitychange"))`)
	b.until(`document.querySelector("main.old") !== null`)

	for _, url := range b.requested() {
		if !strings.HasPrefix(url, server.URL+"/") && !strings.HasPrefix(url, nothing.URL+"/") && !strings.HasPrefix(url, rules.URL+"/") && !strings.HasPrefix(url, "data:") {
			t.Errorf("the page asked for %s", url)
		}
	}
	for _, m := range b.complaints() {
		if !strings.Contains(m, "ERR_CONNECTION_REFUSED") && !strings.Contains(m, "400 (Bad Request)") { // the silence of a second
			t.Errorf("the browser complains: %s", m)
		}
	}
}

// overflowing is what reaches out of its card, as text.
const overflowing = `[...document.querySelectorAll(".card *")].filter(e => {
	const box = e.getBoundingClientRect(), card = e.closest(".card").getBoundingClientRect();
	return box.width > 0 && (box.left < card.left - 1 || box.right > card.right + 1);
}).map(e => e.textContent)`

// A browser is a headless Chromium with one page, spoken to through pipes.
type browser struct {
	t       *testing.T
	send    *os.File
	session string

	mu       sync.Mutex
	next     int
	waiting  map[int]chan reply // nil once the browser has ended
	loaded   map[string]bool    // by the loader of a document
	changed  chan struct{}      // closed when loaded changes, or the browser ends
	urls     []string
	messages []string
}

var errEnded = errors.New("the browser has ended")

type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// startBrowser starts one that ends with the test, or after a time by which it must hang.
func startBrowser(t *testing.T, limit time.Duration) *browser {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("there is no chromium in PATH: nobody looks at the page")
	}
	home := t.TempDir()
	// It only ends a browser that hangs; whoever waits for it hears of that.
	ctx, stop := context.WithTimeout(context.Background(), limit)
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad",
		"--user-data-dir="+home, "--remote-debugging-pipe")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
	in, send, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	receive, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{in, out}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()

	b := &browser{t: t, send: send, waiting: map[int]chan reply{}, loaded: map[string]bool{}, changed: make(chan struct{})}
	var reading sync.WaitGroup
	context.AfterFunc(ctx, func() { // what a browser leaves behind may hold the other ends
		send.Close()
		receive.Close()
	})
	reading.Go(func() { b.receive(receive) })
	t.Cleanup(func() {
		b.session = ""
		_, _ = b.try("Browser.close", nil)
		_ = cmd.Wait() // before its directory goes
		stop()
		reading.Wait()
	})

	var target struct {
		TargetID  string `json:"targetId"`
		SessionID string `json:"sessionId"`
	}
	b.result(b.call("Target.createTarget", map[string]any{"url": "about:blank"}), &target)
	b.result(b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}), &target)
	b.session = target.SessionID
	return b
}

func (b *browser) result(raw json.RawMessage, v any) {
	b.t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		b.t.Fatal(err)
	}
}

// receive takes what the browser says until it ends. Messages end with a NUL.
func (b *browser) receive(from *os.File) {
	r := bufio.NewReader(from)
	for {
		message, err := r.ReadBytes(0)
		var m reply
		if err == nil {
			err = json.Unmarshal(message[:len(message)-1], &m)
		}
		b.mu.Lock()
		if err != nil {
			for id, c := range b.waiting {
				close(c)
				delete(b.waiting, id)
			}
			b.waiting = nil
			b.change()
			b.mu.Unlock()
			return
		}
		if c := b.waiting[m.ID]; c != nil {
			delete(b.waiting, m.ID)
			c <- m
		}
		var p struct {
			Name, LoaderID string

			Request struct{ URL string }
			Entry   struct{ Text, URL, Level string }
		}
		_ = json.Unmarshal(m.Params, &p)
		switch m.Method {
		case "Page.lifecycleEvent":
			if p.Name == "load" {
				b.loaded[p.LoaderID] = true
				b.change()
			}
		case "Network.requestWillBeSent":
			b.urls = append(b.urls, p.Request.URL)
		case "Log.entryAdded":
			b.messages = append(b.messages, p.Entry.Level+": "+p.Entry.Text)
		case "Runtime.exceptionThrown":
			b.messages = append(b.messages, string(m.Params))
		}
		b.mu.Unlock()
	}
}

// change tells who waits. The caller holds b.mu.
func (b *browser) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *browser) call(method string, params any) json.RawMessage {
	b.t.Helper()
	result, err := b.try(method, params)
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	return result
}

func (b *browser) try(method string, params any) (json.RawMessage, error) {
	b.mu.Lock()
	if b.waiting == nil {
		b.mu.Unlock()
		return nil, errEnded
	}
	b.next++
	c := make(chan reply, 1)
	b.waiting[b.next] = c
	message := map[string]any{"id": b.next, "method": method, "params": params}
	b.mu.Unlock()
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	if _, err := b.send.Write(append(text, 0)); err != nil {
		return nil, err
	}
	m, ok := <-c
	switch {
	case !ok:
		return nil, errEnded
	case m.Error != nil:
		return nil, errors.New(string(m.Error))
	}
	return m.Result, nil
}

// open has the page loaded, and nothing of the one before it left.
func (b *browser) open(url string) {
	b.t.Helper()
	var document struct{ LoaderID, ErrorText string }
	b.result(b.call("Page.navigate", map[string]any{"url": url}), &document)
	if document.ErrorText != "" {
		b.t.Fatalf("%s: %s", url, document.ErrorText)
	}
	for {
		b.mu.Lock()
		loaded, ended, changed := b.loaded[document.LoaderID], b.waiting == nil, b.changed
		b.mu.Unlock()
		switch {
		case loaded:
			return
		case ended:
			b.t.Fatalf("%s: %v", url, errEnded)
		}
		<-changed
	}
}

// eval returns what an expression is, as JSON.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var v struct {
		Result struct{ Value json.RawMessage }
	}
	b.result(b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}), &v)
	return string(v.Result.Value)
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(2 * time.Minute); b.eval(expression) != "true"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("the page never came to %s", expression)
		}
	}
}

func (b *browser) screenshot(name string) {
	b.t.Helper()
	var shot struct{ Data string }
	b.result(b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}), &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil || len(png) == 0 {
		b.t.Fatalf("no screenshot: %v", err)
	}
	dir := os.Getenv("ALERTWORKER_SCREENSHOTS")
	if dir == "" {
		dir = b.t.TempDir()
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.png", name)), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) requested() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.urls
}

func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.messages
}
