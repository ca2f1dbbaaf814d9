// Package nettest has for tests what stands between a worker and its services in a
// company's network: a certificate authority that nobody else trusts, and an HTTP proxy.
package nettest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// Certificates are a certificate for one host, made by an authority of its own.
type Certificates struct {
	Server *tls.Config // for the host
	Client *tls.Config // for who trusts the authority
	PEM    []byte      // the authority's certificate
}

// NewCertificates returns certificates for a host.
func NewCertificates(t testing.TB, host string) Certificates {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: host},
		DNSNames:              []string{host},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}

	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	roots := x509.NewCertPool()
	roots.AddCert(certificate)

	return Certificates{
		Server: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}},
		Client: &tls.Config{RootCAs: roots},
		PEM:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}
}

// A Proxy is an HTTP proxy that connects to some addresses and refuses all others.
type Proxy struct {
	URL *url.URL // with user and password, which it requires

	known map[string]string
	mu    sync.Mutex
	asked []string
}

// User and Password are those of every Proxy.
const (
	User     = "proxy-user"
	Password = "proxy-pa55word"
)

// NewProxy starts a Proxy for the addresses in known: what clients ask for, and where
// that is. With a certificate for localhost it speaks TLS, at that name.
func NewProxy(t testing.TB, known map[string]string, localhost ...Certificates) *Proxy {
	t.Helper()
	p := &Proxy{known: known}
	server := httptest.NewUnstartedServer(p)

	if len(localhost) > 0 {
		server.TLS = localhost[0].Server
		server.StartTLS()
	} else {
		server.Start()
	}

	t.Cleanup(server.Close)
	var err error
	if p.URL, err = url.Parse(server.URL); err != nil {
		t.Fatal(err)
	}

	p.URL.User = url.UserPassword(User, Password)
	if len(localhost) > 0 {
		p.URL.Host = net.JoinHostPort("localhost", p.URL.Port())
	}

	return p
}

// Asked returns what clients have asked for, sorted, each once.
func (p *Proxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(p.asked)))
}

// ServeHTTP connects a client.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Host)
	p.mu.Unlock()

	r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization"))
	if user, password, ok := r.BasicAuth(); !ok || user != User || password != Password {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}

	address, ok := p.known[r.Host]
	if r.Method != http.MethodConnect || !ok {
		w.WriteHeader(http.StatusForbidden)
		return
	}

	there, err := net.Dial("tcp", address)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer there.Close()

	here, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer here.Close()

	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(there, buffered)
		_ = there.Close()
	}()

	_, _ = io.Copy(here, there)
	_ = here.Close()
	<-done
}
