package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"alertworker/internal/lease"
)

// A request that got lost must be repeated soon, and a slow service must be given time. So a request has a second at
// first, and twice as long after one to which no answer came in its time, unless others were answered meanwhile. That
// is halved after half a minute in which no answer took more than half of it.
const (
	minTry   = time.Second
	maxTry   = 8 * time.Second
	largeTry = 30 * time.Second // of a large request or answer
	calm     = 30 * time.Second
	// A request ends so long before its caller's context does, because SDKs report the context's error then, and not
	// what happened.
	early = 50 * time.Millisecond
)

// explain returns err, or, if the service did not answer the request in the time that it had, the Failure of that. The
// request may have been executed. If its caller has no more time either, it is context.DeadlineExceeded.
func (t *try) explain(err error) error {
	if !t.late() {
		return err
	}

	limit := t.limit.Round(100 * time.Millisecond)
	f := &lease.Failure{
		Text:  fmt.Sprintf("no connection to %s within %v", t.host, limit),
		Cause: lease.NoAnswer,
		Again: t.limit < maxTry, // else it had the most time that one gets
		Hint:  lease.CheckAddress,
	}
	if t.connected.Load() { // the address is right
		f.Text = fmt.Sprintf("%s answers in more than %v", t.host, limit)
		f.Hint = func(string) string {
			return "it is slow, or the network is: check its latency in Azure's metrics, and proxies in between"
		}
	}
	if t.limit < t.allowed {
		f.Err = context.DeadlineExceeded
	}

	return f
}

// Large returns ctx for a request that is large, or has a large answer: it has 30 s.
func Large(ctx context.Context) context.Context { return context.WithValue(ctx, large{}, true) }

type large struct{}

// LimitTries returns next with a limit for each request, of 1 to 8 s: see minTry. A request that got no answer in time
// fails with a *lease.Failure. What it learns about reads and about writes holds for all its requests: use one for each
// container. It is safe for concurrent use. It returns next if that does so already.
func LimitTries(next policy.Transporter) policy.Transporter {
	if l, ok := next.(*limited); ok {
		return l
	}

	return &limited{next: next, reads: tryLimit{now: minTry}, writes: tryLimit{now: minTry}}
}

type limited struct {
	next          policy.Transporter
	reads, writes tryLimit
}

func (l *limited) Do(r *http.Request) (*http.Response, error) {
	learned := &l.writes
	switch {
	case r.Context().Value(large{}) != nil:
		learned = &tryLimit{now: largeTry} // it says nothing about others
	case slices.Contains([]string{http.MethodGet, http.MethodHead}, r.Method):
		learned = &l.reads
	}

	learned.mu.Lock()
	allowed := learned.now
	learned.mu.Unlock()

	t := &try{ctx: r.Context(), host: r.URL.Host, began: time.Now(), allowed: allowed, limit: allowed}
	if deadline, ok := t.ctx.Deadline(); ok {
		if left := time.Until(deadline); left > 2*early {
			t.limit = min(t.limit, left-early)
		}
	}

	t.trying, t.cancel = context.WithTimeoutCause(
		httptrace.WithClientTrace(t.ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { t.connected.Store(true) }}),
		t.limit,
		errLimit,
	)
	resp, err := l.next.Do(r.WithContext(t.trying))
	learned.learn(t, err)
	if err != nil {
		err = t.explain(err)
		t.cancel()
		return nil, err
	}

	resp.Body = answerBody{resp.Body, t}

	return resp, nil
}

// A try is one request.
type try struct {
	ctx, trying    context.Context // the caller's, and with the limit
	cancel         context.CancelFunc
	host           string
	began          time.Time
	allowed, limit time.Duration // the limit is shorter if the caller's context ends before
	connected      atomic.Bool
}

// errLimit is why a try ends that has taken its time.
var errLimit = errors.New("the limit of a try")

// late reports whether the time of the request was over first, whatever ended since: a busy machine may notice late.
func (t *try) late() bool { return context.Cause(t.trying) == errLimit }

// An answerBody ends its request when it is closed.
type answerBody struct {
	io.ReadCloser
	try *try
}

func (b answerBody) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.try.explain(err)
	}

	return n, err
}

func (b answerBody) Close() error {
	defer b.try.cancel()
	return b.ReadCloser.Close()
}

// A tryLimit is how long a request of a kind may take.
type tryLimit struct {
	mu       sync.Mutex
	now      time.Duration
	answered time.Time // the last time
	needed   time.Time // when more than half of it was needed last
}

// learn sets the limit by a request that has just ended, with err.
func (h *tryLimit) learn(t *try, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if err != nil {
		lost := h.answered.After(t.began) // others were answered
		if t.late() && t.limit == h.now && !lost {
			//planted:one-second-only skip
			h.now, h.needed = min(2*h.now, maxTry), now
		}

		return
	}

	h.answered = now
	if now.Sub(t.began) > h.now/2 {
		h.needed = now
	}

	if now.Sub(h.needed) > calm && h.now > minTry {
		h.now, h.needed = h.now/2, now
	}
}
