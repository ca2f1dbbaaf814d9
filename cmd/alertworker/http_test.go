package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/config"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/status"
)

// A handler that panics is answered for with 500, counted, and in the log with its stack.
func TestHandlerPanics(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	m := metrics.New("test")
	s, err := listenHTTP(config.Config{HTTPAddr: "127.0.0.1:0"}, m.HandlerPanicked, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	broken := func() status.Report { panic("nobody knows") }
	s.handler.Store(admin.New(admin.Options{Status: broken, Metrics: m.Handler(), Log: zap.NewNop()}))
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { s.serve(ctx) })
	defer work.Wait()
	defer stop()

	resp, err := http.Get("http://" + s.listener.Addr().String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("%s: %s", resp.Status, body)
	}

	lines := logged.FilterMessageSnippet("panicked").All()
	if len(lines) != 1 || lines[0].ContextMap()["path"] != "/readyz" || !strings.Contains(lines[0].ContextMap()["stack"].(string), "serveReady") {
		t.Errorf("it logs %v", lines)
	}
	scrape := httptest.NewRecorder()
	m.Handler().ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(scrape.Body.String(), "\nalertworker_http_panics_total 1\n") {
		t.Error("it is not counted")
	}
}
