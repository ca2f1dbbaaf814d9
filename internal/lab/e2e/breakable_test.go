//go:build unix

package e2e_test

import (
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"alertworker/internal/lab/emulators"
)

// A storageFault says what becomes of requests to a container.
type storageFault struct {
	container string // the beginning of its name
	kind      requestKind
	answers   answers
}

// A requestKind is of reads, writes or both.
type requestKind int

const (
	anything requestKind = iota
	reads
	writes
)

func (k requestKind) is(r *http.Request) bool {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	return k == anything || read == (k == reads)
}

// answers are how a request is answered.
type answers int

const (
	refused    answers = iota // 403, as with a role that is too small
	dropped                   // the connection is closed
	hanging                   // never
	oneInThree                // at random; the others are dropped
	later                     // 403, 20 minutes later by the service's clock
	after2s                   // as they should be, but late
	after5s
)

// unsaid is what a proxy says of requests that were given up, which is nothing.
var unsaid = log.New(io.Discard, "", 0)

// A breakableStorage is an account of Azurite behind a proxy that can break.
type breakableStorage struct {
	connectionString string
	fault            atomic.Pointer[storageFault] // nil: there is none
}

func newBreakableStorage(t *testing.T, azurite *emulators.Azurite) *breakableStorage {
	_, endpoint, _ := strings.Cut(azurite.ConnectionString, "BlobEndpoint=")
	endpoint, _, _ = strings.Cut(endpoint, ";")
	to, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p, stop := &breakableStorage{}, make(chan struct{})
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host },
		Transport: azurite.Transport(),
		ErrorLog:  unsaid,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := p.fault.Load()
		if f == nil || !f.kind.is(r) || !strings.Contains(r.URL.Path, "/"+f.container) {
			forward.ServeHTTP(w, r)
			return
		}
		switch f.answers {
		case refused:
			w.Header().Set("X-Ms-Error-Code", "AuthorizationPermissionMismatch")
			w.WriteHeader(http.StatusForbidden)
		case later:
			w.Header().Set("Date", time.Now().Add(20*time.Minute).UTC().Format(http.TimeFormat))
			w.Header().Set("X-Ms-Error-Code", "AuthenticationFailed")
			w.WriteHeader(http.StatusForbidden)
		case after2s, after5s:
			late := 2 * time.Second
			if f.answers == after5s {
				late = 5 * time.Second
			}
			select {
			case <-stop:
			case <-r.Context().Done():
			case <-time.After(late):
				forward.ServeHTTP(w, r)
			}
		case hanging:
			select {
			case <-stop:
			case <-r.Context().Done():
			}
		case oneInThree:
			if rand.IntN(3) == 0 {
				forward.ServeHTTP(w, r)
				return
			}
			panic(http.ErrAbortHandler)
		case dropped:
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stop) })
	p.connectionString = strings.Replace(azurite.ConnectionString, to.Scheme+"://"+to.Host, server.URL, 1)
	return p
}

// A line is a TCP connection to an address that can be cut.
type line struct {
	address string

	mu   sync.Mutex
	down bool
	open map[net.Conn]bool
}

func newLine(t *testing.T, to string) *line {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{address: listener.Addr().String(), open: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { l.serve(client, to) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.cut(true)
		serving.Wait()
	})
	return l
}

// cut ends all connections, and lets none through until it is called with false.
func (l *line) cut(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for c := range l.open {
		_ = c.Close()
	}
}

func (l *line) serve(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	l.mu.Lock()
	down := l.down
	l.open[client], l.open[server] = true, true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.open, client)
		delete(l.open, server)
	}()
	if down {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	_, _ = io.Copy(server, client)
	_ = server.Close()
	back.Wait()
}
