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

// Again says, after a pause, whether to repeat a call whose try-th try, counted
// from 0, failed with err: at once after a conflict (404, 409, 412), after
// what Retry-After asks or else a short random pause when the service was busy or gave
// no answer. It says no after six tries, when repeating cannot help, and when
// ctx ends before the pause does.
func Again(ctx context.Context, try int, err error) bool {
	if try+1 >= maxTries || ctx.Err() != nil {
		return false
	}
	var missing *MissingError
	if errors.As(err, &missing) {
		return false
	}
	pause := min(minPause<<try, maxPause)
	pause += rand.N(pause)
	if resp := response(err); resp != nil {
		switch status := resp.StatusCode; {
		case status == http.StatusNotFound && notThere(code(err)):
			return false
		case status == http.StatusNotFound, status == http.StatusConflict, status == http.StatusPreconditionFailed:
			return true
		case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status == 449, status >= 500:
			pause = max(pause, retryAfter(resp))
		default:
			return false
		}
	} else if fruitless(err) {
		return false
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
		return false
	}
	return backoff.Sleep(ctx, pause)
}

// fruitless says that a call without an answer will have none the next time.
func fruitless(err error) bool {
	var never interface{ NonRetriable() }
	var dns *net.DNSError
	return errors.As(err, &never) || errors.As(err, &dns) && dns.IsNotFound
}

// retryAfter returns what the service asks to wait, or 0.
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

// Explain returns err, which an Azure SDK client returned, with a message of one line
// that says what the service answered and what to do about it. It names
// neither keys nor signatures, which an URL may hold. The result wraps what is
// harmless of err: an *azcore.ResponseError, a context's error, a net error.
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
	var resp *azcore.ResponseError
	var link *url.Error
	switch {
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
			text += ": is the account's name right?"
		}
		return &explained{text, link.Err}
	}
	return err
}

// advise returns what to do about an answer; empty if there is nothing to say.
func advise(status int, code string) string {
	switch {
	case code == "ContainerNotFound":
		return "the container does not exist (any more): the worker creates it if it may, else create it"
	case code == "ContainerBeingDeleted":
		return "the container is being deleted: wait a minute; the worker then creates it if it may"
	case code == "AccountIsDisabled":
		return "the storage account is disabled"
	case code == "AuthenticationFailed", status == http.StatusUnauthorized:
		return "the credentials were refused: check the account's name and its key, signature or identity"
	case code == "ResourceNotFound":
		return "the account or the resource does not exist: check the account's name"
	case status == http.StatusForbidden:
		return "not allowed: check the key, or whether the signature or identity may read, write and create (role Storage Blob Data Contributor), and whether the account's network rules admit this machine"
	}
	return ""
}

type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }

// response returns the service's answer that err tells of, or nil.
func response(err error) *http.Response {
	var resp *azcore.ResponseError
	if errors.As(err, &resp) {
		return resp.RawResponse
	}
	return nil
}

// code returns the service's code for err, or "".
func code(err error) string {
	var resp *azcore.ResponseError
	if errors.As(err, &resp) {
		return resp.ErrorCode
	}
	return ""
}

// notThere says of a 404's code that more is missing than one record.
func notThere(code string) bool { return code == "ContainerNotFound" || code == "ResourceNotFound" }
