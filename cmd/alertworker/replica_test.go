package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/records"
)

// A handOver notes in what order a replica hands over, and what /readyz answers then.
type handOver struct {
	ready func() int
	mu    sync.Mutex
	steps []string
	codes []int
}

func (h *handOver) note(step string) {
	code := h.ready()
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.steps); n > 0 && h.steps[n-1] == step {
		return
	}
	h.steps, h.codes = append(h.steps, step), append(h.codes, code)
}

type notedRecords struct {
	records.Store
	*handOver
}

func (n notedRecords) Write(ctx context.Context, r records.Record) (string, error) {
	if strings.Contains(r.Name, "/checkpoint/") {
		n.note("checkpoint written")
	}
	if owner, ok := r.Values["ownerid"]; ok && owner == "" {
		n.note("partition handed back")
	}
	return n.Store.Write(ctx, r)
}

// The order of docs/promise.md: unready, deliveries, checkpoint, partitions, HTTP.
func TestHandOverOrder(t *testing.T) {
	order := &handOver{}
	sending, take := make(chan struct{}, 1), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sending <- struct{}{}
		<-take
		order.note("delivery taken")
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	hub := hubWith(t, `{"temperature":99}`)
	environment(t, valid("EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "EVENTHUB_START=earliest", "BALANCE_INTERVAL=1s",
		"NOTIFY_URLS="+receiver.URL, "HTTP_ADDR=127.0.0.1:0", "CHECKPOINT_INTERVAL=10m", "THROTTLE_STORE=memory", "CHECKPOINT_STORE=memory", "STORAGE_CONNECTION_STRING="))
	c, _, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	log := zap.NewNop()
	shared := stores{
		leases:  memlease.New(),
		records: notedRecords{&records.Memory{}, order},
	}
	o, err := newOperations(c, log)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newReplica(t.Context(), c, shared, o, log)
	if err != nil {
		t.Fatal(err)
	}
	order.ready = func() int {
		resp, err := http.Get("http://" + r.ops.http.listener.Addr().String() + "/readyz")
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	select {
	case <-sending:
	case <-time.After(time.Minute):
		t.Fatal("no delivery")
	}
	become := func(code int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); order.ready() != code; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("/readyz answers %d, want %d", order.ready(), code)
			}
		}
	}
	become(http.StatusOK)
	order.mu.Lock()
	order.steps, order.codes = nil, nil
	order.mu.Unlock()
	stop()
	become(http.StatusServiceUnavailable)
	close(take)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	want := []string{"delivery taken", "checkpoint written", "partition handed back"}
	order.mu.Lock()
	defer order.mu.Unlock()
	if !slices.Equal(order.steps, want) || !slices.Equal(order.codes, []int{503, 503, 503}) {
		t.Errorf("handed over in the order %q with /readyz %v, want %q with 503", order.steps, order.codes, want)
	}
	if code := order.ready(); code != 0 {
		t.Errorf("/readyz answers %d after everything is handed over", code)
	}
}
