package eventhubs_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/nettest"
	"alertworker/internal/records"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/transport"
)

// Without UseDevelopmentEmulator the hub is spoken to in TLS, for the name in the
// connection string.
func TestTLS(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil) // for its certificate, of example.com and 127.0.0.1
	defer certified.Close()
	trusting := certified.Client().Transport.(*http.Transport).TLSClientConfig
	h, err := devhub.Listen("127.0.0.1:0", devhub.Config{Partitions: 1, TLS: &tls.Config{Certificates: certified.TLS.Certificates}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Publish(devhub.Message{Device: "d", Body: []byte("a")}); err != nil {
		t.Fatal(err)
	}
	config := eventhubs.Config{ConnectionString: h.ConnectionString(), Start: eventhubs.Start{Earliest: true}, Records: &records.Memory{}}

	var unknown *tls.CertificateVerificationError
	if _, err := eventhubs.Probe(t.Context(), config, 1); !errors.As(err, &unknown) {
		t.Errorf("a certificate that nobody trusts: %v", err)
	}
	s, err := eventhubs.New(config)
	if err != nil {
		t.Fatal(err)
	}
	s.TrustTLS(trusting)
	got := receiveAll(t, s.Run, 1)
	if len(got["0"]) != 1 || string(got["0"][0].Body) != "a" {
		t.Errorf("got %+v", got)
	}

	config.ConnectionString = strings.Replace(config.ConnectionString, "127.0.0.1", "localhost", 1) // not in the certificate
	if s, err = eventhubs.New(config); err != nil {
		t.Fatal(err)
	}
	s.TrustTLS(trusting)
	if _, err := s.Ownerships(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Dial(t.Context()); !errors.As(err, &unknown) {
		t.Errorf("a certificate for another name: %v", err)
	}
}

// Where nothing gets out but HTTPS through a proxy, whose certificate authority is the
// company's, events are read over WebSockets.
func TestThroughAProxy(t *testing.T) {
	t.Parallel()
	const host = "ns.example"
	certificates := nettest.NewCertificates(t, host)
	h, err := devhub.Listen("127.0.0.1:0", devhub.Config{Partitions: 2, TLS: certificates.Server})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, partition := range []string{"0", "1"} {
		if _, err := h.Publish(devhub.Message{Device: "d", Partition: partition, Body: []byte("a")}); err != nil {
			t.Fatal(err)
		}
	}
	proxy := nettest.NewProxy(t, map[string]string{host + ":443": h.Addr()})
	s, err := eventhubs.New(eventhubs.Config{
		ConnectionString: strings.Replace(h.ConnectionString(), h.Addr(), host, 1), Transport: transport.WebSocket,
		Start: eventhubs.Start{Earliest: true}, Records: &records.Memory{},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.TrustTLS(certificates.Client)
	s.UseProxy(proxy.URL)
	got := receiveAll(t, s.Run, 2)
	if len(got["0"]) != 1 || len(got["1"]) != 1 {
		t.Errorf("got %+v", got)
	}
	if asked := proxy.Asked(); !slices.Equal(asked, []string{host + ":443"}) {
		t.Errorf("the proxy was asked for %q", asked)
	}
}

func TestAddress(t *testing.T) {
	for endpoint, want := range map[string]string{
		"sb://ns.servicebus.windows.net/":                 "ns.servicebus.windows.net:5671",
		"sb://ns.servicebus.windows.net:5555":             "ns.servicebus.windows.net:5555",
		"sb://localhost;UseDevelopmentEmulator=true":      "localhost:5672",
		"sb://127.0.0.1:5679;UseDevelopmentEmulator=true": "127.0.0.1:5679",
		"sb://[::1]:5679;UseDevelopmentEmulator=true":     "[::1]:5679",
	} {
		s, err := eventhubs.New(eventhubs.Config{ConnectionString: "SharedAccessKeyName=a;SharedAccessKey=b;EntityPath=h;Endpoint=" + endpoint, Records: &records.Memory{}})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Address(); got != want {
			t.Errorf("%s is at %s, want %s", endpoint, got, want)
		}
	}
}

// To connect takes no longer than its context.
func TestDialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never greets
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s, err := eventhubs.New(eventhubs.Config{ConnectionString: "Endpoint=sb://" + silent.Addr().String() + ";SharedAccessKeyName=a;SharedAccessKey=b;EntityPath=h", Records: &records.Memory{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		if c, err := silent.Accept(); err == nil {
			cancel()
			defer c.Close()
			_, _ = c.Read(make([]byte, 1<<10))
			_, _ = c.Read(make([]byte, 1<<10))
		}
	}()
	if _, err := s.Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the context was cancelled", err)
	}
	<-accepted
}
