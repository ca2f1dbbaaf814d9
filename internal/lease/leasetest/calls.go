package leasetest

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// Costs are how many requests each way through a gate takes.
type Costs struct{ Throttled, Sent, Failed, First int64 }

// Calls checks what a store's calls cost on the wire.
func Calls(t *testing.T, h Harness, want Costs) {
	t.Helper()
	s := newSuite(t, h)
	wire := &Counter{Next: s.Transport}
	store := s.storeVia(t, wire)

	var got Costs
	count := func(requests *int64, way func()) {
		wire.N.Store(0)
		way()
		*requests = wire.N.Load()
	}
	l := acquire(t, store, "key", "claim", long) // what comes once in a store's life is over
	release(t, store, l, "")
	count(&got.First, func() { l = extend(t, store, acquire(t, store, "new", "claim", long), "window", long) })
	count(&got.Throttled, func() { refused(t, store, "new") })
	count(&got.Sent, func() { extend(t, store, acquire(t, store, "key", "claim", long), "window", long) })
	release(t, store, l, "")
	count(&got.Failed, func() { release(t, store, acquire(t, store, "new", "claim", long), "") })
	if got != want {
		t.Errorf("requests %+v, want %+v", got, want)
	}
}

// A Counter counts the requests that it lets through.
type Counter struct {
	Next http.RoundTripper
	N    atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *Counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.N.Add(1)
	return c.Next.RoundTrip(r)
}
