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

	mu      sync.Mutex
	which   func(*http.Request) bool // these are held; nil: none
	done    bool                     // they are done at once, though not answered
	arrived chan struct{}            // closed when one is held
	release chan struct{}            // closed: they are done, if they were not, and answered; nil: none are held
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
		release, done := p.held(r)
		if release == nil {
			forward.ServeHTTP(w, r)
			return
		}
		if done {
			answer := httptest.NewRecorder()
			forward.ServeHTTP(answer, r)
			<-release
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
			return
		}
		<-release
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
// closed when there is one.
func (p *storageProxy) hold(done bool, which func(*http.Request) bool) (arrived <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.which, p.done, p.arrived, p.release = which, done, make(chan struct{}), make(chan struct{})
	return p.arrived
}

// holdNoMore lets further requests pass. Those that are held go on waiting.
func (p *storageProxy) holdNoMore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.which = nil
}

// letGo lets the requests go on that are held, and holds no more.
func (p *storageProxy) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.release != nil {
		close(p.release)
		p.which, p.release = nil, nil
	}
}

// held returns what a request has to wait for, nil if it need not wait.
func (p *storageProxy) held(r *http.Request) (release <-chan struct{}, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.which == nil || !p.which(r) {
		return nil, false
	}
	select {
	case <-p.arrived:
	default:
		close(p.arrived)
	}
	return p.release, p.done
}
