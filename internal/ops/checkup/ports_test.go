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

// Who cannot connect to a hub is told which port is open, and what to set.
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
		want  string // behind the error; empty for nothing
	}{
		"only WebSockets": {"443", syscall.ECONNREFUSED, false, "port 5671 is not open from here, but port 443 is: set EVENTHUB_TRANSPORT=websocket"},
		"only AMQP":       {"5671", syscall.ECONNREFUSED, false, "port 443 is not open from here, but port 5671 is: set EVENTHUB_TRANSPORT=amqp"},
		"both":            {"443 5671", syscall.ECONNREFUSED, false, "ports 5671 and 443 are open now: try again"},
		"none":            {"", syscall.ECONNREFUSED, false, "neither port 5671 nor port 443 is open from here"},
		"no such host":    {"", &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}, false, ""},
		"emulator":        {"443 5671", syscall.ECONNREFUSED, true, ""},
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
			failed := &transport.DialError{Address: a, Err: test.err}
			got := withPorts(t.Context(), failed)
			if !errors.Is(got, test.err) || (test.want == "") != (got == error(failed)) || !strings.Contains(got.Error(), test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	other := errors.New("answered")
	if got := withPorts(t.Context(), other); got != other {
		t.Errorf("an answer of the hub became %q", got)
	}
}
