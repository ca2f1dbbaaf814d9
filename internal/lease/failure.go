package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"alertworker/internal/backoff"
)

// A Cause is why a service did not do what a call asked for.
type Cause int

const (
	NoAnswer Cause = iota // none came, or none in time: it may have done it
	Conflict              // the record is not the one that the call was about any more
	Busy                  // it cannot now, or not yet
	Refused               // the credentials, or a rule about who may ask, are in the way
	Wrong                 // what it has, or how it is set up, has to be put right first
)

// A Failure is the error of a service that knows why. Whatever wraps none is NoAnswer, may be repeated, and hints at the
// service's address. Its text is one line, says what the service answered and what to do about it, and has no secrets.
type Failure interface {
	error
	Cause() Cause
	// Again reports whether the same call may fare better, and how long the service asks to wait before; 0: it does not.
	Again() (after time.Duration, ok bool)
	// Hint returns what to do besides what the text says, if variable has the service's address; empty: nothing.
	Hint(variable string) string
}

// CauseOf returns why a call failed with err.
func CauseOf(err error) Cause {
	var f Failure
	if errors.As(err, &f) {
		return f.Cause()
	}
	return NoAnswer
}

// IsRefused reports whether err is Refused.
func IsRefused(err error) bool { return CauseOf(err) == Refused }

const (
	maxTries = 6
	minPause = 50 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// Retry reports whether to repeat a call whose try-th try, counted from 0, failed with err. After a Conflict it does so at
// once. After no answer, or when the service was busy, it pauses before: shortly and for a random time, or for as long as
// the service asks for. It returns false after six tries, when a repeated call cannot fare better, and when ctx would end
// before the pause. OnFailedTry sees what is repeated for want of a useful answer.
func Retry(ctx context.Context, try int, err error) bool {
	var asked time.Duration
	again := true
	var f Failure
	if errors.As(err, &f) {
		asked, again = f.Again()
	}

	switch {
	case !again || try+1 >= maxTries || ctx.Err() != nil:
		return false
	case CauseOf(err) == Conflict:
		return true
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

// failedTry is the key of OnFailedTry in a context.
type failedTry struct{}

// OnFailedTry returns ctx for a call that tells failed of each try that got no useful answer and is about to be
// repeated: of such a call one hears nothing if it succeeds in the end. A conflict is an answer.
func OnFailedTry(ctx context.Context, failed func(error)) context.Context {
	return context.WithValue(ctx, failedTry{}, failed)
}

// Summary returns the part of err that says how the service is, without what it was asked: what
// it answered, or that it did not.
func Summary(err error) error {
	var f Failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("no answer in time")
	}

	return err
}

// AddHint adds to err what to do about it unless it says so itself: see Failure.Hint.
func AddHint(err error, variable string) error {
	if err == nil {
		return nil
	}

	hint := CheckAddress(variable)
	var f Failure
	if errors.As(err, &f) {
		hint = f.Hint(variable)
	}
	if hint == "" {
		return err
	}

	return fmt.Errorf("%w: %s", err, hint)
}

// CheckAddress is the Hint of a service that did not answer.
func CheckAddress(variable string) string {
	return "check the address in " + variable + " and whether this machine can connect to it"
}
