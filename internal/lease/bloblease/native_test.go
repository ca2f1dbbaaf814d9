package bloblease_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/blobrecord"
	"alertworker/internal/lease/leasetest"
	"alertworker/internal/standin"
)

func note(lease.Record) (string, error) { return "", nil }

func state(t *testing.T, c *container.Client, key string) azlease.StateType {
	t.Helper()
	resp, err := c.NewBlobClient(blobrecord.Name(key)).GetProperties(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return *resp.LeaseState
}

// A ttl that no native lease can have is refused before anything is sent, with
// the stores that take it.
func TestTTLOutOfRange(t *testing.T) {
	t.Parallel()
	azurite := standin.StartAzurite(t)
	c := &leasetest.Counter{Next: azurite.Transport()}
	s, err := bloblease.Open(t.Context(), azurite.Container(t, azurite.NewContainer(), c))
	if err != nil {
		t.Fatal(err)
	}
	c.N.Store(0)
	for _, ttl := range []time.Duration{0, time.Second, 15*time.Second - 1, time.Minute + 1, time.Hour} {
		_, acquire := s.Acquire(t.Context(), "key", ttl, note)
		var extend error
		if ttl > bloblease.MaxTTL {
			_, extend = s.Extend(t.Context(), lease.Lease{Key: "key"}, "", ttl)
		}
		refusals := []error{bloblease.CheckTTL(ttl), acquire}
		if ttl > bloblease.MaxTTL {
			refusals = append(refusals, extend)
		}
		for _, err := range refusals {
			if err == nil || !strings.Contains(err.Error(), `"blob"`) || !strings.Contains(err.Error(), `"cosmos"`) {
				t.Errorf("%v: %v, want an error that names the other stores", ttl, err)
			}
		}
	}
	for _, ttl := range []time.Duration{15 * time.Second, 15*time.Second + 1, time.Minute} {
		if err := bloblease.CheckTTL(ttl); err != nil {
			t.Errorf("%v: %v", ttl, err)
		}
	}
	if n := c.N.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// The native lease shows outsiders that a key is taken, as long as it is: a late
// duplicate of the acquisition does not cut short what Extend made longer.
func TestNativeLeaseFollows(t *testing.T) {
	t.Parallel()
	azurite := standin.StartAzurite(t)
	c := azurite.Container(t, azurite.NewContainer(), nil)
	tap := &tape{next: azurite.Transport()}
	s, err := bloblease.Open(t.Context(), azurite.Container(t, c.URL()[strings.LastIndex(c.URL(), "/")+1:], tap))
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(t.Context(), "key", bloblease.MinTTL, note)
	if err != nil {
		t.Fatal(err)
	}
	if got := state(t, c, "key"); got != azlease.StateTypeLeased {
		t.Errorf("after Acquire the blob is %s", got)
	}
	if l, err = s.Extend(t.Context(), l, "", bloblease.MaxTTL); err != nil {
		t.Fatal(err)
	}
	tap.play(t)
	time.Sleep(bloblease.MinTTL + 2*time.Second)
	if got := state(t, c, "key"); got != azlease.StateTypeLeased {
		t.Errorf("%v after Extend to %v the blob is %s", bloblease.MinTTL, bloblease.MaxTTL, got)
	}
	if err := s.Release(t.Context(), l, ""); err != nil {
		t.Fatal(err)
	}
	if got := state(t, c, "key"); got != azlease.StateTypeAvailable {
		t.Errorf("after Release the blob is %s", got)
	}
}

// What is left of a window is often less than a native lease can last: the
// record has it as it is.
func TestExtendRecordsAnyShorterTTL(t *testing.T) {
	t.Parallel()
	azurite := standin.StartAzurite(t)
	s, err := bloblease.Open(t.Context(), azurite.Container(t, azurite.NewContainer(), nil))
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(t.Context(), "key", bloblease.MaxTTL, note)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Extend(t.Context(), l, "short", 14999*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	_, err = s.Acquire(t.Context(), "key", bloblease.MinTTL, note)
	if held := (*lease.HeldError)(nil); !errors.As(err, &held) || held.Record.Note != "short" || held.Record.Hold < 14999*time.Millisecond || held.Record.Hold > 15*time.Second {
		t.Errorf("refused with %v, want the note and the ttl of Extend", err)
	}
}

// A failed Acquire leaves no native lease behind: not if next refuses, not if the
// record cannot be written.
func TestFailedAcquireUnlocks(t *testing.T) {
	t.Parallel()
	azurite := standin.StartAzurite(t)
	name := azurite.NewContainer()
	c := azurite.Container(t, name, nil)
	s, err := bloblease.Open(t.Context(), azurite.Container(t, name, answering{azurite.Transport(), http.StatusForbidden, "AuthorizationFailure", func(req *http.Request) bool {
		return req.URL.Query().Get("comp") == "metadata"
	}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.NewBlockBlobClient(blobrecord.Name("key")).UploadBuffer(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	if _, err := s.Acquire(t.Context(), "key", bloblease.MinTTL, func(lease.Record) (string, error) { return "", no }); err != no {
		t.Fatal(err)
	}
	if got := state(t, c, "key"); got != azlease.StateTypeAvailable {
		t.Errorf("after next's refusal the blob is %s", got)
	}
	if _, err := s.Acquire(t.Context(), "key", bloblease.MinTTL, note); err == nil {
		t.Fatal("Acquire returned nil, and could not write")
	}
	if got := state(t, c, "key"); got != azlease.StateTypeAvailable {
		t.Errorf("after a write that failed the blob is %s", got)
	}
}

// The real service may go on refusing for a minute after a native lease expired. The
// refused then do not know how long.
func TestNativeLeaseLags(t *testing.T) {
	t.Parallel()
	azurite := standin.StartAzurite(t)
	lagging := answering{azurite.Transport(), http.StatusConflict, "LeaseAlreadyPresent", locks}
	s, err := bloblease.Open(t.Context(), azurite.Container(t, azurite.NewContainer(), lagging))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Acquire(t.Context(), "key", bloblease.MinTTL, note)
	var held *lease.HeldError
	if !errors.As(err, &held) || !held.Until.IsZero() {
		t.Errorf("Acquire during the lag: %v, want a HeldError without Until", err)
	}
}

// locks says that req acquires a native lease.
func locks(req *http.Request) bool {
	for name, value := range req.Header { // the SDK does not write it canonically
		if strings.EqualFold(name, "x-ms-lease-action") {
			return value[0] == "acquire"
		}
	}
	return false
}

// answering is a service that answers some requests with an error.
type answering struct {
	next   http.RoundTripper
	status int
	code   string
	to     func(*http.Request) bool
}

func (a answering) RoundTrip(req *http.Request) (*http.Response, error) {
	if !a.to(req) {
		return a.next.RoundTrip(req)
	}
	return &http.Response{
		StatusCode: a.status, Status: http.StatusText(a.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"X-Ms-Error-Code": {a.code}, "Date": {time.Now().UTC().Format(http.TimeFormat)}},
		Body:    http.NoBody,
		Request: req,
	}, nil
}

// A tape keeps the acquisitions of native leases, to play them again.
type tape struct {
	next http.RoundTripper
	mu   sync.Mutex
	kept []*http.Request
}

func (p *tape) RoundTrip(req *http.Request) (*http.Response, error) {
	if locks(req) {
		p.mu.Lock()
		p.kept = append(p.kept, req)
		p.mu.Unlock()
	}
	return p.next.RoundTrip(req)
}

func (p *tape) play(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) < 2 {
		t.Fatalf("%d native leases were acquired, want one for Acquire and one for Extend", len(p.kept))
	}
	resp, err := p.next.RoundTrip(p.kept[0].Clone(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("the service took a late duplicate: %s", resp.Status)
	}
}
