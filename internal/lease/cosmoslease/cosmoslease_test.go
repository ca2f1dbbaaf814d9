package cosmoslease_test

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"alertworker/internal/azure"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/cosmoslease"
	"alertworker/internal/lease/leasetest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "32") // the tests wait, they do not compute
	goleak.VerifyTestMain(m)
}

// TestStore runs the suite against the stand-in: over real HTTP, in real time.
func TestStore(t *testing.T) {
	account := emulators.StartCosmos(t)
	leasetest.Run(t, leasetest.Harness{
		New: func(t testing.TB) leasetest.Backend {
			return backend(t, account.ConnectionString, uuid.NewString(), account.Transport())
		},
		MinTTL: time.Second,
		Lag:    3 * time.Second,
		Skew:   skew,
	})
}

// backend is a database of the account behind transport.
func backend(t testing.TB, connectionString, database string, transport http.RoundTripper) leasetest.Backend {
	return leasetest.Backend{
		Open: func(via http.RoundTripper) (lease.Store, error) {
			account, err := cosmoslease.WithKey(connectionString)
			if err != nil {
				return nil, err
			}
			return cosmoslease.Open(t.Context(), cosmoslease.Config{Account: account, Database: database, Container: "leases", Retention: retention, Client: &http.Client{Transport: via}})
		},
		Delete: func(ctx context.Context, key string) error {
			client, err := azcosmos.NewClientFromConnectionString(connectionString, &azcosmos.ClientOptions{
				ClientOptions: policy.ClientOptions{Transport: &http.Client{Transport: transport}},
			})
			if err != nil {
				return err
			}
			defer client.Close()
			c, err := client.NewContainer(database, "leases")
			if err != nil {
				return err
			}
			name := azure.Name(key)
			_, err = c.DeleteItem(ctx, azcosmos.NewPartitionKeyString(name), name, nil)
			return err
		},
		Transport: transport,
	}
}

var itemTime = regexp.MustCompile(`"_ts":\d+`)

// skew changes an answer as if the service's clock were ahead: its Date and the
// time of the item in it.
func skew(answer *http.Response, now, written time.Duration) {
	leasetest.ServiceClock(answer, now, written)
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err == nil {
		body = itemTime.ReplaceAllFunc(body, func(m []byte) []byte {
			at, _ := strconv.ParseInt(string(m[len(`"_ts":`):]), 10, 64)
			return strconv.AppendInt([]byte(`"_ts":`), at+int64(written/time.Second), 10)
		})
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	answer.ContentLength = int64(len(body))
	answer.Header.Del("Content-Length")
}
