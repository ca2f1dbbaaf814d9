package cloud_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.uber.org/goleak"

	"alertworker/internal/azure"
	"alertworker/internal/lab/cloud"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/cosmoslease"
	"alertworker/internal/lease/leasetest"
	"alertworker/internal/records"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The leases on these services keep the contract that they keep on Azure's emulators, faults included.
func TestLeases(t *testing.T) {
	for name, h := range map[string]leasetest.Harness{
		"blob":   {New: onBlobs, MinTTL: time.Second, Skew: leasetest.ServiceClock},
		"cosmos": {New: onItems, MinTTL: time.Second, Skew: skew},
	} {
		t.Run(name, func(t *testing.T) {
			h.Lag, h.Bubble = 3*time.Second, synctest.Test
			leasetest.Run(t, h)
		})
	}
}

// A listing comes in pages, in order, with metadata, and ETags that a write accepts.
func TestListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &cloud.Blobs{}
		store, err := records.OpenBlobs(t.Context(), client(t, service, cloud.Direct{Service: service, Latency: latency}), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2100 {
			r := records.Record{Name: "all/" + strconv.Itoa(10000+i), Values: map[string]string{"n": strconv.Itoa(i)}}
			if _, err := store.Write(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		all, err := records.All(t.Context(), store, "all/")
		if err != nil || len(all) != 2100 {
			t.Fatalf("listed %d records: %v", len(all), err)
		}
		last := all[2099]
		if last.Name != "all/12099" || last.Values["n"] != "2099" {
			t.Errorf("the last one is %+v", last)
		}
		last.Values = map[string]string{"n": "again"}
		if _, err := store.Write(t.Context(), last); err != nil {
			t.Errorf("write with the ETag of the listing: %v", err)
		}
		if _, err := store.Write(t.Context(), last); err == nil {
			t.Error("an old ETag was accepted")
		}
	})
}

// latency is that of every request.
const latency = 40 * time.Millisecond

const key = "c2ltdWxhdGlvbg=="

func client(t testing.TB, service *cloud.Blobs, via http.RoundTripper) *container.Client {
	t.Helper()
	options := policy.ClientOptions{Transport: azure.LimitTries(&http.Client{Transport: via}), Retry: azure.Once()}
	c, err := container.NewClientFromConnectionString(
		"DefaultEndpointsProtocol=http;AccountName=sim;AccountKey="+key+";BlobEndpoint=http://blobs/sim;",
		"leases", &container.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func onBlobs(t testing.TB) leasetest.Backend {
	service := &cloud.Blobs{}
	return leasetest.Backend{
		Transport: cloud.Direct{Service: service, Latency: latency},
		Open: func(via http.RoundTripper) (lease.Store, error) {
			return bloblease.OpenETag(t.Context(), client(t, service, via), nil)
		},
		Delete: func(_ context.Context, key string) error {
			for _, name := range service.Names("leases") {
				if strings.HasSuffix(name, "/"+azure.Name(key)) {
					service.Delete("leases", name)
				}
			}
			return nil
		},
	}
}

func onItems(t testing.TB) leasetest.Backend {
	service := cloud.NewItems("http://cosmos/")
	return leasetest.Backend{
		Transport: cloud.Direct{Service: service, Latency: latency},
		Open: func(via http.RoundTripper) (lease.Store, error) {
			account, err := cosmoslease.WithKey("AccountEndpoint=http://cosmos/;AccountKey=" + key + ";")
			if err != nil {
				return nil, err
			}
			return cosmoslease.Open(t.Context(), cosmoslease.Config{
				Account: account, Database: "sim", Container: "leases", Retention: 24 * time.Hour,
				Client: &http.Client{Transport: via},
			})
		},
		Delete: func(_ context.Context, key string) error {
			service.Delete("sim", "leases", azure.Name(key))
			return nil
		},
	}
}

var itemTime = regexp.MustCompile(`"_ts":\d+`)

// skew changes an answer as if the service's clock were ahead: its Date and the time of the item in it.
func skew(answer *http.Response, now, written time.Duration) {
	leasetest.ServiceClock(answer, now, written)
	body, _ := io.ReadAll(answer.Body)
	body = itemTime.ReplaceAllFunc(body, func(m []byte) []byte {
		at, _ := strconv.ParseInt(string(m[len(`"_ts":`):]), 10, 64)
		return strconv.AppendInt([]byte(`"_ts":`), at+int64(written/time.Second), 10)
	})
	answer.Body = io.NopCloser(bytes.NewReader(body))
	answer.ContentLength = int64(len(body))
	answer.Header.Del("Content-Length")
}
