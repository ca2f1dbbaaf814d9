// Package azure holds what every package needs that uses Azure Storage or Cosmos DB:
// an HTTP client for many callers, retries, credentials, containers that are created when
// missing, the service's clock, names for arbitrary keys, and errors that say what to do.
package azure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"alertworker/internal/lease"
)

// Concurrency is how many requests an HTTP client of NewHTTPClient has under
// way at one host; more wait for a connection.
const Concurrency = 256

// NewHTTPClient returns an HTTP client for the Transport of an Azure SDK
// client. The SDK's own keeps 10 idle connections to a host, which makes 64
// callers wait for handshakes. One client serves any number of SDK clients; its
// owner ends with the CloseIdleConnections that it has before anything else is put before its Transport.
func NewHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: maxTry, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: maxTry,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
			if answer.StatusCode != http.StatusOK {
				return &ProxyError{answer.StatusCode}
			}
			return nil
		},
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxConnsPerHost:       Concurrency,
		MaxIdleConns:          Concurrency,
		MaxIdleConnsPerHost:   Concurrency,
	}}
}

// ReadOnly makes c send no request that changes anything in a storage account or in
// Cosmos DB. Such requests fail.
func ReadOnly(c *http.Client) {
	next := c.Transport
	c.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		query := r.Header.Get("x-ms-documentdb-isquery") != ""
		if query || slices.Contains([]string{http.MethodGet, http.MethodHead}, r.Method) {
			return next.RoundTrip(r)
		}

		if r.Body != nil {
			_ = r.Body.Close()
		}

		return nil, errReadOnly
	})
}

// A roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// errReadOnly is why a container that does not exist is not created.
var errReadOnly = lease.NewWrong("it does not exist, and this command creates nothing: check its name, and whether it was deleted")

// Once returns the retries of a client whose caller retries with ShouldRetry: none, so that
// only one layer retries. LimitTries limits a try.
func Once() policy.RetryOptions { return policy.RetryOptions{MaxRetries: -1} }

// Date returns the service's clock at the time of its response, to the second. Every
// response has it, errors too.
func Date(resp *http.Response) (time.Time, error) {
	if resp == nil {
		return time.Time{}, fmt.Errorf("read the service's clock: no response")
	}

	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("read the service's clock from the Date header: %w", err)
	}

	return date, nil
}

// maxName is the longest name that both a blob in a hierarchical account and a
// Cosmos item may have.
const maxName = 255

// Name returns a name for key that is safe as a blob's name and a Cosmos item's
// id. Distinct keys have distinct names, compared byte by byte. Letters, digits,
// '-' and '_' stay, and so does a '.' between letters or digits; any other byte
// becomes '~' and two hex digits. What gets longer than 255 bytes is
// replaced by "~~" and the key's SHA-256.
func Name(key string) string {
	var b strings.Builder
	for i := range len(key) {
		if plain(key, i) {
			b.WriteByte(key[i])
		} else {
			fmt.Fprintf(&b, "~%02X", key[i])
		}
	}

	if b.Len() <= maxName {
		return b.String()
	}

	sum := sha256.Sum256([]byte(key))

	return "~~" + hex.EncodeToString(sum[:])
}

// plain reports whether the character of key at i stays as it is in a name.
func plain(key string, i int) bool {
	switch key[i] {
	case '-', '_':
		return true
	case '.':
		around := "." + key + "."
		return alphanumeric(around[i]) && alphanumeric(around[i+2])
	}

	return alphanumeric(key[i])
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func alphanumeric(c byte) bool { return strings.IndexByte(letters+"0123456789", c) >= 0 }
