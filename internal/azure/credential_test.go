package azure_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"alertworker/internal/azure"
)

// An identity is a scripted azcore.TokenCredential. Its tokens are numbered and last an hour.
type identity struct {
	takes  time.Duration
	err    error
	lasts  time.Duration // an hour if 0
	prompt time.Duration // RefreshOn, if not 0

	mu    sync.Mutex
	asked []policy.TokenRequestOptions
}

func (i *identity) GetToken(ctx context.Context, r policy.TokenRequestOptions) (azcore.AccessToken, error) {
	i.mu.Lock()
	i.asked = append(i.asked, r)
	n, takes, err := len(i.asked), i.takes, i.err
	i.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return azcore.AccessToken{}, ctx.Err()
	}
	lasts := i.lasts
	if lasts == 0 {
		lasts = time.Hour
	}
	t := azcore.AccessToken{Token: fmt.Sprint(n), ExpiresOn: time.Now().Add(lasts)}
	if i.prompt > 0 {
		t.RefreshOn = time.Now().Add(i.prompt)
	}
	if err != nil {
		t = azcore.AccessToken{}
	}
	return t, err
}

func (i *identity) set(takes time.Duration, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.takes, i.err = takes, err
}

func (i *identity) times() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.asked)
}

// within asks for a token with a limit, and checks which it is and how long that took.
func within(t *testing.T, c *azure.Credential, limit time.Duration, want string, took time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	got, err := c.GetToken(ctx, azure.StorageScope)
	if got.Token != want || (err == nil) != (want != "") || time.Since(start) != took {
		t.Errorf("token %q, %v after %v; want %q after %v", got.Token, err, time.Since(start), want, took)
	}
	return err
}

// bubble runs test with a credential that is closed at the end.
func bubble(t *testing.T, source *identity, test func(*testing.T, *azure.Credential)) {
	synctest.Test(t, func(t *testing.T) {
		c := azure.NewCredential(source)
		defer c.Close()
		test(t, c)
	})
}

// A caller that cannot wait fails, and the next one finds the token.
func TestSlowToken(t *testing.T) {
	source := &identity{takes: 20 * time.Second}
	bubble(t, source, func(t *testing.T, c *azure.Credential) {
		for range 3 {
			err := within(t, c, time.Second, "", time.Second)
			if !errors.Is(err, azure.ErrNoToken) || !errors.Is(err, context.DeadlineExceeded) || azure.Explain(err).Error() != err.Error() {
				t.Errorf("the error is %v", err)
			}
		}
		if err := c.Prefetch(t.Context(), azure.StorageScope); err != nil {
			t.Error(err)
		}
		within(t, c, time.Second, "1", 0)
		if n := source.times(); n != 1 {
			t.Errorf("the identity was asked %d times, want once", n)
		}
	})
}

func TestOneFetchForAll(t *testing.T) {
	source := &identity{takes: 3 * time.Second}
	bubble(t, source, func(t *testing.T, c *azure.Credential) {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { within(t, c, 10*time.Second, "1", 3*time.Second) })
		}
		all.Wait()
		if n := source.times(); n != 1 {
			t.Errorf("the identity was asked %d times, want once", n)
		}
	})
}

func TestRefresh(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		source := &identity{}
		bubble(t, source, func(t *testing.T, c *azure.Credential) {
			within(t, c, time.Second, "1", 0)
			time.Sleep(54 * time.Minute)
			within(t, c, time.Second, "1", 0)
			if n := source.times(); n != 1 {
				t.Errorf("asked %d times, want once", n)
			}
			source.set(30*time.Second, nil)
			time.Sleep(time.Minute)
			within(t, c, time.Second, "1", 0) // which starts it
			time.Sleep(29 * time.Second)
			within(t, c, time.Second, "1", 0)
			time.Sleep(2 * time.Second)
			within(t, c, time.Second, "2", 0)
		})
	})
	t.Run("when the identity says", func(t *testing.T) {
		source := &identity{prompt: 10 * time.Minute}
		bubble(t, source, func(t *testing.T, c *azure.Credential) {
			within(t, c, time.Second, "1", 0)
			time.Sleep(10 * time.Minute)
			within(t, c, time.Second, "1", 0)
			synctest.Wait()
			within(t, c, time.Second, "2", 0)
		})
	})
	// While it fails the old token is served as long as it is good, and no longer.
	t.Run("that fails", func(t *testing.T) {
		source := &identity{}
		bubble(t, source, func(t *testing.T, c *azure.Credential) {
			within(t, c, time.Second, "1", 0)
			source.set(0, errors.New("the tenant is down"))
			time.Sleep(55 * time.Minute)
			for range 49 { // until 54 s before its end
				within(t, c, time.Second, "1", 0)
				time.Sleep(5 * time.Second)
			}
			if n := source.times(); n > 50 {
				t.Errorf("asked %d times in 4 minutes, want every 5 s at most", n)
			}
			time.Sleep(45 * time.Second) // 9 s before its end
			if err := within(t, c, time.Second, "", 0); err == nil || !strings.Contains(err.Error(), "no token for https://storage.azure.com: the tenant is down") {
				t.Errorf("the error is %v", err)
			}
			source.set(0, nil)
			time.Sleep(5 * time.Second)
			if got, err := c.GetToken(t.Context(), azure.StorageScope); got.Token == "" || err != nil {
				t.Errorf("%v", err)
			}
		})
	})
}

