package cosmoslease

import (
	"errors"
	"net/http"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// errNoContainer says that the database or the container is not there.
var errNoContainer = misconfigured("404 Not Found, sub-status " + ownerResourceNotFound + ": the database or the container does " +
	"not exist (any more): the worker creates it if it may, else create it")

// misconfigured returns the Failure that says what about the account, the database or the container must be put right
// before any call can succeed.
func misconfigured(advice string) *lease.Failure {
	f := lease.NewWrong(advice)
	f.Status = http.StatusNotFound // as the service answers, or would
	return f
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
	answer := azure.Answer(err)
	if answer.StatusCode == 0 || errors.As(err, new(*lease.Failure)) {
		return azure.Explain(err)
	}

	sub := answer.RawResponse.Header.Get(subStatus)
	if answer.StatusCode == http.StatusNotFound && sub == ownerResourceNotFound {
		return errNoContainer
	}

	what := http.StatusText(answer.StatusCode)
	if sub != "" && sub != "0" {
		what += ", sub-status " + sub
	}

	return azure.Explained(answer, what, azure.Advice(azure.Cosmos, answer.StatusCode, sub))
}
