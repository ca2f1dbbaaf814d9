package azure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"alertworker/internal/backoff"
)

const (
	maxTries = 6
	minPause = 50 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// ShouldRetry reports whether to retry a call whose try-th try, counted from 0, failed with
// err. After a conflict (404, 409, 412) it does so at once. When the service was busy or did
// not answer, it pauses before: shortly and for a random time, or as Retry-After asks for. It
// returns false after six tries, when a retry cannot help, after a try that had the most time that one gets, and when
// ctx would end before the pause. OnFailedTry sees what is retried for want of a useful answer.
func ShouldRetry(ctx context.Context, try int, err error) bool {
	if try+1 >= maxTries || ctx.Err() != nil || errors.As(err, new(*MissingError)) {
		return false
	}

	var asked time.Duration // for a pause, by the service
	answer := Answer(err)
	switch {
	case answer.RawResponse == nil && permanent(err):
		return false
	case answer.RawResponse == nil: // none came
	case conflict(answer):
		return true
	case !busy(answer.StatusCode):
		return false
	default:
		asked = retryAfter(answer.RawResponse)
	}

	pause := min(minPause<<try, maxPause)
	pause = max(pause+rand.N(pause), asked)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
		return false
	}

	if failed, ok := ctx.Value(failedTry{}).(func(error)); ok {
		failed(err)
	}

	return backoff.Sleep(ctx, pause)
}

// conflict reports whether others have changed what a call was about, so that it may succeed when it has looked again.
func conflict(answer *azcore.ResponseError) bool {
	switch answer.StatusCode {
	case http.StatusNotFound:
		return answer.ErrorCode != "ContainerNotFound" && answer.ErrorCode != "ResourceNotFound"
	case http.StatusConflict, http.StatusPreconditionFailed:
		return true
	}

	return false
}

// statusRetryWith is how Cosmos DB says that a call should be repeated.
const statusRetryWith = 449

// busy reports whether a service that answers with this status may do better soon.
func busy(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, statusRetryWith:
		return true
	}

	return status >= http.StatusInternalServerError
}

// failedTry is the key of OnFailedTry in a context.
type failedTry struct{}

// OnFailedTry returns ctx for a call that tells failed of each try that got no useful answer and is about to be
// retried: of such a call one hears nothing if it succeeds in the end. A conflict is an answer.
func OnFailedTry(ctx context.Context, failed func(error)) context.Context {
	return context.WithValue(ctx, failedTry{}, failed)
}

// permanent reports whether a retry of a call that got no answer cannot help.
func permanent(err error) bool {
	var never interface{ NonRetriable() }
	var slow *SlowError
	return errors.As(err, &never) || unknownHost(err) || errors.As(err, &slow) && slow.Limit >= maxTry
}

// unknownHost reports whether a service has no address.
func unknownHost(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

// pauses are the headers in which a service says how long to wait, and what they count.
var pauses = []struct {
	header string
	unit   time.Duration
}{
	{"Retry-After-Ms", time.Millisecond},
	{"X-Ms-Retry-After-Ms", time.Millisecond},
	{"Retry-After", time.Second},
}

// retryAfter returns how long the service asks to wait, or 0.
func retryAfter(resp *http.Response) time.Duration {
	for _, p := range pauses {
		if n, err := strconv.Atoi(resp.Header.Get(p.header)); err == nil {
			return time.Duration(n) * p.unit
		}
	}

	return 0
}

// Explain returns an error of an Azure SDK client with a one-line message that says what
// the service answered and what to do about it. The message contains no keys or
// signatures, which a URL may hold. The result wraps what is harmless in err: an
// *azcore.ResponseError, a context's error, a net error.
func Explain(err error) error {
	var already *explained
	if errors.As(err, &already) {
		return err
	}

	var identity *IdentityError // which may wrap what the identity's own service answered
	if errors.As(err, &identity) {
		return identity
	}

	var refused readOnlyError
	if errors.As(err, &refused) {
		return refused
	}

	var resp *azcore.ResponseError
	if errors.As(err, &resp) {
		return Explained(said(resp), resp)
	}

	var link *url.Error
	var slow *SlowError
	switch {
	case errors.As(err, &slow):
		return &explained{slow.Error(), slow}
	case errors.As(err, &link):
		return &explained{unanswered(link), link.Err}
	}

	return err
}

// said returns what a service answered and what to do about it.
func said(resp *azcore.ResponseError) string {
	text := strconv.Itoa(resp.StatusCode)
	if resp.ErrorCode != "" {
		text += " " + resp.ErrorCode
	}

	if advice := Advice(Storage, resp.StatusCode, resp.ErrorCode); advice != "" {
		text += ": " + advice
	}

	return text
}

// unanswered returns which service did not answer, and why.
func unanswered(link *url.Error) string {
	host := "the service"
	if u, err := url.Parse(link.URL); err == nil {
		host = u.Host
	}

	text := fmt.Sprintf("no answer from %s: %v", host, link.Err)
	switch {
	case unknownHost(link):
		text += ": check the account's name"
	case errors.As(link.Err, new(*tls.CertificateVerificationError)):
		text += ": " + Untrusted()
	}

	return text
}

// AddHint adds to the error of a service that did not answer which variable has its address, unless it was seen
// that there is a service at that address. What a service answered says itself what to do (Explain), and so do the
// lack of a token, a proxy, a certificate, and what no retry can mend.
func AddHint(err error, variable string) error {
	var slow *SlowError
	if errors.As(err, &slow) && slow.Connected {
		return fmt.Errorf("%w: it is slow, or the network is: check its latency in Azure's metrics, and proxies in between", err)
	}

	var settled interface{ NonRetriable() }
	says := errors.As(err, &settled) || errors.As(err, new(*MissingError)) || errors.As(err, new(*IdentityError)) ||
		errors.As(err, new(*ProxyError)) || errors.As(err, new(*tls.CertificateVerificationError))
	if err == nil || says || Answer(err).StatusCode != 0 {
		return err
	}

	return fmt.Errorf("%w: check the address in %s and whether this machine can connect to it", err, variable)
}

// Summary returns the part of err that says how the service is, without what it was asked: what
// it answered, or that it did not.
func Summary(err error) error {
	var known *explained
	var missing *MissingError
	var none *IdentityError
	var slow *SlowError
	switch {
	case errors.As(err, &slow):
		return Explain(slow)
	case errors.As(err, &missing):
		return missing
	case errors.As(err, &none):
		return none
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("no answer in time")
	}

	return Explain(err)
}

// Refused reports whether a service refused the credentials, or there are none.
func Refused(err error) bool {
	status := Answer(err).StatusCode
	return errors.As(err, new(*IdentityError)) || status == http.StatusUnauthorized || status == http.StatusForbidden
}

// Explained returns cause, which a service answered, with a text of one line that says what to do about it. If cause
// refuses the credentials it also says how far this machine's clock is from the service's, if that is far.
func Explained(text string, cause *azcore.ResponseError) error {
	return &explained{withClock(text, cause.RawResponse), cause}
}

type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }

// HTTPStatus returns the status that the service answered, 0 if there was no answer. It is
// for metrics, which know no Azure.
func (e *explained) HTTPStatus() int { return Answer(e.cause).StatusCode }

// Answer returns what the service answered, of which err tells; a zero one if it did not answer.
func Answer(err error) *azcore.ResponseError {
	answer := &azcore.ResponseError{}
	errors.As(err, &answer)
	return answer
}
