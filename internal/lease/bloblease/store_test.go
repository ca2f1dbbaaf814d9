package bloblease_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/leasetest"
)

// nativeHarness is the store on azurite.
func nativeHarness(azurite *emulators.Azurite) leasetest.Harness {
	return leasetest.Harness{
		New: func(t testing.TB) leasetest.Backend {
			name := azurite.NewContainer()
			return leasetest.Backend{
				Open: func(via http.RoundTripper) (lease.Store, error) {
					return bloblease.OpenNative(t.Context(), azurite.Container(t, name, via), nil)
				},
				Delete: func(ctx context.Context, key string) error {
					b := azurite.Container(t, name, nil).NewBlobClient(bloblease.Name(key))
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
		Lag:    3 * time.Second,
		Skew:   leasetest.ServiceClock,
	}
}

func TestNativeStore(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of requests: TestStore makes as many, and what is native has tests of its own")
	}
	t.Parallel()
	leasetest.Run(t, nativeHarness(emulators.StartAzurite(t)))
}

// What a gate's every way costs, in requests.
func TestNativeCalls(t *testing.T) {
	t.Parallel()
	checkCalls(t, nativeHarness(emulators.StartAzurite(t)), costs{throttled: 1, sent: 5, failed: 5, first: 6})
}
