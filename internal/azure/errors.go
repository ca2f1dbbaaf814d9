package azure

import (
	"context"
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

// ShouldRetry pauses and then reports whether to retry a call whose try-th try, counted
// from 0, failed with err. After a conflict (404, 409, 412), or when the service was
// busy or did not answer, the pause is short and random, or what Retry-After asks for. It
// returns false after six tries, when a retry cannot help, and when ctx would end
// before the pause. OnFailedTry sees what is retried for want of a useful answer.
func ShouldRetry(ctx context.Context, try int, err error) bool {
	if try+1 >= maxTries || ctx.Err() != nil || errors.As(err, new(*MissingError)) {
		return false
	}

	pause := min(minPause<<try, maxPause)
	pause += rand.N(pause)

	if answer := Answer(err); answer.RawResponse != nil {
		noContainer := answer.ErrorCode == "ContainerNotFound" || answer.ErrorCode == "ResourceNotFound"
		switch status := answer.StatusCode; {
		case status == http.StatusNotFound && noContainer:
			return false
		case status == http.StatusNotFound, status == http.StatusConflict, status == http.StatusPreconditionFailed:
			return true
		case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status == 449, status >= 500:
			pause = max(pause, retryAfter(answer.RawResponse))
		default:
			return false
		}
	} else if permanent(err) {
		return false
	}

	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
		return false
	}

	if failed, ok := ctx.Value(failedTry{}).(func(error)); ok {
		failed(err)
	}

	return backoff.Sleep(ctx, pause)
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
	var dns *net.DNSError
	return errors.As(err, &never) || errors.As(err, &dns) && dns.IsNotFound
}

// retryAfter returns how long the service asks to wait, or 0.
func retryAfter(resp *http.Response) time.Duration {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, err := strconv.Atoi(resp.Header.Get(name)); err == nil {
			return time.Duration(ms) * time.Millisecond
		}
	}

	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		return time.Duration(s) * time.Second
	}

	return 0
}

// Explain returns an error of an Azure SDK client with a one-line message that says what
// the service answered and what to do about it. The message contains no keys or
// signatures, which a URL may hold. The result wraps what is harmless in err: an
// *azcore.ResponseError, a context's error, a net error.
func Explain(err error) error {
	if err == nil {
		return nil
	}

	var already *explained
	if errors.As(err, &already) {
		return err
	}

	var identity *IdentityError // which may wrap what the identity's own service answered
	if errors.As(err, &identity) {
		return identity
	}

	var refused readOnlyError
	var resp *azcore.ResponseError
	var link *url.Error
	switch {
	case errors.As(err, &refused):
		return refused

	case errors.As(err, &resp):
		text := strconv.Itoa(resp.StatusCode)
		if resp.ErrorCode != "" {
			text += " " + resp.ErrorCode
		}

		if advice := advise(resp.StatusCode, resp.ErrorCode); advice != "" {
			text += ": " + advice
		}

		return &explained{text, resp}

	case errors.As(err, &link):
		host := "the service"
		if u, e := url.Parse(link.URL); e == nil {
			host = u.Host
		}

		text := fmt.Sprintf("no answer from %s: %v", host, link.Err)
		var dns *net.DNSError
		if errors.As(err, &dns) && dns.IsNotFound {
			text += ": check the account's name"
		}

		return &explained{text, link.Err}
	}

	return err
}

// AddHint adds to the error of a service that did not answer which variable has its address.
// What a service answered says itself what to do (Explain), and so does the lack of a token.
func AddHint(err error, variable string) error {
	if err == nil || Answer(err).StatusCode != 0 || errors.As(err, new(*MissingError)) ||
		errors.As(err, new(*IdentityError)) {
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
	switch {
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

// advise returns what to do about an answer; may be empty.
func advise(status int, code string) string {
	switch {
	case code == "ContainerNotFound":
		return "the container does not exist: the worker creates it if permitted; otherwise create it"
	case code == "ContainerBeingDeleted":
		return "the container is being deleted: wait a minute; the worker then creates it if permitted"
	case code == "AccountIsDisabled":
		return "the storage account is disabled"
	case code == "AuthenticationFailed", status == http.StatusUnauthorized:
		return "the credentials were rejected: check the account's name and its key, signature or identity"
	case code == "ResourceNotFound":
		return "the account or the resource does not exist: check the account's name"
	case status == http.StatusForbidden:
		return "not permitted: check the key, or that the signature or identity can read, write and create (role Storage " +
			"Blob Data Contributor), and that the account's network rules allow this machine"
	}

	return ""
}

// Explained returns cause, which a service answered, with a text of one line that says what to do about it.
func Explained(text string, cause *azcore.ResponseError) error { return &explained{text, cause} }

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
