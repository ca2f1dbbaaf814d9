package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/ops/status"
)

// What happens to requests that go through an account.
const (
	forwarded int32 = iota
	refused         // as Azure does with a wrong key: no part at hand changes its key while it runs
	dropped         // the connection is closed
	hanging         // nothing is ever answered
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

// A runningWorker is `alertworker` in this process.
type runningWorker struct {
	t    *testing.T
	site string
	log  *os.File
	stop context.CancelFunc
	code chan int
}

// runWorker runs the command with these variables until the test ends, on two partitions.
func runWorker(t *testing.T, env ...string) *runningWorker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	environment(t, valid(append([]string{"HTTP_ADDR=" + address, "EVENTHUB_START=earliest", "BALANCE_INTERVAL=1s", "LOG_LEVEL=info", "CHECKPOINT_INTERVAL=1s"}, env...)...))
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stderr
	os.Stderr = file
	ctx, stop := context.WithCancel(t.Context())
	w := &runningWorker{t: t, site: "http://" + address, log: file, stop: stop, code: make(chan int, 1)}
	go func() { w.code <- command(ctx, nil) }()
	t.Cleanup(func() {
		stop()
		if code := <-w.code; code != exitStopped {
			t.Errorf("exit code %d", code)
		}
		os.Stderr = before
		if t.Failed() {
			t.Log(w.logged())
		}
		_ = file.Close()
	})
	return w
}

func (w *runningWorker) logged() string {
	text, err := os.ReadFile(w.log.Name())
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

func (w *runningWorker) get(path string) (code int, body string) {
	resp, err := http.Get(w.site + path)
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
	storage, hub := newAccount(t), hubWith(t)
	w := runWorker(t, "EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "STORAGE_CONNECTION_STRING="+storage.connectionString, "NOTIFY_URLS=log:")
	w.becomes(status.GoingOut, 200, "ready: alerts are going out.")

	for _, outage := range []struct {
		state int32
		why   string
	}{
		{dropped, "check the address in STORAGE_CONNECTION_STRING and whether this machine can connect to it"},
		{hanging, "check the address in STORAGE_CONNECTION_STRING and whether this machine can connect to it"},
		{refused, "the credentials were rejected: check the account's name and its key"},
	} {
		storage.state.Store(outage.state)
		w.becomes(status.Blocked, 503, "not ready: no alerts are going out: the throttle store cannot be used", outage.why, "since ", "Alerts wait until the store accepts what is written to it.")
		w.logs(`"msg":"the throttle store cannot be used"`, outage.why)
		_, page := w.get("/")
		if strings.Contains(page, "causes an alert") {
			t.Error("the page says that the next hot reading causes an alert")
		}
		if _, metrics := w.get("/metrics"); !strings.Contains(metrics, `alertworker_blocked{by="throttle_store"} 1`) ||
			strings.Contains(metrics, `alertworker_blocked{by="credentials"} 1`) != (outage.state == refused) {
			t.Error("the metrics do not say so")
		}
		if _, err := hub.Publish(devhub.Message{Device: "oven", Body: []byte(`{"temperature":99}`)}); err != nil {
			t.Fatal(err)
		}
		storage.state.Store(forwarded)
		w.becomes(status.GoingOut, 200, "ready: alerts are going out.") // none waits any more
		w.logs(`"msg":"the throttle store can be used again"`, `"after":`)
	}
	w.logs("temperature alert", "oven")
}

// A store that is dead, or refuses the key, when a replica starts is tried again like any other.
func TestStorageOutageAtStart(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for pauses between attempts")
	}
	for _, test := range []struct {
		name, why string
		state     int32
	}{
		{"dead", "check the address in STORAGE_CONNECTION_STRING", dropped},
		{"wrong key", "the credentials were rejected", refused},
	} {
		t.Run(test.name, func(t *testing.T) {
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
