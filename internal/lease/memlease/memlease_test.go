package memlease_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"alertworker/internal/lease"
	"alertworker/internal/lease/leasetest"
	"alertworker/internal/lease/memlease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	leasetest.Run(t, leasetest.Harness{
		New: func(testing.TB) leasetest.Backend {
			s := memlease.New()
			return leasetest.Backend{
				Open:   func(http.RoundTripper) (lease.Store, error) { return s, nil },
				Delete: func(_ context.Context, key string) error { s.Forget(key); return nil },
			}
		},
		Bubble: synctest.Test,
	})
}
