package metrics

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
)

// Reasons why an attempt at a receiver, or a call of a store, failed.
const (
	reasonNone         = "none"         // it did not
	reasonUnauthorized = "unauthorized" // 401, 403, or no token for a call
	reasonNotFound     = "not_found"    // 404, 405, 410: the path, the container or the account
	reasonThrottled    = "throttled"    // 429
	reasonRetryAfter   = "retry_after"  // a receiver asked for a pause, with another status
	reasonServer       = "server_error" // 5xx
	reasonTimeout      = "timeout"
	reasonUnreachable  = "unreachable" // no connection: the name, the port or the way there
	reasonTLS          = "tls"         // no connection that could be trusted
	reasonClosed       = "closed"      // the connection broke off
	reasonCanceled     = "canceled"    // by us: the replica is stopping
	reasonOther        = "other"       // see the log
)

// reasons are those that an attempt can fail with.
var reasons = []string{
	reasonUnauthorized, reasonNotFound, reasonThrottled, reasonRetryAfter, reasonServer, reasonTimeout,
	reasonUnreachable, reasonTLS, reasonClosed, reasonCanceled, reasonOther,
}

// reasonOfStatus is why an attempt failed that was answered with an HTTP status, apart from those that are as their
// hundreds.
var reasonOfStatus = map[int]string{
	http.StatusUnauthorized:     reasonUnauthorized,
	http.StatusForbidden:        reasonUnauthorized,
	http.StatusNotFound:         reasonNotFound,
	http.StatusMethodNotAllowed: reasonNotFound,
	http.StatusGone:             reasonNotFound,
	http.StatusTooManyRequests:  reasonThrottled,
	http.StatusRequestTimeout:   reasonTimeout,
}

// reasonOf returns why something failed with err that was done under ctx. status is the HTTP status
// that was answered, 0 if there was no answer.
func reasonOf(ctx context.Context, err error, status int) string {
	switch reason, known := reasonOfStatus[status]; {
	case known:
		return reason
	case status >= 500:
		return reasonServer
	case status > 0:
		return reasonOther
	case ctx.Err() == context.Canceled:
		return reasonCanceled
	case isUntrusted(err):
		return reasonTLS
	case isUnreachable(err):
		return reasonUnreachable
	case ctx.Err() != nil || isTimeout(err):
		return reasonTimeout
	case isClosed(err):
		return reasonClosed
	}

	return reasonOther
}

// isUntrusted reports whether there was no connection that could be trusted.
func isUntrusted(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) ||
		errors.As(err, new(tls.RecordHeaderError)) ||
		errors.As(err, new(tls.AlertError)) ||
		errors.Is(err, http.ErrSchemeMismatch)
}

// isUnreachable reports whether there was no connection.
func isUnreachable(err error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" && errors.As(err, new(syscall.Errno)) {
		return true
	}
	return errors.As(err, new(*net.DNSError))
}

// isTimeout reports whether something took too long.
func isTimeout(err error) bool {
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// isClosed reports whether a connection broke off.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(syscall.Errno))
}
