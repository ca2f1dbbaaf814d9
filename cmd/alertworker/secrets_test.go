package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/delivery"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
	"alertworker/internal/telemetry"
)

// A key that is rotated in its file needs no restart, whether the storage, the hub or a receiver refuses the old one.
func TestRotatedSecrets(t *testing.T) {
	t.Parallel()
	var password atomic.Value
	password.Store("first")
	var taken atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, got, _ := r.BasicAuth(); got != password.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		taken.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(receiver.Close)
	address := strings.TrimPrefix(receiver.URL, "http://")

	listen := func(address, key string) *devhub.Hub {
		hub, err := devhub.Listen(address, devhub.Config{Hub: "telemetry", Partitions: 2, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return hub
	}
	hub := listen("127.0.0.1:0", key64)
	azurite := emulators.StartAzurite(t)
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	start, end, _ := strings.Cut(azurite.ConnectionString, "AccountKey=")
	_, end, _ = strings.Cut(end, ";")
	wrong := start + "AccountKey=" + key64 + ";" + end
	w := runWorker(t,
		"STORAGE_CONNECTION_STRING=", "STORAGE_CONNECTION_STRING_FILE="+file("storage", wrong),
		"EVENTHUB_CONNECTION_STRING=", "EVENTHUB_CONNECTION_STRING_FILE="+file("hub", hub.ConnectionString()),
		"NOTIFY_URLS=", "NOTIFY_URLS_FILE="+file("urls", "http://me:first@"+address),
		"THROTTLE_STORE=memory", "THROTTLE_WINDOW=1h", "CHECKPOINT_CONTAINER="+azurite.NewContainer(), "DEAD_LETTER_CONTAINER="+azurite.NewContainer(),
	)
	hot := func(device string) {
		t.Helper()
		if _, err := hub.Publish(devhub.Message{Device: device, Body: []byte(`{"temperature":99}`)}); err != nil {
			t.Fatal(err)
		}
	}
	arrive := func(want int32) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); taken.Load() < want; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d alerts, want %d", taken.Load(), want)
			}
		}
	}
	w.becomes(status.Blocked, 503, "the checkpoint store cannot be used", "403")
	file("storage", azurite.ConnectionString)
	w.becomes(status.GoingOut, 200)
	hot("oven-1")
	arrive(1)

	password.Store("second")
	hot("oven-2")
	w.becomes(status.Blocked, 200, "no alerts are going out: receiver ", "answered 401")
	file("urls", "ftp://")
	w.logs("secret files have changed, but not all of the new secrets work", "NOTIFY_URLS entry 1")
	w.becomes(status.Blocked, 200, "a new secret does not work, for ", "NOTIFY_URLS entry 1")
	file("urls", "http://me:second@"+address)
	arrive(2)
	w.becomes(status.GoingOut, 200)

	_ = hub.Close()
	hub = listen(hub.Addr(), strings.Repeat("b", 43)+"=")
	w.becomes(status.Blocked, 503, "the hub cannot be read")
	file("hub", hub.ConnectionString())
	w.becomes(status.GoingOut, 200)
	hot("oven-1") // its window outlives the secrets, also in memory
	hot("oven-3")
	arrive(3)
	if n := taken.Load(); n != 3 {
		t.Errorf("%d alerts, want 3", n)
	}
}

