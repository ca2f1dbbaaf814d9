package main

import (
	"net/http"
	"net/http/httptest"
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

// A key that is rotated in its file needs no restart, whether the storage, the hub or a receiver refuses the old one.
func TestRotatedSecrets(t *testing.T) {
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
	w.becomes(status.Blocked, 200, "no receiver accepts any", "answered 401")
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
