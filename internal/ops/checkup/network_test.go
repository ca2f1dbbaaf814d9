package checkup

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/nettest"
	"alertworker/internal/telemetry/transport"
)

// Who cannot connect to a hub is told if the other port is open, and what to set.
func TestPorts(t *testing.T) {
	t.Parallel()
	const host = "ns.example"
	certificates := nettest.NewCertificates(t, host)
	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{TLS: certificates.Server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Close() })

	for name, test := range map[string]struct {
		open  string // ports
		err   error
		plain bool
		by    transport.Transport
		want  string // behind the error; empty for nothing
	}{
		"only WebSockets": {"443", syscall.ECONNREFUSED, false, transport.AMQP, "port 5671 is not open from here, but port 443 is: set EVENTHUB_TRANSPORT=websocket"},
		"only AMQP":       {"5671", syscall.ECONNREFUSED, false, transport.WebSocket, "port 443 is not open from here, but port 5671 is: set EVENTHUB_TRANSPORT=amqp"},
		"none":            {"", syscall.ECONNREFUSED, false, transport.AMQP, ""},
		"no such host":    {"", &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}, false, transport.AMQP, ""},
		"emulator":        {"443 5671", syscall.ECONNREFUSED, true, transport.AMQP, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := transport.EventHubs(host)
			a.Plain = test.plain
			a.Network = transport.Network{TLS: certificates.Client, Connect: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if _, port, _ := net.SplitHostPort(addr); !strings.Contains(test.open, port) {
					return nil, test.err
				}
				return new(net.Dialer).DialContext(ctx, network, hub.Addr())
			}}
			failed := &transport.DialError{Address: a, Transport: test.by, Err: test.err}
			got := withOtherPort(t.Context(), failed)
			if !errors.Is(got, test.err) || (test.want == "") != (got == error(failed)) || !strings.Contains(got.Error(), test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	other := errors.New("answered")
	if got := withOtherPort(t.Context(), other); got != other {
		t.Errorf("an answer of the hub became %q", got)
	}
}
