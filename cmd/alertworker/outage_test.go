package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lab/process"
	"alertworker/internal/ops/status"
)

// What happens to requests that go through an account.
const (
	forwarded int32 = iota
	refused         // as Azure does with a wrong key: no part at hand changes its key while it runs
	dropped         // the connection is closed
	hanging         // nothing is ever answered
	later           // refused, and the service's clock is 20 minutes ahead
)

// An account is Azurite behind a proxy that can break.
type account struct {
	connectionString string
	state            atomic.Int32
}

func newAccount(t *testing.T) *account {
	azurite := emulators.StartAzurite(t)
	a := &account{}
	var to *url.URL
	pairs := strings.Split(azurite.ConnectionString, ";")
	for _, pair := range pairs {
		if raw, ok := strings.CutPrefix(pair, "BlobEndpoint="); ok {
			var err error
			if to, err = url.Parse(raw); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop := make(chan struct{})
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host },
		Transport: azurite.Transport(),
		ErrorLog:  nil,
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch a.state.Load() {
		case forwarded:
			forward.ServeHTTP(w, r)
		case refused:
			w.Header().Set("X-Ms-Error-Code", "AuthenticationFailed")
			w.WriteHeader(http.StatusForbidden)
		case later:
			w.Header().Set("Date", time.Now().Add(20*time.Minute).UTC().Format(http.TimeFormat))
			w.Header().Set("X-Ms-Error-Code", "AuthenticationFailed")
			w.WriteHeader(http.StatusForbidden)
		case dropped:
			panic(http.ErrAbortHandler)
		case hanging:
			select {
			case <-stop:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(proxy.Close)
	t.Cleanup(func() { close(stop) })
	a.connectionString = strings.Replace(azurite.ConnectionString, to.Scheme+"://"+to.Host, proxy.URL, 1)
	return a
}

// asCommand is the environment variable that, set to 1, makes the test binary the command.
const asCommand = "ALERTWORKER_TEST_AS_COMMAND"

// A runningWorker is `alertworker` as a process of its own, so that tests need not take turns.
type runningWorker struct {
	t       *testing.T
	env     map[string]string // that it was given
	log     string            // the file of its log
	process *process.Process
}

// runWorker runs the command with these variables until the test ends, on two partitions.
func runWorker(t *testing.T, env ...string) *runningWorker {
	t.Helper()
	defaults := []string{
		"HTTP_ADDR=127.0.0.1:0", "EVENTHUB_START=earliest", "BALANCE_INTERVAL=1s", "LOG_LEVEL=info", "CHECKPOINT_INTERVAL=1s",
	}
	w := &runningWorker{
		t: t, env: valid(append(defaults, env...)...), log: filepath.Join(t.TempDir(), "stderr"),
	}
	file, err := os.Create(w.log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	cmd := w.command(context.Background())
	cmd.Stderr = file
	if w.process, err = process.Start("alertworker", cmd, func(string) {}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.stop()
		if t.Failed() {
			t.Log(w.logged())
		}
	})
	return w
}

// command returns a command in the worker's environment, which is to be started.
func (w *runningWorker) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(foreignEnvironment(), asCommand+"=1")
	for name, value := range w.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// run runs a command in the worker's environment and returns what it printed and its exit code.
func (w *runningWorker) run(args ...string) (stdout, stderr string, code int) {
	w.t.Helper()
	var out, log strings.Builder
	cmd := w.command(w.t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		w.t.Fatal(err)
	}
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}

// stop has the worker hand over, and waits for it.
func (w *runningWorker) stop() {
	w.t.Helper()
	if err := w.process.Stop(); err != nil {
		w.t.Error(err)
	}
}

func (w *runningWorker) logged() string {
	text, err := os.ReadFile(w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

var serving = regexp.MustCompile(`"msg":"serving HTTP","addr":"([^"]+)"`)

// site returns where its pages are, which its log says each time that it starts anew; empty before the first time.
func (w *runningWorker) site() string {
	w.t.Helper()
	all := serving.FindAllStringSubmatch(w.logged(), -1)
	if len(all) == 0 {
		return ""
	}
	return "http://" + all[len(all)-1][1]
}

func (w *runningWorker) get(path string) (code int, body string) {
	w.t.Helper()
	site := w.site()
	if site == "" {
		return 0, ""
	}
	resp, err := http.Get(site + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// becomes waits until /readyz has this code and all these parts and the report says the same: between two requests a replica
// may have taken over a partition. The page, which speaks of all replicas, may say so a little later.
func (w *runningWorker) becomes(state status.State, code int, parts ...string) {
	w.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got, body := w.get("/readyz")
		ok := got == code
		for _, part := range parts {
			ok = ok && strings.Contains(body, part)
		}
		var report status.Report
		_, text := w.get("/status")
		if err := json.Unmarshal([]byte(text), &report); ok && err == nil && report.State == state && report.Ready == (code == http.StatusOK) {
			break
		}
		if time.Now().After(end) {
			w.t.Fatalf("never %q, and /readyz %d with %q; at last %d %s, and %s", state, code, parts, got, body, text)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		code, page := w.get("/")
		if code == http.StatusOK && strings.Contains(page, "</span>"+string(state)+"</p>") {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("the page answers %d and does not say %q", code, state)
		}
	}
}

// logs waits for a line with these parts.
func (w *runningWorker) logs(parts ...string) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		for line := range strings.Lines(w.logged()) {
			all := true
			for _, part := range parts {
				all = all && strings.Contains(line, part)
			}
			if all {
				return
			}
		}
		if time.Now().After(end) {
			w.t.Fatalf("no line with %q in the log", parts)
		}
	}
}

// With the storage dead no alert can go out: a replica says so before any device is hot, and when it is over.
func TestStorageOutage(t *testing.T) {
	t.Parallel()
	const address = "check the address in STORAGE_CONNECTION_STRING and whether this machine can connect to it"
	for name, outage := range map[string]struct {
		state int32
		why   string
	}{
		"dropped": {dropped, address},
		"hanging": {hanging, "answers in more than"},
		"refused": {refused, "the credentials were rejected: check the account's name and its key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storage, hub := newAccount(t), hubWith(t)
			w := runWorker(t,
				"EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(),
				"STORAGE_CONNECTION_STRING="+storage.connectionString,
				"NOTIFY_URLS=log:",
			)
			w.becomes(status.GoingOut, 200, "ready: alerts are going out.")

			storage.state.Store(outage.state)
			w.becomes(status.Blocked, 503, "not ready: no alerts are going out: the throttle store cannot be used",
				outage.why, "since ", "Alerts wait until the store accepts what is written to it.")
			w.logs(`"msg":"the throttle store cannot be used"`, outage.why)
			_, page := w.get("/")
			if strings.Contains(page, "causes an alert") {
				t.Error("the page says that the next hot reading causes an alert")
			}
			_, metrics := w.get("/metrics")
			if !strings.Contains(metrics, `alertworker_blocked{by="throttle_store"} 1`) ||
				strings.Contains(metrics, `alertworker_blocked{by="credentials"} 1`) != (outage.state == refused) {
				t.Error("the metrics do not say so")
			}
			if _, err := hub.Publish(devhub.Message{Device: "oven", Body: []byte(`{"temperature":99}`)}); err != nil {
				t.Fatal(err)
			}
			storage.state.Store(forwarded)
			w.becomes(status.GoingOut, 200, "ready: alerts are going out.") // none waits any more
			w.logs(`"msg":"the throttle store can be used again"`, `"after":`)
			w.logs("temperature alert", "oven")
		})
	}
}

// A machine whose clock is wrong is told so from its start on, when no store has accepted anything yet.
func TestWrongClockAtStart(t *testing.T) {
	t.Parallel()
	storage, hub := newAccount(t), hubWith(t)
	storage.state.Store(later)
	w := runWorker(t, "EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "STORAGE_CONNECTION_STRING="+storage.connectionString, "NOTIFY_URLS=log:")
	w.becomes(status.Blocked, 503, "the checkpoint store cannot be used", "403 AuthenticationFailed: this machine's clock is 20 min behind, by the answer's Date: correct it")
	w.logs("this machine's clock is 20 min behind")
	if _, metrics := w.get("/metrics"); !regexp.MustCompile(`\nalertworker_store_clock_skew_seconds\{store="blob"\} -1[12]\d\d`).MatchString(metrics) {
		t.Error("the metrics do not show it")
	}
	storage.state.Store(forwarded)
	w.becomes(status.GoingOut, 200)
}

// A store that is dead, or refuses the key, when a replica starts is tried again like any other.
func TestStorageOutageAtStart(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for pauses between attempts")
	}
	t.Parallel()
	for _, test := range []struct {
		name, why string
		state     int32
	}{
		{"dead", "check the address in STORAGE_CONNECTION_STRING", dropped},
		{"wrong key", "the credentials were rejected", refused},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			storage, hub := newAccount(t), hubWith(t)
			storage.state.Store(test.state)
			w := runWorker(t, "EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "STORAGE_CONNECTION_STRING="+storage.connectionString, "NOTIFY_URLS=log:")
			w.becomes(status.Blocked, 503, "not ready: no alerts are going out: the checkpoint store cannot be used", test.why)
			w.logs(`"msg":"the checkpoint store cannot be used"`, test.why)
			storage.state.Store(forwarded)
			w.becomes(status.GoingOut, 200)
		})
	}
}

// So is a hub.
func TestHubOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for pauses between attempts")
	}
	t.Parallel()
	storage := newAccount(t)
	listen := func(address string) *devhub.Hub {
		hub, err := devhub.Listen(address, devhub.Config{Hub: "telemetry", Partitions: 2, Key: key64})
		if err != nil {
			t.Fatal(err)
		}
		return hub
	}
	hub := listen("127.0.0.1:0")
	address := hub.Addr()
	_ = hub.Close()
	w := runWorker(t, "EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "STORAGE_CONNECTION_STRING="+storage.connectionString, "NOTIFY_URLS=log:")
	const why = "nothing listens at 127.0.0.1"
	w.becomes(status.Blocked, 503, "no alerts are going out: the hub cannot be read", why)
	w.logs(`"msg":"the hub cannot be read"`, why)
	hub = listen(address)
	defer func() { _ = hub.Close() }()
	w.becomes(status.GoingOut, 200)
	w.logs(`"msg":"the hub can be read again"`)

	hub.RefuseClaims(1<<30, 401) // the key is another one now
	hub.Reset()
	w.becomes(status.Blocked, 503, "the hub cannot be read", "rejected the key or identity: check the key's name and the key")
	hub.RefuseClaims(0, 401)
	w.becomes(status.GoingOut, 200)
	_ = hub.Close()
	w.becomes(status.Blocked, 503, "the hub cannot be read", why)
}

// A receiver that is down does not make a replica unready, but it says so.
func TestReceiverOutage(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	down.Store(true)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer receiver.Close()
	hub := hubWith(t, `{"temperature":99}`)
	w := runWorker(t, "EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "NOTIFY_URLS="+receiver.URL,
		"THROTTLE_STORE=memory", "CHECKPOINT_STORE=memory", "STORAGE_CONNECTION_STRING=")
	w.becomes(status.Blocked, 200, "ready: no alerts are going out: receiver ", "check the credentials in NOTIFY_URLS", "1 alert waits until it accepts them, or until NOTIFY_GIVE_UP.")
	w.logs(`"msg":"receiver is down"`, "check the credentials in NOTIFY_URLS")
	down.Store(false)
	w.becomes(status.GoingOut, 200, "ready: alerts are going out")
	w.logs(`"msg":"receiver is back"`, `"after":`)
}
