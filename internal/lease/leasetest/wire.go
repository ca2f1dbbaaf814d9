package leasetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"alertworker/internal/lease"
)

// A Wire is a way to a service, on which requests fare as told. It is safe for concurrent use.
type Wire interface {
	// Open is Backend.Open, with every request by this way.
	Open() (lease.Store, error)

	// Arm has f befall the request after the next at, or each if at is negative. Disarm ends that, and returns how many
	// requests there were since.
	Arm(f Fault, at int)
	Disarm() (requests int)

	// Last returns when the last request began.
	Last() time.Time

	// Repeat sends every write so far again, as a network that delivers late would, and returns how many that was.
	Repeat(ctx context.Context) (writes int, err error)

	// Skew has the clock of the machine that answers be ahead by now, and that of the machines that have dated records by
	// written.
	Skew(now, written time.Duration)
}

// A Fault is what becomes of one request. The zero Fault is none. Unless it says otherwise the connection is reset, and
// the service does not execute the request.
type Fault struct {
	Name     string
	Executed bool
	Late     bool          // a write is executed before the next one
	Stalled  bool          // there is no answer until the request's context ends
	Answer   Answer        // that the service gives instead
	Wait     time.Duration // for so long the answer asks to wait; whole seconds
}

// An Answer is a service's that does not do what it is asked.
type Answer int

const (
	AnswerNone        Answer = iota // the connection is reset
	AnswerUnavailable               // it is away
	AnswerFailed                    // it has a fault of its own
	AnswerThrottled                 // there are too many requests
)

var (
	lostRequest      = Fault{Name: "request lost"}
	lostAnswer       = Fault{Name: "answer lost", Executed: true}
	late             = Fault{Name: "late", Late: true}
	busy             = Fault{Name: "unavailable", Answer: AnswerUnavailable}
	internal         = Fault{Name: "failed", Answer: AnswerFailed}
	throttled        = Fault{Name: "throttled", Answer: AnswerThrottled, Wait: time.Second}
	throttledBriefly = Fault{Name: "throttled, briefly", Answer: AnswerThrottled}
	broken           = Fault{Name: "failed but executed", Executed: true, Answer: AnswerFailed}
	stalled          = Fault{Name: "stalled", Stalled: true}
	stalledDone      = Fault{Name: "done but stalled", Executed: true, Stalled: true}
)

// An httpWire is a Wire over HTTP.
type httpWire struct {
	next http.RoundTripper
	open func(via http.RoundTripper) (lease.Store, error)
	skew func(answer *http.Response, now, written time.Duration)

	mu      sync.Mutex
	now     time.Duration
	written time.Duration
	fault   Fault
	at      int                           // how many requests come before the one with the fault; negative: each has it
	n       int                           // requests since the fault was armed
	began   time.Time                     // when the last one began
	writes  []func(context.Context) error // all that changed something, to send again
	delayed []func(context.Context) error // of writes those that are late
}

func (w *httpWire) Open() (lease.Store, error) { return w.open(w) }

func (w *httpWire) Skew(now, written time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now, w.written = now, written
}

func (w *httpWire) Arm(f Fault, at int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
	w.at = at
	w.n = 0
}

func (w *httpWire) Disarm() (requests int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = Fault{}
	return w.n
}

func (w *httpWire) Last() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.began
}

var errReset = errors.New("read tcp: connection reset by peer")

func (w *httpWire) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}

	send := func(ctx context.Context) (*http.Response, error) {
		again := req.Clone(ctx)
		again.Body = http.NoBody // an empty one of another kind is sent in chunks
		if len(body) > 0 {
			again.Body = io.NopCloser(bytes.NewReader(body))
		}
		return w.next.RoundTrip(again)
	}
	f, delayed := w.take(req.Method, func(ctx context.Context) error { return discard(send(ctx)) })
	for _, write := range delayed {
		if err := write(req.Context()); err != nil {
			return nil, err
		}
	}

	if f == (Fault{}) {
		resp, err := send(req.Context())
		w.mu.Lock()
		now, written := w.now, w.written
		w.mu.Unlock()
		if err == nil {
			w.skew(resp, now, written)
		}
		return resp, err
	}

	if f.Executed {
		if err := discard(send(req.Context())); err != nil {
			return nil, err
		}
	}

	switch {
	case f.Stalled:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case f.Answer != AnswerNone:
		return answer(req, f), nil
	}

	return nil, errReset
}

// take returns the fault of a request, and the writes that are late and come before it. send sends it, if it is a write
// any number of times.
func (w *httpWire) take(method string, send func(context.Context) error) (f Fault, delayed []func(context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at < 0 || w.n == w.at {
		f = w.fault
	}

	w.n++
	w.began = time.Now()

	if method != http.MethodGet && method != http.MethodHead {
		w.writes = append(w.writes, send)
		delayed, w.delayed = w.delayed, nil
		if f.Late {
			w.delayed = append(w.delayed, send)
		}
	}

	return f, delayed
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
func answer(req *http.Request, f Fault) *http.Response {
	status := map[Answer]int{
		AnswerUnavailable: http.StatusServiceUnavailable,
		AnswerFailed:      http.StatusInternalServerError,
		AnswerThrottled:   http.StatusTooManyRequests,
	}[f.Answer]
	resp := &http.Response{
		StatusCode: status,
		Status:     fmt.Sprintf("%d %s", status, http.StatusText(status)),
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}},
		Body:       http.NoBody,
		Request:    req,
	}

	if f.Wait > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(int(f.Wait/time.Second)))
	}

	return resp
}

func (w *httpWire) Repeat(ctx context.Context) (n int, err error) {
	w.mu.Lock()
	writes := w.writes
	w.mu.Unlock()

	for _, again := range writes {
		if err := again(ctx); err != nil {
			return n, fmt.Errorf("repeat a write: %w", err)
		}
		n++
	}

	return n, nil
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
