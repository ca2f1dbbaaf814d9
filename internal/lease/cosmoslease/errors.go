package cosmoslease

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"alertworker/internal/azure"
)

// A ConfigError says what about the account, the database or the container must
// be put right before any call can succeed.
type ConfigError struct {
	Advice string
}

func (e *ConfigError) Error() string { return e.Advice }

// HTTPStatus returns the status that the service answers, or would.
func (e *ConfigError) HTTPStatus() int { return http.StatusNotFound }

// NonRetriable tells the SDK and azure.ShouldRetry that repeating a call is of no use.
func (e *ConfigError) NonRetriable() {}

// errNoContainer says that the database or the container is not there.
var errNoContainer = &ConfigError{"404 Not Found, sub-status " + ownerResourceNotFound + ": the database or the container does not exist (any more): the worker creates it if it may, else create it"}

const (
	// subStatus tells answers of one status apart.
	subStatus             = "X-Ms-Substatus"
	ownerResourceNotFound = "1003"
	// readSessionNotAvailable says of a 404 that the replica which was asked is older than the session token.
	readSessionNotAvailable = "1002"
)

// explain returns err, which the SDK returned, with a message of one line that
// says what the service answered and what to do about it, and names no
// secrets. The result wraps what azure.ShouldRetry looks for.
func explain(err error) error {
	if err == nil {
		return nil
	}
	var config *ConfigError
	var resp *azcore.ResponseError
	switch {
	case errors.As(err, &config):
		return config
	case !errors.As(err, &resp):
		return azure.Explain(err)
	}
	text := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	sub := ""
	if resp.RawResponse != nil {
		sub = resp.RawResponse.Header.Get(subStatus)
	}
	if sub != "" && sub != "0" {
		text += ", sub-status " + sub
	}
	switch {
	case resp.StatusCode == http.StatusNotFound && sub == ownerResourceNotFound:
		return errNoContainer
	case resp.StatusCode == http.StatusUnauthorized:
		text += ": the credentials were refused: check the account's address and its key or identity"
	case resp.StatusCode == http.StatusForbidden:
		text += ": not allowed: an identity needs the role Cosmos DB Built-in Data Contributor, the account's network rules must admit this machine, and this machine's clock must be right"
	case resp.StatusCode == http.StatusTooManyRequests:
		text += ": the container's throughput is used up: raise it if this lasts"
	}
	return &answerError{text, resp}
}

// An answerError is an answer of the service that is an error.
type answerError struct {
	text  string
	cause *azcore.ResponseError
}

func (e *answerError) Error() string { return e.text }
func (e *answerError) Unwrap() error { return e.cause }

// HTTPStatus returns the status that the service answered.
func (e *answerError) HTTPStatus() int { return e.cause.StatusCode }

// status returns the status of the service's answer that err tells of, or 0.
func status(err error) int {
	var resp *azcore.ResponseError
	if errors.As(err, &resp) {
		return resp.StatusCode
	}
	return 0
}

// notFound says of an explained error that an item is not there, though its
// container is.
func notFound(err error) bool { return status(err) == http.StatusNotFound }
