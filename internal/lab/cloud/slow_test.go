package cloud_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/backoff"
	"alertworker/internal/lab/cloud"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/cosmoslease"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
)

// slowing answers after a time, half of which passes before the request is executed.
type slowing struct {
	service http.Handler
	by      *time.Duration
}

func (s slowing) RoundTrip(r *http.Request) (*http.Response, error) {
	if !backoff.Sleep(r.Context(), *s.by/2) {
		return nil, r.Context().Err()
	}
	answer, err := cloud.Direct{Service: s.service, Latency: latency}.RoundTrip(r)
	if !backoff.Sleep(r.Context(), *s.by/2) {
		return nil, r.Context().Err()
	}
	return answer, err
}

// On a service that is slow alerts are sent late, each once, and windows hold, whichever store and receiver.
func TestGateOnASlowService(t *testing.T) {
	stores := map[string]func(t *testing.T, by *time.Duration) (lease.Store, error){
		"blob": func(t *testing.T, by *time.Duration) (lease.Store, error) {
			service := &cloud.Blobs{}
			return bloblease.OpenETag(t.Context(), client(t, service, slowing{service, by}), nil)
		},
		"bloblease": func(t *testing.T, by *time.Duration) (lease.Store, error) {
			service := &cloud.Blobs{}
			return bloblease.OpenNative(t.Context(), client(t, service, slowing{service, by}), nil)
		},
		"cosmos": func(t *testing.T, by *time.Duration) (lease.Store, error) {
			account, err := cosmoslease.WithKey("AccountEndpoint=http://cosmos/;AccountKey=" + key + ";")
			if err != nil {
				return nil, err
			}
			return cosmoslease.Open(t.Context(), cosmoslease.Config{
				Account: account, Database: "sim", Container: "leases", Retention: 24 * time.Hour,
				Client: &http.Client{Transport: slowing{cloud.NewItems("http://cosmos/"), by}},
			})
		},
	}
	for name, open := range stores {
		for _, by := range []time.Duration{1050 * time.Millisecond, 2 * time.Second, 5 * time.Second} {
			for _, timeout := range []time.Duration{5 * time.Second, 10 * time.Second} {
				t.Run(fmt.Sprintf("%s slow by %v, NOTIFY_TIMEOUT=%v", name, by, timeout), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						slow := latency
						s, err := open(t, &slow)
						if err != nil {
							t.Fatal(err)
						}
						slow = by
						g := throttle.New(throttle.Config{
							Store: s, Scope: "s", Receiver: "r", Window: time.Minute, SendTimeout: timeout,
						})
						sends := 0
						ask := func(device string) throttle.Outcome {
							r := throttle.Request{Device: device, ID: "1", Enqueued: time.Now().Add(-time.Second)}
							result, err := throttletest.Do(t.Context(), g, r, func(context.Context, throttle.Grant) throttle.Answer {
								sends++
								return throttle.Taken
							})
							t.Logf("%v, %v", result.Outcome, err)
							time.Sleep(time.Until(result.Retry))
							return result.Outcome
						}
						for _, device := range []string{"a", "b", "c"} {
							sends = 0
							start := time.Now()
							for sends == 0 {
								if time.Since(start) > 2*time.Minute {
									t.Fatalf("%s: not sent within %v", device, time.Since(start))
								}
								ask(device)
							}
							time.Sleep(10 * time.Second)
							if got := ask(device); got != throttle.Throttled || sends != 1 {
								t.Errorf("%s: %v, sent %d times: want it to be throttled", device, got, sends)
							}
						}
					})
				})
			}
		}
	}
}
