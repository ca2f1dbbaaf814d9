package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		note := func(step string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, step)
		}
		var c cleanup
		failed := errors.New("failed")
		c.add("log", time.Second, func() { note("log") })
		c.background(t.Context(), "server", time.Second, func(ctx context.Context) error {
			<-ctx.Done()
			note("server")
			return failed
		})
		forever := make(chan struct{})
		c.add("client", 3*time.Second, func() {
			note("client")
			<-forever
		})
		c.background(t.Context(), "reader", time.Second, func(ctx context.Context) error {
			<-ctx.Done()
			note("reader")
			return ctx.Err()
		})
		start := time.Now()
		err := c.run()
		close(forever)
		if want := []string{"reader", "client", "server", "log"}; !slices.Equal(order, want) {
			t.Errorf("stopped in the order %q, want %q", order, want)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v, want the limit of the step that hangs", took)
		}
		if want := "context canceled\nclient did not stop within 3s\nfailed"; err == nil || err.Error() != want || !errors.Is(err, failed) {
			t.Errorf("%v, want %v", err, want)
		}
		if err := c.run(); err != nil {
			t.Errorf("the second time: %v", err)
		}
	})
}
