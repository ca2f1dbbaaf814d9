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

// answered returns the Failure of a service that gave an answer.
func answered(cause lease.Cause, after time.Duration) error {
	again := cause != lease.Refused && cause != lease.Wrong
	return &lease.Failure{Text: "full: raise its limit", Cause: cause, Again: again, After: after}
}

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
		{"conflict", fmt.Errorf("write: %w", answered(lease.Conflict, 0)), 4, true, 0, 0},
		{"busy", answered(lease.Busy, 0), 0, true, 50 * ms, 100 * ms},
		{"busy, and says for how long", answered(lease.Busy, 2*time.Second), 0, true, 2 * time.Second, 2 * time.Second},
		{"busy for longer than there is", answered(lease.Busy, time.Hour), 0, false, 0, 0},
		{"refused", answered(lease.Refused, 0), 0, false, 0, 0},
		{"wrong", answered(lease.Wrong, 0), 0, false, 0, 0},
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
		{fmt.Errorf(`read lease "oven": %w`, answered(lease.Wrong, 0)), "full: raise its limit"},
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
