package bloblease_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
	"alertworker/internal/lab/cloud"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/leasetest"
)

func memoryContainer(t testing.TB, via http.RoundTripper) *container.Client {
	t.Helper()
	c, err := container.NewClientFromConnectionString(
		"DefaultEndpointsProtocol=http;AccountName=memory;AccountKey=a2V5;BlobEndpoint=http://blobs/memory;",
		"leases", &container.ClientOptions{ClientOptions: policy.ClientOptions{
			Transport: &http.Client{Transport: via}, Retry: azure.Once(),
		}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bubble is the harness of a service in memory, on virtual time, whose stores reach it by breaking.
func bubble(breaking func(http.RoundTripper) http.RoundTripper) leasetest.Harness {
	return leasetest.Harness{
		New: func(t testing.TB) leasetest.Backend {
			service := &cloud.Blobs{}
			return leasetest.Backend{
				Open: func(via http.RoundTripper) (lease.Store, error) {
					return bloblease.OpenETag(t.Context(), memoryContainer(t, breaking(via)), nil)
				},
				Delete: func(_ context.Context, key string) error {
					for _, name := range service.Names("leases") {
						if strings.HasSuffix(name, "/"+azure.Name(key)) {
							service.Delete("leases", name)
						}
					}
					return nil
				},
				Transport: cloud.Direct{Service: service, Latency: 20 * time.Millisecond},
			}
		},
		MinTTL: time.Second,
		Lag:    3 * time.Second,
		Skew:   leasetest.ServiceClock,
		Bubble: synctest.Test,
	}
}
