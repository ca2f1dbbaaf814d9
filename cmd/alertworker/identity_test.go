package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/config"
)

// keyless returns settings that use Azure Storage with the managed identity of an App
// Service, whose own service on this machine is answered by identity, and with a storage
// account that takes its token and has whatever is asked for.
func keyless(t *testing.T, identity http.HandlerFunc) (config.Config, stores) {
	t.Helper()
	msi := httptest.NewServer(identity)
	t.Cleanup(msi.Close)
	account := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t0k3n" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
	}))
	t.Cleanup(account.Close)
	environment(t, valid("STORAGE_CONNECTION_STRING=", "STORAGE_ACCOUNT_URL="+account.URL))
	for name, value := range map[string]string{
		"AZURE_TOKEN_CREDENTIALS": "prod", "AZURE_CLIENT_ID": t.Name() /* tokens are kept per process */, "AZURE_TENANT_ID": "", "AZURE_CLIENT_SECRET": "", "AZURE_FEDERATED_TOKEN_FILE": "",
		"IDENTITY_ENDPOINT": msi.URL, "IDENTITY_HEADER": "x",
	} {
		t.Setenv(name, value)
		if value == "" {
			os.Unsetenv(name)
		}
	}
	c, _, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newStores(c, network{})
	if err != nil {
		t.Fatal(err)
	}
	s.http = account.Client() // which trusts the account
	t.Cleanup(s.Close)
	return c, s
}

func giveToken(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":"t0k3n","expires_on":"%d","resource":"https://storage.azure.com","token_type":"Bearer"}`, time.Now().Add(time.Hour).Unix())
}

// An identity may take longer than a try of a request, and one token is enough for all.
func TestSlowIdentity(t *testing.T) {
	var asked atomic.Int32
	c, s := keyless(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		time.Sleep(1500 * time.Millisecond) // more than a try's second
		giveToken(w)
	})
	if _, err := s.openLeases(t.Context(), c, zap.NewNop()); err != nil {
		t.Errorf("open the throttle store: %v", err)
	}
	if _, err := s.openRecords(t.Context(), c, zap.NewNop()); err != nil {
		t.Errorf("open the checkpoints: %v", err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the identity was asked %d times, want once", n)
	}
}

// An empty AZURE_CLIENT_ID is an unset one.
func TestEmptyClientID(t *testing.T) {
	c, _ := keyless(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("client_id") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		giveToken(w)
	})
	t.Setenv("AZURE_CLIENT_ID", "")
	s, err := newStores(c, network{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.identity.Prefetch(t.Context(), azure.StorageScope); err != nil {
		t.Error(err)
	}
}

// An error says which identities were tried, what became of each, and what to do.
func TestNoIdentity(t *testing.T) {
	c, s := keyless(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_request","error_description":"Identity not found"}`)
	})
	_, err := s.openLeases(t.Context(), c, zap.NewNop())
	if err == nil {
		t.Fatal("no error")
	}
	t.Log(err)
	for _, want := range []string{"no token for https://storage.azure.com: tried ", "environment variables: missing environment variable AZURE_TENANT_ID; ", "workload identity: ", "managed identity: ", "authentication failed, 400, Identity not found", "To fix: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q", want)
		}
	}
	if strings.Contains(err.Error(), "\n") || len(err.Error()) > 600 {
		t.Errorf("the error is long: %d bytes", len(err.Error()))
	}
}

func TestCheckOfIdentity(t *testing.T) {
	keyless(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	hub := hubWith(t)
	t.Setenv("EVENTHUB_CONNECTION_STRING", hub.ConnectionString())
	var out strings.Builder
	if err := check(t.Context(), &out, nil); err == nil {
		t.Error("no error")
	}
	expect(t, out.String(), "identity", "✗", "tried environment variables")
	expect(t, out.String(), "checkpoints", "–", "no token from the Azure identity")
	expect(t, out.String(), "throttle store", "–", "no token from the Azure identity")
	expect(t, out.String(), "dead letters", "–", "no token from the Azure identity")
}
