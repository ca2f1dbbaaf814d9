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

// reasonOf returns why something failed with err that was done under ctx. status is the HTTP status
// that was answered, 0 if there was no answer.
func reasonOf(ctx context.Context, err error, status int) string {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return reasonUnauthorized
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusGone:
		return reasonNotFound
	case status == http.StatusTooManyRequests:
		return reasonThrottled
	case status == http.StatusRequestTimeout:
		return reasonTimeout
	case status >= 500:
		return reasonServer
	case status > 0:
		return reasonOther
	case ctx.Err() == context.Canceled:
		return reasonCanceled
	}

	var network net.Error
	var dial *net.OpError
	var errno syscall.Errno
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)),
		errors.As(err, new(tls.RecordHeaderError)),
		errors.As(err, new(tls.AlertError)),
		errors.Is(err, http.ErrSchemeMismatch):
		return reasonTLS

	case errors.As(err, new(*net.DNSError)), errors.As(err, &dial) && dial.Op == "dial" && errors.As(err, &errno):
		return reasonUnreachable

	case ctx.Err() != nil,
		errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &network) && network.Timeout():
		return reasonTimeout

	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &errno):
		return reasonClosed
	}

	return reasonOther
}
