// Package status says whether alerts are going out a replica and, if not, what is in the
// way. A [Monitor] watches what the replica depends on; its [Report] is what the status
// page, /readyz, GET /status, the log and the metrics show.
//
// What the replica calls anyway shows how its services are: a [Dependency] gets the
// result of every call. Only the throttle store may have no calls for long, because nothing
// asks it while no device is hot. The Monitor then reads one record every ten seconds.
package status

import (
	"context"
	"errors"
	"sync"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/telemetry"
)

// settle is how long a failure lasts before it counts: one call that fails is retried.
const settle = 5 * time.Second

// A Dependency is a service that the replica calls. The zero Dependency has not been called.
// It is safe for concurrent use.
type Dependency struct {
	// Explain returns an error with what to do about it, and no secret; nil: it is shown as it
	// is. Set it before the first call.
	Explain func(error) error
	// Refused reports whether an error means that the credentials were refused; nil: none does.
	Refused func(error) bool

	mu       sync.Mutex
	err      error     // the last call's, unless it was answered
	since    time.Time // the first failure in a row
	failures int       // in a row
	called   time.Time // when the last call ended
}

// Called records the result of a call: nil if the service answered. A call that was
// cancelled says nothing.
func (d *Dependency) Called(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.called = time.Now()
	if err == nil {
		d.err, d.since, d.failures = nil, time.Time{}, 0
		return
	}
	if d.failures == 0 {
		d.since = d.called
	}
	d.err = err
	d.failures++
}

// Store is a [lease.Observer] that records the calls of a store.
func (d *Dependency) Store(ctx context.Context, _ lease.Operation) (context.Context, func(lease.Call)) {
	return ctx, func(c lease.Call) {
		if c.Outcome != lease.OutcomeError {
			c.Err = nil
		}
		d.Called(c.Err)
	}
}

// fault returns why the service cannot be used; its error is nil if it can be. Two calls in
// a row must have failed, over some seconds.
func (d *Dependency) fault(now time.Time) telemetry.Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failures < 2 || now.Sub(d.since) < settle {
		return telemetry.Fault{}
	}
	return d.explained(d.since, d.err)
}

// explained returns err, with which calls of the service have failed since then, as a fault.
func (d *Dependency) explained(since time.Time, err error) telemetry.Fault {
	f := telemetry.Fault{Since: since, Err: err, Refused: d.Refused != nil && d.Refused(err)}
	if d.Explain != nil {
		f.Err = d.Explain(err)
	}
	return f
}

// idle returns for how long there was no call, and whether the last one failed.
func (d *Dependency) idle() (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.called), d.failures > 0
}
