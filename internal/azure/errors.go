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
	isOfNoUse := errors.As(err, &never) && Answer(err).StatusCode == 0
	return !isOfNoUse && lease.Retry(ctx, try, Explain(err))
}

// Explain returns an error of an Azure SDK client with a one-line message that says what
// the service answered and what to do about it. The message contains no keys or
// signatures, which a URL may hold. The result wraps what is harmless in err: a *lease.Failure, an
// *azcore.ResponseError, a context's error, a net error.
func Explain(err error) error {
	if failure, ok := errors.AsType[*lease.Failure](err); ok { // it says itself what to do
		return failure
	}
	if resp, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return Explained(resp, resp.ErrorCode, Advice(Storage, resp.StatusCode, resp.ErrorCode))
	}
	link, ok := errors.AsType[*url.Error](err)
	if !ok {
		return err
	}

	// The service did not answer.
	host := "the service"
	if u, err := url.Parse(link.URL); err == nil {
		host = u.Host
	}

	f := &lease.Failure{
		Text:  fmt.Sprintf("no answer from %s: %v", host, link.Err),
		Err:   link.Err,
		Cause: lease.NoAnswer,
		Again: true,
		Hint:  lease.CheckAddress,
	}
	var dns *net.DNSError
	switch {
	case errors.As(link, &dns) && dns.IsNotFound:
		f.Text += ": check the account's name"
		f.Again = false
	case errors.As(link, new(*tls.CertificateVerificationError)):
		f.Text += ": " + Untrusted()
		f.Hint = nil
	case errors.As(link, new(*ProxyError)): // it says itself what to do
		f.Hint = nil
	}

	return f
}

// causes are what answers mean; that of 500 is for all above, too. Whatever is not here is wrong.
var causes = map[int]lease.Cause{
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

// statusRetryWith is how Cosmos DB says that a call should be repeated.
const statusRetryWith = 449

// missing are the codes of a 404 that says more than that there is no such blob or item.
var missing = []string{"ContainerNotFound", "ResourceNotFound"}

// pauses are the headers in which a service says how long to wait, and what they count. The last that there is counts.
var pauses = []struct {
	header string
	unit   time.Duration
}{
	{"Retry-After", time.Second},
	{"X-Ms-Retry-After-Ms", time.Millisecond},
	{"Retry-After-Ms", time.Millisecond},
}

// Explained returns the Failure of a service that has answered: its status, what the service adds to that, and what to do
// about it, which may be empty. If it refuses the credentials the text also says how far this machine's clock is from the
// service's, if that is far.
func Explained(answer *azcore.ResponseError, what, advice string) error {
	text := strings.TrimSpace(strconv.Itoa(answer.StatusCode) + " " + what)
	if advice != "" {
		text += ": " + advice
	}

	cause, ok := causes[min(answer.StatusCode, http.StatusInternalServerError)]
	if !ok || slices.Contains(missing, answer.ErrorCode) {
		cause = lease.Wrong
	}

	f := &lease.Failure{Text: text, Err: answer, Cause: cause, Status: answer.StatusCode}
	switch cause {
	case lease.Refused:
		f.Text = withClock(text, answer.RawResponse)
	case lease.Conflict:
		f.Again = true
	case lease.Busy:
		f.Again = true
		for _, p := range pauses {
			if n, err := strconv.Atoi(answer.RawResponse.Header.Get(p.header)); err == nil {
				f.After = time.Duration(n) * p.unit
			}
		}
	}

	return f
}

// Answer returns the service's answer that err wraps; a zero one if it did not answer.
func Answer(err error) *azcore.ResponseError {
	answer := &azcore.ResponseError{}
	errors.As(err, &answer)
	return answer
}
