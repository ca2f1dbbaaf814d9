package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// A receiver answers each request after a while, and refuses what comes too soon after the last one.
type receiver struct {
	server *http.Server
	addr   string
	after  time.Duration
	every  time.Duration // at most one request is taken in it

	mu             sync.Mutex
	last           time.Time            // when a request was taken
	at             map[string]time.Time // when each device's first alert came
	taken, refused int
}

func newReceiver(after, every time.Duration) (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{addr: l.Addr().String(), after: after, every: every, at: map[string]time.Time{}}
	r.server = &http.Server{Handler: r}
	go func() { _ = r.server.Serve(l) }() // until close
	return r, nil
}

func (r *receiver) close() { _ = r.server.Close() }

var deviceName = regexp.MustCompile(`oven-[0-9]{7}`)

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	came := time.Now()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	if !r.take(came, deviceName.FindAllString(string(body), -1)) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	time.Sleep(r.after)
	_, _ = io.WriteString(w, "ok")
}

// take reports whether a request about devices is taken.
func (r *receiver) take(came time.Time, devices []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.every > 0 && came.Sub(r.last) < r.every { // requests may be taken in another order than they came
		r.refused++
		return false
	}
	r.last = came
	r.taken++
	for _, name := range devices {
		if _, ok := r.at[name]; !ok {
			r.at[name] = came
		}
	}
	return true
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
