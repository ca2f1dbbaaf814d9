package bloblease_test

import (
	"context"
	"net/http"
	"net/http/httptest"
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

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// inMemory carries requests to a service in memory. Each takes 20 ms.
func inMemory(service http.Handler) roundTrip {
	return func(req *http.Request) (*http.Response, error) {
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		time.Sleep(20 * time.Millisecond)
		served := req.Clone(req.Context())
		served.Header = http.Header{}
		for name, values := range req.Header { // as they are once they have been over a network
			served.Header[http.CanonicalHeaderKey(name)] = values
		}
		if served.Body == nil {
			served.Body = http.NoBody
		}
		w := httptest.NewRecorder()
		service.ServeHTTP(w, served)
		answer := w.Result()
		answer.Request = req
		return answer, nil
	}
}

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
				Transport: inMemory(service),
			}
		},
		MinTTL: time.Second,
		Lag:    3 * time.Second,
		Skew:   leasetest.ServiceClock,
		Bubble: synctest.Test,
	}
}
