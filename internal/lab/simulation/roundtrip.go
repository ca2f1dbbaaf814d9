package simulation

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"syscall"
	"time"
)

// A link is a connection of a replica to a service, which carries one request at a time.
type link struct {
	at     string
	of     Service // that its last request was for
	isBusy bool
	unused time.Time     // since when, unless it is busy
	isHeld bool          // nothing arrives on it any more
	cut    chan struct{} // closed when it is reset
}

// unusedFor is how long a link is kept that nobody uses: as long as connections to stores are.
const unusedFor = 90 * time.Second

// take returns a link that carries nothing else, nil if the replica is dead. Of those it has, that is the one that was
// used last.
func (b *body) take(at string, s Service) *link {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.dead {
		return nil
	}

	b.links = slices.DeleteFunc(b.links, func(l *link) bool { return !l.isBusy && time.Since(l.unused) > unusedFor })

	var free *link
	for _, l := range b.links {
		if l.at != at || l.isBusy {
			continue
		}

		if free == nil || !l.unused.Before(free.unused) {
			free = l
		}
	}

	if free == nil {
		free = &link{at: at, cut: make(chan struct{})}
		b.links = append(b.links, free)
	}

	free.isBusy = true
	free.of = s

	return free
}

// giveBack keeps a link for the next request.
func (b *body) giveBack(l *link) {
	b.mu.Lock()
	defer b.mu.Unlock()

	l.isBusy = false
	l.unused = time.Now()
}

// drop forgets a link, as a client does that got no answer on it.
func (b *body) drop(l *link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.links = slices.DeleteFunc(b.links, func(other *link) bool { return other == l })
}

// RoundTrip has the service at the request's host do what is asked. It returns when the answer is there, when the link
// is reset, or when the context ends, while the service goes on.
func (b *body) RoundTrip(r *http.Request) (*http.Response, error) {
	content, err := contentOf(r)
	if err != nil {
		return nil, err
	}

	d := b.world.doors[r.URL.Hostname()]
	if d == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errAway}
	}

	l := b.take(d.at, d.of(r))
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errDead}
	}

	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}

	h, err := b.exchange(d, l, r, content)
	if err != nil {
		b.drop(l)
		return nil, err
	}

	b.giveBack(l)

	answer := h.Result()
	answer.Request = r

	return answer, nil
}

// exchange sends a request over a link, and waits for its answer.
func (b *body) exchange(d *door, l *link, r *http.Request, content []byte) (*httptest.ResponseRecorder, error) {
	arrived := arrival(r, content)

	// azcosmos holds a mutex until it is answered: it must take no time.
	isFirst := d.service == Items && r.URL.Path == "/"
	if isFirst {
		return d.do(arrived, content), nil
	}

	answers := make(chan *httptest.ResponseRecorder, 1)
	if !b.isHeld(l) {
		b.world.work.Go(func() {
			h := d.answer(b, arrived, content)
			if !b.isHeld(l) {
				answers <- h
			}
		})
	}

	select {
	case h := <-answers:
		if h == nil {
			return nil, io.EOF
		}
		return h, nil
	case <-l.cut:
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

func (b *body) isHeld(l *link) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return l.isHeld
}

// contentOf returns what is in the body of a request, and closes it.
func contentOf(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()

	content := make([]byte, max(r.ContentLength, 0))
	if _, err := io.ReadFull(r.Body, content); err != nil {
		return nil, err
	}

	return content, nil
}

// arrival returns a request as the service gets it. Its body is with whom it is done by.
func arrival(r *http.Request, content []byte) *http.Request {
	header := make(http.Header, len(r.Header))
	for name, values := range r.Header {
		header[http.CanonicalHeaderKey(name)] = values
	}

	return &http.Request{
		Method:        r.Method,
		URL:           r.URL,
		Header:        header,
		Host:          r.URL.Host,
		ContentLength: int64(len(content)),
	}
}
