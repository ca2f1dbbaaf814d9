package checkup

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"alertworker/internal/azure"
	"alertworker/internal/telemetry/transport"
)

// reachTimeout is for a connection to a receiver.
const reachTimeout = 10 * time.Second

// reach connects to the host of u and disconnects without sending a request,
// which a receiver might take for an alert. It returns what that showed. Its error is a statement if there is nothing
// to connect to, and undecided if only the proxy was reached. Errors hold nothing of u but host and port.
func reach(ctx context.Context, u *url.URL) (string, error) {
	if u == nil {
		return "", statement("needs no connection; alerts are only written to the log")
	}

	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()

	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if err != nil {
		return "", errors.New("HTTP_PROXY or HTTPS_PROXY is not a URL")
	}

	if proxy == nil {
		return "can be reached; no alert was sent (--notify sends one)", dial(ctx, u)
	}

	if err := dial(ctx, proxy); err != nil {
		return "", fmt.Errorf("the proxy of HTTP_PROXY or HTTPS_PROXY: %w", err)
	}

	return "", undecided("its proxy can be reached; only --notify shows whether the receiver can")
}

// ports are those of URLs without one.
var ports = map[string]string{"http": "80", "https": "443", "smtp": "587", "smtps": "465"}

// dial connects to u's host and disconnects.
func dial(ctx context.Context, u *url.URL) error {
	plain, encrypted := strings.CutSuffix(u.Scheme, "s")
	connect := new(net.Dialer).DialContext
	if encrypted {
		connect = new(tls.Dialer).DialContext
	}

	conn, err := connect(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), ports[u.Scheme])))
	switch {
	case err == nil:
		return conn.Close()
	case errors.As(err, new(tls.RecordHeaderError)):
		return fmt.Errorf("it does not use TLS: should the URL start with %s://?", plain)
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return errors.New("its certificate is not trusted: " + azure.Untrusted())
	case errors.As(err, new(*net.DNSError)):
		return errors.New("host not found: check its name and whether this machine can resolve names")
	}

	return fmt.Errorf("%w: check its host and port, and whether this machine may connect to it", err) // names no more than these
}

// portTimeout is what withOtherPort takes at most, as long as Dial.
const portTimeout = 10 * time.Second

// withOtherPort adds to err, if there was no connection to a hub, that the other transport reaches it.
func withOtherPort(ctx context.Context, err error) error {
	var failed *transport.DialError
	if !errors.As(err, &failed) || failed.Address.Plain {
		return err
	}

	other := transport.WebSocket
	if failed.Transport == other {
		other = transport.AMQP
	}

	conn, refused := other.Dial(ctx, failed.Address)
	if refused != nil {
		return err
	}

	_ = conn.Close()
	_, closed := failed.Address.HostPort(failed.Transport)
	_, open := failed.Address.HostPort(other)

	return fmt.Errorf(
		"%w; port %s is not open from here, but port %s is: set EVENTHUB_TRANSPORT=%s",
		err,
		closed,
		open,
		other,
	)
}

// malformedProxy returns an error for a variable that should name a proxy and does not: connections go past the
// proxy, or to another. The error does not hold the value, which may have a password.
func malformedProxy() error {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		if !strings.Contains(value, "//") {
			value = "http://" + value
		}

		u, err := url.Parse(value)
		if err != nil || u.Hostname() == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
			return fmt.Errorf("%s is not the URL of a proxy: write http://HOST:PORT", name)
		}
	}

	return nil
}
