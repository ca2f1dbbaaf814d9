package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
)

// answered is what a service answered.
type answered struct {
	cause lease.Cause
	after time.Duration
}

func (answered) Error() string        { return "full: raise its limit" }
func (a answered) Cause() lease.Cause { return a.cause }
func (a answered) Again() (time.Duration, bool) {
	return a.after, a.cause != lease.Refused && a.cause != lease.Wrong
}
func (answered) Hint(string) string { return "" }

// How a call goes on depends on what came of it.
func TestRetry(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name     string
		err      error
		try      int
		want     bool
		min, max time.Duration // of the pause
	}{
		{"no answer", errors.New("reset"), 0, true, 50 * ms, 100 * ms},
		{"no answer, again", errors.New("reset"), 3, true, 400 * ms, 800 * ms},
		{"six tries", errors.New("reset"), 5, false, 0, 0},
		{"conflict", fmt.Errorf("write: %w", answered{cause: lease.Conflict}), 4, true, 0, 0},
		{"busy", answered{cause: lease.Busy}, 0, true, 50 * ms, 100 * ms},
		{"busy, and says for how long", answered{lease.Busy, 2 * time.Second}, 0, true, 2 * time.Second, 2 * time.Second},
		{"busy for longer than there is", answered{lease.Busy, time.Hour}, 0, false, 0, 0},
		{"refused", answered{cause: lease.Refused}, 0, false, 0, 0},
		{"wrong", answered{cause: lease.Wrong}, 0, false, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := false
				ctx, cancel := context.WithTimeout(lease.OnFailedTry(t.Context(), func(error) { told = true }), time.Minute)
				defer cancel()
				start := time.Now()
				if got := lease.Retry(ctx, test.try, test.err); got != test.want {
					t.Errorf("it says %t", got)
				}
				if pause := time.Since(start); pause < test.min || pause > test.max {
					t.Errorf("the pause was %v", pause)
				}
				if told != (test.max > 0) { // a conflict is an answer
					t.Errorf("it is told of as a failed try: %t", told)
				}
			})
		})
	}
}

// A summary is what the service said, with where to look if it said nothing.
func TestSummary(t *testing.T) {
	const look = ": check the address in STORE_URL and whether this machine can connect to it"
	for _, test := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf(`read lease "oven": %w`, answered{cause: lease.Wrong}), "full: raise its limit"},
		{fmt.Errorf(`read lease "oven": %w`, context.DeadlineExceeded), "no answer in time" + look},
		{errors.New("connection refused"), "connection refused" + look},
	} {
		if got := lease.AddHint(lease.Summary(test.err), "STORE_URL").Error(); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	if lease.AddHint(nil, "STORE_URL") != nil {
		t.Error("an error where there was none")
	}
}
