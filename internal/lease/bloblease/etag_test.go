package bloblease_test

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"net/http"
	"regexp"
	"testing"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/lease"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/leasetest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "32") // the tests wait, they do not compute
	goleak.VerifyTestMain(m)
}

// harness is the store on azurite.
func harness(azurite *emulators.Azurite) leasetest.Harness {
	return leasetest.Harness{
		New: func(t testing.TB) leasetest.Backend {
			name := azurite.NewContainer()
			return leasetest.Backend{
				Open: func(via http.RoundTripper) (lease.Store, error) {
					return bloblease.OpenETag(t.Context(), azurite.Container(t, name, via), nil)
				},
				Delete: func(ctx context.Context, key string) error {
					_, err := azurite.Container(t, name, nil).NewBlobClient(bloblease.Name(key)).Delete(ctx, nil)
					return err
				},
				Transport: azurite.Transport(),
			}
		},
		MinTTL: time.Second,
		Lag:    3 * time.Second,
		Skew:   leasetest.ServiceClock,
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, harness(emulators.StartAzurite(t)))
}

// What a gate's every way costs, in requests.
func TestCalls(t *testing.T) {
	t.Parallel()
	checkCalls(t, harness(emulators.StartAzurite(t)), costs{throttled: 1, sent: 3, failed: 3, first: 3})
}

// costs are how many requests each way through a gate takes.
type costs struct{ throttled, sent, failed, first int64 }

// checkCalls checks what a store's calls cost on the wire.
func checkCalls(t *testing.T, h leasetest.Harness, want costs) {
	t.Helper()
	backend := h.New(t)
	wire := &leasetest.Counter{Next: backend.Transport}
	store, err := backend.Open(wire)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(key string) (l lease.Lease) {
		l, err = store.Acquire(t.Context(), key, time.Minute, func(lease.Record) (string, error) { return "claim", nil })
		return l
	}
	count := func(into *int64, way func()) {
		wire.N.Store(0)
		if way(); err != nil && !errors.Is(err, lease.ErrHeld) {
			t.Fatal(err)
		}
		*into = wire.N.Load()
	}
	send := func(key string) { _, err = store.Extend(t.Context(), claim(key), "window", time.Minute) }
	fail := func(key string) { err = store.Release(t.Context(), claim(key), "") }
	var got costs
	var warm int64
	count(&warm, func() { fail("key") }) // what comes once in a store's life is over
	count(&got.first, func() { send("new") })
	count(&got.throttled, func() { claim("new") })
	count(&got.failed, func() { fail("key") })
	count(&got.sent, func() { send("key") })
	if got != want {
		t.Errorf("requests %+v, want %+v", got, want)
	}
}

// A way to break a store on the wire.
type changed struct {
	next     http.RoundTripper
	request  func(*http.Request)
	response func(*http.Response)
}

func (c changed) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.request != nil {
		req = req.Clone(req.Context())
		c.request(req)
	}
	resp, err := c.next.RoundTrip(req)
	if err == nil && c.response != nil {
		c.response(resp)
	}
	return resp, err
}

// The suite sees the mistakes that only a store with a network can make. On virtual time it always asks in time.
func TestMutants(t *testing.T) {
	mutants := []struct {
		name, check string
		change      changed
	}{
		{"the local clock decides", "LocalClock", changed{response: func(r *http.Response) {
			r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
		}}},
		{"a hold ends too early", "Expiry", changed{response: func(r *http.Response) {
			if at, err := http.ParseTime(r.Header.Get("Last-Modified")); err == nil {
				r.Header.Set("Last-Modified", at.Add(-2*time.Second).Format(http.TimeFormat))
			}
		}}},
		{"a hold ends too early for machines that are not quite of one time", "SkewedService", changed{response: func(r *http.Response) {
			if at, err := http.ParseTime(r.Header.Get("Last-Modified")); err == nil {
				r.Header.Set("Last-Modified", at.Add(-time.Second).Format(http.TimeFormat))
			}
		}}},
		{"ETags do not guard", "OneWinner", changed{request: func(r *http.Request) { r.Header.Del("If-Match") }}},
		{"ETags do not guard", "LateDuplicates", changed{request: func(r *http.Request) { r.Header.Del("If-Match") }}},
		{"the first write does not guard", "OneWinner", changed{request: func(r *http.Request) { r.Header.Del("If-None-Match") }}},
		{"a lost answer is not recognised", "Faults", changed{response: func(r *http.Response) {
			if record, err := base64.StdEncoding.DecodeString(r.Header.Get("X-Ms-Meta-Record")); err == nil {
				another := regexp.MustCompile(`"leaseId":"[^"]+"`).ReplaceAll(record, []byte(`"leaseId":"somebody"`))
				r.Header.Set("X-Ms-Meta-Record", base64.StdEncoding.EncodeToString(another))
			}
		}}},
	}
	for _, m := range mutants {
		t.Run(m.name+", "+m.check, func(t *testing.T) {
			leasetest.MustFail(t, bubble(func(via http.RoundTripper) http.RoundTripper {
				return changed{via, m.change.request, m.change.response}
			}), m.check)
		})
	}
}