// A key that is well-formed and wrong is rolled out to all replicas while the old one works: alerts go on, and everything
// says why the new one is not used. Once the file is right it is.
func TestWrongKeyIsRolledOut(t *testing.T) {
	t.Parallel()
	var taken atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { taken.Add(1) }))
	t.Cleanup(receiver.Close)
	hub, azurite := hubWith(t), emulators.StartAzurite(t)
	path := filepath.Join(t.TempDir(), "storage")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(azurite.ConnectionString)
	var replicas []*runningWorker
	containers := []string{azurite.NewContainer(), azurite.NewContainer(), azurite.NewContainer()}
	for _, name := range []string{"one", "two"} {
		replicas = append(replicas, runWorker(t,
			"EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "REPLICA_NAME="+name, "NOTIFY_URLS="+receiver.URL,
			"STORAGE_CONNECTION_STRING=", "STORAGE_CONNECTION_STRING_FILE="+path, "CHECKPOINT_CONTAINER="+containers[0],
			"THROTTLE_CONTAINER="+containers[1], "DEAD_LETTER_CONTAINER="+containers[2],
		))
	}
	hot := func(devices ...string) {
		t.Helper()
		before := taken.Load()
		for i, device := range devices {
			m := devhub.Message{Device: device, Body: []byte(`{"temperature":99}`), Partition: strconv.Itoa(i % 2)}
			if _, err := hub.Publish(m); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(time.Minute); taken.Load() < before+int32(len(devices)); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d of %d alerts", taken.Load()-before, len(devices))
			}
		}
	}
	for _, w := range replicas {
		w.becomes(status.GoingOut, 200)
	}
	hot("a", "b")

	start, end, _ := strings.Cut(azurite.ConnectionString, "AccountKey=")
	_, end, _ = strings.Cut(end, ";")
	write(start + "AccountKey=" + key64 + ";" + end)
	for _, w := range replicas {
		w.becomes(status.Impaired, 200, "ready: alerts are going out, but a new secret does not work.",
			"STORAGE_CONNECTION_STRING: ", "403", "The old one stays in use.")
		w.logs("not all of the new secrets work", "STORAGE_CONNECTION_STRING: ", "403")
		if _, metrics := w.get("/metrics"); !strings.Contains(metrics, "\nalertworker_new_secret_failing 1\n") {
			t.Error("the metrics do not say so")
		}
		if _, page := w.get("/"); !strings.Contains(page, "a new secret does not work") || !strings.Contains(page, "STORAGE_CONNECTION_STRING: ") {
			t.Error("the page does not say so")
		}
	}
	hot("c", "d")
	for _, w := range replicas {
		if n := strings.Count(w.logged(), `"msg":"starting"`); n != 1 {
			t.Errorf("a replica has started %d times, though the new key is wrong", n)
		}
	}

	write(strings.TrimSuffix(azurite.ConnectionString, ";") + ";QueueEndpoint=http://127.0.0.1:1;")
	for _, w := range replicas {
		w.logs("handing over and restarting with the new secrets")
		w.becomes(status.GoingOut, 200)
	}
	hot("e", "f")
}

// A changing is what a test has of a replica whose secrets change: it has no services but receivers.
type changing struct {
	config  config.Config
	kept    *memory
	monitor *status.Monitor
	file    *atomic.Value // of NOTIFY_URLS
	via     network
	source  telemetry.SourceStats
}

func (*changing) Receivers() []delivery.ReceiverState { return nil }
func (*changing) Partitions() []partition.State       { return nil }

// newChanging returns a replica whose secrets are in a file.
func newChanging(file *atomic.Value) *changing {
	r := &changing{kept: &memory{leases: memlease.Keeping(time.Hour)}, file: file}
	r.config = config.Config{
		ReplicaName: "r", ThrottleStore: config.StoreMemory, CheckpointStore: config.StoreMemory, ThrottleScope: "test",
		NotifyURLs: config.NewURLs(file.Load().(string)),
	}
	return r
}

// start has a replica begin.
func (r *changing) start() {
	r.monitor = status.New(zap.NewNop())
	r.monitor.Watch(status.Replica{
		Worker:  r,
		Standby: func() string { return "" },
		Source:  func() telemetry.SourceStats { return r.source },
	})
}

// watch waits for new secrets that work.
func (r *changing) watch(ctx context.Context) *newSecrets {
	files := secretFiles{
		fingerprint: func() []byte { return []byte(r.file.Load().(string)) },
		reload: func(used config.Config) (config.Config, error) {
			text := r.file.Load().(string)
			if strings.HasPrefix(text, "ftp:") {
				return used, errors.New("NOTIFY_URLS entry 1 begins with no known scheme")
			}
			used.NotifyURLs = config.NewURLs(text)
			return used, nil
		},
	}
	return secretsWatch{r.config, files, r.via, r.kept, r.monitor, zap.NewNop()}.wait(ctx)
}

var reading = telemetry.SourceStats{Running: true, Owned: 1, Reading: 1}

