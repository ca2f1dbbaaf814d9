package metrics

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
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

// causes are why there was no answer, by what the error has; the first that fits counts.
var causes = []cause{
	{reasonTLS, as[*tls.CertificateVerificationError]},
	{reasonTLS, as[tls.RecordHeaderError]},
	{reasonTLS, as[tls.AlertError]},
	{reasonTLS, is(http.ErrSchemeMismatch)},
	{reasonUnreachable, isDial},
	{reasonUnreachable, as[*net.DNSError]},
	{reasonTimeout, isTimeout},
	{reasonTimeout, is(context.DeadlineExceeded)},
	{reasonTimeout, is(os.ErrDeadlineExceeded)},
	{reasonClosed, is(io.EOF)},
	{reasonClosed, is(io.ErrUnexpectedEOF)},
	{reasonClosed, as[syscall.Errno]},
}

type cause struct {
	reason string
	is     func(error) bool
}

// as reports whether an error has one of type E.
func as[E error](err error) bool { return errors.As(err, new(E)) }

// is returns what reports whether an error is target.
func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// isDial reports whether the system had no connection.
func isDial(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" && as[syscall.Errno](err)
}

// isTimeout reports whether the network took too long.
func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
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
	}

	err = errors.Join(err, ctx.Err())
	if i := slices.IndexFunc(causes, func(c cause) bool { return c.is(err) }); i >= 0 {
		return causes[i].reason
	}

	return reasonOther
}
