package leasetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A fault is what becomes of one request. Unless it says otherwise the connection is reset, and
// the service does not execute the request.
type fault struct {
	name     string
	executed bool
	late     bool   // a write is executed before the next one
	stalled  bool   // there is no answer until the request's context ends
	status   int    // there is an answer, with this status
	after    string // and this Retry-After
}

var (
	lostRequest      = fault{name: "request lost"}
	lostAnswer       = fault{name: "answer lost", executed: true}
	late             = fault{name: "late", late: true}
	busy             = fault{name: "503", status: http.StatusServiceUnavailable}
	internal         = fault{name: "500", status: http.StatusInternalServerError}
	throttled        = fault{name: "429", status: http.StatusTooManyRequests, after: "1"}
	throttledBriefly = fault{name: "429, briefly", status: http.StatusTooManyRequests}
	broken           = fault{name: "500 but executed", executed: true, status: http.StatusInternalServerError}
	stalled          = fault{name: "stalled", stalled: true}
	stalledDone      = fault{name: "done but stalled", executed: true, stalled: true}
)

// A wire carries requests to a backend and misbehaves as told.
type wire struct {
	next http.RoundTripper
	edit func(*http.Response) // applied to every answer, if not nil

	mu      sync.Mutex
	fault   fault
	at      int                           // how many requests come before the one with the fault; negative: each has it
	n       int                           // requests since the fault was armed
	began   time.Time                     // when the last one began
	writes  []func(context.Context) error // all that changed something, to send again
	delayed func(context.Context) error   // of writes the one that is late
}

// arm lets the fault befall the request after the next at, or each if at is negative.
func (w *wire) arm(f fault, at int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
	w.at = at
	w.n = 0
}

// disarm ends the fault and returns how many requests there were since it was armed.
func (w *wire) disarm() (requests int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fault{}
	return w.n
}

// last returns when the last request began.
func (w *wire) last() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.began
}

var errReset = errors.New("read tcp: connection reset by peer")

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	f, delayed, send, err := w.take(req)
	if err != nil {
		return nil, err
	}

	if delayed != nil {
		if err := delayed(req.Context()); err != nil {
			return nil, err
		}
	}

	if f == (fault{}) {
		resp, err := send(req.Context())
		if err == nil && w.edit != nil {
			w.edit(resp)
		}
		return resp, err
	}

	if f.executed {
		if err := discard(send(req.Context())); err != nil {
			return nil, err
		}
	}

	switch {
	case f.stalled:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case f.status != 0:
		return answer(req, f), nil
	}

	return nil, errReset
}

// take returns the fault of req, a write that is late and comes before it, and what sends it, which
// any number of calls may do if req is a write.
func (w *wire) take(
	req *http.Request,
) (f fault, delayed func(context.Context) error, send func(context.Context) (*http.Response, error), err error) {
	send = func(context.Context) (*http.Response, error) { return w.next.RoundTrip(req) }
	write := req.Method != http.MethodGet && req.Method != http.MethodHead
	if write {
		var body []byte
		if req.Body != nil {
			if body, err = io.ReadAll(req.Body); err != nil {
				return f, nil, nil, err
			}
			_ = req.Body.Close()
		}

		send = func(ctx context.Context) (*http.Response, error) {
			again := req.Clone(ctx)
			again.Body = http.NoBody
			if len(body) > 0 {
				again.Body = io.NopCloser(bytes.NewReader(body))
			}

			return w.next.RoundTrip(again)
		}
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at < 0 || w.n == w.at {
		f = w.fault
	}

	w.n++
	w.began = time.Now()

	if write {
		again := func(ctx context.Context) error { return discard(send(ctx)) }
		w.writes = append(w.writes, again)
		delayed, w.delayed = w.delayed, nil
		if f.late {
			w.delayed = again
		}
	}

	return f, delayed, send, nil
}

// discard reads an answer to its end.
func discard(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}

// answer is that of a service with the fault f.
func answer(req *http.Request, f fault) *http.Response {
	resp := &http.Response{
		StatusCode: f.status,
		Status:     fmt.Sprintf("%d %s", f.status, http.StatusText(f.status)),
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}},
		Body:       http.NoBody,
		Request:    req,
	}

	if f.after != "" {
		resp.Header.Set("Retry-After", f.after)
	}

	return resp
}

// repeat sends every write so far again, as a network that delivers late would,
// and returns how many that was.
func (w *wire) repeat(t tester) int {
	t.Helper()
	w.mu.Lock()
	writes := w.writes
	w.mu.Unlock()

	for _, again := range writes {
		if err := again(t.Context()); err != nil {
			t.Fatalf("repeat a write: %v", err)
		}
	}

	return len(writes)
}

// A Counter counts the requests that it lets through.
type Counter struct {
	Next http.RoundTripper
	N    atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *Counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.N.Add(1)
	return c.Next.RoundTrip(r)
}
