package azure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"alertworker/internal/lease"
)

// ShouldRetry is lease.Retry of what err is to those who do not know Azure: see Explain. A conflict is a 404, 409 or 412.
func ShouldRetry(ctx context.Context, try int, err error) bool {
	var never interface{ NonRetriable() } // the SDK's own, which answers have too
	if Answer(err).StatusCode == 0 && errors.As(err, &never) {
		return false
	}

	return lease.Retry(ctx, try, Explain(err))
}

// statusRetryWith is how Cosmos DB says that a call should be repeated.
const statusRetryWith = 449

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
	if resp == nil {
		return 0
	}

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
	var failure lease.Failure // of another kind, which says itself what to do
	var resp *azcore.ResponseError
	var link *url.Error
	switch {
	case errors.As(err, new(*explained)):
		return err
	case errors.As(err, &failure):
		return failure
	case errors.As(err, &resp):
		return Explained(said(resp), resp)
	case errors.As(err, &link):
		return &explained{unanswered(link), link.Err}
	}

	return err
}

// said returns what a service answered and what to do about it.
func said(resp *azcore.ResponseError) string {
	text := strings.TrimSpace(strconv.Itoa(resp.StatusCode) + " " + resp.ErrorCode)
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

// Explained returns cause, which a service answered, with a text of one line that says what to do about it. If cause
// refuses the credentials it also says how far this machine's clock is from the service's, if that is far.
func Explained(text string, cause *azcore.ResponseError) error {
	return &explained{withClock(text, cause.RawResponse), cause}
}

// explained is a lease.Failure.
type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }

func (e *explained) Cause() lease.Cause {
	answer := Answer(e.cause)
	if cause, ok := causes[min(answer.StatusCode, http.StatusInternalServerError)]; ok && !slices.Contains(missing, answer.ErrorCode) {
		return cause
	}

	return lease.Wrong
}

// causes are what answers mean; that of 500 is for all above, too.
var causes = map[int]lease.Cause{
	0:                              lease.NoAnswer,
	http.StatusUnauthorized:        lease.Refused,
	http.StatusForbidden:           lease.Refused,
	http.StatusNotFound:            lease.Conflict, // others have changed what a call was about
	http.StatusConflict:            lease.Conflict,
	http.StatusPreconditionFailed:  lease.Conflict,
	http.StatusRequestTimeout:      lease.Busy, // it may do better soon
	http.StatusTooManyRequests:     lease.Busy,
	statusRetryWith:                lease.Busy,
	http.StatusInternalServerError: lease.Busy,
}

// missing are the codes of a 404 that says more than that there is no such blob or item.
var missing = []string{"ContainerNotFound", "ResourceNotFound"}

func (e *explained) Again() (after time.Duration, ok bool) {
	switch e.Cause() {
	case lease.Conflict:
		return 0, true
	case lease.Busy:
		return retryAfter(Answer(e.cause).RawResponse), true
	case lease.NoAnswer:
		return 0, !unknownHost(e.cause)
	}

	return 0, false
}

// Hint implements lease.Failure: an answer says itself what to do, and so do a proxy and a certificate.
func (e *explained) Hint(variable string) string {
	proxy, certificate := new(*ProxyError), new(*tls.CertificateVerificationError)
	if e.Cause() != lease.NoAnswer || errors.As(e.cause, proxy) || errors.As(e.cause, certificate) {
		return ""
	}

	return lease.CheckAddress(variable)
}

// HTTPStatus returns the status that the service answered, 0 if there was no answer. It is
// for metrics, which know no Azure.
func (e *explained) HTTPStatus() int { return Answer(e.cause).StatusCode }

// Answer returns the service's answer that err wraps; a zero one if it did not answer.
func Answer(err error) *azcore.ResponseError {
	answer := &azcore.ResponseError{}
	errors.As(err, &answer)
	return answer
}
