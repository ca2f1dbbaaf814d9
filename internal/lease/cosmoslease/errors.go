package cosmoslease

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// A ConfigError says what about the account, the database or the container must
// be put right before any call can succeed.
type ConfigError struct {
	Advice string
}

func (e *ConfigError) Error() string { return e.Advice }

// HTTPStatus returns the status that the service answers, or would.
func (e *ConfigError) HTTPStatus() int { return http.StatusNotFound }

// NonRetriable tells the SDK that repeating a call is of no use.
func (e *ConfigError) NonRetriable() {}

// It is a lease.Failure that says itself what to do.

func (e *ConfigError) Cause() lease.Cause           { return lease.Wrong }
func (e *ConfigError) Again() (time.Duration, bool) { return 0, false }
func (e *ConfigError) Hint(string) string           { return "" }

// errNoContainer says that the database or the container is not there.
var errNoContainer = &ConfigError{
	"404 Not Found, sub-status " + ownerResourceNotFound + ": the database or the container does not exist (any more): " +
		"the worker creates it if it may, else create it",
}

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
	answer := azure.Answer(err)
	switch {
	case errors.As(err, &config):
		return config
	case answer.StatusCode == 0:
		return azure.Explain(err)
	}

	text := fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	sub := answer.RawResponse.Header.Get(subStatus)
	if sub != "" && sub != "0" {
		text += ", sub-status " + sub
	}

	if answer.StatusCode == http.StatusNotFound && sub == ownerResourceNotFound {
		return errNoContainer
	}

	if advice := azure.Advice(azure.Cosmos, answer.StatusCode, sub); advice != "" {
		text += ": " + advice
	}

	return azure.Explained(text, answer)
}

// notFound says of an explained error that an item is not there, though its
// container is.
func notFound(err error) bool { return azure.Answer(err).StatusCode == http.StatusNotFound }
