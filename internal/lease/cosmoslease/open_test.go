package cosmoslease_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"alertworker/internal/lease"
	"alertworker/internal/lease/cosmoslease"
)

func TestOpenCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		acquire(t, f.open(t), time.Minute)
		var got, want any
		_ = json.Unmarshal(f.containers["alertworker/leases"], &got)
		_ = json.Unmarshal([]byte(`{"id":"leases","partitionKey":{"kind":"Hash","paths":["/id"],"version":2},"defaultTtl":-1,
			"indexingPolicy":{"automatic":true,"indexingMode":"Consistent","excludedPaths":[{"path":"/*"}]}}`), &want)
		if g, w := text(got), text(want); g != w {
			t.Errorf("the container is %s, want %s", g, w)
		}

		// What is there already is used.
		f.readOnly = true
		f.open(t)

		// Another replica is faster.
		f = newFake()
		account, err := cosmoslease.WithKey(fakeAccount)
		if err != nil {
			t.Fatal(err)
		}
		clients := 0
		_, err = cosmoslease.Open(t.Context(), cosmoslease.Config{Account: account, Database: "alertworker", Container: "leases", Retention: retention, Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/" {
				clients++
			}
			if r.Method == http.MethodPost && len(f.containers) == 0 {
				f.open(t)
			}
			return f.RoundTrip(r)
		})}})
		if err != nil || clients != 1 {
			t.Errorf("after %d clients: %v", clients, err)
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(*fake)
		advice string
	}{
		{"creating is not allowed", func(f *fake) { f.readOnly = true }, "may not create it"},
		{"another partition key", func(f *fake) {
			f.containers["alertworker/leases"] = []byte(`{"id":"leases","partitionKey":{"kind":"Hash","paths":["/device"]}}`)
		}, "partition key is not /id"},
		{"made by hand, without a time to live", func(f *fake) {
			f.containers["alertworker/leases"] = []byte(`{"id":"leases","partitionKey":{"kind":"Hash","paths":["/id"]}}`)
		}, "time to live is off"},
		{"several write regions", func(f *fake) { f.account = severalWriters }, "several write regions"},
		{"no sessions", func(f *fake) { f.account = `{"userConsistencyPolicy":{"defaultConsistencyLevel":"Eventual"}}` }, "default consistency is Eventual"},
		{"multi-region writes with one region", func(f *fake) { f.account = `{"enableMultipleWriteLocations":true}` }, "several write regions"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				test.change(f)
				start := time.Now()
				_, err := f.tryOpen(t)
				wantConfigError(t, err, test.advice)
				if took := time.Since(start); took > 0 {
					t.Errorf("it took %v to give up what could not succeed", took)
				}
			})
		})
	}

	account, err := cosmoslease.WithKey(fakeAccount)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a/b", `a"b`, "..", "a#", strings.Repeat("x", 256)} {
		_, err := cosmoslease.Open(t.Context(), cosmoslease.Config{Account: account, Database: name, Container: "leases", Retention: retention, Client: &http.Client{Transport: newFake()}})
		wantConfigError(t, err, "is not a valid name")
		_, err = cosmoslease.Open(t.Context(), cosmoslease.Config{Account: account, Database: "alertworker", Container: name, Retention: retention, Client: &http.Client{Transport: newFake()}})
		wantConfigError(t, err, "is not a valid name")
	}
}

// Write regions that are added later stop the store within minutes, and it goes
// on when they are gone.
func TestWriteRegionsAddedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.open(t)
		acquire(t, s, time.Minute)
		change := func(account string) {
			f.mu.Lock()
			f.account = account
			f.mu.Unlock()
			time.Sleep(10 * time.Minute)
			_ = acquireKey(t.Context(), s, lease.Lease{}) // makes the client ask
			synctest.Wait()
		}
		change(severalWriters)
		wantConfigError(t, acquireKey(t.Context(), s, lease.Lease{}), "several write regions")
		change(singleWriter)
		if err := acquireKey(t.Context(), s, lease.Lease{}); err != nil && !errors.Is(err, lease.ErrHeld) {
			t.Error(err)
		}
	})
}

// bad answers the first requests with status, 0 for not at all; if times is
// negative it never stops.
func bad(status, times int) http.RoundTripper {
	f := newFake()
	return transport(func(r *http.Request) (*http.Response, error) {
		if times == 0 {
			return f.RoundTrip(r)
		}
		times--
		if status == 0 {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		answer := httptest.NewRecorder()
		answer.WriteHeader(status)
		_, _ = io.WriteString(answer, `{"message":"`+r.Header.Get("Authorization")+`"}`)
		resp := answer.Result()
		resp.Request = r
		return resp, nil
	})
}

func TestOpenTriesAgain(t *testing.T) {
	open := func(t *testing.T, via http.RoundTripper) error {
		account, err := cosmoslease.WithKey(fakeAccount)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = cosmoslease.Open(ctx, cosmoslease.Config{Account: account, Database: "alertworker", Container: "leases", Retention: retention, Client: &http.Client{Transport: via}})
		return err
	}
	for _, status := range []int{0, 429, 500, 503} {
		synctest.Test(t, func(t *testing.T) {
			times := 4
			if status == 0 {
				times = 3 // the fourth try would have the most time that one gets
			}
			if err := open(t, bad(status, times)); err != nil {
				t.Errorf("after %d times %d: %v", times, status, err)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			err := open(t, bad(status, -1))
			if err == nil {
				t.Errorf("after %d for ever: no error", status)
			}
			if took := time.Since(start); took > 18*time.Second {
				t.Errorf("after %d for ever: it took %v", status, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		for status, advice := range map[int]string{401: "check the account's", 403: "Data Contributor"} {
			start := time.Now()
			err := open(t, bad(status, -1))
			if err == nil || !strings.Contains(err.Error(), advice) {
				t.Errorf("%d: %v, want an error that says what to do", status, err)
			}
			if took := time.Since(start); took > 0 {
				t.Errorf("%d: it took %v to give up what could not succeed", status, took)
			}
			for _, secret := range []string{fakeKey, "sig", "type%3Dmaster"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%d: the error tells %q: %v", status, secret, err)
				}
			}
		}
	})
}

type credential string

func (c credential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(c), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestWithCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		account, err := cosmoslease.WithCredential(fakeEndpoint, credential("a token"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := cosmoslease.Open(t.Context(), cosmoslease.Config{Account: account, Database: "alertworker", Container: "leases", Retention: retention, Client: &http.Client{Transport: f}})
		if err != nil {
			t.Fatal(err)
		}
		acquire(t, s, time.Minute)
		for _, auth := range f.auth {
			if auth != "type=aad&ver=1.0&sig=a token" {
				t.Errorf("a request was authorised by %q", auth)
			}
		}
	})
	for _, endpoint := range []string{"", "fake.documents.azure.com", "http://fake.documents.azure.com/", "https://", fakeAccount, "https://a.example/path", "https://u:p@a.example/"} {
		if _, err := cosmoslease.WithCredential(endpoint, credential("")); err == nil {
			t.Errorf("the endpoint %q is taken", endpoint)
		}
	}
}

func TestWithKey(t *testing.T) {
	for _, good := range []string{
		fakeAccount,
		"AccountEndpoint=https://localhost:8081/;AccountKey=" + fakeKey,
		" accountkey=" + fakeKey + "; AccountEndpoint=https://a.documents.azure.com:443/ ;DisableServerCertificateValidation=True;",
	} {
		if _, err := cosmoslease.WithKey(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", ";", fakeKey, fakeEndpoint,
		"AccountEndpoint=" + fakeEndpoint,
		"AccountKey=" + fakeKey,
		"AccountEndpoint=" + fakeEndpoint + ";AccountKey=",
		"AccountEndpoint=" + fakeEndpoint + ";AccountKey=" + fakeKey[1:],
		"AccountEndpoint=" + fakeKey + ";AccountKey=" + fakeKey,
		"AccountEndpoint=%" + fakeKey + ";AccountKey=" + fakeKey,
	} {
		_, err := cosmoslease.WithKey(bad)
		if err == nil {
			t.Errorf("%q is taken", bad)
		} else if strings.Contains(err.Error(), fakeKey[1:20]) {
			t.Errorf("the error tells the key: %v", err)
		}
	}
}

func FuzzWithKey(f *testing.F) {
	f.Add(fakeEndpoint, fakeKey)
	f.Add("https://[::1]:8081", "")
	f.Fuzz(func(t *testing.T, endpoint, key string) {
		_, err := cosmoslease.WithKey("AccountEndpoint=" + endpoint + ";AccountKey=" + key)
		if err != nil && len(key) > 8 && !strings.Contains(endpoint, key) && strings.Contains(err.Error(), key) {
			t.Errorf("the error tells the key: %v", err)
		}
	})
}
