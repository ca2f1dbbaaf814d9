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
// service's address.
type Failure struct {
	Text   string // one line that says what the service answered and what to do about it, without secrets
	Err    error  // what is harmless of the error behind it; may be nil
	Cause  Cause
	Status int           // the HTTP status that the service answered, or would have; 0: none
	Again  bool          // the same call may fare better
	After  time.Duration // for so long the service asks to wait before; 0: it does not
	// Hint returns what to do besides, if variable has the service's address. Nil: Text says all.
	Hint func(variable string) string
}

func (f *Failure) Error() string { return f.Text }
func (f *Failure) Unwrap() error { return f.Err }

// NewWrong returns the Failure of a service whose content or set-up has to be put right first.
func NewWrong(text string) *Failure { return &Failure{Text: text, Cause: Wrong} }

// failureOf returns the Failure that err wraps, or what stands for none.
func failureOf(err error) *Failure {
	f := &Failure{Cause: NoAnswer, Again: true, Hint: CheckAddress}
	errors.As(err, &f)
	return f
}

// CauseOf returns why a call failed with err.
func CauseOf(err error) Cause { return failureOf(err).Cause }

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
	f := failureOf(err)
	switch {
	case !f.Again || try+1 >= maxTries || ctx.Err() != nil:
		return false
	case f.Cause == Conflict:
		return true
	}

	pause := min(minPause<<try, maxPause)
	pause = max(pause+rand.N(pause), f.After)
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
	var f *Failure
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
	hint := failureOf(err).Hint
	if err == nil || hint == nil {
		return err
	}

	return fmt.Errorf("%w: %s", err, hint(variable))
}

// CheckAddress is the Hint of a service that did not answer.
func CheckAddress(variable string) string {
	return "check the address in " + variable + " and whether this machine can connect to it"
}
