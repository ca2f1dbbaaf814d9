//go:build unix

package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// A storageProxy is the way of workers to their storage account, on which requests can be held.
type storageProxy struct {
	connection string // the connection string to use

	mu    sync.Mutex
	holds []*storageHold
}

// A storageHold keeps some requests waiting.
type storageHold struct {
	which   func(*http.Request) bool // these; nil: no more
	done    bool                     // they are done at once, though not answered
	arrived chan struct{}            // closed when one is held
	release chan struct{}            // closed: they are done, if they were not, and answered
	lost    bool                     // they are not: they never arrive
}

// newStorageProxy starts one, for the account with this connection string.
func newStorageProxy(t *testing.T, storage string) *storageProxy {
	t.Helper()
	const endpoint = "BlobEndpoint="
	_, rest, ok := strings.Cut(storage, endpoint)
	address, _, _ := strings.Cut(rest, ";")
	to, err := url.Parse(address)
	if !ok || err != nil {
		t.Fatal("storage has no usable endpoint: ", storage, err)
	}
	p := &storageProxy{}
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host },
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { // a worker that was killed
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := p.held(r)
		switch {
		case h == nil:
			forward.ServeHTTP(w, r)
			return
		case h.done:
			answer := httptest.NewRecorder()
			forward.ServeHTTP(answer, r)
			<-h.release
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
			return
		}
		if <-h.release; h.lost {
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.letGo()
		server.Close()
		forward.Transport.(*http.Transport).CloseIdleConnections()
	})
	p.connection = strings.Replace(storage, endpoint+address, endpoint+server.URL+to.Path, 1)
	return p
}

// hold keeps requests waiting from now on: before they are done, or before they are answered. arrived is
// closed when there is one. A request waits for the first of all holds that wants it.
func (p *storageProxy) hold(done bool, which func(*http.Request) bool) (arrived <-chan struct{}) {
	h := &storageHold{which: which, done: done, arrived: make(chan struct{}), release: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h.arrived
}

// holdNoMore lets further requests pass. Those that are held go on waiting.
func (p *storageProxy) holdNoMore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		h.which = nil
	}
}

// lose has the requests that are held, and not done, never arrive, and holds no more.
func (p *storageProxy) lose() {
	p.mu.Lock()
	for _, h := range p.holds {
		h.lost = true
	}
	p.mu.Unlock()
	p.letGo()
}

// letGo lets the requests go on that are held, and holds no more.
func (p *storageProxy) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		close(h.release)
	}
	p.holds = nil
}

// held returns what has a request wait, nil if nothing has.
func (p *storageProxy) held(r *http.Request) *storageHold {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		if h.which == nil || !h.which(r) {
			continue
		}
		select {
		case <-h.arrived:
		default:
			close(h.arrived)
		}
		return h
	}
	return nil
}
