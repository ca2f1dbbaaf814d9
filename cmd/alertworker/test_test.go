package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/ops/status"
)

// A reading goes through a hub or HTTP, a worker and its receivers, and back to normal.
func TestTest(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	var mu sync.Mutex
	var got []string // devices that receivers got tests about
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e struct {
			Subject string
			Data    struct{ Test bool }
		}
		if err := json.Unmarshal(body, &e); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if e.Data.Test {
			got = append(got, e.Subject)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	hub := hubWith(t)
	w := runWorker(t,
		"EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(),
		"STORAGE_CONNECTION_STRING="+azurite.ConnectionString, "DEAD_LETTER_CONTAINER="+azurite.NewContainer(),
		"THROTTLE_CONTAINER="+azurite.NewContainer(), "CHECKPOINT_CONTAINER="+azurite.NewContainer(),
		"NOTIFY_URLS="+receiver.URL+"/a,"+receiver.URL+"/b,name=berlin where=site:berlin "+receiver.URL+"/c", "NOTIFY_RESOLVED=true", "THROTTLE_WINDOW=2s", "HTTP_INGEST_TOKEN=0123456789abcdef",
	)
	w.becomes(status.GoingOut, http.StatusOK)

	for _, tt := range []struct {
		args, want []string
		messages   int
	}{
		{
			[]string{"--device", "alertworker-test-1"},
			[]string{"– berlin", "not tested: where= asks for a property", "✓ sent", "the hub took the reading in", "✓ 127.0.0.1", "accepted after", "waiting for the recovery", "✓ recovery"},
			4,
		},
		{
			[]string{"--device", "alertworker-test-2", "--http", w.site()},
			[]string{"✓ sent", "the worker took the reading and alerted in", "accepted after"},
			2,
		},
	} {
		out, said, code := w.run(append([]string{"test"}, tt.args...)...)
		if code != exitStopped {
			t.Errorf("%q: exit code %d, %s", tt.args, code, said)
		}
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q does not say %q:\n%s", tt.args, want, out)
			}
		}
		mu.Lock()
		n := len(slices.DeleteFunc(slices.Clone(got), func(device string) bool { return device != tt.args[1] }))
		if n != tt.messages {
			t.Errorf("%q: receivers got %d tests, want %d", tt.args, n, tt.messages)
		}
		mu.Unlock()
	}
	if _, _, code := w.run("test", "--http", "http://"+nobody(t)); code == exitStopped {
		t.Error("it passes without a worker")
	}
}
