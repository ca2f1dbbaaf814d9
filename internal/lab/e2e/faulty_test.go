//go:build unix

package e2e_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
)

// A faulty is a worker, a process, of which everything that it needs can break.
type faulty struct {
	*world
	storage  *breakableStorage
	line     *line // to the hub
	identity identity
	hook     switchable
	other    switchable
	monitor  *monitor
	quiet    atomic.Bool // the devices send nothing
	site     string
	secret   string   // the file of EVENTHUB_CONNECTION_STRING
	scrapes  []string // what /metrics answered since the fault was said, in even distances
	scraped  time.Time
}

// newFaulty returns one on an account. A keyless one uses the account with an identity.
func newFaulty(t *busytest.Attempt, azurite *emulators.Azurite, keyless bool) *faulty {
	w := &faulty{storage: newBreakableStorage(t.T, azurite), monitor: newMonitor(t.T)}
	w.world = newWorld(t, w.storage.connectionString, settings{partitions: 2})
	other := &notifytest.Server{}
	other.Start(t.T, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	other.BehaveAlways(w.other.behave)
	w.receiver.BehaveAlways(w.hook.behave)
	w.line = newLine(t.T, w.devhub.Addr())
	w.secret = filepath.Join(t.T.TempDir(), "hub")
	w.rollOut(w.reached())
	w.env = slices.DeleteFunc(w.env, func(s string) bool { return strings.HasPrefix(s, "EVENTHUB_CONNECTION_STRING=") })
	w.env = append(w.env,
		"EVENTHUB_CONNECTION_STRING_FILE="+w.secret,
		"NOTIFY_URLS=name=hook "+w.receiver.URL+", name=other "+other.URL,
		"HEARTBEAT_URL=interval=2s "+w.monitor.URL+"/token",
		"LOG_FORMAT=json", "LOG_LEVEL=info",
	)
	if keyless {
		w.env = slices.DeleteFunc(w.env, func(s string) bool { return strings.HasPrefix(s, "STORAGE_CONNECTION_STRING=") })
		w.env = append(w.env, w.identity.start(t.T, azurite)...)
	}
	w.site = freeAddr(t.T)
	w.sites["a"] = w.site
	return w
}

// useSlack has the first receiver be a Slack.
func (w *faulty) useSlack() {
	slack := &notifytest.Server{}
	slack.Start(w.t.T, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	slack.BehaveAlways(w.hook.behave)
	for i, s := range w.env {
		w.env[i] = strings.Replace(s, "=name=hook "+w.receiver.URL, "=name=hook slack+"+slack.URL+"/services/T/B/K", 1)
	}
}

// watchSilence has a rule about silence beside the threshold, for two of the devices.
func (w *faulty) watchSilence() {
	w.env = slices.DeleteFunc(w.env, func(s string) bool { return strings.HasPrefix(s, "TEMPERATURE_THRESHOLD=") })
	w.env = append(w.env, fmt.Sprintf("RULES=rules: [{name: %s, field: temperature, above: %v}, {name: offline, only: {$device: [odd, even]}, silent: 1m, resolved: true}]",
		notify.DefaultRule, threshold))
}

// reached is the hub's connection string by way of the line.
func (w *faulty) reached() string { return strings.Replace(w.hub, w.devhub.Addr(), w.line.address, 1) }

// rollOut puts a connection string into the file of the hub's.
func (w *faulty) rollOut(connection string) {
	if err := os.WriteFile(w.secret, []byte(connection), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// answer sets how the two receivers answer; nil: normally. What they took before has been answered then.
func (w *faulty) answer(hook, other notifytest.Behaviour) {
	w.hook.set(hook)
	w.other.set(other)
}

// hot has one device be hot until the test ends, and others, each once.
func (w *faulty) hot() {
	ctx, stop := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if !w.quiet.Load() {
				w.publish(fmt.Sprint("oven-", n), threshold+1) // none waits for an earlier alert
				w.publish("odd", threshold+1)
				w.publish("even", threshold-20)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
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
	got, body := w.readyz()
	return got == code && strings.Contains(body, strings.ToLower(text))
}

// readyz returns what /readyz answers: the code, and the text in lower case.
func (w *faulty) readyz() (code int, text string) {
	code, text = try(http.MethodGet, "http://"+w.site+"/readyz", "")
	return code, strings.ToLower(text)
}

// slow reports whether a store that is not broken is too slow for the worker, because the machine is, if that is what
// /readyz answers during f.
func slow(f fault, readyz string) bool {
	store := strings.Contains(readyz, "the throttle store") && f.by != "throttle_store"
	checkpoints := strings.Contains(readyz, "the checkpoint store") && f.by != "checkpoint_store" && !f.keyless()
	return store || checkpoints
}

// tookSince reports whether the first receiver took an alert about a reading that came since then.
func (w *faulty) tookSince(then time.Time) bool {
	return slices.ContainsFunc(w.receiver.Taken(), func(a notify.Alert) bool { return a.Enqueued.After(then) })
}

// scrape returns what /metrics answers, and keeps it a few times a second.
func (w *faulty) scrape() string {
	code, text := try(http.MethodGet, "http://"+w.site+"/metrics", "")
	if code == http.StatusOK && time.Since(w.scraped) > 150*time.Millisecond {
		w.scrapes, w.scraped = append(w.scrapes, text), time.Now()
	}
	return text
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

// An identity is the managed identity of an App Service, whose tokens last only seconds, and a storage account that
// takes them.
type identity struct {
	mu   sync.Mutex
	how  answers       // if it is broken
	mend chan struct{} // closed when it is not any more; nil if it is not broken
}

// token is the one that the identity gives.
const token = "t0k3n"

// start starts the identity and its account, in which is what azurite has, and returns the worker's settings.
func (i *identity) start(t *testing.T, azurite *emulators.Azurite) []string {
	client, err := service.NewClientFromConnectionString(azurite.ConnectionString, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := client.GetSASURL(sas.AccountResourceTypes{Service: true, Container: true, Object: true},
		sas.AccountPermissions{Read: true, Write: true, Delete: true, List: true, Add: true, Create: true},
		time.Now().Add(time.Hour), nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(signed)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Transport: azurite.Transport(), ErrorLog: unsaid, Rewrite: func(r *httputil.ProxyRequest) {
		query := r.In.URL.RawQuery
		r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
		r.Out.URL.Path = strings.TrimSuffix(to.Path, "/") + r.In.URL.Path
		r.Out.URL.RawPath = strings.TrimSuffix(to.Path, "/") + r.In.URL.EscapedPath()
		r.Out.URL.RawQuery = strings.TrimPrefix(query+"&"+to.RawQuery, "&")
		r.Out.Header.Del("Authorization")
	}}
	account := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(account.Close)
	msi := httptest.NewServer(i)
	t.Cleanup(msi.Close)
	t.Cleanup(func() { i.set(false, 0) })
	authority := filepath.Join(t.TempDir(), "authority.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: account.Certificate().Raw})
	if err := os.WriteFile(authority, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"STORAGE_ACCOUNT_URL=" + account.URL, "SSL_CERT_FILE=" + authority,
		"AZURE_TOKEN_CREDENTIALS=prod", "IDENTITY_ENDPOINT=" + msi.URL, "IDENTITY_HEADER=x",
	}
}

// set breaks the identity, or mends it.
func (i *identity) set(broken bool, how answers) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.mend != nil {
		close(i.mend)
		i.mend = nil
	}
	if broken {
		i.how, i.mend = how, make(chan struct{})
	}
}

// ServeHTTP answers who asks the identity for a token.
func (i *identity) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	how, mend := i.how, i.mend
	i.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if mend != nil && how == refused {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_request","error_description":"Identity not found"}`)
		return
	}
	if mend != nil {
		select {
		case <-mend:
		case <-r.Context().Done():
			return
		}
	}
	const lasts = 20 * time.Second // of which the worker does not use the last half
	fmt.Fprintf(w, `{"access_token":%q,"expires_on":"%d","resource":"https://storage.azure.com","token_type":"Bearer"}`,
		token, time.Now().Add(lasts).Unix())
}
