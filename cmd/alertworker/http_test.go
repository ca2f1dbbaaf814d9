package main

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/config"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/status"
)

// A handler that panics is in the log as an error, with its stack, and the server goes on.
func TestHandlerPanics(t *testing.T) {
	core, logged := observer.New(zap.ErrorLevel)
	s, err := listenHTTP(config.Config{HTTPAddr: "127.0.0.1:0"}, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	broken := func() status.Statement { panic("nobody knows") }
	s.handler.Store(admin.New(admin.Options{Self: broken, Recorder: &admin.Recorder{}, Log: zap.NewNop()}))
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { s.serve(ctx) })
	defer work.Wait()
	defer stop()

	url := "http://" + s.listener.Addr().String()
	if resp, err := http.Get(url + "/readyz"); err == nil {
		resp.Body.Close()
		t.Errorf("it is answered with %s", resp.Status)
	}
	if lines := logged.All(); len(lines) != 1 || !strings.Contains(lines[0].Message, "nobody knows") || !strings.Contains(lines[0].Message, "serveState") {
		t.Errorf("it logs %v", lines)
	}
	resp, err := http.Get(url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}
