package bloblease_test

import (
	"context"
	"flag"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"go.uber.org/goleak"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/blobrecord"
	"alertworker/internal/lease/leasetest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "32") // the tests wait, they do not compute
	goleak.VerifyTestMain(m)
}

// harness is the store on azurite.
func harness(azurite *emulators.Azurite) leasetest.Harness {
	return leasetest.Harness{
		New: func(t testing.TB) leasetest.Backend {
			name := azurite.NewContainer()
			return leasetest.Backend{
				Open: func(via http.RoundTripper) (lease.Store, error) {
					return bloblease.Open(t.Context(), azurite.Container(t, name, via))
				},
				Delete: func(ctx context.Context, key string) error {
					b := azurite.Container(t, name, nil).NewBlobClient(blobrecord.Name(key))
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

func TestStore(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, harness(emulators.StartAzurite(t)))
}

// What a gate's every way costs, in requests.
func TestCalls(t *testing.T) {
	t.Parallel()
	leasetest.Calls(t, harness(emulators.StartAzurite(t)), leasetest.Costs{Throttled: 1, Sent: 5, Failed: 5, First: 6})
}
