package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"
)

// A receiver takes webhooks, each after a while.
type receiver struct {
	server *http.Server
	url    string
	after  time.Duration

	mu sync.Mutex
	at map[string]time.Time // when each device's first alert came
}

func newReceiver(after time.Duration) (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + l.Addr().String(), after: after, at: map[string]time.Time{}}
	r.server = &http.Server{Handler: r}
	go func() { _ = r.server.Serve(l) }() // until close
	return r, nil
}

func (r *receiver) close() { _ = r.server.Close() }

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	came := time.Now()
	var event struct {
		Subject string `json:"subject"`
	}
	if err := json.NewDecoder(req.Body).Decode(&event); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	if _, ok := r.at[event.Subject]; !ok {
		r.at[event.Subject] = came
	}
	r.mu.Unlock()
	time.Sleep(r.after)
	w.WriteHeader(http.StatusNoContent)
}

// count returns how many devices have alerted.
func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.at)
}

// arrived waits for the device's alert and returns when it came.
func (r *receiver) arrived(ctx context.Context, device string) (at time.Time, err error) {
	err = wait(ctx, time.Millisecond, runLimit, func() (ok bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		at, ok = r.at[device]
		return ok
	})
	return at, err
}
