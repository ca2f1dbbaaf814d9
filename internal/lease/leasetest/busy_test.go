package leasetest

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A store that a busy machine did not let answer in time is set up again in another attempt.
func TestASlowServiceIsTriedAgain(t *testing.T) {
	opened := 0
	h := Harness{New: func(testing.TB) Backend {
		return Backend{
			Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				if opened == 1 {
					time.Sleep(tooSlow + time.Millisecond)
					return nil, errors.New("no answer within 1s")
				}
				return &http.Response{Body: http.NoBody}, nil
			}),
			Open: func(via http.RoundTripper) (lease.Store, error) {
				opened++
				r, _ := http.NewRequest(http.MethodGet, "http://store", nil)
				if _, err := via.RoundTrip(r); err != nil {
					return nil, err
				}
				return memlease.New(), nil
			},
		}
	}}
	busytest.Run(t, func(a *busytest.Attempt) {
		attemptCheck(a, h, check{run: func(t tester, s *suite) { s.store(t) }})
	})
	if opened != 2 {
		t.Errorf("opened %d times, want 2", opened)
	}
}
