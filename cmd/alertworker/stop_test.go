package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// commandIn runs a command with ctx and returns its exit code and what it wrote to stderr.
func commandIn(t *testing.T, ctx context.Context, args ...string) (code int, stderr string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = before }()
	code = command(ctx, args)
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(text)
}

// A worker that is stopped while it waits for a service at its start was stopped on request.
func TestStopWhileStarting(t *testing.T) {
	for _, test := range []struct {
		name string
		env  func(address string) map[string]string
	}{
		{"checkpoint store", func(address string) map[string]string {
			return valid("STORAGE_CONNECTION_STRING=DefaultEndpointsProtocol=http;AccountName=acc;AccountKey=" + key64 + ";BlobEndpoint=" + address + "/acc")
		}},
		{"throttle store", func(address string) map[string]string {
			return valid("STORAGE_CONNECTION_STRING=", "CHECKPOINT_STORE=memory", "THROTTLE_STORE=cosmos",
				"COSMOS_CONNECTION_STRING=AccountEndpoint="+address+"/;AccountKey="+key64)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := make(chan struct{}, 100)
			service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				<-r.Context().Done()
			}))
			defer service.Close()
			environment(t, test.env(service.URL))
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			go func() {
				<-asked
				stop()
			}()
			code, stderr := commandIn(t, ctx)
			if code != exitStopped || !strings.Contains(stderr, "stopped before startup was complete") || strings.Contains(stderr, `"level":"error"`) {
				t.Errorf("exit code %d, want 0 and a line that it was stopped before startup was complete; got:\n%s", code, stderr)
			}
		})
	}
}
