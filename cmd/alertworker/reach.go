package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"alertworker/internal/config"
)

// reachTimeout is for a connection to a receiver.
const reachTimeout = 10 * time.Second

// reach connects to the receiver at raw and hangs up without a request, which
// might be more than a receiver expects. It returns what that showed. Its
// errors hold nothing of raw.
func reach(ctx context.Context, raw string) (string, error) {
	if !config.IsWeb(raw) {
		return "needs no connection; it is on you to read it", nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "", errors.New("is not a URL")
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err != nil {
		return "", errors.New("HTTP_PROXY or HTTPS_PROXY is not a URL")
	} else if proxy != nil {
		if err := dial(ctx, proxy); err != nil {
			return "", fmt.Errorf("the proxy of HTTP_PROXY or HTTPS_PROXY: %w", err)
		}
		return "its proxy can be reached; what is behind it only --notify can tell", nil
	}
	if err := dial(ctx, u); err != nil {
		return "", err
	}
	return "can be reached; no alert was sent, --notify sends one", nil
}

// dial connects to u's host and hangs up.
func dial(ctx context.Context, u *url.URL) error {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	address := net.JoinHostPort(u.Hostname(), port)
	var conn net.Conn
	var err error
	if u.Scheme == "https" {
		conn, err = new(tls.Dialer).DialContext(ctx, "tcp", address)
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	if err != nil {
		return unreachable(err)
	}
	_ = conn.Close()
	return nil
}

// unreachable says why there is no connection, in words that hold no address.
func unreachable(err error) error {
	var dns *net.DNSError
	var errno syscall.Errno
	var network net.Error
	switch {
	case errors.As(err, &dns):
		return errors.New("the host cannot be found: check its name, and that this machine can resolve names")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("nothing listens there: is the receiver up, are host and port right?")
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return errors.New("its certificate is not trusted: is the host right, does a proxy intercept TLS, is its authority installed here?")
	case errors.As(err, new(tls.RecordHeaderError)):
		return errors.New("it does not speak TLS: should it be http://?")
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return errors.New("no connection in time: does a firewall or a private network keep this machine out?")
	case errors.As(err, &errno):
		return fmt.Errorf("no connection: %w", errno)
	}
	return errors.New("no connection: it hung up at once")
}
