package leasetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A fault is what becomes of one request.
type fault string

const (
	lostRequest      fault = "request lost"     // not executed, connection reset
	lostAnswer       fault = "answer lost"      // executed, connection reset
	late             fault = "late"             // connection reset; a write is executed before the next one
	busy             fault = "503"              // not executed
	internal         fault = "500"              // not executed
	throttled        fault = "429"              // not executed, with a Retry-After of a second
	throttledBriefly fault = "429, briefly"     // not executed
	broken           fault = "500 but executed" // executed, answered with 500
	stalled          fault = "stalled"          // not executed, no answer until the request's context ends
	stalledDone      fault = "done but stalled" // executed, no answer until the request's context ends
)

// A wire carries requests to a backend and misbehaves as told.
type wire struct {
	next http.RoundTripper
	edit func(*http.Response) // applied to every answer, if not nil

	mu      sync.Mutex
	fault   fault
	in      int  // requests until the fault; negative: none
	forever bool // the fault stays
	fired   bool
	n       int             // requests since the fault was armed
	writes  []*http.Request // all that changed something, to send again; nil bodies are closed over
	delayed *http.Request   // of writes the one that is late
}

// arm lets the fault befall the request after the next n.
func (w *wire) arm(f fault, n int, forever bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.in, w.forever, w.fired, w.n = f, n, forever, false, 0
}

// disarm ends the fault and says whether it befell anything.
func (w *wire) disarm() (fired bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = ""
	return w.fired
}

// requests returns how many there were since the fault was armed.
func (w *wire) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func (w *wire) current() fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	if w.fault == "" || w.fired && !w.forever {
		return ""
	}
	if w.in > 0 {
		w.in--
		return ""
	}
	w.fired = true
	return w.fault
}

var errReset = errors.New("read tcp: connection reset by peer")

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	write := req.Method != http.MethodGet && req.Method != http.MethodHead
	req, err := w.keep(req)
	if err != nil {
		return nil, err
	}
	if write {
		w.mu.Lock()
		delayed := w.delayed
		w.delayed = nil
		w.mu.Unlock()
		if delayed != nil {
			if err := w.send(req.Context(), delayed); err != nil {
				return nil, err
			}
		}
	}
	switch f := w.current(); f {
	case lostRequest:
		return nil, errReset
	case late:
		if write {
			w.mu.Lock()
			w.delayed = w.writes[len(w.writes)-1]
			w.mu.Unlock()
		}
		return nil, errReset
	case lostAnswer, stalledDone, broken:
		resp, err := w.next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		switch f {
		case stalledDone:
			<-req.Context().Done()
			return nil, req.Context().Err()
		case broken:
			return answer(req, http.StatusInternalServerError), nil
		}
		return nil, errReset
	case stalled:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case busy:
		return answer(req, http.StatusServiceUnavailable), nil
	case internal:
		return answer(req, http.StatusInternalServerError), nil
	case throttledBriefly:
		return answer(req, http.StatusTooManyRequests), nil
	case throttled:
		resp := answer(req, http.StatusTooManyRequests)
		resp.Header.Set("Retry-After", "1")
		return resp, nil
	}
	resp, err := w.next.RoundTrip(req)
	if err == nil && w.edit != nil {
		w.edit(resp)
	}
	return resp, err
}

func answer(req *http.Request, status int) *http.Response {
	return &http.Response{
		StatusCode: status,
		Status:     fmt.Sprintf("%d %s", status, http.StatusText(status)),
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}},
		Body:    io.NopCloser(strings.NewReader("")),
		Request: req,
	}
}

// keep notes req down if it is a write, and returns one to send in its place.
func (w *wire) keep(req *http.Request) (*http.Request, error) {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return req, nil
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}
	kept := req.Clone(req.Context())
	kept.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	if len(body) == 0 {
		kept.GetBody = func() (io.ReadCloser, error) { return http.NoBody, nil }
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, kept)
	send := kept.Clone(req.Context())
	var err error
	send.Body, err = kept.GetBody()
	return send, err
}

// repeat sends every write so far again, as a network that delivers late would,
// and returns how many that was.
func (w *wire) repeat(t tester) int {
	t.Helper()
	w.mu.Lock()
	writes := w.writes
	w.mu.Unlock()
	for _, kept := range writes {
		if err := w.send(t.Context(), kept); err != nil {
			t.Fatalf("repeat %s: %v", kept.Method, err)
		}
	}
	return len(writes)
}

// send sends a kept request, whose answer nobody gets.
func (w *wire) send(ctx context.Context, kept *http.Request) error {
	req := kept.Clone(ctx)
	req.Body, _ = kept.GetBody()
	resp, err := w.next.RoundTrip(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
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