// A secret is tried, and used once it works, whatever it was before: wrong, malformed, or refused until now. Meanwhile the
// old one stays in use, and that is said.
func TestNewSecretIsTried(t *testing.T) {
	var takes atomic.Value // the password that the receiver takes
	takes.Store("first")
	asked := 0
	via := network{http: roundTripper(func(r *http.Request) (*http.Response, error) {
		asked++
		answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
		if _, got, _ := r.BasicAuth(); got != takes.Load() {
			answer.StatusCode = http.StatusUnauthorized
		}
		if body, _ := io.ReadAll(r.Body); strings.TrimSpace(string(body)) != "[]" {
			t.Errorf("the receiver was told %s", body)
		}
		return answer, nil
	})}
	const first, wrong = "alertmanager+http://me:first@receiver/", "alertmanager+http://me:wrong@receiver/"
	for name, test := range map[string]struct {
		does    func(file *atomic.Value) // after the file has got wrong
		want    string                   // what is used in the end; empty: the old one stays
		says    string
		working bool
	}{
		"wrong":                                {func(*atomic.Value) {}, "", "answered 401", true},
		"wrong, and the old one does not work": {func(*atomic.Value) {}, "", "answered 401", false},
		"malformed":                            {func(file *atomic.Value) { file.Store("ftp://") }, "", "NOTIFY_URLS entry 1 begins with no known scheme", true},
		"activated":                            {func(*atomic.Value) { takes.Store("wrong") }, wrong, "", true},
		"taken back":                           {func(file *atomic.Value) { file.Store(first) }, "", "", true},
		"cannot be tried":                      {func(file *atomic.Value) { file.Store("http://me:other@receiver/") }, "http://me:other@receiver/", "", true},
		"right and others":                     {func(file *atomic.Value) { file.Store("pagerduty://0123456789abcdef0123456789abcdef," + first) }, "pagerduty://0123456789abcdef0123456789abcdef," + first, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				takes.Store("first")
				var file atomic.Value
				file.Store(first)
				r := newChanging(&file)
				r.via = via
				if test.working {
					r.source = reading
				}
				r.start()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				var next *newSecrets
				var waiting sync.WaitGroup
				waiting.Go(func() { next = r.watch(ctx) })
				time.Sleep(10 * time.Second)
				file.Store(wrong)
				time.Sleep(time.Minute)
				if lines := r.monitor.Report().Lines(time.Now()); !strings.Contains(lines, "answered 401") ||
					test.working && !strings.HasPrefix(lines, "ready: alerts are going out, but a new secret does not work.") {
					t.Errorf("after a minute it says %s", lines)
				}
				test.does(&file)
				time.Sleep(time.Minute)
				lines := r.monitor.Report().Lines(time.Now())
				if said := strings.Contains(lines, "a new secret does not work"); said != (test.says != "") || !strings.Contains(lines, test.says) {
					t.Errorf("at last it says %s", lines)
				}
				waiting.Wait()
				got := ""
				if next != nil {
					got = strings.Join(next.config.NotifyURLs.Reveal(), ",")
				}
				if got != test.want {
					t.Errorf("%q is used, want %q", got, test.want)
				}
			})
		})
	}
	if asked == 0 {
		t.Error("nothing was tried")
	}
}

// A receiver is taken out of NOTIFY_URLS without anything to try.
func TestReceiverTakenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var file atomic.Value
		file.Store("http://first/")
		r := newChanging(&file)
		r.config.NotifyURLs = config.NewURLs("http://first/", "http://second/")
		r.source = reading
		r.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if next := r.watch(ctx); next == nil || len(next.config.NotifyURLs.Reveal()) != 1 {
			t.Errorf("%v is used; %s", next, r.monitor.Report().Lines(time.Now()))
		}
	})
}

// NOTIFY_URLS_FILE is followed while a replica runs. A secret for signing in it that is malformed ends no replica, whatever
// else has changed: the next one could not open its receivers.
func TestSigningSecretChanges(t *testing.T) {
	folder := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	entry := func(secret string) string { return "secret=" + secret + " https://example.com/" }
	const right, other = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "whsec_MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	environment(t, valid(
		"THROTTLE_STORE=memory", "CHECKPOINT_STORE=memory", "STORAGE_CONNECTION_STRING=",
		"NOTIFY_URLS=", "NOTIFY_URLS_FILE="+write("receivers", entry(right)), "HTTP_ADMIN_TOKEN_FILE="+write("token", "a-token-of-some-length"),
	))
	c, _, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, signing, token string
		want                 []string // the entry and the token that are used
	}{
		{"malformed", "no-key", "a-token-of-some-length", nil},
		{"malformed, and another secret is new", "no-key", "another-token-of-some-length", []string{entry(right), "another-token-of-some-length"}},
		{"another one", other, "a-token-of-some-length", []string{entry(other), "a-token-of-some-length"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			write("receivers", entry(right))
			write("token", "a-token-of-some-length")
			synctest.Test(t, func(t *testing.T) {
				r := &changing{config: c, kept: &memory{leases: memlease.Keeping(time.Hour)}, source: reading}
				r.start()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				files := onDisk()
				w := secretsWatch{c, files, network{}, r.kept, r.monitor, zap.NewNop()}
				var next *newSecrets
				var waiting sync.WaitGroup
				waiting.Go(func() { next = w.wait(ctx) })
				time.Sleep(10 * time.Second)
				write("receivers", entry(test.signing))
				write("token", test.token)
				waiting.Wait()
				var got []string
				if next != nil {
					got = append(next.config.NotifyURLs.Reveal(), next.config.HTTPAdminToken.Reveal())
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("%q are used, want %q", got, test.want)
				}
				lines := r.monitor.Report().Lines(time.Now())
				if isWrong := test.signing != other; isWrong != strings.Contains(lines, "a new secret does not work, for ") || isWrong && !strings.Contains(lines, "NOTIFY_URLS") {
					t.Errorf("it says %s", lines)
				}
			})
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
