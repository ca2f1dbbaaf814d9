// Package status says whether alerts are going out of a replica and, if not, what is
// blocking them. A [Monitor] watches what the replica depends on; its [Report] is what the status
// page, /readyz, GET /status, the log, the heartbeat and the metrics show.
//
// A dependency counts as working only on evidence: a store, if it has accepted a write since it last refused one, a
// receiver, if it has accepted a notice. A store whose calls fail more often than they succeed for some seconds
// cannot be used; it works again once nothing has failed for some seconds, so that one that fails
// every other time is not well at every other look. What the replica calls anyway shows that: a
// [Dependency] gets the result of every call and of each try that was repeated, since nearly all calls
// of a store that answers one request in three succeed in the end. Only the throttle store may have no writes for long,
// because nothing is written to it while no device is hot. The Monitor then writes a record of its own.
package status

import (
	"context"
	"errors"
	"sync"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/observe"
	"alertworker/internal/telemetry"
)

const (
	settle = 5 * time.Second  // from the first failure to one that counts: a call that fails is retried
	calm   = 15 * time.Second // after the last failure of a service, until it counts as well
)

// A Kind of call. That calls of one kind succeed says nothing about the others: a leader whose lease is renewed
// knows of no new claim, which has to read before it writes.
type Kind int

const (
	Write Kind = iota // a record, or the grant of a lease
	Renew             // of a lease that is held
	Read
	kinds
)

// A Dependency is a service that the replica calls. New has it show errors as they are, and take none for a refusal.
// It is safe for concurrent use.
type Dependency struct {
	// Explain returns an error with what to do about it, and no secret. Set it before the first call.
	Explain func(error) error
	// Refused reports whether an error means that the credentials were refused.
	Refused func(error) bool

	mu      sync.Mutex
	outages [kinds]outage
	wrote   time.Time // when the last write ended, however it did
}

// An outage is the calls of a kind since the first one that failed. It ends when none has failed for long, and before
// it counts, when as many have succeeded.
type outage struct {
	err       error     // the last one's
	since     time.Time // the first one
	last      time.Time // the last one
	failures  int
	successes int
	counts    bool // the service cannot be used: over some seconds, more calls failed than succeeded
	answers   bool // a call has succeeded since the last one that failed
}

// over reports whether o has ended.
func (o *outage) over(now time.Time) bool {
	calmed := o.answers && now.Sub(o.last) >= calm
	return calmed || !o.counts && o.successes >= o.failures
}

// Called records the result of a call: nil if it succeeded. A call that was cancelled says nothing.
func (d *Dependency) Called(kind Kind, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if kind == Write {
		d.wrote = now
	}

	o := &d.outages[kind]
	if o.over(now) {
		*o = outage{}
	}

	o.answers = err == nil
	if err == nil {
		o.successes++
		return
	}

	if o.failures == 0 {
		o.since = now
	}

	o.err, o.last = err, now
	o.failures++
	o.counts = o.counts || o.failures > o.successes && o.last.Sub(o.since) >= settle
}

// Tries returns ctx for a call of this kind, whose result is then told to [Dependency.Called]. A try that fails and is
// repeated counts at once: the call may take long.
func (d *Dependency) Tries(ctx context.Context, kind Kind) context.Context {
	return lease.OnFailedTry(ctx, func(err error) { d.Called(kind, err) })
}

// Store is a [observe.Observer] that records the calls of a store. A lease that was granted shows that all works.
// To release one that is not current is no write.
func (d *Dependency) Store(ctx context.Context, op observe.Operation) (context.Context, func(observe.Call)) {
	return d.Tries(ctx, needs[op]), func(c observe.Call) {
		if c.Outcome == observe.OutcomeError {
			d.Called(needs[op], c.Err)
			return
		}

		shown := Read
		if c.Outcome == observe.OutcomeOK {
			shown = shows[op]
		}

		d.Called(shown, nil)
		if shown == Write {
			d.Called(Renew, nil)
			d.Called(Read, nil)
		}
	}
}

// needs is what a store has to do for an operation, and shows what it can do if that succeeds.
var (
	needs = map[observe.Operation]Kind{
		observe.OpAcquire: Write, observe.OpExtend: Renew, observe.OpRelease: Renew, observe.OpRead: Read,
	}
	shows = map[observe.Operation]Kind{
		observe.OpAcquire: Write, observe.OpExtend: Renew, observe.OpRelease: Read, observe.OpRead: Read,
	}
)

// fault returns why the service cannot be used, and whether it has answered since; its error is nil if it can be.
func (d *Dependency) fault(now time.Time) (f telemetry.Fault, answers bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.outages {
		o := &d.outages[i]
		if o.counts && !o.over(now) && (f.Err == nil || answers) { // calls that have not been answered since say more
			f, answers = d.explained(o.since, o.err), o.answers
		}
	}

	return f, answers
}

// explained returns err, with which calls of the service have failed since then, as a fault.
func (d *Dependency) explained(since time.Time, err error) telemetry.Fault {
	return telemetry.Fault{Since: since, Err: d.Explain(err), Refused: d.Refused(err)}
}

// idle returns for how long nothing was written, and whether calls fail.
func (d *Dependency) idle(now time.Time) (idle time.Duration, failing bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.outages {
		failing = failing || !o.over(now)
	}

	return now.Sub(d.wrote), failing
}

// probeTTL is how long a probe holds its key if it cannot free it: every store takes it.
const probeTTL = 15 * time.Second

// Try writes to s what a claim writes: it takes key, which only probes use, and frees it. Its error is a
// *lease.HeldError if another replica is trying too.
func Try(ctx context.Context, s lease.Store, key string) error {
	l, err := s.Acquire(ctx, key, probeTTL, func(lease.Record) (string, error) { return "", nil })
	if err != nil {
		return err
	}

	_ = s.Release(ctx, l, "") // else it frees by itself

	return nil
}

// ProbeKey returns the key that the replicas of a scope use for [Try].
func ProbeKey(scope string) string { return "~probe/" + scope }
