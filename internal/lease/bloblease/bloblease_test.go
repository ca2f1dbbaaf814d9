package bloblease_test

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"go.uber.org/goleak"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/leasetest"
	"alertworker/internal/standin"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "32") // the tests wait, they do not compute
	goleak.VerifyTestMain(m)
}

// harness is the store on azurite.
func harness(azurite *standin.Azurite) leasetest.Harness {
	return leasetest.Harness{
		New: func(t testing.TB) leasetest.Backend {
			name := azurite.NewContainer()
			return leasetest.Backend{
				Open: func(via http.RoundTripper) (lease.Store, error) {
					return bloblease.Open(t.Context(), azurite.Container(t, name, via))
				},
				Delete: func(ctx context.Context, key string) error {
					b := azurite.Container(t, name, nil).NewBlobClient(azure.Name(key))
					native, err := azlease.NewBlobClient(b, nil)
					if err != nil {
						return err
					}
					if _, err := native.BreakLease(ctx, &azlease.BlobBreakOptions{BreakPeriod: to.Ptr(int32(0))}); err != nil && !bloberror.HasCode(err, bloberror.LeaseNotPresentWithLeaseOperation) {
						return err
					}
					_, err = b.Delete(ctx, nil)
					return err
				},
				Transport: azurite.Transport(),
			}
		},
		MinTTL: bloblease.MinTTL,
		Lag:    2 * time.Second,
		Skew:   leasetest.ServiceClock,
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, harness(standin.StartAzurite(t)))
}

// counter counts the requests that it lets through.
type counter struct {
	next http.RoundTripper
	n    atomic.Int64
}

func (c *counter) RoundTrip(req *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.next.RoundTrip(req)
}

// What a gate's every way costs, in requests.
func TestCalls(t *testing.T) {
	t.Parallel()
	azurite := standin.StartAzurite(t)
	c := &counter{next: azurite.Transport()}
	s, err := bloblease.Open(t.Context(), azurite.Container(t, azurite.NewContainer(), c))
	if err != nil {
		t.Fatal(err)
	}
	note := func(lease.Record) (string, error) { return "", nil }
	acquire := func() lease.Lease {
		t.Helper()
		l, err := s.Acquire(t.Context(), "key", time.Minute, note)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	window := func(l lease.Lease) lease.Lease {
		t.Helper()
		l, err := s.Extend(t.Context(), l, "window", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	giveBack := func(l lease.Lease) {
		t.Helper()
		if err := s.Release(t.Context(), l, ""); err != nil {
			t.Fatal(err)
		}
	}
	costs := func(way string, want int64, do func()) {
		t.Helper()
		c.n.Store(0)
		do()
		if got := c.n.Load(); got != want {
			t.Errorf("%s: %d requests, want %d", way, got, want)
		}
	}

	var l lease.Lease
	costs("first ever", 6, func() { l = window(acquire()) })
	costs("throttled", 1, func() {
		if _, err := s.Acquire(t.Context(), "key", time.Minute, note); !errors.Is(err, lease.ErrHeld) {
			t.Fatal(err)
		}
	})
	giveBack(l)
	costs("failed send", 5, func() { giveBack(acquire()) })
	costs("sent", 5, func() { window(acquire()) })
}
