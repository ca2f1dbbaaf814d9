package eventhubs_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"alertworker/internal/azure"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// An identity has tokens that a claim is renewed 12 s before the end of, and is used no longer 10 s before it.
type identity struct {
	dead   atomic.Bool  // it has none
	silent atomic.Bool  // it does not answer
	calls  atomic.Int64 // for a token, of all who want one
	*azure.Credential
}

func newIdentity(t *testing.T) *identity {
	i := &identity{}
	i.Credential = azure.NewCredential(identitySource{i})
	t.Cleanup(i.Close)
	return i
}

func (i *identity) GetToken(ctx context.Context, r policy.TokenRequestOptions) (azcore.AccessToken, error) {
	i.calls.Add(1)
	return i.Credential.GetToken(ctx, r)
}

type identitySource struct{ *identity }

func (s identitySource) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if s.silent.Load() {
		<-ctx.Done()
		return azcore.AccessToken{}, ctx.Err()
	}
	if s.dead.Load() {
		return azcore.AccessToken{}, errors.New("the client secret has expired")
	}
	return azcore.AccessToken{Token: "t", ExpiresOn: time.Now().Add(24 * time.Second)}, nil
}

// identified returns a hub, and a source that reads it with an identity.
func identified(t *testing.T, i *identity, partitions int) (*devhub.Hub, *eventhubs.Source) {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	t.Cleanup(certified.Close)
	h, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry", Partitions: partitions, TLS: &tls.Config{Certificates: certified.TLS.Certificates}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	s, err := eventhubs.New(eventhubs.Config{Namespace: h.Addr(), Hub: "telemetry", Credential: i, Start: eventhubs.Start{Earliest: true}, Records: &records.Memory{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.TrustTLS(certified.Client().Transport.(*http.Transport).TLSClientConfig)
	return h, s
}

// While the identity has no token its tries are spaced, and the partitions are said to be at risk before they are lost. Reading
// goes on when it has one again.
func TestIdentityOutage(t *testing.T) {
	t.Parallel()
	i := newIdentity(t)
	_, s := identified(t, i, 4)
	_, stop := read(t, s)
	eventually(t, "all to be read", func() bool { return s.Stats().Reading == 4 })
	i.dead.Store(true)
	eventually(t, "all to be at risk", func() bool { return len(s.Stats().AtRisk) == 4 })
	if f := s.Stats(); f.Reading != 4 || !f.AtRisk["0"].Refused || !strings.Contains(f.AtRisk["0"].Err.Error(), "the client secret has expired") {
		t.Errorf("%+v", f)
	}
	before := i.calls.Load()
	time.Sleep(2 * time.Second)
	if calls := i.calls.Load() - before; calls > 20 {
		t.Errorf("%d calls in 2 s: it spins", calls)
	}
	i.dead.Store(false)
	eventually(t, "nothing to be at risk", func() bool { return len(s.Stats().AtRisk) == 0 })
	stop()
	if stats := s.Stats(); stats.Reopened > 0 || stats.Lost > 0 {
		t.Errorf("%+v: want no link to have ended", stats)
	}
}

// While the hub is busy, tries to renew claims are spaced, and a reply that is lost costs nothing.
func TestClaimsOfABusyHub(t *testing.T) {
	t.Parallel()
	i := newIdentity(t)
	h, s := identified(t, i, 4)
	s.SetQueryLimit(500 * time.Millisecond)
	_, stop := read(t, s)
	eventually(t, "all to be read", func() bool { return s.Stats().Reading == 4 })
	h.RefuseClaims(1<<30, 500)
	eventually(t, "all to be at risk", func() bool { return len(s.Stats().AtRisk) == 4 })
	before := i.calls.Load()
	time.Sleep(5 * time.Second)
	if calls := i.calls.Load() - before; calls > 30 {
		t.Errorf("%d claims in 5 s: it hammers a hub that is busy", calls)
	}
	h.DropClaims(1)
	eventually(t, "nothing to be at risk", func() bool { return len(s.Stats().AtRisk) == 0 })
	stop()
	if stats := s.Stats(); stats.Reopened > 0 || stats.Lost > 0 {
		t.Errorf("%+v: want no link to have ended", stats)
	}
}

// A claim whose answer is lost when a connection is opened is made again.
func TestFirstClaimIsLost(t *testing.T) {
	t.Parallel()
	h := newHub(t, 1)
	h.Publish(t, "0", "a")
	s := h.source(t, h.config())
	s.SetQueryLimit(500 * time.Millisecond)
	lose := func(method string) error { // the hub has answered by then
		if method == "Claim" {
			h.DropClaims(1)
		}
		return nil
	}
	h.store.failWith(lose)
	bodies, _ := read(t, s)
	next(t, bodies, "0:a")
	if stats := s.Stats(); stats.Reopened == 0 { // on a busy machine others last too long as well
		t.Errorf("%+v: want an attempt to have failed", stats)
	}
}

// Links that end with their claims are opened again, with others.
func TestClaimsExpire(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	s := h.source(t, h.config())
	bodies, _ := read(t, s)
	for _, body := range []string{"a", "b"} {
		h.Publish(t, "0", body)
		h.Publish(t, "1", body)
		next(t, bodies, "0:"+body, "1:"+body)
		h.ExpireClaims()
	}
}

// An identity that has no token counts as credentials that are refused.
func TestNoTokenIsRefused(t *testing.T) {
	t.Parallel()
	i := newIdentity(t)
	i.dead.Store(true)
	_, s := identified(t, i, 1)
	_, stop := read(t, s)
	defer stop()
	eventually(t, "a failure", func() bool { return s.Stats().Hub.Refused })
}

// A replica ends while its identity has no token, or does not answer, and nothing of it runs on.
func TestEndInAnIdentityOutage(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(i *identity){
		"no token":  func(i *identity) { i.dead.Store(true) },
		"no answer": func(i *identity) { i.silent.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIdentity(t)
			_, s := identified(t, i, 1)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
					_, err := p.Receive(ctx)
					return err
				})
			}()
			eventually(t, "it to be read", func() bool { return s.Stats().Reading == 1 })
			breaks(i)
			time.Sleep(15 * time.Second) // the claim is due
			cancel()
			wait(t, done, "Run to return")
			before := i.calls.Load()
			time.Sleep(2 * time.Second)
			if calls := i.calls.Load() - before; calls > 20 { // the client for questions lasts as long as the source
				t.Errorf("after its end it still asks for tokens, %d times in 2 s", calls)
			}
		})
	}
}