// Clients that ask all the time do not make an identity that fails be asked so.
func TestFailuresAreRemembered(t *testing.T) {
	source := &identity{err: errors.New("no")}
	bubble(t, source, func(t *testing.T, c *azure.Credential) {
		for range 100 {
			within(t, c, time.Second, "", 0)
			time.Sleep(100 * time.Millisecond)
		}
		if n := source.times(); n != 2 {
			t.Errorf("asked %d times in 10 s, want twice", n)
		}
	})
}

func TestHangingIdentity(t *testing.T) {
	bubble(t, &identity{takes: 24 * time.Hour}, func(t *testing.T, c *azure.Credential) {
		err := within(t, c, time.Hour, "", time.Minute)
		if err == nil || !strings.Contains(err.Error(), "no answer within 1m0s") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestExpiredToken(t *testing.T) {
	bubble(t, &identity{lasts: time.Second}, func(t *testing.T, c *azure.Credential) {
		err := within(t, c, time.Hour, "", 0)
		if err == nil || !strings.Contains(err.Error(), "clock") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestScopesAreKeptApart(t *testing.T) {
	source := &identity{}
	bubble(t, source, func(t *testing.T, c *azure.Credential) {
		cosmos := azure.CosmosScope("https://Acc.documents.azure.com:443/")
		if cosmos.Scopes[0] != "https://Acc.documents.azure.com/.default" {
			t.Errorf("the scope is %q", cosmos.Scopes)
		}
		for range 2 {
			if err := c.Prefetch(t.Context(), azure.StorageScope, azure.EventHubsScope, cosmos); err != nil {
				t.Error(err)
			}
		}
		if n := source.times(); n != 3 {
			t.Errorf("asked %d times, want once for each of 3 services", n)
		}
	})
}

// A token that the service has refused is not served again.
func TestClaims(t *testing.T) {
	source := &identity{}
	bubble(t, source, func(t *testing.T, c *azure.Credential) {
		within(t, c, time.Second, "1", 0)
		challenged := azure.StorageScope
		challenged.Claims = `{"access_token":{"nbf":{"value":"1"}}}`
		if got, err := c.GetToken(t.Context(), challenged); err != nil || got.Token != "2" {
			t.Errorf("%q, %v", got.Token, err)
		}
		if source.asked[1].Claims != challenged.Claims {
			t.Error("the identity was not told the claims")
		}
		within(t, c, time.Second, "2", 0)
	})
}

// So it is while a token without the claims is on its way. Who has the same claims shares one.
func TestClaimsDuringAnotherFetch(t *testing.T) {
	source := &identity{takes: 10 * time.Second}
	bubble(t, source, func(t *testing.T, c *azure.Credential) {
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.GetToken(t.Context(), azure.StorageScope); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		for _, claims := range []string{"a", "a", "a"} {
			challenged := azure.StorageScope
			challenged.Claims = claims
			all.Go(func() {
				if got, err := c.GetToken(t.Context(), challenged); err != nil || got.Token != "2" {
					t.Errorf("%q, %v", got.Token, err)
				}
			})
		}
		all.Wait()
		if n := source.times(); n != 2 || source.asked[1].Claims != "a" {
			t.Errorf("asked %d times: %+v", n, source.asked)
		}
		within(t, c, time.Second, "2", 0)
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := azure.NewCredential(&identity{takes: time.Minute})
		within(t, c, time.Second, "", time.Second)
		c.Close() // and nothing is left running, or the bubble would say so
		start := time.Now()
		if _, err := c.GetToken(t.Context(), azure.StorageScope); err == nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) Do(r *http.Request) (*http.Response, error) { return f(r) }

// The requests of a gate never wait for a refresh, however slow it is.
func TestSlowRefreshStopsNoRequest(t *testing.T) {
	source := &identity{}
	bubble(t, source, func(t *testing.T, c *azure.Credential) {
		if err := c.Prefetch(t.Context(), azure.StorageScope); err != nil {
			t.Fatal(err)
		}
		source.set(50*time.Second, nil)
		pipeline := runtime.NewPipeline("test", "v1", runtime.PipelineOptions{
			PerRetry: []policy.Policy{runtime.NewBearerTokenPolicy(c, azure.StorageScope.Scopes, nil)},
		}, &policy.ClientOptions{Retry: azure.Once(), Transport: transport(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
		})})
		for range 3 * 60 * 60 {
			r, err := runtime.NewRequest(t.Context(), http.MethodGet, "https://acc.blob.core.windows.net/")
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if _, err := pipeline.Do(r); err != nil || time.Since(start) != 0 {
				t.Fatalf("%v after %v", err, time.Since(start))
			}
			time.Sleep(time.Second)
		}
		if n := source.times(); n < 3 || n > 5 {
			t.Errorf("asked %d times in 3 hours", n)
		}
	})
}

// What azidentity says, in one line.
func TestIdentityErrors(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"none": {
			"DefaultAzureCredential: failed to acquire a token.\nAttempted credentials:\n" +
				"\tEnvironmentCredential: missing environment variable AZURE_TENANT_ID\n" +
				"\tWorkloadIdentityCredential: no client ID specified. Check pod configuration or set ClientID in the options\n" +
				"\tManagedIdentityCredential: managed identity timed out. See https://aka.ms/azsdk/go/identity/troubleshoot#dac for more information\n" +
				"\tAzureCLICredential: Azure CLI not found on path",
			"tried environment variables: missing environment variable AZURE_TENANT_ID; workload identity: no client ID specified; managed identity: managed identity timed out; " +
				"Azure CLI: Azure CLI not found on path. To fix: assign a managed identity or a workload identity, set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or sign in with az login",
		},
		"refused": {
			"DefaultAzureCredential: failed to acquire a token.\nAttempted credentials:\n" +
				"\tEnvironmentCredential authentication failed. \n\t\tPOST https://login.microsoftonline.com/t/oauth2/v2.0/token\n\t\t----\n" +
				"\t\tRESPONSE 401: 401 Unauthorized\n\t\t----\n\t\t{\n\t\t  \"error\": \"invalid_client\",\n" +
				"\t\t  \"error_description\": \"AADSTS7000215: Invalid client secret provided. Ensure the secret being sent is right. Trace ID: 1\\r\\nTimestamp: 2\",\n\t\t  \"error_codes\": [7]\n\t\t}\n\t\t----\n" +
				"\t\tTo troubleshoot, visit https://aka.ms/azsdk/go/identity/troubleshoot#client-secret",
			"tried environment variables: authentication failed, 401, AADSTS7000215: Invalid client secret provided. " +
				"To fix: check that the identity exists, that AZURE_CLIENT_ID names it, and that its secret or federation is valid",
		},
		"something else": {"dial tcp: lookup login.microsoftonline.com: no such host", "dial tcp: lookup login.microsoftonline.com: no such host"},
		"nothing":        {"", ""},
		"odd":            {"Attempted credentials:\n\t\t\n\n\tX", "tried X: . To fix: "},
	} {
		bubble(t, &identity{err: errors.New(test.text)}, func(t *testing.T, c *azure.Credential) {
			_, err := c.GetToken(t.Context(), azure.StorageScope)
			if err == nil || !strings.HasPrefix(err.Error(), "no token for https://storage.azure.com: "+test.want) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// Of an identity that hangs every caller hears, and by its deadline: also those that come while another one asks.
func TestHangingIdentityIsNamedToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := azure.NewCredential(&identity{takes: time.Hour})
		defer c.Close()
		pipeline := runtime.NewPipeline("", "", runtime.PipelineOptions{
			PerCall:  []policy.Policy{azure.TokenFirst(c, azure.StorageScope)},
			PerRetry: []policy.Policy{runtime.NewBearerTokenPolicy(c, azure.StorageScope.Scopes, nil)},
		}, &policy.ClientOptions{Retry: azure.Once()})

		call := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			r, err := runtime.NewRequest(ctx, http.MethodGet, "https://account/container")
			if err == nil {
				_, err = pipeline.Do(r) //nolint:bodyclose // there is no response
			}
			return err
		}
		var calling sync.WaitGroup
		for n := range 8 {
			calling.Go(func() {
				limit, start := time.Duration(n+1)*300*time.Millisecond, time.Now()
				if err := call(limit); !errors.Is(err, azure.ErrNoToken) || time.Since(start) > limit {
					t.Errorf("after %v of %v: %v", time.Since(start), limit, err)
				}
			})
		}
		calling.Wait()
	})
}
