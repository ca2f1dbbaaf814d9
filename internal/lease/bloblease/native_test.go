package bloblease_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/leasetest"
)

func state(t *testing.T, c *container.Client, key string) azlease.StateType {
	t.Helper()
	resp, err := c.NewBlobClient(bloblease.Name(key)).GetProperties(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return *resp.LeaseState
}

// A ttl that no native lease can have is refused before anything is sent, with
// the stores that take it.
func TestTTLOutOfRange(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	c := &leasetest.Counter{Next: azurite.Transport()}
	s, err := bloblease.OpenNative(t.Context(), azurite.Container(t, azurite.NewContainer(), c), nil)
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

// The native lease shows outsiders that a key is claimed, and not for longer: a
// late duplicate of the acquisition takes nothing.
func TestNativeLeaseFollowsTheClaim(t *testing.T) {
	t.Parallel()
	busytest.Run(t, nativeLeaseFollows)
}

func nativeLeaseFollows(a *busytest.Attempt) {
	t := a.T
	azurite := emulators.StartAzurite(t)
	c := azurite.Container(t, azurite.NewContainer(), nil)
	tap := &tape{next: azurite.Transport()}
	s, err := bloblease.OpenNative(t.Context(), azurite.Container(t, c.URL()[strings.LastIndex(c.URL(), "/")+1:], tap), nil)
	if err != nil {
		t.Fatal(err)
	}
	is := func(after string, want azlease.StateType) {
		t.Helper()
		if got := state(t, c, "key"); got != want {
			t.Errorf("after %s the blob is %s, want %s", after, got, want)
		}
	}
	l, err := s.Acquire(t.Context(), "key", bloblease.MinTTL, note)
	if err != nil {
		t.Fatal(err)
	}
	is("Acquire", azlease.StateTypeLeased)
	for range 2 {
		if l, err = s.Extend(t.Context(), l, "", bloblease.MaxTTL); err != nil {
			t.Fatal(err)
		}
		is("Extend", azlease.StateTypeAvailable)
		tap.play(t)
		is("a late duplicate of the acquisition", azlease.StateTypeAvailable)
	}
	if err := s.Release(t.Context(), l, ""); err != nil {
		t.Fatal(err)
	}
	tap.play(t)
	is("Release", azlease.StateTypeAvailable)
}

// A service that ends native leases a minute late, as the real one may, makes no window
// longer: the lock is given back when the window is recorded.
func TestLateServiceDoesNotLengthenAWindow(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	name := azurite.NewContainer()
	s, err := bloblease.OpenNative(t.Context(), azurite.SharedContainer(t, name, late{azurite.Transport()},
		sas.AccountPermissions{Read: true, Write: true, Create: true}), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(t.Context(), "key", bloblease.MinTTL, note)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = s.Extend(t.Context(), l, "window", time.Second); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(l.Frees))
	if _, err := s.Acquire(t.Context(), "key", bloblease.MinTTL, note); err != nil {
		t.Errorf("when the window is over: %v", err)
	}
}

// A native lease is given back although the context of the call has ended.
func TestUnlocksWhenItsContextHasEnded(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	name := azurite.NewContainer()
	c := azurite.Container(t, name, nil)
	for _, call := range []string{"Acquire", "Extend", "Release"} {
		ctx, cancel := context.WithCancel(t.Context())
		during := "" // which write of the record ends the context
		s, err := bloblease.OpenNative(t.Context(), azurite.Container(t, name, ending{azurite.Transport(), func(req *http.Request) {
			if req.URL.Query().Get("comp") == "metadata" && during == call {
				cancel()
			}
		}}), nil)
		if err != nil {
			t.Fatal(err)
		}
		if call == "Acquire" {
			during = call
		}
		l, err := s.Acquire(ctx, call, bloblease.MaxTTL, note)
		during = call
		switch call {
		case "Acquire":
			if err == nil {
				t.Error("Acquire succeeds although its context has ended")
			}
		case "Extend":
			_, _ = s.Extend(ctx, l, "window", bloblease.MaxTTL)
		case "Release":
			_ = s.Release(ctx, l, "")
		}
		if got := state(t, c, call); got != azlease.StateTypeAvailable {
			t.Errorf("after %s, whose context ended during the write, the blob is %s", call, got)
		}
		cancel()
	}
}

// late is a service that ends a native lease of 15 s after a minute.
type late struct{ next http.RoundTripper }

func (l late) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for header := range req.Header { // the SDK does not write it canonically
		if strings.EqualFold(header, "x-ms-lease-duration") {
			req.Header[header] = []string{"60"}
		}
	}
	return l.next.RoundTrip(req)
}

// ending is a network that carries a request out, and then the context ends.
type ending struct {
	next http.RoundTripper
	then func(*http.Request)
}

func (e ending) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.next.RoundTrip(req)
	e.then(req)
	return resp, err
}

// What is left of a window is often less than a native lease can last: the
// record has it as it is.
func TestExtendRecordsAnyShorterTTL(t *testing.T) {
	t.Parallel()
	busytest.Run(t, extendRecordsAnyShorterTTL)
}

func extendRecordsAnyShorterTTL(a *busytest.Attempt) {
	t := a.T
	azurite := emulators.StartAzurite(t)
	s, err := bloblease.OpenNative(t.Context(), azurite.Container(t, azurite.NewContainer(), nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(t.Context(), "key", bloblease.MaxTTL, note)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err = s.Extend(t.Context(), l, "short", 14999*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	_, err = s.Acquire(t.Context(), "key", bloblease.MinTTL, note)
	if took := time.Since(start); took > 14999*time.Millisecond {
		a.Missed("extending and asking took %v, longer than what was recorded", took)
	}
	if held := (*lease.HeldError)(nil); !errors.As(err, &held) || held.Record.Note != "short" || held.Record.Hold < 14999*time.Millisecond || held.Record.Hold > 15*time.Second {
		t.Errorf("refused with %v, want the note and the ttl of Extend", err)
	}
}

// A failed Acquire leaves no native lease behind: not if next refuses, not if the
// record cannot be written.
func TestFailedAcquireUnlocks(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	name := azurite.NewContainer()
	c := azurite.Container(t, name, nil)
	s, err := bloblease.OpenNative(t.Context(), azurite.Container(t, name, answering{azurite.Transport(), http.StatusForbidden, "AuthorizationFailure", func(req *http.Request) bool {
		return req.URL.Query().Get("comp") == "metadata"
	}}), nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, c, bloblease.Name("key"), "", bloblease.Empty("key"))
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
	azurite := emulators.StartAzurite(t)
	lagging := answering{azurite.Transport(), http.StatusConflict, "LeaseAlreadyPresent", locks}
	s, err := bloblease.OpenNative(t.Context(), azurite.Container(t, azurite.NewContainer(), lagging), nil)
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
	if len(p.kept) != 1 {
		t.Fatalf("%d native leases were acquired, want one", len(p.kept))
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
