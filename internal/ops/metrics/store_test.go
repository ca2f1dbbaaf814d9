package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/leasetest"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/lease/observe"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/metrics/metricstest"
)

// A measured store keeps the contract of a store.
func TestMeasuredStore(t *testing.T) {
	leasetest.Run(t, leasetest.Harness{
		New: func(testing.TB) leasetest.Backend {
			s := &struct{ *memlease.Store }{memlease.New()}
			return leasetest.Backend{
				Open: func(http.RoundTripper) (lease.Store, error) {
					return observe.Store(s, metrics.New("").Store("memory")), nil
				},
				Delete: func(context.Context, string) error { s.Store = memlease.New(); return nil }, // every record is one more
			}
		},
		Bubble: synctest.Test,
	})
}

func TestStoreResults(t *testing.T) {
	covered := errors.New("covered")
	agree := func(lease.Record) (string, error) { return "note", nil }
	decline := func(lease.Record) (string, error) { return "", covered }
	held := &lease.HeldError{Key: "k"}
	for _, c := range []struct {
		operation, result string
		answer            error
		next              func(lease.Record) (string, error)
	}{
		{"acquire", "ok", nil, agree},
		{"acquire", "declined", nil, decline},
		{"acquire", "held", held, agree},
		{"acquire", "held", fmt.Errorf("wrapped: %w", held), agree},
		{"acquire", "error", metricstest.ErrBroken, agree},
		{"extend", "ok", nil, nil},
		{"extend", "lost", fmt.Errorf("wrapped: %w", lease.ErrLost), nil},
		{"extend", "error", context.DeadlineExceeded, nil},
		{"release", "ok", nil, nil},
		{"release", "error", metricstest.ErrBroken, nil},
		{"read", "ok", nil, nil},
		{"read", "error", metricstest.ErrBroken, nil},
	} {
		t.Run(c.operation+"/"+c.result, func(t *testing.T) {
			m := metrics.New("")
			s := observe.Store(&metricstest.Stub{Err: c.answer}, m.Store("blob"))
			want := c.answer
			var err error
			switch c.operation {
			case "acquire":
				_, err = s.Acquire(t.Context(), "k", time.Minute, c.next)
				if c.result == "declined" {
					want = covered
				}
			case "extend":
				_, err = s.Extend(t.Context(), lease.Lease{}, "note", time.Minute)
			case "release":
				err = s.Release(t.Context(), lease.Lease{}, "note")
			case "read":
				_, err = s.Read(t.Context(), "k")
			}
			if err != want {
				t.Errorf("got %v, want %v as it is", err, want)
			}
			counted := values(t, m)
			calls := 0.0
			for _, operation := range []string{"acquire", "extend", "release", "read"} {
				for _, result := range []string{"ok", "held", "lost", "declined", "error"} {
					calls += counted[count("blob", operation, result)]
				}
			}
			if calls != 1 {
				t.Errorf("%v calls were counted, want 1", calls)
			}
			expect(t, m, map[string]float64{count("blob", c.operation, c.result): 1})
		})
	}
}

func count(store, operation, result string) string {
	return fmt.Sprintf(`store_call_duration_seconds_count{operation=%q, result=%q, store=%q}`, operation, result, store)
}

// A store that first declines, in a round that came to nothing, and then fails has failed.
func TestStoreDeclinedRound(t *testing.T) {
	m := metrics.New("")
	s := observe.Store(twice{err: metricstest.ErrBroken}, m.Store("blob"))
	_, err := s.Acquire(t.Context(), "k", time.Minute, func(lease.Record) (string, error) { return "", errors.New("covered") })
	if err != metricstest.ErrBroken {
		t.Fatal(err)
	}
	expect(t, m, map[string]float64{count("blob", "acquire", "error"): 1, count("blob", "acquire", "declined"): 0})
}

// twice asks next, and fails all the same.
type twice struct {
	lease.Store
	err error
}

func (s twice) Acquire(_ context.Context, _ string, _ time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	_, _ = next(lease.Record{})
	return lease.Lease{}, s.err
}
func (s twice) Extend(context.Context, lease.Lease, string, time.Duration) (lease.Lease, error) {
	return lease.Lease{}, s.err
}
func (s twice) Release(context.Context, lease.Lease, string) error { return s.err }

// Latency is what the call took, and series are there before they count.
func TestStoreLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New("")
		s := observe.Store(slow{memlease.New(), 3 * time.Second}, m.Store("memory"))
		expect(t, m, map[string]float64{count("memory", "release", "error"): 0})
		if _, err := s.Acquire(t.Context(), "k", time.Minute, func(lease.Record) (string, error) { return "", nil }); err != nil {
			t.Fatal(err)
		}
		expect(t, m, map[string]float64{
			`store_call_duration_seconds_sum{operation="acquire", result="ok", store="memory"}`:              3,
			`store_call_duration_seconds_bucket{le="2.5", operation="acquire", result="ok", store="memory"}`: 0,
			`store_call_duration_seconds_bucket{le="5", operation="acquire", result="ok", store="memory"}`:   1,
		})
	})
}

type slow struct {
	lease.Store
	by time.Duration
}

func (s slow) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	time.Sleep(s.by)
	return s.Store.Acquire(ctx, key, ttl, next)
}

// The skew is there from the start, although nobody knows it yet.
func TestStoreClockSkew(t *testing.T) {
	const skew = `store_clock_skew_seconds{store="blob"}`
	m := metrics.New("")
	var ahead time.Duration
	known := false
	m.Clock("blob", func() (time.Duration, bool) { return ahead, known })
	if v, ok := values(t, m)[skew]; !ok || !math.IsNaN(v) {
		t.Errorf("the skew is %v, %t before there was an answer", v, ok)
	}
	known, ahead = true, -7*time.Second
	expect(t, m, map[string]float64{skew: 7})
}
