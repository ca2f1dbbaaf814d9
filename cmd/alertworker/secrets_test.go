package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/ops/status"
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
	w.logs("secret files have changed, but are not valid")
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

// Replicas that work hand over one after another; those that do not, at once.
func TestSecretsTakeTurns(t *testing.T) {
	urls := filepath.Join(t.TempDir(), "urls")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(urls, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("http://first.example.com/")
	for _, v := range []string{
		"NOTIFY_URLS_FILE=" + urls, "EVENTHUB_CONNECTION_STRING=Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=x;SharedAccessKey=" + key64 + ";EntityPath=telemetry", "STORAGE_CONNECTION_STRING=UseDevelopmentStorage=true",
		"TEMPERATURE_THRESHOLD=80",
	} {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	c, _, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	const replicas = 16
	handOver := func(t *testing.T, working bool) (turns []time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		started := time.Now()
		var mu sync.Mutex
		var all sync.WaitGroup
		for range replicas {
			all.Go(func() {
				if !secretsChange(ctx, c, func() bool { return working }, zap.NewNop()) {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				turns = append(turns, time.Since(started).Round(secretsEvery))
			})
		}
		synctest.Wait()
		write("http://second.example.com/")
		all.Wait()
		slices.Sort(turns)
		return turns
	}
	synctest.Test(t, func(t *testing.T) {
		turns := handOver(t, true)
		if len(turns) != replicas || turns[0] == turns[replicas-1] || turns[replicas-1] > secretsWithin+3*secretsEvery {
			t.Errorf("replicas that work hand over after %v", turns)
		}
	})
	write("http://first.example.com/")
	synctest.Test(t, func(t *testing.T) {
		if turns := handOver(t, false); len(turns) != replicas || turns[replicas-1] > 2*secretsEvery {
			t.Errorf("replicas that do not work hand over after %v", turns)
		}
	})
}
